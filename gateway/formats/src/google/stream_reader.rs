//! Google's `generateContent`: reads the chunks of a provider's stream.

use crate::answer::{About, Finish};
use crate::conversation::Part;
use crate::delta::{Delta, StreamReader, parse};
use crate::error::ResponseError;
use crate::fields::Field;
use crate::provider_error::ProviderError;

use super::response_reader::{about, read_piece};

/// A reader of a stream.
pub(crate) fn stream_reader() -> Box<dyn StreamReader> {
    Box::new(Reader::default())
}

#[derive(Debug, Default)]
struct Reader {
    about: Option<About>,
    call_count: usize,
    /// Why the answer ended, which may be said in several chunks.
    finish: Option<Finish>,
}

impl StreamReader for Reader {
    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        let mut fields = Field::root(parse(data)?).object()?;
        if let Some(error) = fields.take("error") {
            deltas.push(Delta::Failure(ProviderError::of_event(error.value())));
            return Ok(());
        }
        let about = if let Some(about) = &self.about {
            about.clone()
        } else {
            let about = about(&mut fields)?;
            deltas.push(Delta::Start(about.clone()));
            self.about.insert(about).clone()
        };
        let piece = read_piece(&mut fields, &about, &mut self.call_count)?;
        for part in piece.parts {
            match part {
                Part::Reasoning { text, signature } => {
                    deltas.extend(Some(text).filter(|text| !text.is_empty()).map(Delta::Reasoning));
                    deltas.extend(signature.map(Delta::Signature));
                }
                Part::Text(text) => deltas.push(Delta::Text(text)),
                Part::ToolCall(call) => {
                    deltas.push(Delta::ToolCall { id: call.id, name: call.name });
                    deltas.push(Delta::Arguments(call.arguments));
                }
                Part::Refusal(_) | Part::Image(_) | Part::RedactedReasoning(_) | Part::ToolResult(_) => {
                    unreachable!("Google's reader makes none of them")
                }
            }
        }
        deltas.extend(piece.usage.map(Delta::Usage));
        self.finish = piece.finish.or(self.finish.take());
        Ok(())
    }

    /// Google's streams have no end of their own: one is whole once it said why it ended.
    fn end(&mut self, deltas: &mut Vec<Delta>) {
        if let Some(finish) = self.finish.take() {
            deltas.extend([Delta::Finish(finish), Delta::End]);
        }
    }
}
