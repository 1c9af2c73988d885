//! What a request asks for, in whichever API, and what the mock answers: words, an object that satisfies a schema, or
//! tool calls. An output token is one piece of a stream.

use serde_json::Value;

use super::given_media;
use super::response::{Call, MAX_WORDS, word_count, words};
use super::schema_value::value_of;

/// The characters of one piece of a JSON text.
const PIECE: usize = 8;

/// The most tool calls of an answer.
const MAX_CALLS: usize = 128;

/// The most answers to a call, as OpenAI has it.
const MAX_ANSWERS: u64 = 128;

/// The canned thoughts.
const THOUGHTS: [&str; 4] = ["The", " mock", " provider", " thinks."];

/// A tool that the model may call.
pub(super) struct Tool {
    /// Its name.
    pub(super) name: String,
    /// The schema of its arguments.
    pub(super) schema: Value,
}

/// Who spoke last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// A tool, with its result.
    ToolResult,
    /// Anyone else.
    Speaker,
}

/// Whether the answer begins with thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    /// It does.
    On,
    /// It does not.
    Off,
}

/// What a request asks for.
pub(super) struct Asked {
    /// The model.
    pub(super) model: String,
    /// The input tokens.
    pub(super) input_tokens: usize,
    /// The output limit.
    pub(super) limit: Option<u64>,
    /// The tools that may be called.
    pub(super) tools: Vec<Tool>,
    /// Who spoke last.
    pub(super) last: Last,
    /// The schema of a structured answer.
    pub(super) schema: Option<Value>,
    /// Whether thoughts are wanted.
    pub(super) thinking: Thinking,
}

/// A tool call.
pub(super) struct ToolCall {
    /// The number of the call in the answer.
    pub(super) index: usize,
    /// The tool's name.
    pub(super) name: String,
    /// The arguments, an object.
    pub(super) arguments: Value,
}

impl ToolCall {
    /// The arguments as JSON text, in the pieces of a stream.
    pub(super) fn pieces(&self) -> Vec<String> {
        pieces(&self.arguments.to_string())
    }
}

/// What is answered.
pub(super) enum Content {
    /// A text, in the pieces of a stream.
    Text(Vec<String>),
    /// Tool calls.
    Calls(Vec<ToolCall>),
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is complete.
    Stop,
    /// The output limit is reached.
    Length,
    /// Tools are to be called.
    Calls,
}

/// An answer.
pub(super) struct Answer {
    /// What is thought before, in the pieces of a stream. Empty without thinking.
    pub(super) thoughts: Vec<String>,
    /// What is answered.
    pub(super) content: Content,
    /// Why it ends.
    pub(super) ending: Ending,
    /// The output tokens, thoughts included.
    pub(super) output_tokens: usize,
}

impl Answer {
    /// The answer to what is asked: tool calls if there are tools and no result was given last, an object if there is a
    /// schema, the images and sound of the request if the control `describe` wants them, and words otherwise.
    pub(super) fn to(asked: &Asked, call: &Call<'_>) -> Self {
        let thoughts: Vec<String> = match asked.thinking {
            Thinking::On => THOUGHTS.map(str::to_owned).into(),
            Thinking::Off => Vec::new(),
        };
        let (content, ending) = if !asked.tools.is_empty() && asked.last == Last::Speaker {
            (Content::Calls(calls(asked, call)), Ending::Calls)
        } else if let Some(schema) = &asked.schema {
            (Content::Text(pieces(&value_of(schema).to_string())), Ending::Stop)
        } else if call.controls.text("describe").as_deref() == Some("media") {
            (Content::Text(pieces(&given_media::description(call.body))), Ending::Stop)
        } else {
            let wanted = word_count(call);
            let limit = asked.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_WORDS);
            let ending = if limit < wanted { Ending::Length } else { Ending::Stop };
            (Content::Text(words(wanted.min(limit)).collect()), ending)
        };
        let said = match &content {
            Content::Text(pieces) => pieces.len(),
            Content::Calls(calls) => calls.iter().map(|call| call.pieces().len()).sum(),
        };
        Self { output_tokens: thoughts.len() + said, thoughts, content, ending }
    }

    /// The whole text; None of tool calls.
    pub(super) fn text(&self) -> Option<String> {
        match &self.content {
            Content::Text(pieces) => Some(pieces.concat()),
            Content::Calls(_) => None,
        }
    }
}

/// As many calls as the control `calls` says, of each tool in turn.
fn calls(asked: &Asked, call: &Call<'_>) -> Vec<ToolCall> {
    let count = call.controls.number("calls").unwrap_or(1).clamp(1, MAX_CALLS);
    let tools = asked.tools.iter().cycle().take(count).enumerate();
    let made = tools.map(|(index, tool)| {
        let arguments = match value_of(&tool.schema) {
            Value::Object(members) => Value::Object(members),
            _ => Value::Object(serde_json::Map::new()),
        };
        ToolCall { index, name: tool.name.clone(), arguments }
    });
    made.collect()
}

fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}

/// The words of a message, of a part of one, or of a list of them.
pub(super) fn count_words(content: &Value) -> usize {
    match content {
        Value::String(text) => text.split_whitespace().count(),
        Value::Array(parts) => parts.iter().map(count_words).sum(),
        Value::Object(part) => {
            let texts = ["text", "content", "parts", "output"].iter().filter_map(|name| part.get(*name));
            texts.map(count_words).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// The string at this path, or an empty one.
pub(super) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list of this name, or an empty one.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether the member is `true`.
pub(super) fn is_true(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// How many answers the member asks for: one, unless it says more.
pub(super) fn answers_of(body: &Value, name: &str) -> usize {
    let number = body.get(name).and_then(Value::as_u64).unwrap_or(1).clamp(1, MAX_ANSWERS);
    usize::try_from(number).unwrap_or(1)
}

/// The model that the body names, or the mock's own.
pub(super) fn model_of(body: &Value) -> String {
    body.get("model").and_then(Value::as_str).unwrap_or("mock-1").to_owned()
}

/// Which tools a request lets the model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    /// Any of them.
    Any,
    /// The one of this name.
    Only(&'a str),
    /// None.
    Off,
}

impl Choice<'_> {
    /// The tools that are left.
    pub(super) fn of(self, tools: impl Iterator<Item = Tool>) -> Vec<Tool> {
        match self {
            Self::Any => tools.collect(),
            Self::Only(name) => tools.filter(|tool| tool.name == name).collect(),
            Self::Off => Vec::new(),
        }
    }
}
