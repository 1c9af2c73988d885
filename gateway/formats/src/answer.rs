//! The neutral form of a response: what the model answered, why it stopped, and what it used.

use crate::conversation::Part;

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) about: About,
    pub(crate) parts: Vec<Part>,
    pub(crate) finish: Finish,
    pub(crate) usage: Option<Usage>,
}

/// What identifies an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct About {
    /// The provider's id, without the prefix of its format.
    pub(crate) id: String,
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: Option<u64>,
}

/// Why an answer ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Finish {
    #[default]
    Stop,
    /// At a stop sequence, which not every format names.
    StopSequence(String),
    /// At the output limit or the end of the context.
    Length,
    ToolCalls,
    /// By a filter of the provider.
    Filtered,
    /// The model refused.
    Refusal,
}

impl Finish {
    /// Why an answer with such parts ended, if its provider says so of Chat Completions: a plain end is one for its calls.
    pub(crate) fn of_answer(self, has_calls: bool, has_refusal: bool) -> Self {
        match self {
            Self::Stop if has_refusal => Self::Refusal,
            Self::Stop if has_calls => Self::ToolCalls,
            other => other,
        }
    }
}

/// Used tokens, in OpenAI's sense: input includes cached tokens, output includes reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    /// Of the input, what was read from a cache.
    pub(crate) cached: u64,
    /// Of the input, what was written to a cache.
    pub(crate) cache_written: u64,
    pub(crate) output: u64,
    /// Of the output, reasoning; if the provider says it.
    pub(crate) reasoning: Option<u64>,
}

impl Usage {
    /// Input and output.
    pub(crate) fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// The input that was neither read from a cache nor written to one.
    pub(crate) fn uncached(self) -> u64 {
        self.input.saturating_sub(self.cached).saturating_sub(self.cache_written)
    }
}

impl About {
    /// The id with the prefix of a format.
    pub(crate) fn id_with(&self, prefix: &str) -> String {
        let id = if self.id.is_empty() { "converted" } else { &self.id };
        format!("{prefix}{id}")
    }
}

/// The id without the prefix of its format.
pub(crate) fn bare_id(id: &str, prefix: &str) -> String {
    id.strip_prefix(prefix).unwrap_or(id).to_owned()
}

/// An id for a call that the provider gave none: the same for the same answer and the same place in it. Anthropic
/// takes letters, digits, `_` and `-` only.
pub(crate) fn made_call_id(answer_id: &str, number: usize) -> String {
    let answer: String =
        answer_id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).collect();
    if answer.is_empty() { format!("call_{number}") } else { format!("call_{answer}_{number}") }
}
