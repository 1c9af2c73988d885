//! The URL at which a provider serves a call of a model endpoint, and the format that it speaks there. Pure.

use farthing_formats::Format;

use super::ModelEndpoint;
use crate::providers::{BesideChat, Served};

/// A provider's own endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderEndpoint {
    /// Its path, which may have the model in it.
    pub(super) path: String,
    /// The format that the provider speaks there; `None` for embeddings.
    pub(super) format: Option<Format>,
}

/// Why a provider serves no call for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotServed {
    /// It has no such endpoint, or no model can have this name.
    NoSuchEndpoint,
    /// The model is one of Bedrock's that have a format of their own.
    FormatOfBedrock,
}

/// What the names of OpenAI's models begin with at Bedrock.
const OPENAI_AT_BEDROCK: &str = "openai.";

/// The endpoint of a provider that serves as `served` says, for a call for `model` that came to `called`.
pub(super) fn provider_endpoint(
    served: Served,
    called: ModelEndpoint,
    model: &str,
) -> Result<ProviderEndpoint, NotServed> {
    let found = match served {
        Served::Openai { base, beside } => openai_like(base, beside, called),
        Served::Anthropic => anthropic(called),
        Served::Google => google(called, model),
        Served::Bedrock if called != ModelEndpoint::Embeddings && !model.starts_with(OPENAI_AT_BEDROCK) => {
            return Err(NotServed::FormatOfBedrock);
        }
        Served::Bedrock => openai_like("/openai/v1", &[], called),
        Served::Nowhere => None,
    };
    found.ok_or(NotServed::NoSuchEndpoint)
}

fn openai_like(base: &str, beside: &[BesideChat], called: ModelEndpoint) -> Option<ProviderEndpoint> {
    let (end, format) = match called {
        ModelEndpoint::Responses if beside.contains(&BesideChat::Responses) => {
            ("responses", Some(Format::OpenaiResponses))
        }
        ModelEndpoint::ChatCompletions | ModelEndpoint::Responses | ModelEndpoint::Messages => {
            ("chat/completions", Some(Format::OpenaiChat))
        }
        ModelEndpoint::Embeddings if beside.contains(&BesideChat::Embeddings) => ("embeddings", None),
        ModelEndpoint::Embeddings => return None,
    };
    Some(ProviderEndpoint { path: format!("{base}/{end}"), format })
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
    use crate::providers::{BUILT_IN, served_at};

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
            ("perplexity", ChatCompletions, "/chat/completions", Some(Format::OpenaiChat)),
            ("openrouter", Responses, "/api/v1/chat/completions", Some(Format::OpenaiChat)),
            ("azure", Responses, "/openai/v1/responses", Some(Format::OpenaiResponses)),
            ("azure", Embeddings, "/openai/v1/embeddings", None),
            ("dashscope", Embeddings, "/compatible-mode/v1/embeddings", None),
        ] {
            let endpoint = provider_endpoint(served_at(provider), called, "m-1.5");
            let expected = ProviderEndpoint { path: path.to_owned(), format };
            assert_eq!(endpoint, Ok(expected), "{provider} {called:?}");
        }
        for (provider, called, model) in [
            ("anthropic", Embeddings, "m"),
            ("xai", Embeddings, "m"),
            ("other", ChatCompletions, "m"),
            ("plain", Messages, "m"),
            ("perplexity", Embeddings, "m"),
            ("google", ChatCompletions, "a/../b"),
            ("google", ChatCompletions, ".."),
            ("google", ChatCompletions, "a:b"),
            ("google", ChatCompletions, "a?b"),
            ("google", ChatCompletions, "a%2fb"),
            ("google", ChatCompletions, ""),
        ] {
            let endpoint = provider_endpoint(served_at(provider), called, model);
            assert_eq!(endpoint, Err(NotServed::NoSuchEndpoint), "{provider} {called:?} {model}");
        }
    }

    #[test]
    fn bedrock_serves_openais_models_in_openais_format_and_no_others() {
        use ModelEndpoint::{ChatCompletions, Embeddings, Messages, Responses};
        let endpoint = |called, model| provider_endpoint(Served::Bedrock, called, model);
        for called in [ChatCompletions, Responses, Messages] {
            let served = endpoint(called, "openai.gpt-oss-20b-1:0").unwrap();
            let expected = ("/openai/v1/chat/completions", Some(Format::OpenaiChat));
            assert_eq!((served.path.as_str(), served.format), expected);
            for model in ["amazon.nova-lite-v1:0", "eu.anthropic.claude", "", "openai"] {
                assert_eq!(endpoint(called, model), Err(NotServed::FormatOfBedrock), "{model}");
            }
        }
        assert_eq!(endpoint(Embeddings, "openai.m"), Err(NotServed::NoSuchEndpoint));
    }

    #[test]
    fn every_built_in_provider_serves_chat_completions() {
        for facts in BUILT_IN {
            let endpoint = provider_endpoint(facts.served, ModelEndpoint::ChatCompletions, "openai.m");
            let path = endpoint.unwrap().path;
            assert!(path.starts_with('/') && !path.contains("//"), "{}: {path}", facts.name);
        }
    }
}
