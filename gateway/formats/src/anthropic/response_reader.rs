//! Anthropic's Messages: reads a provider's response. Members that are not known are no part of the answer.

use crate::answer::{About, Answer, Finish, Usage, bare_id};
use crate::conversation::{Part, ToolCall};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};

/// The prefix of an id.
pub(super) const ID_PREFIX: &str = "msg_";

/// Reads a response.
pub(crate) fn read_response(document: Field) -> Result<Answer, ResponseError> {
    let mut fields = document.object()?;
    let about = about(&mut fields)?;
    let mut parts = Vec::new();
    for block in fields.require("content")?.list()? {
        parts.push(read_block(block.object()?)?);
    }
    let reason = fields.require("stop_reason")?;
    let finish = finish(&reason, fields.text("stop_sequence")?)?;
    let mut used = UsageFields::default();
    if let Some(usage) = fields.object("usage")? {
        used.add(usage)?;
    }
    Ok(Answer { about, parts, finish, usage: used.usage() })
}

/// Reads what identifies an answer.
pub(super) fn about(fields: &mut Fields) -> Result<About, ResponseError> {
    let id = fields.answer_id("id")?;
    let model = fields.answer_model("model")?;
    Ok(About { id: bare_id(&id, ID_PREFIX), model, created: None })
}

fn read_block(mut block: Fields) -> Result<Part, ResponseError> {
    let kind = block.require("type")?;
    Ok(match kind.value().as_text() {
        Some("text") => Part::Text(block.require("text")?.text()?),
        Some("thinking") => Part::Reasoning {
            text: block.text("thinking")?.unwrap_or_default(),
            signature: block.text("signature")?.filter(|signature| !signature.is_empty()),
        },
        Some("redacted_thinking") => Part::RedactedReasoning(block.require("data")?.text()?),
        Some("tool_use") => Part::ToolCall(ToolCall {
            id: block.require("id")?.text()?,
            name: block.require("name")?.text()?,
            arguments: block.require("input")?.json().to_text(),
        }),
        _ => return Err(kind.unsupported("the block was not asked for").into()),
    })
}

/// Reads why an answer ended.
pub(super) fn finish(reason: &Field, stop_sequence: Option<String>) -> Result<Finish, ResponseError> {
    Ok(match reason.value().as_text() {
        Some("end_turn") => Finish::Stop,
        Some("stop_sequence") => Finish::StopSequence(stop_sequence.unwrap_or_default()),
        Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
        Some("tool_use") => Finish::ToolCalls,
        Some("refusal") => Finish::Refusal,
        _ => return Err(reason.unsupported(format!("{} is not known", reason.value().to_text())).into()),
    })
}

/// The members of usage. In a stream each object has some of them, with what was used so far.
#[derive(Debug, Default)]
pub(super) struct UsageFields {
    uncached: Option<u64>,
    cached: Option<u64>,
    cache_written: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
}

impl UsageFields {
    pub(super) fn add(&mut self, mut fields: Fields) -> Result<(), ResponseError> {
        for (value, name) in [
            (&mut self.uncached, "input_tokens"),
            (&mut self.cached, "cache_read_input_tokens"),
            (&mut self.cache_written, "cache_creation_input_tokens"),
            (&mut self.output, "output_tokens"),
        ] {
            *value = fields.unsigned(name)?.or(*value);
        }
        if let Some(mut details) = fields.object("output_tokens_details")? {
            self.reasoning = details.unsigned("thinking_tokens")?.or(self.reasoning);
        }
        Ok(())
    }

    /// The usage, if any was reported. Anthropic's input excludes what was cached.
    pub(super) fn usage(&self) -> Option<Usage> {
        if self.uncached.is_none() && self.output.is_none() {
            return None;
        }
        let cached = self.cached.unwrap_or(0);
        let cache_written = self.cache_written.unwrap_or(0);
        let input = self.uncached.unwrap_or(0).saturating_add(cached).saturating_add(cache_written);
        let output = self.output.unwrap_or(0);
        Some(Usage { input, cached, cache_written, output, reasoning: self.reasoning })
    }
}
