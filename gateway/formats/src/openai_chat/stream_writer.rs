//! Chat Completions: writes the chunks of a client's stream.

use crate::answer::{About, Usage};
use crate::conversion::AnswerOptions;
use crate::delta::{Delta, Events, Kept, StreamWriter};
use crate::error::ResponseError;
use crate::json::{Json, object};

use super::response_writer::{finish_reason, head, reasoning_detail, redacted_detail, usage, write_error};

/// A writer of a stream.
pub(crate) fn stream_writer(options: AnswerOptions) -> Box<dyn StreamWriter> {
    Box::new(Writer {
        options,
        about: About::default(),
        call_count: 0,
        has_refusal: false,
        has_finished: false,
        reasoning: String::new(),
        kept: Kept::default(),
        usage: None,
    })
}

#[derive(Debug)]
struct Writer {
    options: AnswerOptions,
    about: About,
    call_count: u64,
    has_refusal: bool,
    has_finished: bool,
    /// The reasoning since the last signature, which is written again with the next one.
    reasoning: String,
    kept: Kept,
    usage: Option<Usage>,
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: Delta, out: &mut Events) -> Result<(), ResponseError> {
        match delta {
            Delta::Start(about) => {
                self.about = about;
                self.delta(object! { "role": "assistant", "content": "", "refusal": Json::Null }, out);
            }
            Delta::Text(text) => self.delta(object! { "content": text }, out),
            Delta::Refusal(text) => {
                self.has_refusal = true;
                self.delta(object! { "refusal": text }, out);
            }
            Delta::Reasoning(text) => {
                self.kept.push(&mut self.reasoning, &text)?;
                self.delta(object! { "reasoning_content": text }, out);
            }
            Delta::Signature(signature) => {
                let detail = reasoning_detail(std::mem::take(&mut self.reasoning), Some(signature));
                self.delta(object! { "reasoning_details": vec![detail] }, out);
            }
            Delta::RedactedReasoning(data) => {
                self.delta(object! { "reasoning_details": vec![redacted_detail(data)] }, out);
            }
            Delta::ToolCall { id, name } => {
                let function = object! { "name": name, "arguments": "" };
                let call = object! {
                    "index": self.call_count, "id": id, "type": "function", "function": function,
                };
                self.call_count += 1;
                self.delta(object! { "tool_calls": vec![call] }, out);
            }
            Delta::Arguments(piece) => {
                let index = self.call_count.saturating_sub(1);
                let call = object! { "index": index, "function": object! { "arguments": piece } };
                self.delta(object! { "tool_calls": vec![call] }, out);
            }
            Delta::Finish(finish) => {
                self.has_finished = true;
                let reason = finish_reason(&finish, self.has_refusal);
                self.choice(Json::Object(Vec::new()), reason.into(), out);
            }
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::End => self.end(out),
            Delta::Failure(error) => out.data(&write_error(&error)),
        }
        Ok(())
    }

    fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

impl Writer {
    fn delta(&self, delta: Json, out: &mut Events) {
        self.choice(delta, Json::Null, out);
    }

    fn choice(&self, delta: Json, finish_reason: Json, out: &mut Events) {
        let choice = object! {
            "index": 0_u64, "delta": delta, "logprobs": Json::Null, "finish_reason": finish_reason,
        };
        self.chunk(vec![choice], None, out);
    }

    fn chunk(&self, choices: Vec<Json>, used: Option<Json>, out: &mut Events) {
        let mut chunk = head(&self.about, "chat.completion.chunk", self.options).with("choices", choices);
        if self.options.include_usage {
            chunk.set("usage", used);
        }
        out.data(&chunk.into());
    }

    /// An answer that did not say why it ended stays incomplete.
    fn end(&self, out: &mut Events) {
        if !self.has_finished {
            return;
        }
        if let Some(used) = self.usage.filter(|_| self.options.include_usage) {
            self.chunk(Vec::new(), Some(usage(used)), out);
        }
        out.done();
    }
}
