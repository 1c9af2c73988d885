//! Managed calls that are given up before their usage is reported: their callers leave or do not read, a timeout passes,
//! or the gateway stops. None of these calls is free.

use std::sync::Arc;

use farthing_tests::books::Books;
use farthing_tests::client::{Connection, Request};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, Meter, forward, token};
use farthing_tests::provider::{Endpoint, Gate, Provider, Step, chunk, event_stream, last_chunk};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// A stream of OpenAI that reports its usage once the gate is open.
pub(super) fn streaming(provider: &Provider, gate: &Gate) -> Endpoint {
    let gate = gate.clone();
    provider.endpoint_ending("/v1/chat/completions", move |_| {
        vec![
            event_stream(),
            chunk("data: {\"choices\":[{\"delta\":{\"content\":\"all that was wanted\"}}]}\n\n"),
            Step::Wait(gate.clone()),
            chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3}}\n\n"),
            chunk("data: [DONE]\n\n"),
            last_chunk(),
        ]
    })
}

pub(super) fn ask(endpoint: &Endpoint) -> Request {
    let asked = json!({"model": "gpt-4o", "stream": true, "max_tokens": 50, "messages": []});
    forward("POST", &endpoint.url).json(&asked)
}

/// Begins a call, reads the first piece of its stream and leaves.
pub(super) async fn leave(managed: &Managed, credential: &str, request: Request) -> String {
    let mut connection = Connection::open(managed.address()).await.unwrap();
    connection.send(&request.bearer(credential)).await.unwrap();
    let head = connection.head("POST").await.unwrap();
    assert!(head.first_line.contains(" 200 "), "{head:?}");
    connection.read.piece().await.unwrap();
    head.header("x-service-request-id").unwrap().to_owned()
}

/// The opening and the charge of a call.
pub(super) async fn events(merchant: &Merchant, id: &str) -> (Value, Value) {
    let opened = merchant.log.event(&format!("{id}/opened")).await.unwrap();
    let key = format!("{id}/metered");
    let metered = eventually("it is charged", async || merchant.log.event(&key).await).await;
    (opened.body, metered.body)
}

pub(super) async fn cancelling_meter(merchant: &Merchant, payer: &str) -> Meter {
    merchant
        .meter(json!({
            "name": payer, "rate_type": "fixed", "tier_type": "requests", "tiers": [{"start": 0, "rate": "0.5"}],
            "base_cost_payer": payer, "service_charge_payer": "merchant", "on_disconnect": "cancel",
        }))
        .await
}

#[test]
fn a_managed_call_that_is_left_before_its_usage_is_charged_its_hold() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let gate = Gate::default();
        let stream = streaming(&managed.openai, &gate);
        let waits = gate.clone();
        let mute =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| vec![Step::Wait(waits.clone())]);
        for payer in ["wallet", "merchant"] {
            let meter = cancelling_meter(&merchant, payer).await;
            let credential = merchant.billing(&customer, &meter);
            let id = leave(&managed, &credential, ask(&stream)).await;
            let (opened, metered) = events(&merchant, &id).await;
            assert_eq!(metered["marks"], json!(["usage_missing", "hold_charged", "partial"]));
            for part in ["wallet", "merchant"] {
                assert_eq!(metered[format!("total_{part}_cost")], opened["hold"][part], "{payer}: {metered}");
            }
            assert_ne!(metered["model_cost"]["total"], "0.0000000000", "{payer}: {metered}");
            let shown = merchant.shown(&id, "completed").await;
            assert_eq!(
                (&shown["http_status"], &shown["model_usage"]["total_tokens"]),
                (&json!(200), &json!(0))
            );

            // Before the provider has answered: it has the call, and does its work.
            let before = merchant.events().await.len();
            let calls = mute.calls().len();
            let mut connection = Connection::open(managed.address()).await.unwrap();
            connection.send(&ask(&mute).bearer(&credential)).await.unwrap();
            eventually("it is sent", async || (mute.calls().len() > calls).then_some(())).await;
            drop(connection);
            let charged = async || {
                let events = merchant.events().await.into_iter().skip(before);
                events.into_iter().find(|event| event.kind == "request.metered")
            };
            let metered = eventually("it is charged", charged).await.body;
            assert_eq!(metered["marks"], json!(["usage_missing", "hold_charged", "partial"]));
            assert_eq!(metered["total_wallet_cost"], metered["hold"]["wallet"], "{metered}");
            assert_eq!(metered["total_merchant_cost"], metered["hold"]["merchant"], "{metered}");
            let shown = merchant.shown(metered["request_id"].as_str().unwrap(), "completed").await;
            assert_eq!(shown["http_status"], Value::Null);
        }
        gate.open();
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn what_costs_the_instance_nothing_is_left_for_the_fee_per_call_alone() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = cancelling_meter(&merchant, "wallet").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let models = managed.openai.endpoint_ending("/v1/models", move |_| {
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(waits.clone()), last_chunk()]
        });
        let own = json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        });
        let stream = streaming(&managed.openai, &gate);
        for (credential, request) in
            [(merchant.billing(&customer, &meter), forward("GET", &models.url)), (token(&own), ask(&stream))]
        {
            let id = leave(&managed, &credential, request).await;
            let (_, metered) = events(&merchant, &id).await;
            assert_eq!(metered["marks"], json!(["usage_missing", "partial"]), "{metered}");
            assert_eq!(metered["total_wallet_cost"], "0.5000000000", "{metered}");
            assert_eq!(metered["model_cost"]["total"], "0.0000000000", "{metered}");
        }
        gate.open();
        assert_eq!(merchant.balance(&customer).await, "99.0000000000");
    });
}

/// Asserts that the call paid its whole hold and nothing else, with its provider's status.
async fn is_charged_its_hold(merchant: &Merchant, id: &str, status: Value) {
    let (opened, metered) = events(merchant, id).await;
    assert_eq!(metered["marks"], json!(["usage_missing", "hold_charged", "partial"]));
    assert_ne!(metered["total_request_cost"], "0.0000000000", "{metered}");
    for part in ["wallet", "merchant"] {
        assert_eq!(metered[format!("total_{part}_cost")], opened["hold"][part], "{metered}");
    }
    assert_eq!(merchant.shown(id, "completed").await["http_status"], status);
}

/// A call on the caller's own key, or one that costs nothing, fails for this reason instead.
async fn is_free(merchant: &Merchant, id: &str, reason: &str) {
    assert_eq!(merchant.failed_request(id).await["reason"], reason);
    assert!(merchant.log.event(&format!("{id}/metered")).await.is_none());
}

/// Begins a call and reads the first piece of its stream.
async fn begin(managed: &Managed, credential: &str, endpoint: &Endpoint) -> (Connection, String) {
    let mut connection = Connection::open(managed.address()).await.unwrap();
    connection.send(&ask(endpoint).bearer(credential)).await.unwrap();
    let head = connection.head("POST").await.unwrap();
    connection.read.piece().await.unwrap();
    (connection, head.header("x-service-request-id").unwrap().to_owned())
}

#[test]
fn a_managed_call_that_outlasts_a_timeout_is_charged_its_hold() {
    run(async {
        let managed = Managed::start(&["--answer-timeout-seconds=3", "--silence-timeout-seconds=3"]).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let gate = Gate::default();
        let waits = gate.clone();
        let mute =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| vec![Step::Wait(waits.clone())]);
        let response = managed.send(&merchant.secret_key, ask(&mute)).await;
        response.refused(504, "provider_timeout");
        is_charged_its_hold(&merchant, &response.request_id(), Value::Null).await;
        let response = managed.send(&own, ask(&mute)).await;
        response.refused(504, "provider_timeout");
        is_free(&merchant, &response.request_id(), "provider_timeout").await;

        let silent = streaming(&managed.openai, &gate);
        for (credential, is_managed) in [(&merchant.secret_key, true), (&own, false)] {
            let (mut connection, id) = begin(&managed, credential, &silent).await;
            assert!(connection.read.rest().await.1.is_err(), "a cut response looks complete");
            if is_managed {
                is_charged_its_hold(&merchant, &id, json!(200)).await;
            } else {
                is_free(&merchant, &id, "provider_gone").await;
            }
        }
        gate.open();
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn a_managed_call_that_its_gateway_cuts_off_when_it_stops_is_charged_its_hold() {
    run(async {
        let mut managed = Managed::start(&["--grace-seconds=1"]).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let gate = Gate::default();
        let stream = streaming(&managed.openai, &gate);
        let waits = gate.clone();
        let mute =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| vec![Step::Wait(waits.clone())]);
        let (first, streamed) = begin(&managed, &merchant.secret_key, &stream).await;
        let (second, streamed_free) = begin(&managed, &own, &stream).await;
        let mut waiting = Vec::new();
        for credential in [&merchant.secret_key, &own] {
            let mut connection = Connection::open(managed.address()).await.unwrap();
            connection.send(&ask(&mute).bearer(credential)).await.unwrap();
            waiting.push(connection);
        }
        eventually("all are in flight", async || (mute.calls().len() == 2).then_some(())).await;
        managed.stop().await;
        drop((first, second));
        is_charged_its_hold(&merchant, &streamed, json!(200)).await;
        is_free(&merchant, &streamed_free, "provider_gone").await;
        let events = merchant.events().await;
        let ended = |kind: &str| {
            let of_kind = events.iter().filter(|event| event.kind == kind);
            let mut ids = of_kind.map(|event| event.body["request_id"].as_str().unwrap().to_owned());
            ids.find(|id| *id != streamed && *id != streamed_free).unwrap()
        };
        is_charged_its_hold(&merchant, &ended("request.metered"), Value::Null).await;
        is_free(&merchant, &ended("request.failed"), "abandoned").await;
        gate.open();
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn a_managed_stream_that_its_caller_does_not_read_is_charged_its_hold_when_the_provider_gives_up() {
    run(async {
        let managed = Managed::start(&["--stall-timeout-seconds=12"]).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        // More than the buffers on the way hold. The provider disconnects before the end.
        let length = 32 * 1024 * 1024;
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |_| {
            vec![
                event_stream(),
                chunk("data: {}\n\n"),
                Step::Bytes(format!("{length:x}\r\n").into_bytes()),
                Step::Flood(length, Arc::default()),
                Step::Close,
            ]
        });
        // A caller who reads gets what came, and does not pay for the provider's failure.
        let (mut connection, id) = begin(&managed, &merchant.secret_key, &endpoint).await;
        assert!(connection.read.rest().await.1.is_err(), "a cut response looks complete");
        is_free(&merchant, &id, "provider_gone").await;
        for (credential, is_managed) in [(&merchant.secret_key, true), (&own, false)] {
            let (connection, id) = begin(&managed, credential, &endpoint).await;
            if is_managed {
                is_charged_its_hold(&merchant, &id, json!(200)).await;
            } else {
                is_free(&merchant, &id, "caller_gone").await;
            }
            drop(connection);
        }
        merchant.nothing_is_held().await;
    });
}
