//! The conversion between two formats.

use crate::answer::Answer;
use crate::conversation::{Conversation, Delivery, Role, UsageChunk};
use crate::delta::StreamWriter;
use crate::error::{RequestError, ResponseError};
use crate::fields::Field;
use crate::json::Json;
use crate::provider_error::ProviderError;
use crate::stream_converter::StreamConverter;
use crate::whole_as_stream::events_of;
use crate::{anthropic, google, openai_chat, openai_responses};

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
    /// The member that limits the output, of a provider of Chat Completions.
    pub chat_limit: ChatLimitMember,
}

/// The member of Chat Completions that limits the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatLimitMember {
    /// `max_completion_tokens`, OpenAI's present name.
    #[default]
    MaxCompletionTokens,
    /// `max_tokens`, the older name, which is the only one at many other providers.
    MaxTokens,
}

impl ChatLimitMember {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
        }
    }
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
    /// Whether a stream ends with a chunk of usage: `stream_options.include_usage` of a client of Chat Completions.
    /// The other formats always report usage.
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
        let document = Json::parse(body).map_err(|message| RequestError::NotJson { message })?;
        let conversation = self.client.read_request(document, facts)?;
        if !(self.client.is_openai() && self.provider.is_openai()) {
            refuse_continuation(&conversation)?;
        }
        let model = conversation.model.clone();
        let stream = conversation.delivery == Delivery::Stream;
        let include_usage = conversation.usage_chunk == UsageChunk::Sent;
        let body = self.provider.write_request(conversation, self.client, facts)?;
        let answer = AnswerOptions { include_usage, ..self.answer };
        Ok(ConvertedRequest { body: body.to_text().into_bytes(), model, stream, answer })
    }

    /// Converts a complete successful response of the provider.
    pub fn response(&self, body: &[u8]) -> Result<Vec<u8>, ResponseError> {
        let answer = self.read_response(body)?;
        let response = match self.client {
            Format::OpenaiChat => openai_chat::write_response(answer, self.answer),
            Format::OpenaiResponses => openai_responses::write_response(answer, self.answer),
            Format::Anthropic => anthropic::write_response(answer)?,
            Format::Google => google::write_response(answer)?,
        };
        Ok(response.to_text().into_bytes())
    }

    /// Converts a complete successful response of the provider into the events of a stream, for a client that asked for
    /// one. At most 10,000 parts become events.
    pub fn response_as_stream(&self, body: &[u8]) -> Result<Vec<u8>, ResponseError> {
        events_of(self.read_response(body)?, self.stream_writer().as_mut())
    }

    fn read_response(&self, body: &[u8]) -> Result<Answer, ResponseError> {
        let document = Json::parse(body).map_err(|message| ResponseError::NotJson { message })?;
        let document = Field::root(document);
        match self.provider {
            Format::OpenaiChat => openai_chat::read_response(document),
            Format::OpenaiResponses => openai_responses::read_response(document),
            Format::Anthropic => anthropic::read_response(document),
            Format::Google => google::read_response(document),
        }
    }

    /// Converts an error response of the provider, whatever its body is. The status stays.
    pub fn error(&self, status: u16, body: &[u8]) -> Vec<u8> {
        let error = ProviderError::read(status, body);
        let body = match self.client {
            Format::OpenaiChat | Format::OpenaiResponses => openai_chat::write_error(&error),
            Format::Anthropic => anthropic::write_error(&error),
            Format::Google => google::write_error(status, &error),
        };
        body.to_text().into_bytes()
    }

    /// A converter of a streamed response.
    pub fn stream(&self) -> StreamConverter {
        let reader = match self.provider {
            Format::OpenaiChat => openai_chat::stream_reader(),
            Format::OpenaiResponses => openai_responses::stream_reader(),
            Format::Anthropic => anthropic::stream_reader(),
            Format::Google => google::stream_reader(),
        };
        StreamConverter::new(reader, self.stream_writer())
    }

    fn stream_writer(&self) -> Box<dyn StreamWriter> {
        match self.client {
            Format::OpenaiChat => openai_chat::stream_writer(self.answer),
            Format::OpenaiResponses => openai_responses::stream_writer(self.answer),
            Format::Anthropic => anthropic::stream_writer(),
            Format::Google => google::stream_writer(),
        }
    }
}

impl Format {
    fn is_openai(self) -> bool {
        matches!(self, Self::OpenaiChat | Self::OpenaiResponses)
    }

    pub(crate) fn read_request(
        self,
        document: Json,
        facts: &RequestFacts<'_>,
    ) -> Result<Conversation, RequestError> {
        let document = Field::root(document).object()?;
        match self {
            Self::OpenaiChat => openai_chat::read_request(document, facts),
            Self::OpenaiResponses => openai_responses::read_request(document, facts),
            Self::Anthropic => anthropic::read_request(document, facts),
            Self::Google => google::read_request(document, facts),
        }
    }

    pub(crate) fn write_request(
        self,
        conversation: Conversation,
        client: Self,
        facts: &RequestFacts<'_>,
    ) -> Result<Json, RequestError> {
        match self {
            Self::OpenaiChat => openai_chat::write_request(conversation, facts.chat_limit),
            Self::OpenaiResponses => openai_responses::write_request(conversation),
            Self::Anthropic => {
                let limit = conversation.max_output_tokens.or(facts.max_output_tokens);
                let limit = limit.ok_or_else(|| RequestError::Unsupported {
                    field: client.output_limit_field().to_owned(),
                    why: "Anthropic needs an output limit, and the model's own is not known".to_owned(),
                })?;
                anthropic::write_request(conversation, limit)
            }
            Self::Google => google::write_request(conversation, client),
        }
    }

    /// The field with the output limit.
    fn output_limit_field(self) -> &'static str {
        match self {
            Self::OpenaiChat => "max_completion_tokens",
            Self::OpenaiResponses => "max_output_tokens",
            Self::Anthropic => "max_tokens",
            Self::Google => "generationConfig.maxOutputTokens",
        }
    }
}

/// Refuses a conversation whose last turn is the assistant's. Anthropic's model continues such a turn, which the others
/// do not, and no client of the others expects.
fn refuse_continuation(conversation: &Conversation) -> Result<(), RequestError> {
    match conversation.turns.last() {
        Some(turn) if turn.role == Role::Assistant => Err(RequestError::Unsupported {
            field: turn.field.clone(),
            why: "the formats differ in what becomes of an assistant's message at the end".to_owned(),
        }),
        Some(_) => Ok(()),
        None => {
            Err(RequestError::Invalid { field: "body".to_owned(), message: "has no messages".to_owned() })
        }
    }
}
