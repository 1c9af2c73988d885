//! Anthropic's Messages: reads the events of a provider's stream.

use crate::delta::{Delta, StreamReader, parse};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};
use crate::provider_error::ProviderError;

use super::response_reader::{UsageFields, about, finish};

/// A reader of a stream.
pub(crate) fn stream_reader() -> Box<dyn StreamReader> {
    Box::new(Reader::default())
}

#[derive(Debug, Default)]
struct Reader {
    used: UsageFields,
    has_begun: bool,
    /// Whether a call has begun whose arguments have not.
    lacks_arguments: bool,
}

impl StreamReader for Reader {
    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        let mut fields = Field::root(parse(data)?).object()?;
        let kind = fields.require("type")?;
        match kind.value().as_text() {
            // Each would begin the client's answer again, with all that it has so far.
            Some("message_start") if self.has_begun => return Err(kind.invalid("comes twice").into()),
            Some("message_start") => {
                let mut message = fields.require("message")?.object()?;
                if let Some(usage) = message.object("usage")? {
                    self.used.add(usage)?;
                }
                self.has_begun = true;
                deltas.push(Delta::Start(about(&mut message)?));
                // Used already, and known if the stream breaks off.
                deltas.extend(self.used.usage().map(Delta::Usage));
            }
            Some("error") => {
                deltas.push(Delta::Failure(ProviderError::of_event(fields.require("error")?.value())));
            }
            // A ping may come first. Anything else would be lost.
            Some("ping") => {}
            _ if !self.has_begun => return Err(kind.invalid("comes before message_start").into()),
            Some("content_block_start") => {
                start(fields.require("content_block")?.object()?, deltas)?;
                self.lacks_arguments = matches!(deltas.last(), Some(Delta::ToolCall { .. }));
            }
            Some("content_block_delta") => {
                delta(fields.require("delta")?.object()?, deltas)?;
                self.lacks_arguments &= deltas.is_empty();
            }
            Some("content_block_stop") if std::mem::take(&mut self.lacks_arguments) => {
                deltas.push(Delta::Arguments("{}".to_owned()));
            }
            Some("message_delta") => {
                let mut delta = fields.require("delta")?.object()?;
                let sequence = delta.text("stop_sequence")?;
                if let Some(reason) = delta.take("stop_reason") {
                    deltas.push(Delta::Finish(finish(&reason, sequence)?));
                }
                if let Some(usage) = fields.object("usage")? {
                    self.used.add(usage)?;
                    deltas.extend(self.used.usage().map(Delta::Usage));
                }
            }
            Some("message_stop") => deltas.push(Delta::End),
            // Anthropic asks its clients to pass over events that they do not know.
            _ => {}
        }
        Ok(())
    }
}

fn start(mut block: Fields, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
    let kind = block.require("type")?;
    match kind.value().as_text() {
        Some("text") => text(&mut block, "text", Delta::Text, deltas),
        Some("thinking") => {
            text(&mut block, "thinking", Delta::Reasoning, deltas)?;
            text(&mut block, "signature", Delta::Signature, deltas)
        }
        Some("redacted_thinking") => text(&mut block, "data", Delta::RedactedReasoning, deltas),
        Some("tool_use") => {
            let id = block.require("id")?.text()?;
            deltas.push(Delta::ToolCall { id, name: block.require("name")?.text()? });
            // The input is an empty object here; its text follows. A provider may also send it whole.
            let input = block.take("input").map(Field::json);
            let whole = input.map(|input| input.to_text()).filter(|input| input != "{}");
            deltas.extend(whole.map(Delta::Arguments));
            Ok(())
        }
        _ => Err(kind.unsupported("the block was not asked for").into()),
    }
}

fn delta(mut delta: Fields, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
    let kind = delta.require("type")?;
    match kind.value().as_text() {
        Some("text_delta") => text(&mut delta, "text", Delta::Text, deltas),
        Some("thinking_delta") => text(&mut delta, "thinking", Delta::Reasoning, deltas),
        Some("signature_delta") => text(&mut delta, "signature", Delta::Signature, deltas),
        Some("input_json_delta") => text(&mut delta, "partial_json", Delta::Arguments, deltas),
        _ => Err(kind.unsupported("it was not asked for").into()),
    }
}

/// Adds the text of a field, if it has one.
fn text(
    fields: &mut Fields,
    name: &str,
    delta: impl FnOnce(String) -> Delta,
    deltas: &mut Vec<Delta>,
) -> Result<(), ResponseError> {
    deltas.extend(fields.text(name)?.filter(|text| !text.is_empty()).map(delta));
    Ok(())
}
