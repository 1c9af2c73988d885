//! OpenAI's Responses: writes the events of a client's stream. An item and the response are repeated whole when they end.

use crate::answer::{About, Finish, Usage};
use crate::conversation::ToolCall;
use crate::conversion::AnswerOptions;
use crate::delta::{Delta, Events, Kept, StreamWriter};
use crate::error::ResponseError;
use crate::json::{Json, ObjectBuilder};
use crate::provider_error::{ErrorKind, ProviderError};

use super::response_writer::{ContentKind, Ending, Item, Status, redacted, response, summary_part};

/// What an item is counted for beside its texts: its ids and members, as they are kept and as they are written.
const ITEM_BYTES: usize = 4096;

/// The same of a content of a message.
const CONTENT_BYTES: usize = 512;

/// A writer of a stream.
pub(crate) fn stream_writer(options: AnswerOptions) -> Box<dyn StreamWriter> {
    Box::new(Writer {
        options,
        about: About::default(),
        event_count: 0,
        output: Vec::new(),
        item: None,
        kept: Kept::default(),
        has_refusal: false,
        finish: None,
        usage: None,
    })
}

#[derive(Debug)]
struct Writer {
    options: AnswerOptions,
    about: About,
    /// The number of the next event.
    event_count: u64,
    /// The items that have ended.
    output: Vec<Json>,
    /// The item that has begun.
    item: Option<Item>,
    kept: Kept,
    has_refusal: bool,
    finish: Option<Finish>,
    usage: Option<Usage>,
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: Delta, out: &mut Events) -> Result<(), ResponseError> {
        match delta {
            Delta::Start(about) => {
                self.about = about;
                self.response("response.created", &Status::Running, out);
                self.response("response.in_progress", &Status::Running, out);
            }
            Delta::Text(text) => self.content(ContentKind::Text, &text, out)?,
            Delta::Refusal(text) => {
                self.has_refusal = true;
                self.content(ContentKind::Refusal, &text, out)?;
            }
            Delta::Reasoning(text) => self.reasoning(&text, out)?,
            Delta::Signature(signature) => self.encrypted(signature, out)?,
            Delta::RedactedReasoning(data) => {
                self.end_item("completed", out);
                self.encrypted(redacted(&data), out)?;
            }
            Delta::ToolCall { id, name } => {
                self.kept.add(id.len() + name.len())?;
                self.begin_item(Item::Call(ToolCall { id, name, arguments: String::new() }), out)?;
            }
            Delta::Arguments(piece) => self.arguments(&piece, out)?,
            Delta::Finish(finish) => self.finish = Some(finish),
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::End => self.end(out),
            Delta::Failure(error) => self.fail(error, out),
        }
        Ok(())
    }

    fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

impl Writer {
    fn event(&mut self, name: &str, members: ObjectBuilder, out: &mut Events) {
        let Json::Object(members) = members.into() else { unreachable!("a builder builds an object") };
        let mut event = ObjectBuilder::default().with("type", name).with("sequence_number", self.event_count);
        for (name, value) in members {
            event.set(&name, value);
        }
        self.event_count += 1;
        out.named(name, &event.into());
    }

    fn response(&mut self, name: &str, status: &Status, out: &mut Events) {
        let output = self.output.clone();
        let response = response(&self.about, self.options, status, output, self.usage);
        self.event(name, ObjectBuilder::default().with("response", response), out);
    }

    /// The place of the item that has begun.
    fn place(&self) -> u64 {
        self.output.len() as u64
    }

    /// The members of an event about a part of the item that has begun.
    fn about_item(&self, item: &Item) -> ObjectBuilder {
        ObjectBuilder::default()
            .with("item_id", item.id(&self.about, self.output.len()))
            .with("output_index", self.place())
    }

    fn begin_item(&mut self, item: Item, out: &mut Events) -> Result<(), ResponseError> {
        self.end_item("completed", out);
        self.kept.add(ITEM_BYTES)?;
        let json = item.json(&self.about, self.output.len(), "in_progress");
        let members = ObjectBuilder::default().with("output_index", self.place()).with("item", json);
        self.item = Some(item);
        self.event("response.output_item.added", members, out);
        Ok(())
    }

    fn content(&mut self, kind: ContentKind, piece: &str, out: &mut Events) -> Result<(), ResponseError> {
        if !matches!(self.item, Some(Item::Message(_))) {
            self.begin_item(Item::Message(Vec::new()), out)?;
        }
        let Some(mut item) = self.item.take() else { return Ok(()) };
        if let Item::Message(contents) = &mut item
            && contents.last().is_none_or(|(last, _)| *last != kind)
        {
            self.kept.add(CONTENT_BYTES)?;
            contents.push((kind, String::new()));
            let index = contents.len() - 1;
            if let Some((before, text)) = index.checked_sub(1).map(|before| contents[before].clone()) {
                self.end_content(&item, index - 1, before, &text, out);
            }
            let members =
                self.about_item(&item).with("content_index", index as u64).with("part", kind.json(""));
            self.event("response.content_part.added", members, out);
        }
        if let Item::Message(contents) = &mut item {
            let index = contents.len().saturating_sub(1) as u64;
            if let Some((_, text)) = contents.last_mut() {
                self.kept.push(text, piece)?;
            }
            let members = self.about_item(&item).with("content_index", index).with("delta", piece);
            match kind {
                ContentKind::Text => {
                    let members = members.with("logprobs", Vec::<Json>::new());
                    self.event("response.output_text.delta", members, out);
                }
                ContentKind::Refusal => self.event("response.refusal.delta", members, out),
            }
        }
        self.item = Some(item);
        Ok(())
    }

    fn end_content(&mut self, item: &Item, index: usize, kind: ContentKind, text: &str, out: &mut Events) {
        let members = || self.about_item(item).with("content_index", index as u64);
        let (whole, part) = (members(), members().with("part", kind.json(text)));
        match kind {
            ContentKind::Text => {
                let whole = whole.with("text", text).with("logprobs", Vec::<Json>::new());
                self.event("response.output_text.done", whole, out);
            }
            ContentKind::Refusal => {
                self.event("response.refusal.done", whole.with("refusal", text), out);
            }
        }
        self.event("response.content_part.done", part, out);
    }

    fn reasoning(&mut self, piece: &str, out: &mut Events) -> Result<(), ResponseError> {
        if !matches!(self.item, Some(Item::Reasoning { .. })) {
            self.begin_item(Item::Reasoning { text: String::new(), encrypted: None }, out)?;
        }
        let Some(mut item) = self.item.take() else { return Ok(()) };
        let members = || self.about_item(&item).with("summary_index", 0_u64);
        let (added, delta) = (members().with("part", summary_part("")), members().with("delta", piece));
        if let Item::Reasoning { text, .. } = &mut item {
            if text.is_empty() {
                self.event("response.reasoning_summary_part.added", added, out);
            }
            self.kept.push(text, piece)?;
        }
        self.item = Some(item);
        self.event("response.reasoning_summary_text.delta", delta, out);
        Ok(())
    }

    /// Ends reasoning with what its provider needs back. Without reasoning before it, it is an item of its own.
    fn encrypted(&mut self, content: String, out: &mut Events) -> Result<(), ResponseError> {
        self.kept.add(content.len())?;
        if !matches!(self.item, Some(Item::Reasoning { .. })) {
            self.begin_item(Item::Reasoning { text: String::new(), encrypted: None }, out)?;
        }
        if let Some(Item::Reasoning { encrypted, .. }) = &mut self.item {
            *encrypted = Some(content);
        }
        self.end_item("completed", out);
        Ok(())
    }

    fn arguments(&mut self, piece: &str, out: &mut Events) -> Result<(), ResponseError> {
        let Some(item @ Item::Call(_)) = &self.item else {
            return Err(ResponseError::Unsupported {
                field: "arguments".to_owned(),
                why: "they come after the next part of the answer has begun".to_owned(),
            });
        };
        let members = self.about_item(item).with("delta", piece);
        if let Some(Item::Call(call)) = &mut self.item {
            self.kept.push(&mut call.arguments, piece)?;
        }
        self.event("response.function_call_arguments.delta", members, out);
        Ok(())
    }

    fn end_item(&mut self, status: &str, out: &mut Events) {
        let Some(item) = self.item.take() else { return };
        match &item {
            Item::Message(contents) => {
                if let Some((index, (kind, text))) = contents.iter().enumerate().next_back() {
                    self.end_content(&item, index, *kind, text, out);
                }
            }
            Item::Reasoning { text, .. } => {
                if !text.is_empty() {
                    let members = || self.about_item(&item).with("summary_index", 0_u64);
                    let done = members().with("text", text.as_str());
                    let part = members().with("part", summary_part(text));
                    self.event("response.reasoning_summary_text.done", done, out);
                    self.event("response.reasoning_summary_part.done", part, out);
                }
            }
            Item::Call(call) => {
                let members = self.about_item(&item).with("name", call.name.as_str());
                let members = members.with("arguments", call.arguments.as_str());
                self.event("response.function_call_arguments.done", members, out);
            }
        }
        let json = item.json(&self.about, self.output.len(), status);
        let members = ObjectBuilder::default().with("output_index", self.place()).with("item", json.clone());
        self.event("response.output_item.done", members, out);
        self.output.push(json);
    }

    /// An answer that did not say why it ended stays incomplete.
    fn end(&mut self, out: &mut Events) {
        let Some(finish) = self.finish.take() else { return };
        let ending = Ending::of(&finish, self.has_refusal);
        self.end_item(ending.name(), out);
        let name = match ending {
            Ending::Completed => "response.completed",
            Ending::OutputLimit | Ending::Filtered => "response.incomplete",
        };
        self.response(name, &Status::Ended(ending), out);
    }

    fn fail(&mut self, error: ProviderError, out: &mut Events) {
        let code = if error.kind == ErrorKind::RateLimit { "rate_limit_exceeded" } else { "server_error" };
        self.response("response.failed", &Status::Failed { code, message: error.message }, out);
    }
}
