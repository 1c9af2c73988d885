//! The conversion between two formats.

use crate::error::{RequestError, ResponseError};
use crate::stream_converter::StreamConverter;

/// A format that a client or a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI's Chat Completions, which many other providers speak, too.
    OpenaiChat,
    /// OpenAI's Responses.
    OpenaiResponses,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's `generateContent`.
    Google,
}

/// A conversion between a client's format and a provider's format, which differ.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    client: Format,
    provider: Format,
    answer: AnswerOptions,
}

/// Facts about a request that its body does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts<'a> {
    /// The model in the URL, of a Google client; otherwise the model to send in place of the body's.
    pub model: Option<&'a str>,
    /// Whether the URL asks for a stream, of a Google client.
    pub stream: bool,
    /// The most tokens that the model can write. Anthropic needs a limit: it is used if the request has none.
    pub max_output_tokens: Option<u64>,
}

/// A request in the provider's format.
#[derive(Clone, Debug)]
pub struct ConvertedRequest {
    /// The body, JSON.
    pub body: Vec<u8>,
    /// The model. A Google provider has it in its URL.
    pub model: String,
    /// Whether a stream is asked for. A Google provider has it in its URL: `:streamGenerateContent?alt=sse`.
    pub stream: bool,
    /// What the request says about its answer; for [`Conversion::for_answer`].
    pub answer: AnswerOptions,
}

/// How an answer is written, beyond what the provider's response says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Whether a stream ends with a chunk of usage: `stream_options.include_usage` of an OpenAI client. The other
    /// formats always report usage.
    pub include_usage: bool,
    /// The time of the answer in seconds since 1970, for a client's format that has it when the provider's has not.
    pub created: u64,
}

impl Conversion {
    /// The conversion between two formats, or `None` if they are the same.
    pub fn between(client: Format, provider: Format) -> Option<Self> {
        (client != provider).then_some(Self { client, provider, answer: AnswerOptions::default() })
    }

    /// The same conversion for the answer to one request.
    #[must_use]
    pub fn for_answer(self, answer: AnswerOptions) -> Self {
        Self { answer, ..self }
    }

    /// Converts a request of the client.
    pub fn request(&self, body: &[u8], facts: &RequestFacts<'_>) -> Result<ConvertedRequest, RequestError> {
        let _ = (self.client, self.provider, body, facts);
        Err(RequestError::Unsupported { field: "model".to_owned(), why: "not converted yet".to_owned() })
    }

    /// Converts a complete successful response of the provider.
    pub fn response(&self, body: &[u8]) -> Result<Vec<u8>, ResponseError> {
        let _ = (self.answer, body);
        Err(ResponseError::Unsupported { field: "id".to_owned(), why: "not converted yet".to_owned() })
    }

    /// Converts an error response of the provider, whatever its body is. The status stays.
    pub fn error(&self, status: u16, body: &[u8]) -> Vec<u8> {
        let _ = (status, body);
        Vec::new()
    }

    /// A converter of a streamed response.
    pub fn stream(&self) -> StreamConverter {
        StreamConverter::new()
    }
}
