//! OpenAI's Responses: writes a client's response.

use crate::answer::{About, Answer, Finish, Usage};
use crate::conversation::{Part, ToolCall};
use crate::conversion::AnswerOptions;
use crate::json::{Json, ObjectBuilder, object};

use super::REDACTED;
use super::response_reader::ID_PREFIX;

/// Writes a response.
pub(crate) fn write_response(answer: Answer, options: AnswerOptions) -> Json {
    let mut items: Vec<Item> = Vec::new();
    for part in answer.parts {
        add(part, &mut items);
    }
    let count = items.len();
    let ending = Ending::of(&answer.finish, items.iter().any(Item::is_refusal));
    let output = items.iter().enumerate().map(|(index, item)| {
        let status = if index + 1 == count { ending.name() } else { "completed" };
        item.json(&answer.about, index, status)
    });
    let output = output.collect();
    response(&answer.about, options, &Status::Ended(ending), output, answer.usage)
}

/// The state of a response.
pub(super) enum Status {
    Running,
    Ended(Ending),
    Failed { code: &'static str, message: String },
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Completed,
    OutputLimit,
    Filtered,
}

impl Ending {
    /// A refusal is a complete answer if it has words; without them it is what OpenAI calls a filter.
    pub(super) fn of(finish: &Finish, has_refusal: bool) -> Self {
        match finish {
            Finish::Refusal if has_refusal => Self::Completed,
            Finish::Stop | Finish::StopSequence(_) | Finish::ToolCalls => Self::Completed,
            Finish::Length => Self::OutputLimit,
            Finish::Filtered | Finish::Refusal => Self::Filtered,
        }
    }

    /// The status.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::OutputLimit | Self::Filtered => "incomplete",
        }
    }
}

/// The object of a response. What the request said is not repeated.
pub(super) fn response(
    about: &About,
    options: AnswerOptions,
    status: &Status,
    output: Vec<Json>,
    used: Option<Usage>,
) -> Json {
    let (name, error, reason) = match status {
        Status::Running => ("in_progress", None, None),
        Status::Ended(ending) => match ending {
            Ending::Completed => (ending.name(), None, None),
            Ending::OutputLimit => (ending.name(), None, Some("max_output_tokens")),
            Ending::Filtered => (ending.name(), None, Some("content_filter")),
        },
        Status::Failed { code, message } => {
            ("failed", Some(object! { "code": *code, "message": message.as_str() }), None)
        }
    };
    object! {
        "id": about.id_with(ID_PREFIX),
        "object": "response",
        "created_at": about.created.unwrap_or(options.created),
        "status": name,
        "background": false,
        "error": error,
        "incomplete_details": reason.map(|reason| object! { "reason": reason }),
        "instructions": Json::Null,
        "max_output_tokens": Json::Null,
        "metadata": Json::Object(Vec::new()),
        "model": about.model.as_str(),
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": Json::Null,
        "reasoning": object! { "effort": Json::Null, "summary": Json::Null },
        "store": false,
        "temperature": Json::Null,
        "text": object! { "format": object! { "type": "text" } },
        "tool_choice": "auto",
        "tools": Vec::<Json>::new(),
        "top_p": Json::Null,
        "truncation": "disabled",
        "usage": used.map(usage),
        "user": Json::Null,
    }
}

/// An item of the output.
#[derive(Debug)]
pub(super) enum Item {
    Message(Vec<(ContentKind, String)>),
    Reasoning { text: String, encrypted: Option<String> },
    Call(ToolCall),
}

/// What a content of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentKind {
    Text,
    Refusal,
}

impl ContentKind {
    /// The content as JSON.
    pub(super) fn json(self, text: &str) -> Json {
        match self {
            Self::Text => {
                let none = Vec::<Json>::new();
                object! { "type": "output_text", "text": text, "annotations": none.clone(), "logprobs": none }
            }
            Self::Refusal => object! { "type": "refusal", "refusal": text },
        }
    }
}

/// Adds a part of an answer. Neighbouring contents are one message, and neighbouring texts one content.
fn add(part: Part, items: &mut Vec<Item>) {
    let content = match part {
        Part::Text(text) => (ContentKind::Text, text),
        Part::Refusal(text) => (ContentKind::Refusal, text),
        Part::Reasoning { text, signature } => {
            items.push(Item::Reasoning { text, encrypted: signature });
            return;
        }
        Part::RedactedReasoning(data) => {
            items.push(Item::Reasoning { text: String::new(), encrypted: Some(redacted(&data)) });
            return;
        }
        Part::ToolCall(call) => {
            items.push(Item::Call(call));
            return;
        }
        Part::Image(_) | Part::ToolResult(_) => unreachable!("no answer has them"),
    };
    match items.last_mut() {
        Some(Item::Message(contents)) => match contents.last_mut() {
            Some((kind, text)) if *kind == content.0 => text.push_str(&content.1),
            Some(_) | None => contents.push(content),
        },
        Some(Item::Reasoning { .. } | Item::Call(_)) | None => items.push(Item::Message(vec![content])),
    }
}

/// `encrypted_content` of reasoning that only another provider can read.
pub(super) fn redacted(data: &str) -> String {
    format!("{REDACTED}{data}")
}

impl Item {
    /// Whether the item has words by which the model refuses.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Message(contents) => contents.iter().any(|(kind, _)| *kind == ContentKind::Refusal),
            Self::Reasoning { .. } | Self::Call(_) => false,
        }
    }

    /// The id of the item at its place in the output.
    pub(super) fn id(&self, about: &About, index: usize) -> String {
        let prefix = match self {
            Self::Message(_) => "msg",
            Self::Reasoning { .. } => "rs",
            Self::Call(_) => "fc",
        };
        format!("{prefix}_{}_{index}", about.id_with(""))
    }

    /// The item as JSON.
    pub(super) fn json(&self, about: &About, index: usize, status: &str) -> Json {
        let id = self.id(about, index);
        match self {
            Self::Message(contents) => {
                let contents: Vec<Json> = contents.iter().map(|(kind, text)| kind.json(text)).collect();
                object! {
                    "id": id,
                    "type": "message",
                    "status": status,
                    "role": "assistant",
                    "content": contents,
                }
            }
            Self::Reasoning { text, encrypted } => {
                let summary = if text.is_empty() { Vec::new() } else { vec![summary_part(text)] };
                ObjectBuilder::default()
                    .with("id", id)
                    .with("type", "reasoning")
                    .with("summary", summary)
                    .with_some("encrypted_content", encrypted.as_deref())
                    .into()
            }
            Self::Call(call) => object! {
                "id": id,
                "type": "function_call",
                "status": status,
                "call_id": call.id.as_str(),
                "name": call.name.as_str(),
                "arguments": call.arguments.as_str(),
            },
        }
    }
}

/// A part of a summary.
pub(super) fn summary_part(text: &str) -> Json {
    object! { "type": "summary_text", "text": text }
}

fn usage(usage: Usage) -> Json {
    let input = object! { "cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written };
    object! {
        "input_tokens": usage.input,
        "input_tokens_details": input,
        "output_tokens": usage.output,
        "output_tokens_details": object! { "reasoning_tokens": usage.reasoning.unwrap_or(0) },
        "total_tokens": usage.total(),
    }
}
