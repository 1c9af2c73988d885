//! The table of the built-in providers. `docs/providers.md` describes each row. Pure.

use super::facts::BesideChat::{Embeddings, Responses};
use super::facts::HostPattern::{self, Exact, Regional, Resource};
use super::facts::{
    BesideChat, ChatLimit, KeySlot, ModelInUrl, ProviderFacts, QueryRule, Served, StreamUsage,
};
use crate::forward::Shape;

/// Endpoints in the format of OpenAI, and that of Anthropic, which some providers serve beside it.
const OPENAI_ENDPOINTS: &[&str] =
    &["/chat/completions", "/completions", "/responses", "/embeddings", "/messages", "/audio/speech"];

/// The same, and transcriptions whose answers in JSON report tokens or seconds.
const OPENAIS_OWN: &[&str] = &[
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/audio/speech",
    "/audio/transcriptions",
];

/// A provider whose interface is OpenAI's. Every row below says where it differs.
const fn openai_compatible(
    name: &'static str,
    hosts: &'static [HostPattern],
    served: Served,
) -> ProviderFacts {
    ProviderFacts {
        name,
        is_built_in: true,
        trace_name: None,
        hosts,
        key: KeySlot::Bearer,
        bearer_paths: &[],
        shape: Shape::OpenAi,
        stream_usage: StreamUsage::OnRequest,
        endpoints: OPENAI_ENDPOINTS,
        unpriced: &[],
        searching_models: &[],
        agent_models: &[],
        sound_models: &[],
        unsold_models: &[],
        query: QueryRule::Any,
        model_in_url: ModelInUrl::Method,
        // Older than `max_completion_tokens`, which not every provider took over.
        chat_limit: ChatLimit::MaxTokens,
        served,
    }
}

/// Chat completions in OpenAI's format at `{base}/chat/completions`, and the endpoints `beside` it.
const fn chat_at(base: &'static str, beside: &'static [BesideChat]) -> Served {
    Served::Openai { base, beside }
}

/// The built-in providers.
pub static BUILT_IN: &[ProviderFacts] = &[
    ProviderFacts {
        trace_name: Some("openai"),
        endpoints: OPENAIS_OWN,
        searching_models: &["-search-preview", "-search-api"],
        chat_limit: ChatLimit::Either,
        ..openai_compatible("openai", &[Exact("api.openai.com")], chat_at("/v1", &[Responses, Embeddings]))
    },
    ProviderFacts {
        trace_name: Some("anthropic"),
        key: KeySlot::Header("x-api-key"),
        shape: Shape::Anthropic,
        endpoints: &["/messages", "/chat/completions"],
        chat_limit: ChatLimit::Either,
        ..openai_compatible("anthropic", &[Exact("api.anthropic.com")], Served::Anthropic)
    },
    ProviderFacts {
        trace_name: Some("gcp.gemini"),
        key: KeySlot::Header("x-goog-api-key"),
        bearer_paths: &["/openai/"],
        shape: Shape::Google,
        endpoints: &["/generateContent", "/streamGenerateContent", "/chat/completions", "/embeddings"],
        query: QueryRule::ResponseFormat,
        model_in_url: ModelInUrl::MethodOfAnyCollection,
        ..openai_compatible("google", &[Exact("generativelanguage.googleapis.com")], Served::Google)
    },
    ProviderFacts {
        trace_name: Some("deepseek"),
        ..openai_compatible("deepseek", &[Exact("api.deepseek.com")], chat_at("/v1", &[]))
    },
    ProviderFacts {
        trace_name: Some("mistral_ai"),
        // It refuses the option.
        stream_usage: StreamUsage::Always,
        // An agent has a model of its own.
        unpriced: &["agent_id"],
        sound_models: &["voxtral"],
        ..openai_compatible("mistral", &[Exact("api.mistral.ai")], chat_at("/v1", &[Embeddings]))
    },
    ProviderFacts {
        trace_name: Some("x_ai"),
        // The answer is fetched later, by a call of its own.
        unpriced: &["deferred"],
        // It bills the tokens of all agents, and passes over limits of the output.
        agent_models: &["multi-agent"],
        chat_limit: ChatLimit::Either,
        ..openai_compatible("xai", &[Exact("api.x.ai")], chat_at("/v1", &[Responses]))
    },
    ProviderFacts {
        trace_name: Some("groq"),
        // Its systems search and call models by themselves. The member names those models.
        unpriced: &["compound_custom"],
        searching_models: &["compound"],
        agent_models: &["compound"],
        chat_limit: ChatLimit::Either,
        ..openai_compatible("groq", &[Exact("api.groq.com")], chat_at("/openai/v1", &[Responses]))
    },
    openai_compatible(
        "together",
        &[Exact("api.together.xyz"), Exact("api.together.ai")],
        chat_at("/v1", &[Embeddings]),
    ),
    openai_compatible("fireworks", &[Exact("api.fireworks.ai")], chat_at("/inference/v1", &[Embeddings])),
    ProviderFacts {
        trace_name: Some("cohere"),
        shape: Shape::Cohere,
        // Whether its OpenAI-compatible path takes the option, and reports then, sources say in two ways.
        stream_usage: StreamUsage::Unknown,
        endpoints: &["/chat", "/embed", "/chat/completions", "/embeddings"],
        unpriced: &["connectors", "images", "inputs"],
        ..openai_compatible(
            "cohere",
            &[Exact("api.cohere.com"), Exact("api.cohere.ai")],
            chat_at("/compatibility/v1", &[Embeddings]),
        )
    },
    ProviderFacts {
        chat_limit: ChatLimit::MaxCompletionTokens,
        ..openai_compatible("cerebras", &[Exact("api.cerebras.ai")], chat_at("/v1", &[]))
    },
    ProviderFacts {
        trace_name: Some("perplexity"),
        stream_usage: StreamUsage::Always,
        // Other models, and settings that bring models and tools of their own.
        unpriced: &["models", "preset"],
        searching_models: &["sonar"],
        // Its citations and its reasoning have prices of their own, and it searches as often as it wants.
        unsold_models: &["deep-research"],
        ..openai_compatible("perplexity", &[Exact("api.perplexity.ai")], chat_at("", &[]))
    },
    ProviderFacts {
        stream_usage: StreamUsage::Always,
        // Other models, providers and plugins with prices of their own.
        unpriced: &["models", "provider", "plugins", "route", "preset"],
        ..openai_compatible("openrouter", &[Exact("openrouter.ai")], chat_at("/api/v1", &[]))
    },
    openai_compatible("deepinfra", &[Exact("api.deepinfra.com")], chat_at("/v1/openai", &[Embeddings])),
    openai_compatible(
        "nebius",
        &[
            Exact("api.tokenfactory.nebius.com"),
            Exact("api.studio.nebius.com"),
            Exact("api.studio.nebius.ai"),
        ],
        chat_at("/v1", &[Embeddings]),
    ),
    openai_compatible("sambanova", &[Exact("api.sambanova.ai")], chat_at("/v1", &[])),
    openai_compatible("hyperbolic", &[Exact("api.hyperbolic.xyz")], chat_at("/v1", &[])),
    openai_compatible("moonshot", &[Exact("api.moonshot.ai")], chat_at("/v1", &[])),
    openai_compatible("zai", &[Exact("api.z.ai")], chat_at("/api/paas/v4", &[])),
    ProviderFacts {
        // Searches, and thinking, which some models bill at a price of its own.
        unpriced: &["enable_search", "search_options", "enable_thinking"],
        ..openai_compatible(
            "dashscope",
            &[Exact("dashscope-intl.aliyuncs.com")],
            chat_at("/compatible-mode/v1", &[Embeddings]),
        )
    },
    openai_compatible("nvidia", &[Exact("integrate.api.nvidia.com")], chat_at("/v1", &[Embeddings])),
    openai_compatible("github", &[Exact("models.github.ai")], chat_at("/inference", &[Embeddings])),
    openai_compatible("huggingface", &[Exact("router.huggingface.co")], chat_at("/v1", &[])),
    ProviderFacts {
        // Other models and providers with prices of their own.
        unpriced: &["models", "providerOptions"],
        ..openai_compatible("vercel", &[Exact("ai-gateway.vercel.sh")], chat_at("/v1", &[Embeddings]))
    },
    ProviderFacts {
        trace_name: Some("azure.ai.openai"),
        key: KeySlot::Header("api-key"),
        unpriced: &["data_sources", "dataSources"],
        model_in_url: ModelInUrl::After("deployments"),
        chat_limit: ChatLimit::Either,
        ..openai_compatible(
            "azure",
            &[
                Resource(".openai.azure.com"),
                Resource(".cognitiveservices.azure.com"),
                Resource(".services.ai.azure.com"),
            ],
            chat_at("/openai/v1", &[Responses, Embeddings]),
        )
    },
    ProviderFacts {
        trace_name: Some("aws.bedrock"),
        shape: Shape::Bedrock,
        // `bedrock.rs` knows which endpoints report usage.
        endpoints: &[],
        unpriced: &[
            "performanceConfig",
            "guardrailConfig",
            "amazon-bedrock-guardrailConfig",
            "amazon-bedrock-trace",
        ],
        query: QueryRule::Nothing,
        model_in_url: ModelInUrl::After("model"),
        // OpenAI's models document this one alone.
        chat_limit: ChatLimit::MaxCompletionTokens,
        ..openai_compatible(
            "bedrock",
            &[
                Regional("bedrock-runtime.", ".amazonaws.com"),
                Regional("bedrock-runtime-fips.", ".amazonaws.com"),
            ],
            Served::Bedrock,
        )
    },
];

/// A host that the operator gave a name of its own. It is taken for one with OpenAI's interface that reports usage in the
/// standard object.
pub(super) static NAMED_BY_THE_OPERATOR: ProviderFacts = ProviderFacts {
    is_built_in: false,
    shape: Shape::Standard,
    ..openai_compatible("", &[], Served::Nowhere)
};

/// Every other host.
pub(super) static OTHER: ProviderFacts = ProviderFacts {
    is_built_in: false,
    shape: Shape::Standard,
    // Only fees are charged there, and completion.md section 3 counts both.
    chat_limit: ChatLimit::Either,
    ..openai_compatible(super::OTHER, &[], Served::Nowhere)
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_the_facts_of_the_table_are_those_of_a_built_in_provider() {
        for facts in BUILT_IN.iter().chain([&NAMED_BY_THE_OPERATOR, &OTHER]) {
            let has_its_name = BUILT_IN.iter().any(|known| known.name == facts.name);
            assert_eq!(facts.is_built_in, has_its_name, "{:?}", facts.name);
        }
    }

    #[test]
    fn no_name_and_no_host_stands_twice_and_names_are_plain() {
        let names: BTreeSet<_> = BUILT_IN.iter().map(|facts| facts.name).collect();
        assert_eq!(names.len(), BUILT_IN.len());
        let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase());
        assert!(names.iter().all(|name| plain(name) && *name != super::super::OTHER));
        let hosts: Vec<_> = BUILT_IN.iter().flat_map(|facts| facts.hosts).collect();
        for (at, pattern) in hosts.iter().enumerate() {
            assert!(!hosts[..at].contains(pattern), "{pattern:?}");
        }
    }
}
