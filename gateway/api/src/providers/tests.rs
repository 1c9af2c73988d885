//! Tests of how a provider is recognised, and of its keys and prices.

use farthing_core::model_price::ListPrice;
use farthing_core::usage::Split;
use http::Method;

use super::*;
use crate::forward::Shape;

const CATALOGUE: &str = r#"{"source":"s","licence":"l","taken":"2026-11-20","models":[
    {"provider":"openai","model":"m","input_per_1m":"1"},
    {"provider":"bedrock","model":"m","input_per_1m":"1"},
    {"provider":"openai","model":"tts","per_character":"0.01"}]}"#;

fn providers() -> Providers {
    let hosts = vec![
        ProviderHost { name: "openai".to_owned(), host: "127.0.0.1".to_owned(), port: 9 },
        ProviderHost { name: "mistral".to_owned(), host: "127.0.0.1".to_owned(), port: 10 },
        ProviderHost { name: "azure".to_owned(), host: "ours.openai.azure.com".to_owned(), port: 443 },
        ProviderHost { name: "openai".to_owned(), host: "proxy.example.com".to_owned(), port: 8443 },
        ProviderHost { name: "mistral".to_owned(), host: "models.example.com".to_owned(), port: 8000 },
        ProviderHost {
            name: "bedrock".to_owned(),
            host: "bedrock-runtime.eu-west-1.amazonaws.com".to_owned(),
            port: 443,
        },
    ];
    let keys =
        ["openai", "azure", "bedrock"].map(|name| (name.to_owned(), ProviderKey::new("sk-ours").unwrap()));
    Providers::new(hosts, keys.into(), Catalogue::read(CATALOGUE).unwrap())
}

fn uri(url: &str) -> Uri {
    url.parse().unwrap()
}

#[test]
fn providers_are_recognised_by_destination() {
    let providers = providers();
    for (url, name, destination) in [
        ("https://api.openai.com/v1", "openai", Destination::Public),
        ("https://API.OPENAI.COM.:443/v1", "openai", Destination::Public),
        ("http://api.openai.com/v1", "openai", Destination::Unprotected),
        ("http://api.openai.com:443/v1", "openai", Destination::Unprotected),
        ("https://api.openai.com:8443/v1", "openai", Destination::Unprotected),
        ("http://127.0.0.1:9/v1", "openai", Destination::Named),
        ("http://127.0.0.1:10/v1", "mistral", Destination::Named),
        ("http://127.0.0.1:12/v1", "other", Destination::Elsewhere),
        ("https://proxy.example.com:8443/v1", "openai", Destination::Named),
        ("http://proxy.example.com:8443/v1", "openai", Destination::NamedInPlain),
        ("https://api.openai.com.example.org/", "other", Destination::Elsewhere),
        ("https://generativelanguage.googleapis.com/v1beta/models", "google", Destination::Public),
        ("https://api.together.ai/v1/chat/completions", "together", Destination::Public),
        ("https://openrouter.ai/api/v1/chat/completions", "openrouter", Destination::Public),
        ("https://ours.openai.azure.com/openai/v1/responses", "azure", Destination::Public),
        ("http://ours.openai.azure.com:443/openai/v1/responses", "azure", Destination::Unprotected),
        ("http://ours.openai.azure.com/openai/v1/responses", "azure", Destination::Unprotected),
        ("https://theirs.openai.azure.com/openai/v1/responses", "azure", Destination::Unnamed),
        ("http://theirs.openai.azure.com/openai/v1/responses", "azure", Destination::Unprotected),
        ("https://a.ours.openai.azure.com/openai/v1/responses", "other", Destination::Elsewhere),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse", "bedrock", Destination::Public),
        (
            "http://bedrock-runtime.eu-west-1.amazonaws.com:443/model/m/converse",
            "bedrock",
            Destination::Unprotected,
        ),
        ("https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse", "bedrock", Destination::Unnamed),
        (
            "https://bedrock-runtime-fips.us-east-1.amazonaws.com/model/m/converse",
            "bedrock",
            Destination::Unnamed,
        ),
    ] {
        let found = providers.at(&uri(url));
        assert_eq!((found.name, found.destination), (name, destination), "{url}");
        assert!(found.facts.name == name, "{url}");
        // What stands behind the port decides nothing.
        let authority = uri(url).authority().unwrap().to_string();
        let scheme = uri(url).scheme_str().unwrap().to_owned();
        for rest in ["", "/", "/v1?key=sk-x", "?key=sk-x&a=https://api.openai.com:443/", "/openai/../b:c@d"] {
            assert_eq!(providers.at(&uri(&format!("{scheme}://{authority}{rest}"))), found, "{url} {rest}");
        }
    }
}

#[test]
fn a_host_that_is_named_is_the_same_however_it_is_written() {
    let named = |host: &str| {
        let host = ProviderHost { name: "mine".to_owned(), host: host.to_owned(), port: 9 };
        Providers::new(vec![host], BTreeMap::new(), Catalogue::default())
    };
    for (host, url, destination) in [
        ("LocalHost.", "http://localhost:9/", Destination::Named),
        ("[::ffff:10.0.0.1]", "http://10.0.0.1:9/", Destination::Named),
        ("::1", "http://[::1]:9/", Destination::Named),
        ("Proxy.Example.com", "http://proxy.EXAMPLE.com.:9/", Destination::NamedInPlain),
        ("proxy.example.com", "https://proxy.example.com:9/", Destination::Named),
        ("proxy.example.com", "https://proxy.example.com/", Destination::Elsewhere),
    ] {
        let providers = named(host);
        let found = providers.at(&uri(url));
        assert_eq!(found.destination, destination, "{host} {url}");
        assert!(!found.facts.is_built_in && found.region_of(&uri(url)).is_none(), "{host} {url}");
        assert_eq!(found.name == "mine", destination != Destination::Elsewhere, "{host} {url}");
    }
}

#[test]
fn only_bedrock_has_a_region_in_its_host() {
    let providers = providers();
    let url = uri("https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse");
    assert_eq!(providers.at(&url).region_of(&url).as_deref(), Some("eu-west-1"));
    let openai = providers.at(&uri("https://api.openai.com/v1"));
    assert_eq!(openai.region_of(&url), None);
}

#[test]
fn a_key_of_ours_goes_only_where_it_belongs_and_only_in_want_of_the_callers() {
    let providers = providers();
    let ours = ProviderKey::new("sk-ours").unwrap();
    let key = |url: &str, callers| providers.key(providers.at(&uri(url)), callers);
    for (url, expected) in [
        ("https://api.openai.com/v1", Ok(Key::Managed(&ours))),
        ("http://127.0.0.1:9/v1", Ok(Key::Managed(&ours))),
        ("http://api.openai.com/v1", Err(KeyMissing)),
        ("http://api.openai.com:443/v1", Err(KeyMissing)),
        ("https://proxy.example.com:8443/v1", Ok(Key::Managed(&ours))),
        ("http://proxy.example.com:8443/v1", Err(KeyMissing)),
        ("http://models.example.com:8000/v1", Ok(Key::Callers)),
        ("https://api.anthropic.com/v1", Err(KeyMissing)),
        ("http://127.0.0.1:10/v1", Ok(Key::Callers)),
        ("https://example.org/v1", Ok(Key::Callers)),
        ("https://ours.openai.azure.com/openai/v1/responses", Ok(Key::Managed(&ours))),
        ("http://ours.openai.azure.com:443/openai/v1/responses", Err(KeyMissing)),
        ("https://theirs.openai.azure.com/openai/v1/responses", Err(KeyMissing)),
        ("https://theirs.services.ai.azure.com/models/chat/completions", Err(KeyMissing)),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse", Ok(Key::Managed(&ours))),
        ("https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse", Err(KeyMissing)),
    ] {
        assert_eq!(key(url, CallersKey::Absent), expected, "{url}");
        assert_eq!(key(url, CallersKey::Present), Ok(Key::Callers), "{url}");
    }
}

#[test]
fn what_is_asked_is_priced_or_free_or_neither() {
    let providers = providers();
    let ours = ProviderKey::new("sk-ours").unwrap();
    let price = |url: &str, key, method, model| {
        let target = uri(url);
        providers.list_price(providers.at(&target), key, &method, &target, model)
    };
    let managed = Key::Managed(&ours);
    let openai = "https://api.openai.com/v1";
    let chat = "https://api.openai.com/v1/chat/completions";
    assert!(matches!(price(chat, managed, Method::POST, Some("m")), Ok(ListPrice::Listed(_))));
    assert_eq!(price(chat, managed, Method::POST, Some("m-2")), Err(Unpriced::Model));
    for (path, method) in [
        ("/responses/resp_1", Method::GET),
        ("/files/f/content", Method::GET),
        ("/files/f", Method::DELETE),
        ("/fine_tuning/jobs", Method::POST),
        ("/threads/runs", Method::POST),
        ("/batches", Method::POST),
        ("/images/generations", Method::POST),
        ("/files/../chat/completions", Method::POST),
        ("/files%2f/completions", Method::POST),
    ] {
        let url = format!("{openai}{path}");
        assert_eq!(price(&url, managed, method, Some("m")), Err(Unpriced::Endpoint), "{path}");
    }
    assert_eq!(price(chat, managed, Method::POST, None), Err(Unpriced::NoModel));
    // A model would not help there.
    for path in ["", "/batches", "/files", "/images/generations", "/audio/translations"] {
        let url = format!("{openai}{path}");
        assert_eq!(price(&url, managed, Method::POST, None), Err(Unpriced::Endpoint), "{path}");
    }
    for url in [
        "https://api.perplexity.ai/async/chat/completions",
        "https://api.z.ai/api/paas/v4/async/chat/completions",
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/count-tokens",
        "https://bedrock-runtime.eu-west-1.amazonaws.com/guardrail/g/version/1/apply",
        "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1/chat/completions",
    ] {
        assert_eq!(price(url, managed, Method::POST, Some("m")), Err(Unpriced::Endpoint), "{url}");
    }
    let converse = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse";
    assert!(matches!(price(converse, managed, Method::POST, Some("m")), Ok(ListPrice::Listed(_))));
    let list = "https://bedrock-runtime.eu-west-1.amazonaws.com/models";
    assert_eq!(price(list, managed, Method::GET, None), Err(Unpriced::Endpoint), "it has none");
    // A profile has a price of its own, or none.
    assert_eq!(price(converse, managed, Method::POST, Some("eu.m")), Err(Unpriced::Model));
    let elsewhere = price("https://api.mistral.ai/v1", managed, Method::POST, Some("m"));
    assert_eq!(elsewhere, Err(Unpriced::Endpoint));
    let other = price("https://example.org/v1", Key::Callers, Method::POST, Some("m"));
    assert_eq!(other, Ok(ListPrice::Nothing));
    for (path, expected) in [
        ("/models", Ok(ListPrice::Nothing)),
        ("/models/", Ok(ListPrice::Nothing)),
        ("/models/gpt-4.1", Ok(ListPrice::Nothing)),
        ("/models/..", Err(Unpriced::Endpoint)),
        ("/models/%2e%2e", Err(Unpriced::Endpoint)),
        ("/models/m%2f..%2f..%2ffiles", Err(Unpriced::Endpoint)),
        ("/files", Err(Unpriced::Endpoint)),
        ("/models/x/files", Err(Unpriced::Endpoint)),
    ] {
        let url = format!("{openai}{path}");
        assert_eq!(price(&url, managed, Method::GET, None), expected, "{path}");
        assert_eq!(price(&url, Key::Callers, Method::GET, None), Ok(ListPrice::Nothing), "{path}");
        assert_eq!(price(&url, managed, Method::DELETE, None), Err(Unpriced::Endpoint), "{path}");
    }
}

fn providers_of_bedrock(hosts: &[&str], models: &str) -> Providers {
    let named =
        |host: &&str| ProviderHost { name: "bedrock".to_owned(), host: (*host).to_owned(), port: 443 };
    let file = format!(r#"{{"source":"s","licence":"l","taken":"2026-11-20","models":[{models}]}}"#);
    let key = ("bedrock".to_owned(), ProviderKey::new("ABSKours").unwrap());
    Providers::new(hosts.iter().map(named).collect(), [key].into(), Catalogue::read(&file).unwrap())
}

#[test]
fn each_region_of_bedrock_has_its_price_and_one_without_a_region_is_that_of_one_region_alone() {
    const EU: &str = "bedrock-runtime.eu-west-1.amazonaws.com";
    const US: &str = "bedrock-runtime.us-east-1.amazonaws.com";
    const PROXY: &str = "proxy.example.com";
    let both = r#"{"provider":"bedrock","model":"m","input_per_1m":"1","max_output_tokens":1},
        {"provider":"bedrock","model":"us-east-1/m","input_per_1m":"2","max_output_tokens":2},
        {"provider":"bedrock","model":"eu-west-1/eu.m","input_per_1m":"3","max_output_tokens":3}"#;
    for (hosts, host, model, expected) in [
        (&[EU][..], EU, "m", Ok(1)),
        (&[US], US, "m", Ok(2)),
        (&[PROXY], PROXY, "m", Ok(1)),
        (&[EU, US], US, "m", Ok(2)),
        (&[EU, US], EU, "eu.m", Ok(3)),
        (&[EU, US], EU, "m", Err(Unpriced::Region)),
        (&[EU, PROXY], PROXY, "m", Err(Unpriced::Region)),
        (&[EU, US], US, "eu.m", Err(Unpriced::Model)),
        (&[EU, US], EU, "x", Err(Unpriced::Model)),
    ] {
        let providers = providers_of_bedrock(hosts, both);
        let target = uri(&format!("https://{host}/model/{model}/converse"));
        let provider = providers.at(&target);
        let key = providers.key(provider, CallersKey::Absent).unwrap();
        let listed = providers.list_price(provider, key, &Method::POST, &target, Some(model));
        let price = listed.map(|listed| match listed {
            ListPrice::Listed(price) => price.rates.input_per_1m.unwrap(),
            ListPrice::Nothing | ListPrice::Unlisted => panic!("{host} {model}"),
        });
        assert_eq!(
            price,
            expected.map(|rate: u32| rate.to_string().parse().unwrap()),
            "{hosts:?} {host} {model}"
        );
        let limits = providers.max_tokens(provider, &target, Some(model));
        assert_eq!(limits.output, expected.ok().map(u64::from), "{hosts:?} {host} {model}");
        let usage = |output| farthing_core::usage::Usage {
            tokens: Split { input: 0, output },
            ..farthing_core::usage::Usage::default()
        };
        let limit = providers.usage_limit(provider, &target, Some(model), 1);
        assert_eq!(limit.permits(&usage(31)), expected.is_err(), "{hosts:?} {host} {model}");
    }
}

#[test]
fn a_managed_key_invokes_only_models_that_are_known_to_report_their_tokens() {
    const EU: &str = "bedrock-runtime.eu-west-1.amazonaws.com";
    let names = ["mistral.large", "stability.sd3", "amazon.nova-canvas-v1:0", "cohere.rerank-v3-5:0"];
    let entry = |name| format!(r#"{{"provider":"bedrock","model":"{name}","input_per_1m":"1"}}"#);
    let providers = providers_of_bedrock(&[EU], &names.map(entry).join(","));
    for name in names {
        for operation in ["invoke", "invoke-with-response-stream", "converse"] {
            let target = uri(&format!("https://{EU}/model/{name}/{operation}"));
            let provider = providers.at(&target);
            let managed = providers.key(provider, CallersKey::Absent).unwrap();
            let price =
                |key| providers.list_price(provider, key, &Method::POST, &target, Some(name)).map(|_| ());
            let is_known = name == "mistral.large" || operation == "converse";
            assert_eq!(price(managed), if is_known { Ok(()) } else { Err(Unpriced::Form) }, "{target}");
            assert_eq!(price(Key::Callers), Ok(()), "{target}");
        }
    }
}

#[test]
fn a_host_of_bedrock_whose_name_says_no_region_has_the_same_endpoints() {
    let providers =
        providers_of_bedrock(&["127.0.0.1"], r#"{"provider":"bedrock","model":"m","input_per_1m":"1"}"#);
    let target = uri("https://127.0.0.1/guardrail/g/version/1/apply");
    let provider = providers.at(&target);
    assert_eq!((provider.name, provider.destination), ("bedrock", Destination::Named));
    let key = providers.key(provider, CallersKey::Absent).unwrap();
    let price = providers.list_price(provider, key, &Method::POST, &target, Some("m"));
    assert_eq!(price, Err(Unpriced::Endpoint));
}

#[test]
fn speech_on_a_managed_key_needs_a_price_that_does_not_depend_on_tokens() {
    let providers = providers();
    let (ours, url) = (ProviderKey::new("sk-ours").unwrap(), uri("https://api.openai.com/v1/audio/speech"));
    let price = |key, model| providers.list_price(providers.at(&url), key, &Method::POST, &url, Some(model));
    assert_eq!(price(Key::Managed(&ours), "m"), Err(Unpriced::Unit));
    assert!(matches!(price(Key::Managed(&ours), "tts"), Ok(ListPrice::Listed(_))));
    assert!(matches!(price(Key::Callers, "m"), Ok(ListPrice::Listed(_))));
    assert_eq!(providers.at(&url).billed_by(&url), BilledBy::InputCharacters);
    let elsewhere = uri("https://example.org/v1/audio/speech");
    assert_eq!(providers.at(&elsewhere).billed_by(&elsewhere), BilledBy::Report);
}

#[test]
fn each_provider_gets_its_key_in_its_own_header() {
    let (key, providers) = (ProviderKey::new("sk-1").unwrap(), providers());
    for (url, name, text) in [
        ("https://api.openai.com/v1", "authorization", "Bearer sk-1"),
        ("https://api.anthropic.com/v1", "x-api-key", "sk-1"),
        ("https://generativelanguage.googleapis.com/v1beta/models/m:x", "x-goog-api-key", "sk-1"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
            "authorization",
            "Bearer sk-1",
        ),
        ("https://api.together.xyz/v1/chat/completions", "authorization", "Bearer sk-1"),
        ("https://ours.openai.azure.com/openai/deployments/d/chat/completions", "api-key", "sk-1"),
    ] {
        let target = uri(url);
        let (header, value) = providers.at(&target).key_header(&target, &key);
        assert_eq!((header.as_str(), value.to_str().unwrap()), (name, text));
        assert!(value.is_sensitive());
    }
    assert_eq!(format!("{key:?}"), "ProviderKey(****)");
    for text in ["", "a b", "a\nb", "é"] {
        assert_eq!(ProviderKey::new(text), None, "{text:?}");
        assert_eq!(ProviderKey::of_provider("openai", text), Err(InvalidKey::NotVisible), "{text:?}");
    }
    let pair = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    for (name, text, is_valid) in [
        ("bedrock", "ABSKkey", true),
        ("bedrock", pair, true),
        ("bedrock", "AKIAIOSFODNN7EXAMPLE:short", false),
        ("bedrock", "AKIAIOSFODNN7EXAMPLE", false),
        ("openai", "a:b", true),
        // The secret would be sent as it is.
        ("openai", pair, false),
        ("anthropic", "ASIAIOSFODNN7EXAMPLE", false),
        ("my-own", pair, false),
    ] {
        assert_eq!(ProviderKey::of_provider(name, text).is_ok(), is_valid, "{name} {text}");
    }
}

#[test]
fn aws_credentials_are_for_bedrock_alone() {
    let providers = providers();
    let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    let (pair, lone) = (format!("AKIAIOSFODNN7EXAMPLE:{secret}"), "ASIAIOSFODNN7EXAMPLE".to_owned());
    let others = format!("service_account_7:{secret}");
    let within =
        |url: &str, key: &str| providers.at(&uri(url)).credentials_within(key).map(|found| found.is_some());
    for host in ["api.openai.com", "proxy.example.com:8443", "ours.openai.azure.com", "example.org"] {
        let url = format!("https://{host}/v1/chat/completions");
        for key in [&pair, &lone, &format!("{pair}:token")] {
            assert_eq!(within(&url, key), Err(InvalidKey::OfAws), "{host}");
        }
        // An unknown provider's keys may have any form.
        let known = if host == "example.org" { Ok(false) } else { Err(InvalidKey::OfAws) };
        assert_eq!(within(&url, &others), known, "{host}");
        for key in ["sk-theirs", "a:b", ""] {
            assert_eq!(within(&url, key), Ok(false), "{host} {key}");
        }
    }
    let bedrock = "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse";
    assert_eq!(within(bedrock, &pair), Ok(true));
    assert_eq!(within(bedrock, "ABSKtheirs"), Ok(false));
    assert_eq!(within(bedrock, &lone), Err(InvalidKey::OfBedrock(InvalidCredentials)));
    assert!(!InvalidKey::OfAws.to_string().contains("AKIA"));
}

#[test]
fn quirks_follow_the_provider_and_the_path() {
    let providers = providers();
    for (url, shape, stream_usage) in [
        ("https://api.openai.com/v1/chat/completions", Shape::OpenAi, StreamUsage::OnRequest),
        ("https://api.openai.com/v1/responses", Shape::OpenAi, StreamUsage::Always),
        ("https://api.openai.com/v1/audio/transcriptions", Shape::Transcription, StreamUsage::Always),
        ("https://api.mistral.ai/v1/chat/completions", Shape::OpenAi, StreamUsage::Always),
        ("https://openrouter.ai/api/v1/chat/completions", Shape::OpenAi, StreamUsage::Always),
        ("https://api.x.ai/v1/messages", Shape::Anthropic, StreamUsage::Always),
        ("https://api.cohere.com/v2/chat", Shape::Cohere, StreamUsage::Always),
        ("https://api.cohere.ai/compatibility/v1/chat/completions", Shape::Cohere, StreamUsage::Unknown),
        ("https://example.org/v1/messages", Shape::Standard, StreamUsage::Always),
    ] {
        let target = uri(url);
        let provider = providers.at(&target);
        assert_eq!((provider.shape(&target), provider.stream_usage(&target)), (shape, stream_usage), "{url}");
    }
}

#[test]
fn a_host_of_the_operators_is_called_over_https_unless_it_is_of_this_machine_or_a_private_network() {
    for (host, port, origin) in [
        ("127.0.0.1", 9, "http://127.0.0.1:9"),
        ("::1", 9, "http://[::1]:9"),
        ("10.0.0.7", 8000, "http://10.0.0.7:8000"),
        ("vllm", 8000, "http://vllm:8000"),
        ("127.0.0.1", 443, "https://127.0.0.1:443"),
        ("proxy.example.com", 8443, "https://proxy.example.com:8443"),
        ("proxy.example.com", 80, "https://proxy.example.com:80"),
        ("8.8.8.8", 9, "https://8.8.8.8:9"),
    ] {
        let host = ProviderHost { name: "openai".to_owned(), host: host.to_owned(), port };
        let providers = Providers::new(vec![host], BTreeMap::new(), Catalogue::default());
        assert_eq!(providers.origin_of("openai").as_deref(), Some(origin));
    }
}

#[test]
fn a_managed_key_is_not_used_where_a_server_may_read_another_model_in_the_path() {
    let providers = providers();
    let price = |key, url: &str| {
        let url = uri(url);
        providers.list_price(providers.at(&url), key, &Method::POST, &url, Some("m")).map(|_| ())
    };
    let ours = ProviderKey::new("sk-ours").unwrap();
    for path in ["/x/../v1/chat/completions", "/models/gemini-pr%6f:generateContent", "/a/./b", "/a\\b"] {
        for at in ["http://127.0.0.1:9", "https://proxy.example.com:8443"] {
            let Ok(url) = format!("{at}{path}").parse::<Uri>() else { continue };
            let url = url.to_string();
            assert_eq!(price(Key::Managed(&ours), &url), Err(Unpriced::Path), "{url}");
            assert_eq!(price(Key::Callers, &url), Ok(()), "{url}");
        }
    }
    assert_eq!(price(Key::Managed(&ours), "http://127.0.0.1:9/any/path"), Ok(()));
}

#[test]
fn what_is_billed_beside_tokens_needs_a_rate_of_its_own_on_a_managed_key() {
    const PRICES: &str = r#"{"source":"s","licence":"l","taken":"2026-11-20","models":[
        {"provider":"openai","model":"gpt-4o-mini-search-preview-2025-03-11","input_per_1m":"1"},
        {"provider":"openai","model":"gpt-5-search-api","input_per_1m":"1","per_second":"1"},
        {"provider":"openai","model":"gpt-6-search-api","input_per_1m":"1","per_request":"0.01"},
        {"provider":"openai","model":"research","input_per_1m":"1"},
        {"provider":"perplexity","model":"sonar","input_per_1m":"1"},
        {"provider":"perplexity","model":"sonar-pro","input_per_1m":"1","per_request":"0"},
        {"provider":"perplexity","model":"sonar-deep-research","input_per_1m":"1","per_request":"1"},
        {"provider":"groq","model":"groq/compound","input_per_1m":"1"},
        {"provider":"groq","model":"groq/compound-mini","input_per_1m":"1","per_request":"1"},
        {"provider":"mistral","model":"voxtral-small-latest","input_per_1m":"1","per_request":"1"},
        {"provider":"mistral","model":"voxtral-ours","input_per_1m":"1","per_second":"0"},
        {"provider":"mistral","model":"mistral-small","input_per_1m":"1"}]}"#;
    let providers = Providers::new(Vec::new(), BTreeMap::new(), Catalogue::read(PRICES).unwrap());
    let ours = ProviderKey::new("sk-ours").unwrap();
    let openai = "https://api.openai.com/v1/chat/completions";
    let perplexity = "https://api.perplexity.ai/chat/completions";
    let groq = "https://api.groq.com/openai/v1/chat/completions";
    let mistral = "https://api.mistral.ai/v1/chat/completions";
    for (url, model, expected) in [
        (openai, "gpt-4o-mini-search-preview-2025-03-11", Some(Unpriced::Searches)),
        (openai, "gpt-5-search-api", Some(Unpriced::Searches)),
        (openai, "gpt-6-search-api", None),
        (openai, "research", None),
        (perplexity, "sonar", Some(Unpriced::Searches)),
        (perplexity, "sonar-pro", None),
        (perplexity, "sonar-deep-research", Some(Unpriced::Units)),
        (groq, "groq/compound", Some(Unpriced::Searches)),
        (groq, "groq/compound-mini", None),
        (mistral, "voxtral-small-latest", Some(Unpriced::Sound)),
        (mistral, "voxtral-ours", None),
        (mistral, "mistral-small", None),
    ] {
        let target = uri(url);
        let price = |key| {
            let price = providers.list_price(providers.at(&target), key, &Method::POST, &target, Some(model));
            price.map(|price| assert!(matches!(price, ListPrice::Listed(_)), "{model}")).err()
        };
        assert_eq!((price(Key::Managed(&ours)), price(Key::Callers)), (expected, None), "{model}");
    }
}

#[test]
fn a_model_of_another_collection_has_no_price_of_the_one_in_the_body() {
    const PRICES: &str = r#"{"source":"s","licence":"l","taken":"2026-11-20","models":[
        {"provider":"google","model":"ours","input_per_1m":"1"},
        {"provider":"google","model":"tunedModels/listed","input_per_1m":"2"}]}"#;
    let providers = Providers::new(Vec::new(), BTreeMap::new(), Catalogue::read(PRICES).unwrap());
    let ours = ProviderKey::new("sk-ours").unwrap();
    for (path, expected) in [
        ("models/ours:generateContent", Ok(())),
        ("tunedModels/listed:generateContent", Ok(())),
        ("tunedModels/ours:generateContent", Err(Unpriced::Model)),
        ("dynamic/ours:streamGenerateContent", Err(Unpriced::Model)),
        ("models/x%3AgenerateContent", Err(Unpriced::Endpoint)),
    ] {
        let target = uri(&format!("https://generativelanguage.googleapis.com/v1beta/{path}"));
        let provider = providers.at(&target);
        let model = provider.model_within(&target).unwrap();
        let key = Key::Managed(&ours);
        let price = providers.list_price(provider, key, &Method::POST, &target, Some(&model));
        assert_eq!(price.map(|_| ()), expected, "{path}");
    }
}
