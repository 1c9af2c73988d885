//! The form of what is known of a provider: hosts, key, usage, quirks. The facts themselves are in `built_in.rs`. Pure.

use farthing_formats::ChatLimitMember;
use http::header::{AUTHORIZATION, HeaderName};

use crate::forward::Shape;

/// What is known of a provider.
#[derive(Debug, PartialEq, Eq)]
pub struct ProviderFacts {
    /// Its name, as requests, settings and price files write it.
    pub name: &'static str,
    /// Whether it is one of the built-in providers, whose interface is known.
    pub(super) is_built_in: bool,
    /// Its name in the semantic conventions of OpenTelemetry, if they know it.
    pub(crate) trace_name: Option<&'static str>,
    /// The hosts of its public interface. A call over https to such a host is a call to the provider.
    pub(super) hosts: &'static [HostPattern],
    /// Where it takes a key.
    pub(super) key: KeySlot,
    /// Parts of its paths that take a key as OpenAI does, whatever `key` says.
    pub(super) bearer_paths: &'static [&'static str],
    /// How it reports usage.
    pub(super) shape: Shape,
    /// Whether a stream of `…/completions` reports its usage. Streams of other endpoints always do.
    pub(super) stream_usage: StreamUsage,
    /// The ends of the paths that answer at once with their output and usage. A `:` counts as a `/`.
    pub(super) endpoints: &'static [&'static str],
    /// Members of a body that request what it bills besides tokens, or choose another price; beside those of every
    /// provider.
    pub(crate) unpriced: &'static [&'static str],
    /// Parts of the names of models that search by themselves. It bills them for each call beside their tokens, and what
    /// they find may be input.
    pub(super) searching_models: &'static [&'static str],
    /// Parts of the names of models that make calls of their own: no limit of a body bounds their tokens.
    pub(super) agent_models: &'static [&'static str],
    /// Parts of the names of models whose sound in a chat it bills by its length beside their tokens.
    pub(super) sound_models: &'static [&'static str],
    /// Parts of the names of models that it bills by units that are not metered.
    pub(super) unsold_models: &'static [&'static str],
    /// The query parameters that a call on a managed key may have.
    pub(super) query: QueryRule,
    /// Where its URLs name the model.
    pub(super) model_in_url: ModelInUrl,
    /// The members by which its Chat Completions limit their output.
    pub(super) chat_limit: ChatLimit,
    /// Where it serves calls of the model endpoints.
    pub(crate) served: Served,
}

/// Where a provider serves calls of the model endpoints (completion.md section 11), behind its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// In the formats of OpenAI, at paths that begin with `base`: `/chat/completions`, and the endpoints in `beside`.
    Openai {
        /// What stands before the paths.
        base: &'static str,
        /// The endpoints beside chat completions.
        beside: &'static [BesideChat],
    },
    /// In Anthropic's format.
    Anthropic,
    /// In Google's format, with the model in the path.
    Google,
    /// As OpenAI's chat completions, for OpenAI's models alone. Other models of Bedrock have formats of their own.
    Bedrock,
    /// Nowhere that is known.
    Nowhere,
}

/// An endpoint in a format of OpenAI that not every provider has beside chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BesideChat {
    /// `/responses`. One that its provider calls a trial is left out.
    Responses,
    /// `/embeddings`.
    Embeddings,
}

/// The members by which a provider's Chat Completions limit their output, as it documents them. A member that it does not
/// document may be passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChatLimit {
    /// `max_tokens` alone.
    MaxTokens,
    /// `max_completion_tokens` alone.
    MaxCompletionTokens,
    /// Both.
    Either,
}

impl ChatLimit {
    /// The member that a conversion writes.
    pub(crate) const fn written(self) -> ChatLimitMember {
        match self {
            Self::MaxTokens => ChatLimitMember::MaxTokens,
            Self::MaxCompletionTokens | Self::Either => ChatLimitMember::MaxCompletionTokens,
        }
    }
}

/// Hosts of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostPattern {
    /// This host.
    Exact(&'static str),
    /// A host of the provider's own with one label, a region, between these two. Prices may differ between regions, so a
    /// managed key goes only to those that the operator names.
    Regional(&'static str, &'static str),
    /// A customer's resource: one label before this. Anybody can rent one, so a managed key goes only to those that the
    /// operator names.
    Resource(&'static str),
}

/// Who runs a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostOwner {
    /// The provider, at the same prices for all.
    Provider,
    /// The provider, in one of its regions.
    ProviderInRegion,
    /// Some customer of the provider.
    Customer,
}

impl HostPattern {
    /// Who runs `host`, if the pattern fits it.
    pub(super) fn owner_of(self, host: &str) -> Option<HostOwner> {
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        match self {
            Self::Exact(known) => (known == host).then_some(HostOwner::Provider),
            Self::Regional(before, after) => {
                let label = host.strip_prefix(before)?.strip_suffix(after)?;
                is_label(label).then_some(HostOwner::ProviderInRegion)
            }
            Self::Resource(after) => is_label(host.strip_suffix(after)?).then_some(HostOwner::Customer),
        }
    }
}

/// A header that takes a provider's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeySlot {
    /// `Authorization: Bearer …`.
    Bearer,
    /// A header whose whole value is the key.
    Header(&'static str),
}

impl KeySlot {
    /// The header's name, and what stands before the key in it.
    pub(crate) const fn name_and_prefix(self) -> (HeaderName, &'static str) {
        match self {
            Self::Bearer => (AUTHORIZATION, "Bearer "),
            Self::Header(name) => (HeaderName::from_static(name), ""),
        }
    }
}

/// Whether a stream of completions reports its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    /// Only if `stream_options.include_usage` requests it.
    OnRequest,
    /// Always. Some of these providers refuse the option.
    Always,
    /// Not known, also with the option, which the provider may refuse. No managed key is used for such a stream.
    Unknown,
}

/// The query parameters that a call on a managed key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryRule {
    /// Any.
    Any,
    /// None.
    Nothing,
    /// `alt=json`, `alt=sse` and `prettyPrint` alone: Google selects the parts of a response by `fields` and its format by
    /// `alt` and `callback`, each in several spellings.
    ResponseFormat,
}

/// Where a URL names the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelInUrl {
    /// `…/models/{model}:{method}`, if anywhere.
    Method,
    /// The same, or a model of another collection: `…/{collection}/{model}:{method}`.
    MethodOfAnyCollection,
    /// In the segment after this one, if another follows: `…/deployments/{model}/…`.
    After(&'static str),
}

impl ProviderFacts {
    /// Who runs `host`, if it is one of the provider's interface.
    pub(super) fn owner_of(&self, host: &str) -> Option<HostOwner> {
        self.hosts.iter().find_map(|pattern| pattern.owner_of(host))
    }

    /// The host of its public interface, if it is one for all.
    pub(super) fn host(&self) -> Option<&'static str> {
        self.hosts.iter().find_map(|pattern| match pattern {
            HostPattern::Exact(host) => Some(*host),
            HostPattern::Regional(..) | HostPattern::Resource(_) => None,
        })
    }

    /// Whether its interface is that of Amazon Bedrock, which has rules of its own (decision 0082).
    pub(super) fn is_bedrock(&self) -> bool {
        self.shape == Shape::Bedrock
    }

    /// Where a call to `path` carries a key.
    pub(super) fn key_slot(&self, path: &str) -> KeySlot {
        let is_bearer = self.bearer_paths.iter().any(|part| path.contains(part));
        if is_bearer { KeySlot::Bearer } else { self.key }
    }

    /// How a response from `path` reports usage.
    pub(crate) fn shape(&self, path: &str) -> Shape {
        let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
        match self.shape {
            // Many providers serve the interface of Anthropic beside that of OpenAI.
            Shape::OpenAi if ends(&["/messages"]) => Shape::Anthropic,
            Shape::OpenAi if ends(&["/audio/transcriptions", "/audio/translations"]) => Shape::Transcription,
            shape => shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_one_label_and_nothing_around_it() {
        let resource = HostPattern::Resource(".openai.azure.com");
        let regional = HostPattern::Regional("runtime.", ".example.com");
        for (pattern, host, owner) in [
            (HostPattern::Exact("a.example"), "a.example", Some(HostOwner::Provider)),
            (HostPattern::Exact("a.example"), "b.a.example", None),
            (resource, "my-res1.openai.azure.com", Some(HostOwner::Customer)),
            (resource, "a.b.openai.azure.com", None),
            (resource, ".openai.azure.com", None),
            (resource, "openai.azure.com", None),
            (resource, "x.openai.azure.com.evil.example", None),
            (resource, "xopenai.azure.com", None),
            (regional, "runtime.eu-west-1.example.com", Some(HostOwner::ProviderInRegion)),
            (regional, "runtime..example.com", None),
            (regional, "runtime.a.b.example.com", None),
            (regional, "evil.runtime.a.example.com", None),
        ] {
            assert_eq!(pattern.owner_of(host), owner, "{host}");
        }
    }
}
