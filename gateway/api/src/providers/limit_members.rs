//! The members of a body by which an endpoint limits its output: those of the format that its path names, as far as its
//! provider documents them. Pure.

use http::Uri;

use super::facts::{ChatLimit, ProviderFacts};
use crate::forward::{LimitMember, Shape};

/// The members that limit the output of a call to `target`. None where the format is not known; any at the provider
/// `other`, whose bodies may have any format.
pub(super) fn of(facts: &ProviderFacts, target: &Uri) -> &'static [LimitMember] {
    let path = target.path();
    if path.ends_with("/chat/completions") {
        return match facts.chat_limit {
            ChatLimit::MaxTokens => &[LimitMember::MaxTokens],
            ChatLimit::MaxCompletionTokens => &[LimitMember::MaxCompletionTokens],
            ChatLimit::Either => &[LimitMember::MaxTokens, LimitMember::MaxCompletionTokens],
        };
    }
    if path.ends_with("/completions") || path.ends_with("/messages") {
        return &[LimitMember::MaxTokens];
    }
    if path.ends_with("/responses") {
        return &[LimitMember::MaxOutputTokens];
    }
    if [":generateContent", ":streamGenerateContent"].iter().any(|end| path.ends_with(end)) {
        return &[LimitMember::GenerationConfig];
    }
    match facts.shape {
        Shape::Cohere if path.ends_with("/chat") => &[LimitMember::MaxTokens],
        Shape::Bedrock if ["/converse", "/converse-stream"].iter().any(|end| path.ends_with(end)) => {
            &[LimitMember::InferenceConfig]
        }
        Shape::Standard if facts.name == super::OTHER => LimitMember::ALL,
        Shape::Standard
        | Shape::OpenAi
        | Shape::Anthropic
        | Shape::Google
        | Shape::Cohere
        | Shape::Transcription
        | Shape::Bedrock => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::built_in::{BUILT_IN, NAMED_BY_THE_OPERATOR, OTHER};
    use super::*;

    fn members(name: &str, path: &str) -> &'static [LimitMember] {
        let facts = match name {
            "named" => &NAMED_BY_THE_OPERATOR,
            "other" => &OTHER,
            name => BUILT_IN.iter().find(|facts| facts.name == name).unwrap(),
        };
        of(facts, &format!("https://h{path}").parse().unwrap())
    }

    #[test]
    fn the_path_and_the_provider_say_which_members_limit_the_output() {
        use LimitMember::{
            GenerationConfig, InferenceConfig, MaxCompletionTokens, MaxOutputTokens, MaxTokens,
        };
        for (provider, path, expected) in [
            ("openai", "/v1/chat/completions", &[MaxTokens, MaxCompletionTokens][..]),
            ("openai", "/v1/completions", &[MaxTokens]),
            ("openai", "/v1/responses", &[MaxOutputTokens]),
            ("openai", "/v1/responses/compact", &[]),
            ("openai", "/v1/images/generations", &[]),
            (
                "azure",
                "/openai/deployments/d/chat/completions?api-version=1",
                &[MaxTokens, MaxCompletionTokens],
            ),
            ("azure", "/openai/v1/responses", &[MaxOutputTokens]),
            ("groq", "/openai/v1/chat/completions", &[MaxTokens, MaxCompletionTokens]),
            ("mistral", "/v1/chat/completions", &[MaxTokens]),
            ("mistral", "/v1/fim/completions", &[MaxTokens]),
            ("deepseek", "/chat/completions", &[MaxTokens]),
            ("cerebras", "/v1/chat/completions", &[MaxCompletionTokens]),
            ("together", "/v1/messages", &[MaxTokens]),
            ("anthropic", "/v1/messages", &[MaxTokens]),
            ("anthropic", "/v1/chat/completions", &[MaxTokens, MaxCompletionTokens]),
            ("google", "/v1beta/models/m:generateContent", &[GenerationConfig]),
            ("google", "/v1beta/models/m:streamGenerateContent?alt=sse", &[GenerationConfig]),
            ("google", "/v1beta/openai/chat/completions", &[MaxTokens]),
            ("google", "/v1beta/models/m:countTokens", &[]),
            ("cohere", "/v2/chat", &[MaxTokens]),
            ("cohere", "/compatibility/v1/chat/completions", &[MaxTokens]),
            ("openai", "/v2/chat", &[]),
            ("bedrock", "/openai/v1/chat/completions", &[MaxCompletionTokens]),
            ("bedrock", "/model/m/converse", &[InferenceConfig]),
            ("bedrock", "/model/m/converse-stream", &[InferenceConfig]),
            ("bedrock", "/model/m/invoke", &[]),
            ("named", "/v1/chat/completions", &[MaxTokens]),
            ("named", "/v1/generate", &[]),
            ("other", "/v1/chat/completions", &[MaxTokens, MaxCompletionTokens]),
            ("other", "/v1/messages", &[MaxTokens]),
            ("other", "/v1/generate", LimitMember::ALL),
        ] {
            assert_eq!(members(provider, path), expected, "{provider} {path}");
        }
    }
}
