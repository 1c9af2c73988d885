//! Chooses the provider of a call by the name of its model. Pure.

use farthing_formats::Format;
use http::Uri;

use super::ModelEndpoint;
use super::endpoint_url::{NotServed, ProviderEndpoint, provider_endpoint};
use crate::error::{ApiError, Resource};
use crate::providers::{BUILT_IN, CallersKey, Providers, served_at};
use crate::target;

/// The provider of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The model, by the provider's own name for it.
    pub(crate) model: String,
    /// The provider's URL. It has no query.
    pub(crate) url: Uri,
    /// The format that the provider speaks there; `None` for embeddings.
    pub(crate) format: Option<Format>,
}

/// The providers that a caller may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AllowedProviders {
    /// All of them.
    All,
    /// Those in the list of a spend key.
    Listed(Vec<String>),
}

impl AllowedProviders {
    fn permits(&self, provider: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.iter().any(|name| name == provider),
        }
    }
}

/// The provider of the model that the caller calls `named`, for a call that came to `called`.
///
/// The catalogue says who offers a model. `provider/model` names the provider, also for a model that the catalogue does
/// not have. Some models have a slash in their own names. Of several providers, one that the caller's spend key allows is
/// chosen; the decision that opens the call checks the list itself.
pub(crate) fn choose(
    providers: &Providers,
    called: ModelEndpoint,
    named: &str,
    key: CallersKey,
    allowed: &AllowedProviders,
) -> Result<Chosen, ApiError> {
    let (provider, model) = reached(providers, called, named, key, allowed)?;
    chosen(providers, provider, called, model)
}

/// The name of the provider of [`choose`], and its name for the model.
fn reached<'a>(
    providers: &'a Providers,
    called: ModelEndpoint,
    named: &'a str,
    key: CallersKey,
    allowed: &AllowedProviders,
) -> Result<(&'a str, &'a str), ApiError> {
    let explicit = named.split_once('/').filter(|(provider, _)| is_known(provider));
    let listed = explicit.filter(|(provider, model)| providers.catalogue().find(provider, model).is_some());
    Ok(match listed {
        Some(listed) => listed,
        None => match offering(providers, called, named, key, allowed)? {
            // The caller's own key must not reach another provider than its own.
            Some(_) if key == CallersKey::Present && explicit.is_some() => {
                let message = "begins with the name of a provider and is a name at another one: name that one, as \
                               provider/model";
                return Err(ApiError::issue(["model"], message));
            }
            Some(provider) => (provider, named),
            None => explicit.ok_or_else(|| why_unserved(providers, called, named))?,
        },
    })
}

/// The name by which the model endpoints call `model` of `provider`, for a caller that brings no key of its own: `model` if that
/// name leads there, else `provider/model`. `None` if neither does.
///
/// A name leads where it leads at the first endpoint that serves it, so that no two models have the same.
pub(crate) fn listed_name(
    providers: &Providers,
    (provider, model): (&str, &str),
    allowed: &AllowedProviders,
) -> Option<String> {
    let leads_there = |name: &str| {
        let led_to = ModelEndpoint::ALL.iter().find_map(|called| {
            let (at, its_name) = reached(providers, *called, name, CallersKey::Absent, allowed).ok()?;
            chosen(providers, at, *called, its_name).is_ok().then_some((at, its_name))
        });
        led_to == Some((provider, model))
    };
    if leads_there(model) {
        return Some(model.to_owned());
    }
    Some(format!("{provider}/{model}")).filter(|name| leads_there(name))
}

/// Why no provider serves a model that no provider is named for.
fn why_unserved(providers: &Providers, called: ModelEndpoint, name: &str) -> ApiError {
    let listing = providers.catalogue().providers_of(name);
    let mut reasons = listing.filter_map(|provider| chosen(providers, provider, called, name).err());
    let unknown = ApiError::NotFound(Resource::Model);
    reasons.find(|why| *why != unknown).unwrap_or(unknown)
}

/// The provider that offers the model `name` by the catalogue, if any does.
fn offering<'a>(
    providers: &'a Providers,
    called: ModelEndpoint,
    name: &str,
    key: CallersKey,
    allowed: &AllowedProviders,
) -> Result<Option<&'a str>, ApiError> {
    let offers = |provider: &&str| chosen(providers, provider, called, name).is_ok();
    let mut offering: Vec<&str> = providers.catalogue().providers_of(name).filter(offers).collect();
    if offering.len() > 1 && key == CallersKey::Absent {
        // Of those that are allowed and that the instance can pay for, the first of the built-in ones.
        let is_allowed = |provider: &&str| allowed.permits(provider);
        if offering.iter().any(is_allowed) {
            offering.retain(is_allowed);
        }
        let has_key = |provider: &&str| {
            let at = providers.origin_of(provider).and_then(|origin| target::checked(&origin).ok());
            at.is_some_and(|at| providers.key(providers.at(&at), CallersKey::Absent).is_ok())
        };
        if offering.iter().any(has_key) {
            offering.retain(has_key);
        }
        let rank = |provider: &&str| BUILT_IN.iter().position(|facts| facts.name == *provider);
        offering.sort_by_key(|provider| rank(provider).unwrap_or(usize::MAX));
        offering.truncate(1);
    }
    match offering[..] {
        [] => Ok(None),
        [provider] => Ok(Some(provider)),
        // The caller's own key must not reach another provider than its own.
        [_, _, ..] => {
            Err(ApiError::issue(["model"], "is offered by several providers: name one, as provider/model"))
        }
    }
}

fn is_known(provider: &str) -> bool {
    BUILT_IN.iter().any(|facts| facts.name == provider)
}

fn chosen(
    providers: &Providers,
    provider: &str,
    called: ModelEndpoint,
    model: &str,
) -> Result<Chosen, ApiError> {
    let ProviderEndpoint { path, format } =
        provider_endpoint(served_at(provider), called, model).map_err(|why| match why {
            NotServed::NoSuchEndpoint => ApiError::NotFound(Resource::Model),
            NotServed::FormatOfBedrock => ApiError::issue(["model"], BEDROCKS_FORMATS),
        })?;
    let origin = providers.origin_of(provider).ok_or_else(|| {
        let message = format!(
            "is one of {provider}, whose hosts belong to a customer or a region: the operator must name one by \
             --provider-host, or the call must name its URL, by /v1/forward or /v1/rewrite"
        );
        ApiError::issue(["model"], message)
    })?;
    let url = target::checked(&format!("{origin}{path}"))
        .map_err(|why| ApiError::internal(format!("the URL of {provider} {why}")))?;
    Ok(Chosen { model: model.to_owned(), url, format })
}

/// Why most models of Bedrock are refused.
const BEDROCKS_FORMATS: &str = "is one of bedrock in a format of its own, which is not converted: only openai.… models are \
                                called here, others by /v1/forward";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::providers::catalogue::Catalogue;
    use crate::providers::{ProviderHost, ProviderKey};

    const CATALOGUE: &str = r#"{"source":"s","licence":"l","taken":"2026-11-20","models":[
        {"provider":"openai","model":"gpt","input_per_1m":"1"},
        {"provider":"anthropic","model":"claude","input_per_1m":"1"},
        {"provider":"google","model":"gemini","input_per_1m":"1"},
        {"provider":"groq","model":"openai/oss","input_per_1m":"1"},
        {"provider":"openai","model":"both","input_per_1m":"1"},
        {"provider":"mistral","model":"both","input_per_1m":"1"},
        {"provider":"plain","model":"unserved","input_per_1m":"1"},
        {"provider":"azure","model":"our-deployment","input_per_1m":"1"},
        {"provider":"azure","model":"gpt","input_per_1m":"1"},
        {"provider":"bedrock","model":"openai.oss","input_per_1m":"1"},
        {"provider":"bedrock","model":"amazon.nova","input_per_1m":"1"},
        {"provider":"perplexity","model":"sonar","input_per_1m":"1"}]}"#;

    fn host(name: &str, host: &str, port: u16) -> ProviderHost {
        ProviderHost { name: name.to_owned(), host: host.to_owned(), port }
    }

    fn providers(keys: &[&str]) -> Providers {
        providers_at(vec![host("xai", "127.0.0.1", 9), host("deepseek", "[::1]", 443)], keys)
    }

    fn providers_at(hosts: Vec<ProviderHost>, keys: &[&str]) -> Providers {
        let key = |name: &&str| ((*name).to_owned(), ProviderKey::new("sk-ours").unwrap());
        let keys: BTreeMap<_, _> = keys.iter().map(key).collect();
        Providers::new(hosts, keys, Catalogue::read(CATALOGUE).unwrap())
    }

    fn url(named: &str, called: ModelEndpoint, key: CallersKey, keys: &[&str]) -> Result<String, ApiError> {
        allowed_url(named, called, key, keys, &AllowedProviders::All)
    }

    fn allowed_url(
        named: &str,
        called: ModelEndpoint,
        key: CallersKey,
        keys: &[&str],
        allowed: &AllowedProviders,
    ) -> Result<String, ApiError> {
        let chosen = choose(&providers(keys), called, named, key, allowed)?;
        Ok(format!("{} {}", chosen.url, chosen.model))
    }

    #[test]
    fn of_several_providers_one_that_the_spend_key_allows_is_chosen() {
        let (openai, mistral) =
            ("https://api.openai.com/v1/embeddings both", "https://api.mistral.ai/v1/embeddings both");
        let told = |allowed: &[&str], keys: &[&str], key| {
            let allowed = AllowedProviders::Listed(allowed.iter().map(|name| (*name).to_owned()).collect());
            allowed_url("both", ModelEndpoint::Embeddings, key, keys, &allowed)
        };
        for (allowed, keys, expected) in [
            (&["mistral"][..], &["openai", "mistral"][..], mistral),
            (&["openai"], &["openai", "mistral"], openai),
            (&["mistral", "openai"], &["openai", "mistral"], openai),
            // Who is allowed comes before who has a key of the instance.
            (&["mistral"], &["openai"], mistral),
            (&["mistral", "openai"], &["mistral"], mistral),
            // With none of them allowed, the refusal is that of the first one.
            (&[], &["openai", "mistral"], openai),
            (&["xai"], &["mistral"], mistral),
        ] {
            assert_eq!(
                told(allowed, keys, CallersKey::Absent).as_deref(),
                Ok(expected),
                "{allowed:?} {keys:?}"
            );
        }
        // A list says nothing of whose the caller's own key is.
        let own = told(&["mistral"], &[], CallersKey::Present);
        assert_eq!(own.map_err(|error| error.code()), Err("validation_error"));
        // A provider that is named is not exchanged for another.
        let allowed = AllowedProviders::Listed(vec!["mistral".to_owned()]);
        let named = allowed_url("openai/both", ModelEndpoint::Embeddings, CallersKey::Absent, &[], &allowed);
        assert_eq!(named.as_deref(), Ok(openai));
    }

    #[test]
    fn a_callers_own_key_goes_to_no_provider_that_its_model_does_not_name() {
        let at = |named: &str| url(named, ModelEndpoint::ChatCompletions, CallersKey::Present, &[]);
        assert_eq!(at("openai/oss").unwrap_err().code(), "validation_error");
        for (named, host) in [("groq/openai/oss", "api.groq.com"), ("openai/gpt", "api.openai.com")] {
            assert!(at(named).unwrap().contains(host), "{named}");
        }
    }

    #[test]
    fn the_catalogue_or_a_prefix_names_the_provider() {
        for (named, expected) in [
            ("gpt", "https://api.openai.com/v1/chat/completions gpt"),
            ("openai/gpt", "https://api.openai.com/v1/chat/completions gpt"),
            ("claude", "https://api.anthropic.com/v1/messages claude"),
            (
                "google/gemini",
                "https://generativelanguage.googleapis.com/v1beta/models/gemini:generateContent gemini",
            ),
            // The name of a model of Groq's, although it begins with the name of another provider.
            ("openai/oss", "https://api.groq.com/openai/v1/chat/completions openai/oss"),
            ("groq/openai/oss", "https://api.groq.com/openai/v1/chat/completions openai/oss"),
            // A model that the catalogue does not have.
            ("openai/new", "https://api.openai.com/v1/chat/completions new"),
            ("xai/new", "http://127.0.0.1:9/v1/chat/completions new"),
            ("deepseek/new", "https://[::1]:443/v1/chat/completions new"),
        ] {
            let told = url(named, ModelEndpoint::ChatCompletions, CallersKey::Absent, &[]);
            assert_eq!(told.as_deref(), Ok(expected), "{named}");
        }
    }

    #[test]
    fn a_provider_of_rented_or_regional_hosts_is_served_where_the_operator_names_one() {
        let at = |hosts: &[ProviderHost], named: &str| {
            let providers = providers_at(hosts.to_vec(), &[]);
            let key = CallersKey::Absent;
            let chosen =
                choose(&providers, ModelEndpoint::ChatCompletions, named, key, &AllowedProviders::All);
            chosen.map(|chosen| format!("{} {}", chosen.url, chosen.model))
        };
        let hosts = [
            host("azure", "ours.openai.azure.com", 443),
            host("bedrock", "bedrock-runtime.eu-west-1.amazonaws.com", 443),
        ];
        let azure = "https://ours.openai.azure.com:443/openai/v1/chat/completions";
        let bedrock = "https://bedrock-runtime.eu-west-1.amazonaws.com:443/openai/v1/chat/completions";
        for (named, expected) in [
            ("azure/our-deployment", format!("{azure} our-deployment")),
            ("our-deployment", format!("{azure} our-deployment")),
            ("azure/another", format!("{azure} another")),
            ("bedrock/openai.gpt-oss-20b-1:0", format!("{bedrock} openai.gpt-oss-20b-1:0")),
            ("openai.oss", format!("{bedrock} openai.oss")),
            // Of two providers, the first in the table.
            ("gpt", "https://api.openai.com/v1/chat/completions gpt".to_owned()),
        ] {
            assert_eq!(at(&hosts, named), Ok(expected), "{named}");
        }
        let refused = |hosts: &[ProviderHost], named: &str, why: &str| {
            let error = at(hosts, named).unwrap_err();
            assert_eq!(error.code(), "validation_error", "{named}: {error:?}");
            assert!(format!("{error:?}").contains(why), "{named}: {error:?}");
        };
        for named in ["azure/our-deployment", "our-deployment", "bedrock/openai.oss", "openai.oss"] {
            refused(&[], named, "--provider-host");
        }
        assert!(at(&[], "gpt").is_ok(), "the other provider is served");
        for named in ["bedrock/amazon.nova", "amazon.nova", "bedrock/eu.anthropic.claude"] {
            refused(&hosts, named, "not converted");
        }
    }

    #[test]
    fn a_model_is_listed_if_a_model_endpoint_serves_it() {
        let named = providers_at(
            vec![host("azure", "ours.openai.azure.com", 443), host("bedrock", "127.0.0.1", 9)],
            &[],
        );
        let none = providers_at(Vec::new(), &[]);
        for (provider, model, with_hosts, without) in [
            ("openai", "gpt", true, true),
            ("perplexity", "sonar", true, true),
            ("azure", "our-deployment", true, false),
            ("bedrock", "openai.oss", true, false),
            ("bedrock", "amazon.nova", false, false),
            ("plain", "unserved", false, false),
            ("google", "a/b", true, true),
        ] {
            let is_listed = |providers: &Providers| {
                listed_name(providers, (provider, model), &AllowedProviders::All).is_some()
            };
            assert_eq!(is_listed(&named), with_hosts, "{provider} {model}");
            assert_eq!(is_listed(&none), without, "{provider} {model}");
        }
    }

    #[test]
    fn a_model_is_listed_by_a_name_that_leads_to_it_alone() {
        let only =
            |names: &[&str]| AllowedProviders::Listed(names.iter().map(|name| (*name).to_owned()).collect());
        let azure = || vec![host("azure", "ours.openai.azure.com", 443)];
        for (hosts, keys, allowed, provider, model, name) in [
            (vec![], &["openai", "mistral"][..], AllowedProviders::All, "openai", "both", Some("both")),
            (vec![], &["openai", "mistral"], AllowedProviders::All, "mistral", "both", Some("mistral/both")),
            (vec![], &["mistral"], AllowedProviders::All, "mistral", "both", Some("both")),
            (vec![], &["mistral"], AllowedProviders::All, "openai", "both", Some("openai/both")),
            (vec![], &["openai"], only(&["mistral"]), "mistral", "both", Some("both")),
            (azure(), &[], AllowedProviders::All, "openai", "gpt", Some("gpt")),
            (azure(), &[], AllowedProviders::All, "azure", "gpt", Some("azure/gpt")),
            (vec![], &[], AllowedProviders::All, "azure", "gpt", None),
            // The name of a model of Groq's is also that of one of OpenAI's, with the provider before it, if there is one.
            (vec![], &[], AllowedProviders::All, "groq", "openai/oss", Some("openai/oss")),
            (vec![], &[], AllowedProviders::All, "groq", "openai/gpt", Some("groq/openai/gpt")),
            (vec![], &[], AllowedProviders::All, "plain", "unserved", None),
        ] {
            let listed = listed_name(&providers_at(hosts, keys), (provider, model), &allowed);
            assert_eq!(listed.as_deref(), name, "{provider} {model} {keys:?} {allowed:?}");
        }
    }

    #[test]
    fn a_listed_name_calls_the_model_that_is_listed_by_it_and_no_name_is_listed_twice() {
        let hosts = vec![host("azure", "ours.openai.azure.com", 443), host("bedrock", "127.0.0.1", 9)];
        let providers = providers_at(hosts, &["mistral"]);
        let mut names = std::collections::BTreeSet::new();
        for (provider, model, _) in providers.catalogue().models() {
            let Some(name) = listed_name(&providers, (provider, model), &AllowedProviders::All) else {
                continue;
            };
            let led_to = ModelEndpoint::ALL.iter().find_map(|called| {
                choose(&providers, *called, &name, CallersKey::Absent, &AllowedProviders::All).ok()
            });
            let origin = providers.origin_of(provider).unwrap();
            let led_to = led_to.unwrap();
            assert!(led_to.url.to_string().starts_with(&origin), "{provider} {name}: {}", led_to.url);
            assert_eq!(led_to.model, model, "{provider} {name}");
            assert!(names.insert(name.clone()), "{name} is listed twice");
        }
        assert!(names.contains("both") && names.contains("openai/both"), "{names:?}");
    }

    #[test]
    fn a_model_that_nobody_offers_is_not_found() {
        for (named, called) in [
            ("nobodys", ModelEndpoint::ChatCompletions),
            ("", ModelEndpoint::ChatCompletions),
            ("/gpt", ModelEndpoint::ChatCompletions),
            ("nobody/gpt", ModelEndpoint::ChatCompletions),
            ("other/gpt", ModelEndpoint::ChatCompletions),
            ("OpenAI/gpt", ModelEndpoint::ChatCompletions),
            ("unserved", ModelEndpoint::ChatCompletions),
            ("plain/unserved", ModelEndpoint::ChatCompletions),
            ("google/../x", ModelEndpoint::ChatCompletions),
            ("claude", ModelEndpoint::Embeddings),
            ("anthropic/claude", ModelEndpoint::Embeddings),
        ] {
            let told = url(named, called, CallersKey::Absent, &["openai"]);
            assert_eq!(told, Err(ApiError::NotFound(Resource::Model)), "{named}");
        }
    }

    #[test]
    fn of_several_providers_one_with_a_key_of_the_instance_is_chosen() {
        let told = |key, keys: &[&str]| url("both", ModelEndpoint::Embeddings, key, keys);
        let openai = "https://api.openai.com/v1/embeddings both";
        let mistral = "https://api.mistral.ai/v1/embeddings both";
        assert_eq!(told(CallersKey::Absent, &["openai", "mistral"]).as_deref(), Ok(openai));
        assert_eq!(told(CallersKey::Absent, &["mistral"]).as_deref(), Ok(mistral));
        assert_eq!(told(CallersKey::Absent, &[]).as_deref(), Ok(openai));
        // The caller's own key is one of a single provider.
        assert_eq!(told(CallersKey::Present, &[]).map_err(|error| error.code()), Err("validation_error"));
        let named = url("mistral/both", ModelEndpoint::Embeddings, CallersKey::Present, &[]);
        assert_eq!(named.as_deref(), Ok(mistral));
    }
}
