//! How a call ended is read over REST: its status, the reason of a failure and the marks of its metering.

use farthing_tests::client::Connection;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, json};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::{Value, json};

/// A failed call as REST shows it. A failed call costs nothing.
async fn failed(merchant: &Merchant, id: &str) -> Value {
    let shown = merchant.shown(id, "error").await;
    for total in ["total_request_cost", "total_wallet_cost", "total_merchant_cost"] {
        assert_eq!(shown[total], "0.0000000000", "{total}: {shown}");
    }
    shown
}

/// An endpoint that sends the head of a stream and this piece, then waits for the gate.
fn stream_of(merchant: &Merchant, piece: &'static str, gate: &Gate) -> Endpoint {
    let gate = gate.clone();
    merchant
        .instance
        .provider
        .endpoint(move |_| vec![event_stream(), chunk(piece), Step::Wait(gate.clone()), Step::Close])
}

/// Begins a call, and returns its connection and its id once the response has begun.
async fn begun(merchant: &Merchant, credential: &str, endpoint: &Endpoint) -> (Connection, String) {
    let mut connection = Connection::open(merchant.gateway()).await.unwrap();
    connection.send(&forward("GET", &endpoint.url).bearer(credential)).await.unwrap();
    let head = connection.head("GET").await.unwrap();
    connection.read.piece().await.unwrap();
    (connection, head.header("x-service-request-id").unwrap().to_owned())
}

#[test]
fn a_call_in_flight_is_shown_as_pending_and_then_as_completed() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gate = Gate::default();
        let endpoint = stream_of(&merchant, "data: {\"usage\":{\"tokens\":7}}\n\n", &gate);
        let (connection, id) = begun(&merchant, &merchant.secret_key, &endpoint).await;
        let pending = merchant.shown(&id, "pending").await;
        assert_eq!((&pending["request_id"], &pending["provider"]), (&json!(id), &json!("other")));
        assert_eq!((pending.get("completed_at"), pending.get("http_status")), (None, None), "{pending}");
        assert_eq!(pending["model_usage"]["total_tokens"], 0);
        gate.open();
        let completed = merchant.shown(&id, "completed").await;
        assert_eq!((&completed["http_status"], &completed["marks"]), (&json!(200), &json!(["partial"])));
        assert!(completed["completed_at"].is_string(), "{completed}");
        assert_eq!(completed["model_usage"]["total_tokens"], 7);
        drop(connection);
    });
}

#[test]
fn a_call_that_the_provider_did_not_answer_is_shown_with_its_reason() {
    run(async {
        let merchant = Merchant::funded("1").await;
        // A port without a listener: it was just closed.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let response = merchant.call(&merchant.secret_key, &format!("http://{closed}/")).await;
        response.refused(502, "provider_unreachable");
        let shown = failed(&merchant, &response.request_id()).await;
        assert_eq!(shown["failure_reason"], "provider_unreachable");
        assert_eq!(shown.get("http_status"), None, "{shown}");

        let silent = Gate::default();
        let hurried = ["--answer-timeout-seconds=1", "--allow-address=127.0.0.0/8"];
        let gateway = SideGateway::start(merchant.instance, &hurried).await;
        let endpoint = merchant.instance.provider.endpoint(move |_| vec![Step::Wait(silent.clone())]);
        let call = forward("GET", &endpoint.url).bearer(&merchant.secret_key);
        let response = call.send(gateway.address).await.unwrap();
        response.refused(504, "provider_timeout");
        let shown = failed(&merchant, &response.request_id()).await;
        assert_eq!(shown["failure_reason"], "provider_timeout");
    });
}

#[test]
fn a_call_to_a_name_with_a_forbidden_address_is_shown_with_its_reason() {
    run(async {
        let merchant = Merchant::funded("1").await;
        // Its guard allows no loopback addresses.
        let gateway = SideGateway::start(merchant.instance, &[]).await;
        let call = forward("GET", "http://localhost:9/").bearer(&merchant.secret_key);
        let response = call.send(gateway.address).await.unwrap();
        response.refused(400, "forward_url_forbidden");
        let shown = failed(&merchant, &response.request_id()).await;
        assert_eq!(shown["failure_reason"], "address_forbidden");
    });
}

#[test]
fn a_call_that_broke_off_before_its_usage_is_shown_with_its_reason() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gate = Gate::default();
        let endpoint = stream_of(&merchant, "data: {}\n\n", &gate);
        let (connection, id) = begun(&merchant, &merchant.secret_key, &endpoint).await;
        gate.open();
        assert_eq!(failed(&merchant, &id).await["failure_reason"], "provider_gone");
        drop(connection);

        // The meter stops the provider when the caller leaves.
        let customer = merchant.customer("1").await;
        let meter = merchant
            .meter(json!({
                "name": "stops", "rate_type": "fixed", "tier_type": "tokens_1m", "tiers": [{"start": 0, "rate": "1"}],
                "service_charge_payer": "merchant", "on_disconnect": "cancel",
            }))
            .await;
        let endpoint = stream_of(&merchant, "data: {}\n\n", &Gate::default());
        let (connection, id) = begun(&merchant, &merchant.billing(&customer, &meter), &endpoint).await;
        drop(connection);
        assert_eq!(failed(&merchant, &id).await["failure_reason"], "caller_gone");
    });
}

#[test]
fn a_call_whose_usage_is_not_believed_is_shown_with_the_raw_usage() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": -1}})));
        let response = merchant.call(&merchant.secret_key, &endpoint.url).await;
        response.expect(200);
        let shown = failed(&merchant, &response.request_id()).await;
        assert_eq!(shown["failure_reason"], "usage_invalid");
        assert_eq!(shown["marks"], json!(["usage_invalid"]));
        let raw: Value = serde_json::from_str(shown["raw_usage"].as_str().unwrap()).unwrap();
        assert_eq!(raw, json!({"tokens": -1}));
    });
}
