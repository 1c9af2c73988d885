//! Chat Completions: reads the chunks of a provider's stream.

use crate::answer::{Finish, made_call_id};
use crate::delta::{Delta, StreamReader, parse};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};
use crate::provider_error::ProviderError;

use super::response_reader::{Piece, about, content, finish, is_empty_list, reasoning, usage};

/// A reader of a stream.
pub(crate) fn stream_reader() -> Box<dyn StreamReader> {
    Box::new(Reader::default())
}

#[derive(Debug, Default)]
struct Reader {
    /// The id of the answer, once it has begun.
    answer_id: Option<String>,
    /// The index of the call that began last, and how many began.
    call: Option<u64>,
    call_count: usize,
    has_refusal: bool,
}

impl StreamReader for Reader {
    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        if data.trim() == "[DONE]" {
            deltas.push(Delta::End);
            return Ok(());
        }
        let mut fields = Field::root(parse(data)?).object()?;
        if let Some(error) = fields.take("error") {
            deltas.push(Delta::Failure(ProviderError::of_event(error.value())));
            return Ok(());
        }
        if self.answer_id.is_none() {
            let about = about(&mut fields)?;
            self.answer_id = Some(about.id.clone());
            deltas.push(Delta::Start(about));
        }
        let usage = fields.take("usage").map(usage).transpose()?;
        let choices = fields.take("choices").filter(|choices| !is_empty_list(choices));
        for choice in choices.map_or(Ok(Vec::new()), Field::list)? {
            let mut choice = choice.object()?;
            if let Some(index) = choice.take("index").filter(|index| index.value().as_unsigned() != Some(0)) {
                return Err(index.unsupported("only one choice was asked for").into());
            }
            if let Some(delta) = choice.object("delta")? {
                self.delta(delta, deltas)?;
            }
            if let Some(reason) = choice.take("finish_reason") {
                let reason = match finish(&reason)? {
                    Finish::Stop if self.has_refusal => Finish::Refusal,
                    reason => reason,
                };
                deltas.push(Delta::Finish(reason));
            }
        }
        deltas.extend(usage.map(Delta::Usage));
        Ok(())
    }
}

impl Reader {
    fn delta(&mut self, mut fields: Fields, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        deltas.extend(reasoning(&mut fields)?.map(Delta::Reasoning));
        for piece in fields.take("content").map_or(Ok(Vec::new()), content)? {
            match piece {
                Piece::Text(text) | Piece::Reasoning(text) if text.is_empty() => {}
                Piece::Text(text) => deltas.push(Delta::Text(text)),
                Piece::Reasoning(text) => deltas.push(Delta::Reasoning(text)),
            }
        }
        if let Some(refusal) = fields.text("refusal")?.filter(|text| !text.is_empty()) {
            self.has_refusal = true;
            deltas.push(Delta::Refusal(refusal));
        }
        for name in ["audio", "function_call"] {
            if let Some(field) = fields.take(name) {
                return Err(field.unsupported("it was not asked for").into());
            }
        }
        for call in fields.list("tool_calls")? {
            self.call(call, deltas)?;
        }
        Ok(())
    }

    /// Reads a piece of a call. A new index begins a call; without indexes, an id does.
    fn call(&mut self, field: Field, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        let mut call = field.object()?;
        let path = call.path();
        let id = call.text("id")?.filter(|id| !id.is_empty());
        let next = self.call.map_or(0, |call| call + 1);
        let index = match call.unsigned("index")? {
            Some(index) => index,
            None if id.is_some() => next,
            None => self.call.unwrap_or(0),
        };
        let mut function = call.object("function")?;
        let mut text = |name: &str| function.as_mut().map_or(Ok(None), |function| function.text(name));
        let (name, arguments) = (text("name")?, text("arguments")?);
        if self.call.is_some_and(|call| index < call) {
            let why = "the arguments of two calls are mixed".to_owned();
            return Err(ResponseError::Unsupported { field: path, why });
        }
        if self.call != Some(index) {
            let name = name.ok_or_else(|| ResponseError::Invalid {
                field: format!("{path}.function.name"),
                message: "is missing".to_owned(),
            })?;
            let answer_id = self.answer_id.as_deref().unwrap_or_default();
            let id = id.unwrap_or_else(|| made_call_id(answer_id, self.call_count));
            self.call = Some(index);
            self.call_count += 1;
            deltas.push(Delta::ToolCall { id, name });
        }
        let arguments = arguments.filter(|arguments| !arguments.is_empty());
        deltas.extend(arguments.map(Delta::Arguments));
        Ok(())
    }
}
