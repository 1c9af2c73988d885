//! Anthropic's Messages: writes the events of a client's stream.

use crate::answer::{Finish, Usage};
use crate::delta::{Delta, Events, StreamWriter};
use crate::error::ResponseError;
use crate::json::{Json, object};

use super::response_reader::ID_PREFIX;
use super::response_writer::{stop_reason, usage, write_error};

/// A writer of a stream.
pub(crate) fn stream_writer() -> Box<dyn StreamWriter> {
    Box::new(Writer::default())
}

#[derive(Debug, Default)]
struct Writer {
    /// The block that is open.
    block: Option<Block>,
    /// How many blocks were begun.
    count: u64,
    finish: Option<Finish>,
    usage: Option<Usage>,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
    /// Its signature was written, so more reasoning is another block.
    SignedThinking,
    ToolUse,
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: Delta, out: &mut Events) -> Result<(), ResponseError> {
        match delta {
            Delta::Start(about) => {
                let message = object! {
                    "id": about.id_with(ID_PREFIX),
                    "type": "message",
                    "role": "assistant",
                    "model": about.model,
                    "content": Vec::<Json>::new(),
                    "stop_reason": Json::Null,
                    "stop_sequence": Json::Null,
                    // What was used is known at the end.
                    "usage": usage(Usage::default()),
                };
                out.named("message_start", &object! { "type": "message_start", "message": message });
            }
            Delta::Text(text) | Delta::Refusal(text) => {
                self.open(Block::Text, || object! { "type": "text", "text": "" }, out);
                self.delta(object! { "type": "text_delta", "text": text }, out);
            }
            Delta::Reasoning(text) => {
                self.open_thinking(out);
                self.delta(object! { "type": "thinking_delta", "thinking": text }, out);
            }
            Delta::Signature(signature) => {
                self.open_thinking(out);
                self.delta(object! { "type": "signature_delta", "signature": signature }, out);
                self.block = Some(Block::SignedThinking);
            }
            Delta::RedactedReasoning(data) => {
                self.close(out);
                self.start(object! { "type": "redacted_thinking", "data": data }, out);
                self.stop(out);
            }
            Delta::ToolCall { id, name } => {
                self.close(out);
                let input = Json::Object(Vec::new());
                let block = object! { "type": "tool_use", "id": id, "name": name, "input": input };
                self.block = Some(Block::ToolUse);
                self.start(block, out);
            }
            Delta::Arguments(piece) => {
                if self.block != Some(Block::ToolUse) {
                    return Err(late_arguments());
                }
                self.delta(object! { "type": "input_json_delta", "partial_json": piece }, out);
            }
            Delta::Finish(finish) => self.finish = Some(finish),
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::End => self.end(out),
            Delta::Failure(error) => out.named("error", &write_error(&error)),
        }
        Ok(())
    }
}

/// Arguments that come when something else has begun.
fn late_arguments() -> ResponseError {
    ResponseError::Unsupported {
        field: "arguments".to_owned(),
        why: "they come after the next part of the answer has begun".to_owned(),
    }
}

impl Writer {
    fn open(&mut self, kind: Block, block: impl FnOnce() -> Json, out: &mut Events) {
        if self.block != Some(kind) {
            self.close(out);
            self.block = Some(kind);
            self.start(block(), out);
        }
    }

    fn open_thinking(&mut self, out: &mut Events) {
        let block = || object! { "type": "thinking", "thinking": "", "signature": "" };
        self.open(Block::Thinking, block, out);
    }

    fn start(&mut self, block: Json, out: &mut Events) {
        let event = object! {
            "type": "content_block_start", "index": self.count, "content_block": block,
        };
        self.count += 1;
        out.named("content_block_start", &event);
    }

    fn delta(&self, delta: Json, out: &mut Events) {
        let index = self.count.saturating_sub(1);
        let event = object! { "type": "content_block_delta", "index": index, "delta": delta };
        out.named("content_block_delta", &event);
    }

    fn close(&mut self, out: &mut Events) {
        if self.block.take().is_some() {
            self.stop(out);
        }
    }

    fn stop(&self, out: &mut Events) {
        let index = self.count.saturating_sub(1);
        out.named("content_block_stop", &object! { "type": "content_block_stop", "index": index });
    }

    /// An answer that did not say why it ended stays incomplete.
    fn end(&mut self, out: &mut Events) {
        let Some(finish) = self.finish.take() else { return };
        self.close(out);
        let (reason, sequence) = stop_reason(&finish);
        let delta = object! { "stop_reason": reason, "stop_sequence": sequence };
        let event = object! {
            "type": "message_delta", "delta": delta, "usage": usage(self.usage.unwrap_or_default()),
        };
        out.named("message_delta", &event);
        out.named("message_stop", &object! { "type": "message_stop" });
    }
}
