//! JSON bodies of very many members: reading one costs much more than its bytes do.

use farthing_tests::client::{Body, Request};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::process::cpu_ticks;
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::json;

/// Calls with each body.
const CALLS: usize = 40;

/// As many members as a body that is read ahead has room for.
const MANY: usize = 52_000;

/// The most members that a gateway reads of an object.
const READ: usize = 10_000;

/// The times that calls with many members may cost of those with a plain body of their length.
const MOST: u64 = 6;

fn members(count: usize) -> String {
    vec![r#""":0"#; count].join(",")
}

fn with_body(request: Request, body: &str) -> Request {
    request.header("Content-Type", "application/json").body(Body::Whole(body.as_bytes().to_vec()))
}

/// A call with 256 KiB of members kept a gateway's thread busy for 30 ms, because they were passed over for each name that
/// matters, and 16 connections of one merchant made the calls of others wait for 200 ms.
#[test]
fn a_body_of_many_members_costs_little_more_than_a_plain_one_of_its_length() {
    run(async {
        let attacker = Merchant::new().await;
        let gateway = SideGateway::start(attacker.instance, &["--allow-address=127.0.0.0/8"]).await;
        let endpoint = attacker.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let cost = async |body: &str| {
            let call = with_body(forward("POST", &endpoint.url), body).bearer(&attacker.secret_key);
            let call = call.header("x-api-key", "x");
            let before = cpu_ticks(gateway.pid());
            for _ in 0..CALLS {
                call.send(gateway.address).await.unwrap().expect(200);
            }
            cpu_ticks(gateway.pid()) - before
        };
        let many = members(MANY);
        let plain = format!(r#"{{"model":"x","prompt":"{}"}}"#, "x".repeat(many.len()));
        cost(&plain).await;
        let alone = cost(&plain).await;
        for body in [
            format!(r#"{{"model":"x",{many}}}"#),
            format!(r#"{{"model":"x","generationConfig":{{{many}}}}}"#),
        ] {
            let many = cost(&body).await;
            assert!(many <= MOST * alone.max(1), "{many} ticks of the processor beside {alone}");
        }
    });
}

#[test]
fn a_body_of_too_many_members_passes_on_the_callers_key_and_no_list_of_models() {
    const CHAT: &str = "/v1/chat/completions";
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("5").await;
        let endpoint = managed.openai.endpoint_at(CHAT, |_| answer_json(200, &json!({})));
        let other = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let body = format!(r#"{{"model":"gpt-4o","max_tokens":9,"messages":[],{}}}"#, members(READ));
        for request in [
            forward("POST", &endpoint.url),
            Request::new("POST", CHAT),
            Request::new("POST", format!("/v1/rewrite/anthropic/{}", endpoint.url)),
        ] {
            let refused = managed.send(&merchant.secret_key, with_body(request, &body)).await;
            let error = refused.refused(400, "validation_error").to_string();
            assert!(error.contains("must have at most 10000 members"), "{error}");
        }
        assert!(endpoint.calls().is_empty());

        let settings = json!({"name": "k", "allowed_models": ["gpt-4o"]});
        let listed = merchant.post("/v1/spend_keys", &settings).await.expect(201);
        let listed = token(&json!({"spend_key": listed["key"], "provider_key": "sk-theirs"}));
        let call = || with_body(forward("POST", &other.url), &body);
        managed.send(&listed, call()).await.refused(403, "model_not_allowed");
        assert!(other.calls().is_empty());
        let own = call().header("x-api-key", "x");
        managed.send(&merchant.secret_key, own).await.expect(200);
        assert_eq!(other.only_call().body, body.as_bytes());
    });
}
