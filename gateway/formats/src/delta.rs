//! The neutral form of a streamed response, and what a format's reader and writer of streams do.

use crate::answer::{About, Finish, Usage};
use crate::error::ResponseError;
use crate::json::Json;
use crate::provider_error::ProviderError;

/// A piece of a streamed answer. Pieces that follow each other belong to one part of the answer, if they are of one
/// kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delta {
    Start(About),
    Text(String),
    Refusal(String),
    Reasoning(String),
    /// The signature of the reasoning before it. It may stand alone.
    Signature(String),
    RedactedReasoning(String),
    /// A call begins. Its arguments follow.
    ToolCall {
        id: String,
        name: String,
    },
    /// The next piece of the arguments of the call that began last.
    Arguments(String),
    Finish(Finish),
    /// All that was used so far.
    Usage(Usage),
    /// The provider's own end of the stream.
    End,
    /// The provider's error, which ends the stream.
    Failure(ProviderError),
}

/// Reads a provider's events.
pub(crate) trait StreamReader: Send + Sync {
    /// Reads the data of an event. Its name is not needed: every format says in the data what the event is.
    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), ResponseError>;

    /// The provider's response ended. Only a format whose streams have no end of their own adds something.
    fn end(&mut self, deltas: &mut Vec<Delta>) {
        let _ = deltas;
    }
}

/// Writes a client's events.
pub(crate) trait StreamWriter: Send + Sync {
    /// Writes what the client gets for this piece.
    fn write(&mut self, delta: Delta, out: &mut Events) -> Result<(), ResponseError>;

    /// The bytes of the answer that it keeps.
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// Written events.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<u8>);

impl Events {
    /// Adds an event without a name.
    pub(crate) fn data(&mut self, data: &Json) {
        self.line("data", &data.to_text());
        self.0.push(b'\n');
    }

    /// Adds an event with a name.
    pub(crate) fn named(&mut self, name: &str, data: &Json) {
        self.line("event", name);
        self.data(data);
    }

    /// Adds OpenAI's end of a stream.
    pub(crate) fn done(&mut self) {
        self.line("data", "[DONE]");
        self.0.push(b'\n');
    }

    fn line(&mut self, field: &str, value: &str) {
        for piece in [field, ": ", value, "\n"] {
            self.0.extend_from_slice(piece.as_bytes());
        }
    }

    /// The bytes of the events.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Parses the data of an event.
pub(crate) fn parse(data: &str) -> Result<Json, ResponseError> {
    Json::parse(data.as_bytes()).map_err(|message| ResponseError::NotJson { message })
}

/// The most bytes of an answer that a writer keeps while it streams, to repeat them later.
pub(crate) const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;

/// Counts what a writer keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept(usize);

impl Kept {
    /// Adds a piece to what is kept.
    pub(crate) fn push(&mut self, text: &mut String, piece: &str) -> Result<(), ResponseError> {
        self.add(piece.len())?;
        text.push_str(piece);
        Ok(())
    }

    /// Counts so many bytes more.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), ResponseError> {
        self.0 = self.0.saturating_add(bytes);
        if self.0 > MAX_KEPT_BYTES {
            return Err(ResponseError::TooLong { limit_bytes: MAX_KEPT_BYTES });
        }
        Ok(())
    }

    /// What was counted.
    pub(crate) const fn bytes(&self) -> usize {
        self.0
    }
}
