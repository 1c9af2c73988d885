//! Chat Completions: reads the chunks of a provider's stream.

use crate::answer::{Finish, made_call_id};
use crate::delta::{Delta, StreamReader, parse};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};
use crate::provider_error::ProviderError;

use super::response_reader::{Piece, about, arguments, content, finish, is_empty_list, reasoning, usage};

/// A reader of a stream.
pub(crate) fn stream_reader() -> Box<dyn StreamReader> {
    Box::new(Reader::default())
}

#[derive(Debug, Default)]
struct Reader {
    /// The id of the answer, once it has begun.
    answer_id: Option<String>,
    /// The call that began last, and how many began.
    call: Option<Call>,
    call_count: usize,
    has_refusal: bool,
    finished: Finished,
}

/// A call that began.
#[derive(Debug)]
struct Call {
    index: u64,
    id: String,
    name: String,
}

/// Whether the answer said why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Finished {
    #[default]
    No,
    /// It said `end_turn`, which xAI also says before the last chunk.
    Perhaps,
    Yes,
}

impl StreamReader for Reader {
    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        if data.trim() == "[DONE]" {
            self.done(deltas);
            return Ok(());
        }
        let mut fields = Field::root(parse(data)?).object()?;
        if let Some(error) = fields.take("error") {
            deltas.push(Delta::Failure(ProviderError::of_event(error.value())));
            return Ok(());
        }
        let usage = fields.take("usage").map(usage).transpose()?;
        let choices = fields.take("choices").filter(|choices| !is_empty_list(choices));
        if self.answer_id.is_none() {
            let about = about(&mut fields)?;
            // Azure begins with a chunk about the prompt, which says nothing of the answer.
            if choices.is_some() || !about.id.is_empty() {
                self.answer_id = Some(about.id.clone());
                deltas.push(Delta::Start(about));
            }
        }
        for choice in choices.map_or(Ok(Vec::new()), Field::list)? {
            let mut choice = choice.object()?;
            if let Some(index) = choice.take("index").filter(|index| index.value().as_unsigned() != Some(0)) {
                return Err(index.unsupported("only one choice was asked for").into());
            }
            if let Some(delta) = choice.object("delta")? {
                self.delta(delta, deltas)?;
            }
            if let Some(reason) = choice.take("finish_reason").filter(|reason| !is_text(reason, "")) {
                if is_text(&reason, "end_turn") {
                    self.finished = Finished::Perhaps;
                } else {
                    self.finish(finish(&reason)?, deltas);
                }
            }
        }
        deltas.extend(usage.map(Delta::Usage));
        Ok(())
    }

    /// Some providers end without `[DONE]`: an answer is whole once it said why it ended.
    fn end(&mut self, deltas: &mut Vec<Delta>) {
        if self.finished != Finished::No {
            self.done(deltas);
        }
    }
}

fn is_text(field: &Field, text: &str) -> bool {
    field.value().as_text() == Some(text)
}

impl Reader {
    fn finish(&mut self, reason: Finish, deltas: &mut Vec<Delta>) {
        self.finished = Finished::Yes;
        deltas.push(Delta::Finish(reason.of_answer(self.call_count > 0, self.has_refusal)));
    }

    fn done(&mut self, deltas: &mut Vec<Delta>) {
        if self.finished == Finished::Perhaps {
            self.finish(Finish::Stop, deltas);
        }
        deltas.push(Delta::End);
    }

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

    /// Reads a piece of a call. A new index begins a call, and so does another id or another name: some providers give
    /// every call the same index, or none.
    fn call(&mut self, field: Field, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        let mut call = field.object()?;
        let path = call.path();
        let id = call.text("id")?.filter(|id| !id.is_empty());
        let index = call.unsigned("index")?;
        let mut function = call.object("function")?;
        let (name, arguments) = match function.as_mut() {
            Some(function) => (function.text("name")?, arguments(function)?),
            None => (None, None),
        };
        if self.call.as_ref().zip(index).is_some_and(|(call, index)| index < call.index) {
            let why = "the arguments of two calls are mixed".to_owned();
            return Err(ResponseError::Unsupported { field: path, why });
        }
        let is_next = self.call.as_ref().is_none_or(|call| {
            index.is_some_and(|index| index != call.index)
                || name.as_ref().filter(|name| !name.is_empty()).is_some_and(|name| match &id {
                    Some(id) => *id != call.id,
                    None => *name != call.name,
                })
        });
        if is_next {
            let name = name.ok_or_else(|| ResponseError::Invalid {
                field: format!("{path}.function.name"),
                message: "is missing".to_owned(),
            })?;
            let answer_id = self.answer_id.as_deref().unwrap_or_default();
            let id = id.unwrap_or_else(|| made_call_id(answer_id, self.call_count));
            let next = self.call.as_ref().map_or(0, |call| call.index + 1);
            self.call = Some(Call { index: index.unwrap_or(next), id: id.clone(), name: name.clone() });
            self.call_count += 1;
            deltas.push(Delta::ToolCall { id, name });
        }
        let arguments = arguments.filter(|arguments| !arguments.is_empty());
        deltas.extend(arguments.map(Delta::Arguments));
        Ok(())
    }
}
