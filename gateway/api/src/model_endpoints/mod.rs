//! The model endpoints (completion.md section 11): the model's name chooses the provider, and a provider of another
//! format is served through a conversion. The rest of such a call is a forwarded call.

mod choice;
mod endpoint_url;
mod routes;

use farthing_core::event::RequestShape;
use farthing_formats::Format;

pub(crate) use self::choice::{AllowedProviders, Chosen, choose, listed_name};
pub(crate) use self::routes::{RequestOfAFormat, any_method, described, routes};

/// A model endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelEndpoint {
    /// OpenAI's Chat Completions.
    ChatCompletions,
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's embeddings.
    Embeddings,
    /// Anthropic's Messages.
    Messages,
}

impl ModelEndpoint {
    /// All of them.
    const ALL: [Self; 4] = [Self::ChatCompletions, Self::Responses, Self::Embeddings, Self::Messages];

    /// Its path.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Embeddings => "/v1/embeddings",
            Self::Messages => "/v1/messages",
        }
    }

    /// The format of its calls; `None` for embeddings, which are not converted.
    pub(crate) const fn format(self) -> Option<Format> {
        match self {
            Self::ChatCompletions => Some(Format::OpenaiChat),
            Self::Responses => Some(Format::OpenaiResponses),
            Self::Embeddings => None,
            Self::Messages => Some(Format::Anthropic),
        }
    }

    /// The shape of the spend keys that may call it.
    pub(crate) const fn shape(self) -> RequestShape {
        match self {
            Self::ChatCompletions | Self::Responses | Self::Embeddings => RequestShape::Openai,
            Self::Messages => RequestShape::Anthropic,
        }
    }
}
