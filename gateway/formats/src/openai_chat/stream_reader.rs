//! Chat Completions: reads the chunks of a provider's stream.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::answer::{Finish, made_call_id};
use crate::delta::{Delta, StreamReader, parse};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};
use crate::provider_error::ProviderError;

use super::response_reader::{
    NO_ARGUMENTS, Piece, PieceOfArguments, about, content, finish, is_empty_list, piece_of_arguments,
    reasoning, usage,
};

/// The most ids of calls that are kept to find a piece of an earlier call.
const MAX_IDS: usize = 1_000;

/// A reader of a stream.
pub(crate) fn stream_reader() -> Box<dyn StreamReader> {
    Box::new(Reader::default())
}

#[derive(Debug, Default)]
struct Reader {
    /// The id of the answer, once it has begun.
    answer_id: Option<String>,
    /// The call that began last.
    call: Option<Call>,
    /// The ids of the first calls, as hashes: an id may be long.
    ids: HashSet<u64>,
    call_count: usize,
    has_refusal: bool,
    /// Why the answer ended.
    reason: Option<Finish>,
    /// Whether it said `end_turn`, which xAI also says before the last chunk.
    may_have_ended: bool,
}

/// A call that began.
#[derive(Debug)]
struct Call {
    index: u64,
    id: u64,
    name: u64,
    arguments: ObjectEnd,
    /// Whether arguments have begun.
    has_arguments: bool,
    /// Whether an empty object came as arguments, which may be all of them.
    had_empty_object: bool,
}

impl StreamReader for Reader {
    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        if data.trim() == "[DONE]" {
            if self.answer_id.is_some() && !self.has_said_why() {
                return Err(ResponseError::Invalid {
                    field: "finish_reason".to_owned(),
                    message: "is missing".to_owned(),
                });
            }
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
                    self.may_have_ended = true;
                } else {
                    let reason = finish(&reason)?;
                    // A later `stop` does not undo why the answer was cut off.
                    if reason != Finish::Stop || self.reason.is_none() {
                        self.reason = Some(reason);
                    }
                }
            }
        }
        deltas.extend(usage.map(Delta::Usage));
        Ok(())
    }

    /// Some providers end without `[DONE]`: an answer is whole once it said why it ended.
    fn end(&mut self, deltas: &mut Vec<Delta>) {
        if self.has_said_why() {
            self.done(deltas);
        }
    }
}

fn is_text(field: &Field, text: &str) -> bool {
    field.value().as_text() == Some(text)
}

impl Reader {
    /// Whether the answer said why it ended.
    const fn has_said_why(&self) -> bool {
        self.reason.is_some() || self.may_have_ended
    }

    /// Gives the last call its arguments if it has none: some providers leave those of a call without parameters empty.
    fn complete_call(&mut self, deltas: &mut Vec<Delta>) {
        if let Some(call) = self.call.as_mut().filter(|call| !call.has_arguments) {
            call.has_arguments = true;
            call.arguments.read(NO_ARGUMENTS);
            deltas.push(Delta::Arguments(NO_ARGUMENTS.to_owned()));
        }
    }

    /// Tells why the answer ended, if it said so, and that it has ended.
    fn done(&mut self, deltas: &mut Vec<Delta>) {
        if self.reason != Some(Finish::Length) {
            self.complete_call(deltas);
        }
        let reason = self.reason.take().or_else(|| self.may_have_ended.then_some(Finish::Stop));
        let reason = reason.map(|reason| reason.of_answer(self.call_count > 0, self.has_refusal));
        deltas.extend(reason.map(Delta::Finish));
        deltas.push(Delta::End);
    }

    fn delta(&mut self, mut fields: Fields, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        if let Some(text) = reasoning(&mut fields)? {
            self.complete_call(deltas);
            deltas.push(Delta::Reasoning(text));
        }
        for piece in fields.take("content").map_or(Ok(Vec::new()), content)? {
            match piece {
                Piece::Text(text) | Piece::Reasoning(text) if text.is_empty() => {}
                Piece::Text(text) => {
                    self.complete_call(deltas);
                    deltas.push(Delta::Text(text));
                }
                Piece::Reasoning(text) => {
                    self.complete_call(deltas);
                    deltas.push(Delta::Reasoning(text));
                }
            }
        }
        if let Some(refusal) = fields.text("refusal")?.filter(|text| !text.is_empty()) {
            self.complete_call(deltas);
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

    /// Reads a piece of a call.
    fn call(&mut self, field: Field, deltas: &mut Vec<Delta>) -> Result<(), ResponseError> {
        let mut call = field.object()?;
        let path = call.path();
        let id = call.text("id")?.filter(|id| !id.is_empty());
        let index = call.unsigned("index")?;
        let mut function = call.object("function")?;
        let (name, arguments) = match function.as_mut() {
            Some(function) => {
                (function.text("name")?.filter(|name| !name.is_empty()), piece_of_arguments(function)?)
            }
            None => (None, PieceOfArguments::Nothing),
        };
        let mixed = || ResponseError::Unsupported {
            field: path.clone(),
            why: "the arguments of two calls are mixed".to_owned(),
        };
        if self.call.as_ref().zip(index).is_some_and(|(call, index)| index < call.index) {
            return Err(mixed());
        }
        let (id_hash, name_hash) = (id.as_ref().map(hash), name.as_ref().map(hash));
        let is_next =
            self.call.as_ref().is_none_or(|call| call.is_followed_by(index, id_hash, name_hash, &arguments));
        let is_of_earlier = id_hash
            .is_some_and(|id| self.ids.contains(&id) && self.call.as_ref().is_some_and(|call| call.id != id));
        if is_of_earlier {
            return Err(mixed());
        }
        if is_next {
            let name = name.ok_or_else(|| ResponseError::Invalid {
                field: format!("{path}.function.name"),
                message: "is missing".to_owned(),
            })?;
            self.complete_call(deltas);
            let answer_id = self.answer_id.as_deref().unwrap_or_default();
            let id = id.unwrap_or_else(|| made_call_id(answer_id, self.call_count));
            let next = self.call.as_ref().map_or(0, |call| call.index.saturating_add(1));
            self.call = Some(Call {
                index: index.unwrap_or(next),
                id: hash(&id),
                name: hash(&name),
                arguments: ObjectEnd::default(),
                has_arguments: false,
                had_empty_object: false,
            });
            if self.ids.len() < MAX_IDS {
                self.ids.insert(hash(&id));
            }
            self.call_count += 1;
            deltas.push(Delta::ToolCall { id, name });
        }
        let Some(call) = &mut self.call else { return Ok(()) };
        match arguments {
            PieceOfArguments::Nothing => {}
            PieceOfArguments::EmptyObject => call.had_empty_object = true,
            PieceOfArguments::Text(text) => {
                let is_blank = text.trim().is_empty();
                if call.arguments.is_reached() && !is_blank {
                    return Err(mixed());
                }
                call.has_arguments |= !is_blank;
                call.arguments.read(&text);
                deltas.push(Delta::Arguments(text));
            }
        }
        Ok(())
    }
}

impl Call {
    /// Whether a piece with this index, id and name begins another call. Another index does. So does another id beside a
    /// name; without ids another name, or a name with arguments once these may be whole: some providers give every call the
    /// same index, or none.
    fn is_followed_by(
        &self,
        index: Option<u64>,
        id: Option<u64>,
        name: Option<u64>,
        arguments: &PieceOfArguments,
    ) -> bool {
        if index.is_some_and(|index| index != self.index) {
            return true;
        }
        let Some(name) = name else { return false };
        let is_begun = self.has_arguments && !self.arguments.is_reached();
        let may_be_whole = self.arguments.is_reached() || self.had_empty_object && !self.has_arguments;
        match id {
            // An id of its own for each piece of one call.
            Some(_) if index.is_some() && name == self.name && is_begun => false,
            Some(id) => id != self.id,
            None => name != self.name || *arguments != PieceOfArguments::Nothing && may_be_whole,
        }
    }
}

fn hash(text: &String) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Finds the end of a JSON object that comes in pieces.
#[derive(Debug, Default)]
struct ObjectEnd {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    is_reached: bool,
}

impl ObjectEnd {
    fn read(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_reached |= self.depth == 0;
                }
                _ => {}
            }
        }
    }

    const fn is_reached(&self) -> bool {
        self.is_reached
    }
}
