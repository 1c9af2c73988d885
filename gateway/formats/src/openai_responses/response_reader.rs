//! OpenAI's Responses: reads a provider's response. Members that are not known are no part of the answer.

use crate::answer::{About, Answer, Finish, Usage, bare_id};
use crate::conversation::{Part, ToolCall};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};

use super::input::read_reasoning;

/// The prefix of an id.
pub(super) const ID_PREFIX: &str = "resp_";

/// Reads a response.
pub(crate) fn read_response(document: Field) -> Result<Answer, ResponseError> {
    let mut fields = document.object()?;
    let about = about(&mut fields)?;
    let mut parts = Vec::new();
    for item in fields.require("output")?.list()? {
        read_item(item.object()?, &mut parts)?;
    }
    let has_calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    let has_refusal = parts.iter().any(|part| matches!(part, Part::Refusal(_)));
    let (finish, usage) = read_end(&mut fields, has_calls, has_refusal)?;
    Ok(Answer { about, parts, finish, usage })
}

/// Reads what identifies an answer.
pub(super) fn about(fields: &mut Fields) -> Result<About, ResponseError> {
    let id = fields.answer_id("id")?;
    let model = fields.answer_model("model")?;
    let created = fields.take("created_at").and_then(|field| field.unsigned().ok());
    Ok(About { id: bare_id(&id, ID_PREFIX), model, created })
}

fn read_item(mut item: Fields, parts: &mut Vec<Part>) -> Result<(), ResponseError> {
    let kind = item.require("type")?;
    match kind.value().as_text() {
        Some("message") => {
            for content in item.require("content")?.list()? {
                let mut content = content.object()?;
                let kind = content.require("type")?;
                parts.push(match kind.value().as_text() {
                    Some("output_text") => Part::Text(content.require("text")?.text()?),
                    Some("refusal") => Part::Refusal(content.require("refusal")?.text()?),
                    _ => return Err(kind.unsupported("it was not asked for").into()),
                });
            }
        }
        Some("function_call") => parts.push(Part::ToolCall(ToolCall {
            id: item.require("call_id")?.text()?,
            name: item.require("name")?.text()?,
            arguments: item.require("arguments")?.text()?,
        })),
        Some("reasoning") => {
            let reasoning = read_reasoning(&mut item, |_| Ok(()))?;
            // Without a summary or anything to send back, it says nothing.
            if reasoning != (Part::Reasoning { text: String::new(), signature: None }) {
                parts.push(reasoning);
            }
        }
        _ => return Err(kind.unsupported("the item was not asked for").into()),
    }
    Ok(())
}

/// Reads why an answer ended, and what it used.
pub(super) fn read_end(
    fields: &mut Fields,
    has_calls: bool,
    has_refusal: bool,
) -> Result<(Finish, Option<Usage>), ResponseError> {
    let status = fields.require("status")?;
    let finish = match status.value().as_text() {
        Some("completed") if has_calls => Finish::ToolCalls,
        Some("completed") if has_refusal => Finish::Refusal,
        Some("completed") => Finish::Stop,
        Some("incomplete") => {
            let mut details = fields.require("incomplete_details")?.object()?;
            let reason = details.require("reason")?;
            match reason.value().as_text() {
                Some("max_output_tokens") => Finish::Length,
                Some("content_filter") => Finish::Filtered,
                _ => return Err(reason.unsupported("it is not known").into()),
            }
        }
        _ => {
            let why = format!("the response is {}", status.value().to_text());
            return Err(status.unsupported(why).into());
        }
    };
    let usage = fields.object("usage")?.map(read_usage).transpose()?;
    Ok((finish, usage))
}

fn read_usage(mut fields: Fields) -> Result<Usage, ResponseError> {
    let (mut cached, mut cache_written, mut reasoning) = (0, 0, None);
    if let Some(mut details) = fields.object("input_tokens_details")? {
        cached = details.unsigned("cached_tokens")?.unwrap_or(0);
        cache_written = details.unsigned("cache_write_tokens")?.unwrap_or(0);
    }
    if let Some(mut details) = fields.object("output_tokens_details")? {
        reasoning = details.unsigned("reasoning_tokens")?;
    }
    Ok(Usage {
        input: fields.unsigned("input_tokens")?.unwrap_or(0),
        cached,
        cache_written,
        output: fields.unsigned("output_tokens")?.unwrap_or(0),
        reasoning,
    })
}
