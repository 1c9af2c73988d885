//! A spend key that is paused, has expired or is deleted gets nothing, stored responses included.

use std::net::SocketAddr;

use farthing_tests::client::{Body, Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Provider, Step, json as answer_json};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::endpoints::{Endpoints, SAID};

/// A spend key of a test.
pub(super) struct SpendKey {
    pub(super) id: String,
    pub(super) key: String,
}

/// A way to stop a spend key that expires within an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Paused,
    Expired,
    Deleted,
}

impl Stop {
    /// All ways.
    pub(super) const ALL: [Self; 3] = [Self::Paused, Self::Expired, Self::Deleted];

    /// Stops a key of the merchant.
    pub(super) async fn stop(self, merchant: &Merchant, id: &str) {
        match self {
            Self::Paused => set_status(merchant, id, "paused").await,
            Self::Expired => {
                merchant.post("/v1/test_clock", &json!({"advance_seconds": 3600})).await.expect(200);
            }
            Self::Deleted => {
                merchant.delete(&format!("/v1/spend_keys/{id}")).await.expect(200);
            }
        }
    }

    /// The kind of the event that stops it.
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Paused => "spend_key.updated",
            Self::Expired => "clock.advanced",
            Self::Deleted => "spend_key.deleted",
        }
    }

    /// The status and the code of each call with it from then on.
    pub(super) fn refusal(self) -> (u16, &'static str) {
        match self {
            Self::Paused => (403, "spend_key_paused"),
            Self::Expired => (401, "spend_key_expired"),
            Self::Deleted => (401, "spend_key_invalid"),
        }
    }
}

/// A key that expires then, with these settings.
pub(super) async fn spend_key(merchant: &Merchant, expires_at: &Value, settings: Value) -> SpendKey {
    let mut body = settings;
    body["name"] = json!("a test's");
    body["expires_at"] = expires_at.clone();
    let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    SpendKey { id: text("spend_key_id"), key: text("key") }
}

/// An hour from now, by the merchant's clock.
pub(super) async fn in_an_hour(merchant: &Merchant) -> Value {
    let now = merchant.post("/v1/test_clock", &json!({"advance_seconds": 1})).await.expect(200);
    let now: chrono::DateTime<chrono::Utc> = now["now"].as_str().unwrap().parse().unwrap();
    json!(now + chrono::Duration::hours(1))
}

async fn set_status(merchant: &Merchant, id: &str, status: &str) {
    let change = Request::new("PUT", format!("/v1/spend_keys/{id}")).json(&json!({"status": status}));
    merchant.rest(change).await.expect(200);
}

/// A token with the spend key, and a provider's own key.
fn token(key: &str) -> String {
    farthing_tests::merchant::token(&json!({"spend_key": key, "provider_key": "p"}))
}

#[test]
fn a_stopped_key_gets_no_stored_response() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let endpoint =
            merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"secret": "of the call"})));
        let expires_at = in_an_hour(&merchant).await;
        let mut keys = Vec::new();
        for owner in [json!({}), json!({"connection_id": customer.id})] {
            keys.push(spend_key(&merchant, &expires_at, owner).await);
        }
        let call = async |credential: &str, gateway: usize| {
            let call = forward("POST", &endpoint.url)
                .header("Idempotency-Key", format!("once {}", credential.len()))
                .json(&json!({}));
            call.bearer(credential).send(merchant.instance.gateway(gateway)).await.unwrap()
        };
        for SpendKey { id, key } in &keys {
            for credential in [key.clone(), token(key)] {
                for (gateway, replayed) in [(0, false), (0, true), (1, true)] {
                    let answered = call(&credential, gateway).await;
                    assert_eq!(answered.expect(200)["secret"], "of the call");
                    assert_eq!(
                        answered.head.header("idempotency-replayed").is_some(),
                        replayed,
                        "{credential}"
                    );
                    if credential != *key {
                        break;
                    }
                }
            }
            set_status(&merchant, id, "paused").await;
            for gateway in [0, 1] {
                call(key, gateway).await.refused(403, "spend_key_paused");
                call(&token(key), gateway).await.refused(403, "spend_key_paused");
            }
            set_status(&merchant, id, "active").await;
            assert!(call(key, 0).await.head.header("idempotency-replayed").is_some(), "active again");
        }
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 3600})).await.expect(200);
        for SpendKey { key, .. } in &keys {
            for gateway in [0, 1] {
                call(key, gateway).await.refused(401, "spend_key_expired");
                call(&token(key), gateway).await.refused(401, "spend_key_expired");
            }
        }
    });
}

#[test]
fn a_stopped_key_gets_no_stored_response_at_any_endpoint() {
    run(async {
        let endpoints = Endpoints::start(&[("Content-Type", "application/json")]).await;
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let expires_at = in_an_hour(&merchant).await;
        let mut calls = Vec::new();
        for owner in [json!({}), json!({"connection_id": customer.id})] {
            for shape in ["openai", "anthropic"] {
                let mut settings = owner.clone();
                settings["request_shape"] = json!(shape);
                let key = spend_key(&merchant, &expires_at, settings).await;
                let mut of_key = Vec::new();
                for call in endpoints.calls().into_iter().filter(|call| call.shape() == shape) {
                    for credential in [key.key.clone(), token(&key.key)] {
                        // Both ways of forward have one scope.
                        let once = format!("{} {}", call.target(), credential.len());
                        let request = call.request.clone().header("Idempotency-Key", once);
                        of_key.push(request.bearer(&credential));
                    }
                }
                calls.push((key, of_key));
            }
        }
        for (key, of_key) in &calls {
            for request in of_key {
                for replayed in [false, true] {
                    let response = endpoints.send(request).await;
                    assert_eq!(response.status, 200, "{}: {}", request.target, response.text());
                    assert!(response.text().contains(SAID), "{}: {}", request.target, response.text());
                    let is_replayed = response.head.header("idempotency-replayed").is_some();
                    assert_eq!(is_replayed, replayed, "{}", request.target);
                }
            }
            set_status(&merchant, &key.id, "paused").await;
            for request in of_key {
                endpoints.send(request).await.refused(403, "spend_key_paused");
            }
            set_status(&merchant, &key.id, "active").await;
            for request in of_key {
                let response = endpoints.send(request).await;
                assert!(response.head.header("idempotency-replayed").is_some(), "{}", request.target);
            }
        }
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 3600})).await.expect(200);
        for (_, of_key) in &calls {
            for request in of_key {
                endpoints.send(request).await.refused(401, "spend_key_expired");
            }
        }
        let made: usize = calls.iter().map(|(_, of_key)| of_key.len()).sum();
        assert_eq!(endpoints.received(), made);
    });
}

/// Sends a request without its body, and returns once the gateway waits for the body.
async fn without_its_body(request: &Request, to: SocketAddr) -> Connection {
    let mut connection = Connection::open(to).await.unwrap();
    connection.send_head(&request.clone().header("Expect", "100-continue")).await.unwrap();
    let proceed = connection.read.head().await.unwrap().unwrap();
    assert!(proceed.first_line.starts_with("HTTP/1.1 100"), "{}", proceed.first_line);
    connection
}

/// Makes a call with an idempotency key at the first gateway, and stops the spend key while the call is at its provider.
/// Duplicates of it are refused as the key is at both gateways: while the call runs, and after its end, when its response
/// is stored; also those that came before the key was stopped and wait for their bodies.
async fn duplicates_are_refused(
    (merchant, stop, key): (&Merchant, Stop, &SpendKey),
    gateways: [SocketAddr; 2],
    request: &Request,
    (endpoint, gate): (&Endpoint, &Gate),
) {
    let (status, code) = stop.refusal();
    let (call, to) = (request.clone(), gateways[0]);
    let first = tokio::spawn(async move { call.send(to).await.unwrap() });
    eventually("the first call is at its provider", async || (endpoint.calls().len() == 1).then_some(()))
        .await;
    let mut waiting = Vec::new();
    for to in gateways {
        // A duplicate of a call that runs waits for nothing but its own body.
        request.send(to).await.unwrap().refused(409, "idempotency_in_progress");
        waiting.push(without_its_body(request, to).await);
    }
    stop.stop(merchant, &key.id).await;
    for to in gateways {
        request.send(to).await.unwrap().refused(status, code);
    }
    assert!(!endpoint.only_call().is_finished(), "{stop:?}: the first call still runs");
    gate.open();
    let answered = first.await.unwrap();
    assert_eq!(answered.expect(200)["said"], SAID);
    assert_eq!(merchant.charged(&answered).await["spend_key"]["spend_key_id"], key.id.as_str());
    let Body::Whole(body) = &request.body else { panic!("JSON is sent whole") };
    for mut connection in waiting {
        connection.write.write_all(body).await.unwrap();
        connection.response("POST").await.unwrap().refused(status, code);
    }
    for to in gateways {
        request.send(to).await.unwrap().refused(status, code);
    }
    if stop == Stop::Paused {
        // It was stored.
        set_status(merchant, &key.id, "active").await;
        for to in gateways {
            let replayed = request.send(to).await.unwrap();
            assert_eq!(replayed.expect(200)["said"], SAID);
            assert!(replayed.head.header("idempotency-replayed").is_some());
        }
    }
    assert_eq!(endpoint.calls().len(), 1);
    merchant.nothing_is_held().await;
}

/// What the provider answers once the gate is open.
fn said_behind(gate: &Gate) -> Vec<Step> {
    let answer = answer_json(200, &json!({"said": SAID, "usage": {"prompt_tokens": 1, "total_tokens": 1}}));
    [vec![Step::Wait(gate.clone())], answer].concat()
}

#[test]
fn a_duplicate_of_a_call_that_still_runs_is_refused_at_every_gateway_once_its_key_is_stopped() {
    run(async {
        for stop in Stop::ALL {
            let merchant = Merchant::funded("10").await;
            let key = spend_key(&merchant, &in_an_hour(&merchant).await, json!({})).await;
            let (gate, instance) = (Gate::default(), merchant.instance);
            let waits = gate.clone();
            let endpoint = instance.provider.endpoint(move |_| said_behind(&waits));
            let request = forward("POST", &endpoint.url)
                .bearer(&key.key)
                .header("Idempotency-Key", "once")
                .json(&json!({"input": "hello"}));
            let gateways = [instance.gateway(0), instance.gateway(1)];
            assert_ne!(gateways[0], gateways[1]);
            duplicates_are_refused((&merchant, stop, &key), gateways, &request, (&endpoint, &gate)).await;
        }
    });
}

#[test]
fn a_duplicate_at_a_model_endpoint_is_refused_at_every_gateway_once_its_key_is_stopped() {
    run(async {
        let (instance, openai) = (Instance::shared().await, Provider::start().await);
        let flags =
            ["--allow-address=127.0.0.0/8", &format!("--provider-host=openai={}", openai.authority())];
        let sides = [SideGateway::start(instance, &flags).await, SideGateway::start(instance, &flags).await];
        let gateways = sides.each_ref().map(|gateway| gateway.address);
        let messages = json!([{"role": "user", "content": "Hi"}]);
        for (stop, path, body) in [
            (Stop::Paused, "/v1/chat/completions", json!({"model": "openai/gpt-4o", "messages": messages})),
            (Stop::Expired, "/v1/responses", json!({"model": "openai/gpt-4o", "input": "Hi"})),
            (
                Stop::Deleted,
                "/v1/embeddings",
                json!({"model": "openai/text-embedding-3-small", "input": "Hi"}),
            ),
        ] {
            let merchant = Merchant::funded("10").await;
            let key = spend_key(&merchant, &in_an_hour(&merchant).await, json!({})).await;
            let gate = Gate::default();
            let waits = gate.clone();
            let endpoint = openai.endpoint_at(path, move |_| said_behind(&waits));
            let request = Request::new("POST", path)
                .bearer(&token(&key.key))
                .header("Idempotency-Key", "once")
                .json(&body);
            duplicates_are_refused((&merchant, stop, &key), gateways, &request, (&endpoint, &gate)).await;
        }
    });
}
