//! Writes the chunks of a client's stream. A call is written when it is whole: Google sends no parts of arguments.

use crate::answer::{About, Finish, Usage};
use crate::conversation::{Part, ToolCall};
use crate::delta::{Delta, Events, Kept, StreamWriter};
use crate::error::ResponseError;
use crate::json::{Json, ValuesLeft};

use super::response_writer::{response, signature_alone, write_error, write_part};

/// A writer of a stream.
pub(crate) fn stream_writer() -> Box<dyn StreamWriter> {
    Box::new(Writer::default())
}

#[derive(Debug, Default)]
struct Writer {
    about: About,
    /// The call whose arguments are coming.
    call: Option<ToolCall>,
    kept: Kept,
    /// The signature for the next part.
    signature: Option<String>,
    finish: Option<Finish>,
    usage: Option<Usage>,
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: Delta, out: &mut Events) -> Result<(), ResponseError> {
        match delta {
            Delta::Start(about) => self.about = about,
            Delta::Text(text) | Delta::Refusal(text) => self.part(Part::Text(text), out)?,
            Delta::Reasoning(text) => self.part(Part::Reasoning { text, signature: None }, out)?,
            Delta::Signature(signature) => {
                self.part(Part::Reasoning { text: String::new(), signature: Some(signature) }, out)?;
            }
            Delta::RedactedReasoning(data) => self.part(Part::RedactedReasoning(data), out)?,
            Delta::ToolCall { id, name } => {
                self.end_call(out)?;
                self.call = Some(ToolCall { id, name, arguments: String::new() });
            }
            Delta::Arguments(piece) => match &mut self.call {
                Some(call) => self.kept.push(&mut call.arguments, &piece)?,
                None => {
                    return Err(ResponseError::Unsupported {
                        field: "arguments".to_owned(),
                        why: "they come after the next part of the answer has begun".to_owned(),
                    });
                }
            },
            Delta::Finish(finish) => {
                self.end_call(out)?;
                self.finish = Some(finish);
            }
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::End => self.end(out),
            Delta::Failure(error) => out.data(&write_error(error.kind.status(), &error)),
        }
        Ok(())
    }

    fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

impl Writer {
    fn part(&mut self, part: Part, out: &mut Events) -> Result<(), ResponseError> {
        self.end_call(out)?;
        self.write_part(part, out)
    }

    fn end_call(&mut self, out: &mut Events) -> Result<(), ResponseError> {
        match self.call.take() {
            Some(call) => self.write_part(Part::ToolCall(call), out),
            None => Ok(()),
        }
    }

    fn write_part(&mut self, part: Part, out: &mut Events) -> Result<(), ResponseError> {
        let mut parts = Vec::new();
        write_part(part, &mut self.signature, &mut parts, &ValuesLeft::default())?;
        if !parts.is_empty() {
            out.data(&response(&self.about, parts, None, None));
        }
        Ok(())
    }

    /// An answer that did not say why it ended stays incomplete.
    fn end(&mut self, out: &mut Events) {
        let Some(finish) = self.finish.take() else { return };
        let parts: Vec<Json> = self.signature.take().map(signature_alone).into_iter().collect();
        let usage = Some(self.usage.unwrap_or_default());
        out.data(&response(&self.about, parts, Some(&finish), usage));
    }
}
