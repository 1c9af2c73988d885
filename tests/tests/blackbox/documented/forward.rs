//! The forward endpoint, with each of its methods.

use farthing_tests::client::Request;
use farthing_tests::document::Operation;
use farthing_tests::merchant::{encoded, token};
use farthing_tests::provider::{Endpoint, Step, event_stream, json as answer_json, last_chunk};
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use super::scene::{Beside, Call, Scene};
use super::{Case, cases};

pub(super) fn cases() -> Vec<Case> {
    cases! { scene, at;
        "forward" "200" => to(scene, at, &scene.endpoint());
        "forward" "validation_error" => {
            // The model is unknown.
            let (_, key) = scene.spend_key(&json!({})).await;
            let call = to(scene, at, &scene.endpoint()).bearer(&key);
            call.body("application/json", br#"{"model": "a", "model": "b"}"#)
        };
        "forward" "forward_token_json_invalid" => to(scene, at, &scene.endpoint()).bearer("%%%");
        "forward" "forward_url_missing" => {
            let path = if has_url_in_path(at) { "/v1/forward/".to_owned() } else { format!("/v1{}", at.path) };
            scene.call_of(at, path)
        };
        "forward" "forward_url_invalid" => to_url(scene, at, "ftp://provider.example/");
        "forward" "forward_url_forbidden" => to_url(scene, at, "http://10.0.0.1/");
        "forward" "metadata_invalid" => to(scene, at, &scene.endpoint()).header("x-service-metadata", "[]");
        "forward" "model_not_priced" => managed(scene, at, "nobody's").await;
        "forward" "provider_key_missing" => to_url(scene, at, "https://api.openai.com/v1/models");
        "forward" "connection_secret_invalid" => with(scene, at, &json!({"connection_secret": "cons_nobody"}));
        "forward" "product_secret_invalid" => with(scene, at, &json!({"product_secret": "prds_nothing"}));
        "forward" "customer_not_found" => with(scene, at, &json!({"customer_id": "nobody"}));
        "forward" "meter_not_found" => with(scene, at, &json!({"meter_slug": "nothing"}));
        "forward" "insufficient_balance" => {
            let (customer, meter) = (scene.customer().await, scene.meter("1").await);
            with(scene, at, &json!({"customer_id": customer, "meter_id": meter}))
        };
        "forward" "spend_key_invalid" => to(scene, at, &scene.endpoint()).bearer("spk_nobody");
        "forward" "spend_key_expired" => {
            let key = scene.expired_spend_key().await;
            to(scene, at, &scene.endpoint()).bearer(&key)
        };
        "forward" "spend_key_paused" => to(scene, at, &scene.endpoint()).bearer(&scene.paused_spend_key().await);
        "forward" "spend_limit_exceeded" => {
            // A call costs a cent.
            let limits = json!({"spend_limit": {"amount": "0.0099999999", "cycle": "total"}});
            let (_, key) = scene.spend_key(&limits).await;
            managed(scene, at, "a-cent").await.bearer(&key)
        };
        "forward" "model_not_allowed" => {
            let (_, key) = scene.spend_key(&json!({"allowed_models": ["another"]})).await;
            to(scene, at, &scene.endpoint()).bearer(&key)
        };
        "forward" "provider_not_allowed" => {
            let (_, key) = scene.spend_key(&json!({"allowed_providers": ["another"]})).await;
            to(scene, at, &scene.endpoint()).bearer(&key)
        };
        "forward" "rate_limit_exceeded" => {
            let (_, key) = scene.spend_key(&json!({"rate_limit": {"rpm": 1, "burst": 1}})).await;
            used(scene, &key).await;
            to(scene, at, &scene.endpoint()).bearer(&key)
        };
        "forward" "request_limit_exceeded" => {
            let (_, key) = scene.spend_key(&json!({"request_limit": {"count": 1, "cycle": "total"}})).await;
            used(scene, &key).await;
            to(scene, at, &scene.endpoint()).bearer(&key)
        };
        // A port without a listener: it was just closed.
        "forward" "provider_unreachable" => {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            to_url(scene, at, &format!("http://{free}/"))
        };
        "forward" "provider_timeout" => {
            let gate = scene.gate();
            let silent = scene.merchant.instance.provider.endpoint(move |_| vec![Step::Wait(gate.clone())]);
            to(scene, at, &silent).at(Beside::started().await.hurried.address)
        };
        "forward" "idempotency_in_progress" => {
            let gate = scene.gate();
            let silent = scene.merchant.instance.provider.endpoint(move |_| {
                let mut steps = vec![Step::Wait(gate.clone())];
                steps.extend(answer_json(200, &json!({})));
                steps
            });
            let call = keyed(scene, at, &silent);
            let first = call.clone();
            tokio::spawn(async move { first.request.send(first.to).await });
            eventually("the call is in flight", async || (silent.calls().len() == 1).then_some(())).await;
            call
        };
        "forward" "idempotency_completed" => {
            let streamed = scene.merchant.instance.provider.endpoint(|_| vec![event_stream(), last_chunk()]);
            let call = keyed(scene, at, &streamed);
            let first = call.request.send(call.to).await.unwrap();
            assert_eq!((first.status, first.complete), (200, true));
            call
        };
        "forward" "idempotency_key_reused" => {
            let call = keyed(scene, at, &scene.endpoint());
            assert_eq!(call.request.send(call.to).await.unwrap().status, 200);
            call.query("another=call")
        };
    }
}

fn to(scene: &Scene, at: &Operation, endpoint: &Endpoint) -> Call {
    to_url(scene, at, &endpoint.url)
}

/// A call to `url`, in the query or in the path.
pub(super) fn to_url(scene: &Scene, at: &Operation, url: &str) -> Call {
    if has_url_in_path(at) {
        return scene.call_of(at, format!("/v1/forward/{url}"));
    }
    scene.call(at).query(&format!("u={}", encoded(url)))
}

fn has_url_in_path(at: &Operation) -> bool {
    at.path.ends_with("{url}")
}

/// A call with the merchant's key and `more` in its forward token.
fn with(scene: &Scene, at: &Operation, more: &Value) -> Call {
    let mut fields = json!({"secret_key": scene.merchant.secret_key});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    to(scene, at, &scene.endpoint()).bearer(&token(&fields))
}

fn keyed(scene: &Scene, at: &Operation, endpoint: &Endpoint) -> Call {
    to(scene, at, endpoint).header("Idempotency-Key", scene.fresh())
}

/// A call with a managed provider key of the gateway.
async fn managed(scene: &Scene, at: &Operation, model: &str) -> Call {
    let endpoint = scene.merchant.instance.openai.endpoint(|_| answer_json(200, &json!({})));
    let call = to(scene, at, &endpoint).at(Beside::started().await.managed.address);
    call.body("application/json", json!({"model": model}).to_string().as_bytes())
}

/// A call with a spend key.
async fn used(scene: &Scene, key: &str) {
    let target = format!("/v1/forward?u={}", encoded(&scene.endpoint().url));
    let request = Request::new("GET", target).bearer(key);
    request.send(scene.merchant.gateway()).await.unwrap().expect(200);
}
