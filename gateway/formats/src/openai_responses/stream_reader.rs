//! OpenAI's Responses: reads the events of a provider's stream.

use crate::delta::{Delta, StreamReader, parse};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};
use crate::provider_error::ProviderError;

use super::response_reader::{about, read_end};

/// A reader of a stream.
pub(crate) fn stream_reader() -> Box<dyn StreamReader> {
    Box::new(Reader::default())
}

#[derive(Debug, Default)]
struct Reader {
    has_begun: bool,
    /// The place in the output of the call that began last.
    call: Option<u64>,
    /// Whether that call has no arguments yet.
    lacks_arguments: bool,
    has_refusal: bool,
}

impl StreamReader for Reader {
    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        let mut fields = Field::root(parse(data)?).object()?;
        let kind = fields.require("type")?;
        let name = kind.value().as_text().unwrap_or_default().to_owned();
        if name == "error" {
            let error = fields.take("error").map(Field::json);
            let error = error.unwrap_or_else(|| fields_as_error(&mut fields));
            deltas.push(Delta::Failure(ProviderError::of_event(&error)));
            return Ok(());
        }
        if !self.has_begun && name.starts_with("response.") {
            self.has_begun = true;
            let about = fields.object("response")?.map(|mut response| about(&mut response)).transpose()?;
            deltas.push(Delta::Start(about.unwrap_or_default()));
            if matches!(name.as_str(), "response.created" | "response.in_progress" | "response.queued") {
                return Ok(());
            }
            return Err(kind.invalid("comes before response.created").into());
        }
        match name.as_str() {
            "response.output_item.added" => {
                let place = fields.unsigned("output_index")?;
                self.item(place, fields.require("item")?.object()?, deltas)
            }
            "response.output_item.done" => self.item_done(fields.require("item")?.object()?, deltas),
            "response.output_text.delta" => text(&mut fields, Delta::Text, deltas),
            "response.refusal.delta" => {
                self.has_refusal = true;
                text(&mut fields, Delta::Refusal, deltas)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                text(&mut fields, Delta::Reasoning, deltas)
            }
            "response.reasoning_summary_part.added" => {
                if fields.unsigned("summary_index")?.is_some_and(|index| index > 0) {
                    deltas.push(Delta::Reasoning("\n\n".to_owned()));
                }
                Ok(())
            }
            "response.function_call_arguments.delta" => {
                if fields.unsigned("output_index")? != self.call {
                    return Err(kind.unsupported("the arguments of two calls are mixed").into());
                }
                text(&mut fields, Delta::Arguments, deltas)?;
                self.lacks_arguments &= deltas.is_empty();
                Ok(())
            }
            "response.completed" | "response.incomplete" => {
                let mut response = fields.require("response")?.object()?;
                let (finish, usage) = read_end(&mut response, self.call.is_some(), self.has_refusal)?;
                deltas.extend(usage.map(Delta::Usage));
                deltas.extend([Delta::Finish(finish), Delta::End]);
                Ok(())
            }
            "response.failed" => {
                let mut response = fields.require("response")?.object()?;
                let error = response.require("error")?;
                deltas.push(Delta::Failure(ProviderError::of_event(error.value())));
                Ok(())
            }
            // The others repeat what these say.
            _ => Ok(()),
        }
    }
}

/// The error of an event that is one itself.
fn fields_as_error(fields: &mut Fields) -> crate::json::Json {
    let mut text = |name: &str| fields.text(name).ok().flatten();
    crate::json::object! { "code": text("code"), "message": text("message") }
}

impl Reader {
    fn item(
        &mut self,
        place: Option<u64>,
        mut item: Fields,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ResponseError> {
        let kind = item.require("type")?;
        match kind.value().as_text() {
            Some("message" | "reasoning") => Ok(()),
            Some("function_call") => {
                let id = item.require("call_id")?.text()?;
                deltas.push(Delta::ToolCall { id, name: item.require("name")?.text()? });
                self.call = Some(place.unwrap_or(0));
                self.lacks_arguments = true;
                Ok(())
            }
            _ => Err(kind.unsupported("the item was not asked for").into()),
        }
    }

    fn item_done(&mut self, mut item: Fields, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        match item.require("type")?.value().as_text() {
            Some("reasoning") => deltas.extend(item.text("encrypted_content")?.map(Delta::Signature)),
            Some("function_call") if std::mem::take(&mut self.lacks_arguments) => {
                let arguments = item.text("arguments")?.filter(|arguments| !arguments.is_empty());
                deltas.extend(arguments.map(Delta::Arguments));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Adds the text of an event, if it has one.
fn text(
    fields: &mut Fields,
    delta: impl FnOnce(String) -> Delta,
    deltas: &mut Vec<Delta>,
) -> Result<(), ResponseError> {
    deltas.extend(fields.text("delta")?.filter(|text| !text.is_empty()).map(delta));
    Ok(())
}
