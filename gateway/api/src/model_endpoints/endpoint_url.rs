//! The URL at which a provider serves a call of a model endpoint, and the format that it speaks there. Pure.

use farthing_formats::Format;

use super::ModelEndpoint;

/// A provider's own endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderEndpoint {
    /// Its path, which may have the model in it.
    pub(super) path: String,
    /// The format that the provider speaks there; `None` for embeddings.
    pub(super) format: Option<Format>,
}

/// What a provider with OpenAI's format serves.
#[derive(Debug, Clone, Copy)]
struct OpenaiLike {
    /// The path before `/chat/completions`.
    base: &'static str,
    responses: Serves,
    embeddings: Serves,
}

/// Whether a provider serves an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serves {
    Yes,
    No,
}

/// The endpoint of `provider` for a call for `model` that came to `called`; `None` if it serves none.
pub(super) fn provider_endpoint(
    provider: &str,
    called: ModelEndpoint,
    model: &str,
) -> Option<ProviderEndpoint> {
    match provider {
        "anthropic" => anthropic(called),
        "google" => google(called, model),
        _ => openai_like(provider).and_then(|provider| provider.endpoint(called)),
    }
}

const fn provider_of(base: &'static str, responses: Serves, embeddings: Serves) -> OpenaiLike {
    OpenaiLike { base, responses, embeddings }
}

/// The providers with OpenAI's format that have prices in the built-in catalogue.
const OPENAI_LIKE: [(&str, OpenaiLike); 11] = [
    ("openai", provider_of("/v1", Serves::Yes, Serves::Yes)),
    ("mistral", provider_of("/v1", Serves::No, Serves::Yes)),
    ("deepseek", provider_of("/v1", Serves::No, Serves::No)),
    ("xai", provider_of("/v1", Serves::Yes, Serves::No)),
    ("groq", provider_of("/openai/v1", Serves::Yes, Serves::No)),
    ("together", provider_of("/v1", Serves::No, Serves::Yes)),
    ("fireworks", provider_of("/inference/v1", Serves::No, Serves::Yes)),
    ("cohere", provider_of("/compatibility/v1", Serves::No, Serves::Yes)),
    ("cerebras", provider_of("/v1", Serves::No, Serves::No)),
    ("moonshot", provider_of("/v1", Serves::No, Serves::No)),
    ("zai", provider_of("/api/paas/v4", Serves::No, Serves::No)),
];

fn openai_like(provider: &str) -> Option<OpenaiLike> {
    let found = OPENAI_LIKE.iter().find(|(name, _)| *name == provider);
    found.map(|(_, like)| *like)
}

impl OpenaiLike {
    fn endpoint(self, called: ModelEndpoint) -> Option<ProviderEndpoint> {
        let (end, format) = match called {
            ModelEndpoint::Responses if self.responses == Serves::Yes => {
                ("responses", Some(Format::OpenaiResponses))
            }
            ModelEndpoint::ChatCompletions | ModelEndpoint::Responses | ModelEndpoint::Messages => {
                ("chat/completions", Some(Format::OpenaiChat))
            }
            ModelEndpoint::Embeddings if self.embeddings == Serves::Yes => ("embeddings", None),
            ModelEndpoint::Embeddings => return None,
        };
        Some(ProviderEndpoint { path: format!("{}/{end}", self.base), format })
    }
}

fn anthropic(called: ModelEndpoint) -> Option<ProviderEndpoint> {
    match called {
        ModelEndpoint::ChatCompletions | ModelEndpoint::Responses | ModelEndpoint::Messages => {
            Some(ProviderEndpoint { path: "/v1/messages".to_owned(), format: Some(Format::Anthropic) })
        }
        ModelEndpoint::Embeddings => None,
    }
}

/// Google has the model in the path. Its embeddings have OpenAI's format at a path of their own.
fn google(called: ModelEndpoint, model: &str) -> Option<ProviderEndpoint> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match called {
        ModelEndpoint::ChatCompletions | ModelEndpoint::Responses | ModelEndpoint::Messages => {
            let fits = !model.is_empty() && !model.starts_with('.') && model.bytes().all(is_plain);
            fits.then(|| ProviderEndpoint {
                path: format!("/v1beta/models/{model}:generateContent"),
                format: Some(Format::Google),
            })
        }
        ModelEndpoint::Embeddings => {
            Some(ProviderEndpoint { path: "/v1beta/openai/embeddings".to_owned(), format: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_serves_a_call_in_its_own_format_where_it_has_no_endpoint_of_the_callers() {
        use ModelEndpoint::{ChatCompletions, Embeddings, Messages, Responses};
        for (provider, called, path, format) in [
            ("openai", ChatCompletions, "/v1/chat/completions", Some(Format::OpenaiChat)),
            ("openai", Responses, "/v1/responses", Some(Format::OpenaiResponses)),
            ("openai", Messages, "/v1/chat/completions", Some(Format::OpenaiChat)),
            ("openai", Embeddings, "/v1/embeddings", None),
            ("mistral", Responses, "/v1/chat/completions", Some(Format::OpenaiChat)),
            ("groq", Responses, "/openai/v1/responses", Some(Format::OpenaiResponses)),
            ("fireworks", Responses, "/inference/v1/chat/completions", Some(Format::OpenaiChat)),
            ("zai", Messages, "/api/paas/v4/chat/completions", Some(Format::OpenaiChat)),
            ("anthropic", ChatCompletions, "/v1/messages", Some(Format::Anthropic)),
            ("anthropic", Messages, "/v1/messages", Some(Format::Anthropic)),
            ("google", Messages, "/v1beta/models/m-1.5:generateContent", Some(Format::Google)),
            ("google", Embeddings, "/v1beta/openai/embeddings", None),
        ] {
            let endpoint = provider_endpoint(provider, called, "m-1.5");
            let expected = ProviderEndpoint { path: path.to_owned(), format };
            assert_eq!(endpoint, Some(expected), "{provider} {called:?}");
        }
        for (provider, called, model) in [
            ("anthropic", Embeddings, "m"),
            ("xai", Embeddings, "m"),
            ("other", ChatCompletions, "m"),
            ("plain", Messages, "m"),
            ("google", ChatCompletions, "a/../b"),
            ("google", ChatCompletions, ".."),
            ("google", ChatCompletions, "a:b"),
            ("google", ChatCompletions, "a?b"),
            ("google", ChatCompletions, "a%2fb"),
            ("google", ChatCompletions, ""),
        ] {
            assert_eq!(provider_endpoint(provider, called, model), None, "{provider} {called:?} {model}");
        }
    }
}
