//! Redirects of providers: each passes back as it is, and its URL is not called, in whatever way the provider was called.

use std::sync::{Arc, Mutex};

use farthing_tests::client::Request;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{json as answer_json, whole};
use farthing_tests::run;
use serde_json::json;

/// Every status that browsers or clients may follow.
const STATUSES: [u16; 7] = [300, 301, 302, 303, 305, 307, 308];

/// The path of a provider that every way can call.
const PATH: &str = "/v1/chat/completions";

/// A provider redirects calls to an address of the inside, to another server that may be called, and within its own host:
/// the caller gets the redirect, and neither the call nor the managed key goes on to its URL.
#[test]
fn no_redirect_is_followed_whatever_its_status_and_its_url() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let elsewhere = managed.mistral.endpoint(|_| answer_json(200, &json!({"of": "elsewhere"})));
        let beside = managed.openai.endpoint(|_| answer_json(200, &json!({"of": "beside"})));
        let next = Arc::new(Mutex::new((0_u16, String::new())));
        let told = Arc::clone(&next);
        let provider = managed.openai.endpoint_at(PATH, move |_| {
            let (status, location) = told.lock().unwrap().clone();
            whole(status, &[("Location", location.as_str()), ("Content-Type", "application/json")], b"{}")
        });
        let asked = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100});
        // One who has a key of its own for the provider may call it without a model that has a price.
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-own"}));
        let ways = || {
            let posts = [
                forward("POST", &provider.url),
                Request::new("POST", format!("/v1/forward/{}", provider.url)),
                Request::new("POST", format!("/v1/rewrite/openai/{}", provider.url)),
            ];
            let posts = posts.map(|call| (&merchant.secret_key, call.json(&asked("gpt-4o"))));
            posts.into_iter().chain([
                (&merchant.secret_key, Request::new("POST", PATH).json(&asked("openai/gpt-4o"))),
                (&own, forward("GET", &provider.url)),
            ])
        };
        let mut calls = 0;
        for status in STATUSES {
            for location in [
                elsewhere.url.clone(),
                elsewhere.url.trim_start_matches("http:").to_owned(),
                beside.path.clone(),
                "http://169.254.169.254/latest/meta-data/".to_owned(),
            ] {
                *next.lock().unwrap() = (status, location.clone());
                for (credential, call) in ways() {
                    let what = format!("{} {}: {status} {location}", call.method, call.target);
                    let response = managed.send(credential, call).await;
                    assert_eq!(response.status, status, "{what}: {}", response.text());
                    assert_eq!(response.head.header("location"), Some(location.as_str()), "{what}");
                    calls += 1;
                    assert_eq!(provider.calls().len(), calls, "{what}");
                }
            }
        }
        assert!(elsewhere.calls().is_empty() && beside.calls().is_empty(), "a redirect was followed");
        merchant.nothing_is_held().await;
    });
}
