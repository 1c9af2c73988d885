//! The neutral form of a request: a conversation with its tools and settings.

use std::collections::HashMap;

use serde_json::Number;

use crate::error::RequestError;
use crate::json::{Json, ValuesLeft};

/// A value with the path of the field that it came from, for a writer that must refuse it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given<T> {
    pub(crate) field: String,
    pub(crate) value: T,
}

impl<T> Given<T> {
    /// A refusal of the value.
    pub(crate) fn unsupported(&self, why: impl Into<String>) -> RequestError {
        RequestError::Unsupported { field: self.field.clone(), why: why.into() }
    }
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Conversation {
    pub(crate) model: String,
    pub(crate) delivery: Delivery,
    /// Whether the client asked for usage at the end of a stream.
    pub(crate) usage_chunk: UsageChunk,
    pub(crate) turns: Vec<Turn>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) tool_choice: Option<Given<ToolChoice>>,
    pub(crate) parallel_calls: Option<Given<bool>>,
    pub(crate) stop: Option<Given<Vec<String>>>,
    pub(crate) sampling: Sampling,
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) output: Option<Given<OutputFormat>>,
    pub(crate) verbosity: Option<Given<String>>,
    pub(crate) thinking: Option<Given<Thinking>>,
    pub(crate) effort: Option<Given<Effort>>,
    /// Whether the client asked to see the reasoning, or not to see it.
    pub(crate) reasoning_shown: Option<Shown>,
    /// The client's opaque name of its user.
    pub(crate) user: Option<String>,
}

/// How the answer comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Delivery {
    #[default]
    Whole,
    Stream,
}

impl Delivery {
    /// The delivery that a format's `stream` member asks for.
    pub(crate) fn streamed(is_stream: bool) -> Self {
        if is_stream { Self::Stream } else { Self::Whole }
    }
}

/// Whether a stream ends with a chunk of usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UsageChunk {
    #[default]
    Omitted,
    Sent,
}

/// Whether reasoning is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Yes,
    No,
}

/// Consecutive parts of one role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) field: String,
    pub(crate) role: Role,
    pub(crate) parts: Vec<Given<Part>>,
}

/// Who speaks. Results of tools are the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    System,
    User,
    Assistant,
}

/// A part of a turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Refusal(String),
    Image(Image),
    /// The model's reasoning. The signature is the provider's, and opaque; it goes back to it.
    Reasoning {
        text: String,
        signature: Option<String>,
    },
    /// Reasoning that only the provider can read.
    RedactedReasoning(String),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
}

/// An image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Image {
    pub(crate) source: ImageSource,
    /// How closely the model looks, unless it decides.
    pub(crate) detail: Option<String>,
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ImageSource {
    Url(String),
    Base64 { media_type: String, data: String },
}

/// A call of a tool. The arguments are the text of a JSON object, as the model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// What a tool returned: texts and images.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolResult {
    pub(crate) call_id: String,
    pub(crate) content: Vec<Given<Part>>,
    pub(crate) outcome: Outcome,
}

/// Whether a tool worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Worked,
    Failed,
}

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) field: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// JSON Schema of the arguments.
    pub(crate) parameters: Option<Json>,
    /// Whether calls must match the schema.
    pub(crate) strict: Option<bool>,
}

/// Which tools the model calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolChoice {
    Auto,
    None,
    Required,
    Named(String),
    /// One or more of these.
    RequiredAmong(Vec<String>),
}

/// How tokens are sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sampling {
    pub(crate) temperature: Option<Given<Number>>,
    pub(crate) top_p: Option<Given<Number>>,
    pub(crate) top_k: Option<Given<Number>>,
    pub(crate) frequency_penalty: Option<Given<Number>>,
    pub(crate) presence_penalty: Option<Given<Number>>,
    pub(crate) seed: Option<Given<Number>>,
}

/// The form of the answer's text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutputFormat {
    /// Any JSON object.
    Json,
    Schema {
        name: Option<String>,
        description: Option<String>,
        schema: Json,
        strictness: Strictness,
    },
}

/// Whether an answer must match its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// As the client says.
    Chosen(Option<bool>),
    /// Always, in the client's format.
    Always,
}

/// Whether the model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thinking {
    Off,
    /// As much as the model finds right.
    Adaptive,
    /// With at most so many tokens.
    Budget(u64),
}

/// How much effort the model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    Minimal,
    Low,
    Medium,
    High,
    ExtraHigh,
    Max,
}

/// Budgets of thinking that stand for an effort, in tokens, as Google publishes them for OpenAI's efforts.
const BUDGETS: [(Effort, u64); 4] =
    [(Effort::Minimal, 512), (Effort::Low, 1024), (Effort::Medium, 8192), (Effort::High, 24_576)];

impl Effort {
    /// The budget that stands for the effort, in tokens.
    pub(crate) fn budget(self) -> u64 {
        let found = BUDGETS.iter().rev().find(|(effort, _)| *effort <= self);
        found.map_or(0, |(_, budget)| *budget)
    }

    /// The least effort whose budget is not below this one.
    pub(crate) fn of_budget(tokens: u64) -> Self {
        let found = BUDGETS.iter().find(|(_, budget)| tokens <= *budget);
        found.map_or(Self::High, |(effort, _)| *effort)
    }
}

impl Conversation {
    /// Adds parts. Those of the assistant join its last turn.
    pub(crate) fn add(&mut self, role: Role, field: &str, parts: Vec<Given<Part>>) {
        match self.turns.last_mut() {
            Some(last) if last.role == role && role == Role::Assistant => last.parts.extend(parts),
            Some(_) | None => self.turns.push(Turn { field: field.to_owned(), role, parts }),
        }
    }

    /// Takes the system turns out, which must come before all others.
    pub(crate) fn take_system(&mut self, format: &str) -> Result<Vec<Given<Part>>, RequestError> {
        let count = self.turns.iter().take_while(|turn| turn.role == Role::System).count();
        let system = self.turns.drain(..count).flat_map(|turn| turn.parts).collect();
        match self.turns.iter().find(|turn| turn.role == Role::System) {
            None => Ok(system),
            Some(turn) => Err(RequestError::Unsupported {
                field: turn.field.clone(),
                why: format!("{format} has system messages only before all others"),
            }),
        }
    }

    /// The turns, with neighbours of one role joined.
    pub(crate) fn joined_turns(self) -> Vec<Turn> {
        let mut joined: Vec<Turn> = Vec::new();
        for turn in self.turns {
            match joined.last_mut() {
                Some(last) if last.role == turn.role => last.parts.extend(turn.parts),
                Some(_) | None => joined.push(turn),
            }
        }
        joined
    }

    /// The names of the called tools by the ids of their calls. A repeated id is its last call.
    pub(crate) fn called_tools(&self) -> HashMap<String, String> {
        let parts = self.turns.iter().flat_map(|turn| &turn.parts);
        let calls = parts.filter_map(|part| match &part.value {
            Part::ToolCall(call) => Some((call.id.clone(), call.name.clone())),
            Part::Text(_)
            | Part::Refusal(_)
            | Part::Image(_)
            | Part::Reasoning { .. }
            | Part::RedactedReasoning(_)
            | Part::ToolResult(_) => None,
        });
        calls.collect()
    }
}

impl Given<OutputFormat> {
    /// The schema for a format that has no description beside it: the schema's own says it, before what it says already.
    /// None of a format without a schema.
    pub(crate) fn described_schema(&self) -> Result<Option<Json>, RequestError> {
        let OutputFormat::Schema { schema, description, .. } = &self.value else { return Ok(None) };
        let mut schema = schema.clone();
        let Some(text) = description.clone() else { return Ok(Some(schema)) };
        let refused = || self.unsupported("the schema has no place for its description");
        let Json::Object(members) = &mut schema else { return Err(refused()) };
        match members.iter_mut().find(|(name, _)| name == "description") {
            None => members.insert(0, ("description".to_owned(), text.into())),
            Some((_, Json::Text(own))) if *own == text => {}
            Some((_, Json::Text(own))) => *own = format!("{text}\n{own}"),
            Some(_) => return Err(refused()),
        }
        Ok(Some(schema))
    }
}

impl ToolCall {
    /// The arguments as an object. No text at all is an empty object.
    pub(crate) fn arguments_object(&self, left: &ValuesLeft) -> Result<Json, String> {
        if self.arguments.trim().is_empty() {
            return Ok(Json::Object(Vec::new()));
        }
        let arguments = Json::parse_within(self.arguments.as_bytes(), left)?;
        if arguments.is_object() { Ok(arguments) } else { Err("is no object".to_owned()) }
    }
}

impl ToolResult {
    /// The result for a format that cannot say that a tool failed: an object of JSON with the error says it instead.
    pub(crate) fn plain_content(self) -> Result<Vec<Given<Part>>, RequestError> {
        if self.outcome == Outcome::Worked {
            return Ok(self.content);
        }
        let field = self.content.first().map_or_else(String::new, |part| part.field.clone());
        let text = self.text()?;
        let error = crate::json::object! { "error": text };
        Ok(vec![Given { field, value: Part::Text(error.to_text()) }])
    }

    /// The result as one text. Images are refused.
    pub(crate) fn text(&self) -> Result<String, RequestError> {
        let mut text = String::new();
        for part in &self.content {
            let Part::Text(piece) = &part.value else {
                return Err(part.unsupported("a result of a tool can only be text there"));
            };
            text.push_str(piece);
        }
        Ok(text)
    }
}
