//! Slow callers and providers: every wait has a timeout, after which the call is settled and its hold released. The tests use
//! a gateway with timeouts of some seconds, enough for a busy machine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farthing_tests::client::{Connection, chunked};
use farthing_tests::merchant::{Customer, Merchant, Meter, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, head, json, last_chunk, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

const LOCAL: &str = "--allow-address=127.0.0.0/8";

struct Shop {
    merchant: Merchant,
    customer: Customer,
    meter: Meter,
    gateway: SideGateway,
}

/// A customer with money on a meter at 1 per million tokens, and a gateway with these timeouts.
async fn shop(bounds: &[&str]) -> Shop {
    let merchant = Merchant::funded("10").await;
    let customer = merchant.customer("10").await;
    let price = json!({"name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
        "tiers": [{"start": 0, "rate": "1"}], "service_charge_payer": "merchant"});
    let meter = merchant.meter(price).await;
    let flags: Vec<&str> = bounds.iter().copied().chain([LOCAL]).collect();
    let gateway = SideGateway::start(merchant.instance, &flags).await;
    Shop { merchant, customer, meter, gateway }
}

impl Shop {
    fn provider(&self, steps: impl Fn() -> Vec<Step> + Send + Sync + 'static) -> Endpoint {
        self.merchant.instance.provider.endpoint(move |_| steps())
    }

    async fn connection(&self) -> Connection {
        Connection::open(self.gateway.address).await.unwrap()
    }

    /// Starts a call and reads the head of the response: its connection and its id.
    async fn begun(&self, endpoint: &Endpoint) -> (Connection, String) {
        let mut connection = self.connection().await;
        let credential = self.merchant.billing(&self.customer, &self.meter);
        connection.send(&forward("GET", &endpoint.url).bearer(&credential)).await.unwrap();
        let answer = connection.head("GET").await.unwrap();
        let id = answer.header("x-service-request-id").unwrap().to_owned();
        (connection, id)
    }

    async fn metered(&self, id: &str) -> serde_json::Value {
        let key = format!("{id}/metered");
        eventually("the call is metered", async || self.merchant.log.event(&key).await).await.body
    }
}

#[test]
fn a_caller_who_does_not_read_the_response_is_disconnected_and_charged() {
    run(async {
        let shop = shop(&["--stall-timeout-seconds=3"]).await;
        let filler: u64 = 32 * 1024 * 1024;
        let endpoint = shop.provider(move || {
            let (before, after) = (r#"{"a":""#, r#"","usage":{"tokens":500000}}"#);
            let length = (before.len() as u64 + filler + after.len() as u64).to_string();
            let headers = [("Content-Type", "application/json"), ("Content-Length", length.as_str())];
            vec![
                head(200, &headers),
                Step::Bytes(before.into()),
                Step::Flood(filler, Arc::new(AtomicU64::new(0))),
                Step::Bytes(after.into()),
            ]
        });
        let (mut connection, id) = shop.begun(&endpoint).await;
        let metered = shop.metered(&id).await;
        assert_eq!(metered["total_wallet_cost"], "0.5000000000", "{metered}");
        assert_eq!(metered["marks"], json!([]), "the provider's answer was read to its end");
        shop.merchant.nothing_is_held().await;
        let (body, end) = connection.read.rest().await;
        assert!(end.is_err(), "the caller was disconnected, yet the response is complete");
        assert!((body.len() as u64) < filler);
    });
}

#[test]
fn a_missing_request_head_times_out() {
    run(async {
        let shop = shop(&["--head-timeout-seconds=3"]).await;
        let never = async |begun: &str| {
            let mut connection = shop.connection().await;
            connection.write.write_all(begun.as_bytes()).await.unwrap();
            assert!(connection.response("GET").await.is_err(), "{begun:?} was answered");
        };
        // Also if it comes byte by byte.
        let slowly = async || {
            let mut connection = shop.connection().await;
            connection.write.write_all(b"GET /v1/requests HTTP/1.1\r\nX: ").await.unwrap();
            eventually("the connection is closed", async || connection.write.write_all(b"x").await.err())
                .await;
        };
        // Also on a connection that has carried a call.
        let again = async || {
            let mut connection = shop.connection().await;
            let request = farthing_tests::client::Request::new("GET", "/v1/requests");
            connection.send(&request.bearer(&shop.merchant.secret_key)).await.unwrap();
            connection.response("GET").await.unwrap().expect(200);
            assert!(connection.response("GET").await.is_err());
        };
        let begun = "GET /v1/requests HTTP/1.1\r\nHost: a\r\nX-Long: ";
        tokio::join!(never(""), never("G"), never(begun), slowly(), again());
    });
}

#[test]
fn a_missing_request_body_times_out() {
    run(async {
        let shop = shop(&["--body-timeout-seconds=3"]).await;
        let endpoint = shop.provider(|| json(200, &json!({})));
        let key = &shop.merchant.secret_key;
        let rest = farthing_tests::client::Request::new("POST", "/v1/customers");
        for (request, path) in [(rest, json!([])), (forward("POST", &endpoint.url), json!(["body"]))] {
            let request = request.bearer(key).header("Content-Type", "application/json");
            let mut connection = shop.connection().await;
            connection.send_head(&request.header("Content-Length", "100")).await.unwrap();
            connection.write.write_all(b"{\"name\":").await.unwrap();
            let error = connection.response("POST").await.unwrap().refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], path, "{error}");
        }
        assert!(shop.merchant.events().await.iter().all(|event| event.kind != "request.opened"));

        // A streaming body was forwarded as far as it came.
        let credential = shop.merchant.billing(&shop.customer, &shop.meter);
        let request = forward("POST", &endpoint.url).bearer(&credential);
        let mut connection = shop.connection().await;
        connection.send_head(&request.header("Transfer-Encoding", "chunked")).await.unwrap();
        connection.write.write_all(&chunked(b"first")).await.unwrap();
        let response = connection.response("POST").await.unwrap();
        response.refused(400, "validation_error");
        assert_eq!(shop.merchant.failed(&response).await["reason"], "caller_gone");
        assert!(!endpoint.only_call().body_complete, "the provider received a complete body");
        shop.merchant.nothing_is_held().await;
        assert_eq!(shop.merchant.balance(&shop.customer).await, "10.0000000000");
    });
}

#[test]
fn a_body_that_keeps_coming_may_take_longer_than_the_timeout() {
    run(async {
        let shop = shop(&["--body-timeout-seconds=3"]).await;
        let endpoint = shop.merchant.instance.provider.endpoint(|call| whole(200, &[], &call.body));
        let request = forward("POST", &endpoint.url).bearer(&shop.merchant.secret_key);
        let mut connection = shop.connection().await;
        connection.send_head(&request.clone().header("Transfer-Encoding", "chunked")).await.unwrap();
        // A later call that falls silent shows when the timeout has passed.
        let mut silent = shop.connection().await;
        silent.send_head(&request.header("Transfer-Encoding", "chunked")).await.unwrap();
        silent.write.write_all(&chunked(b"x")).await.unwrap();
        let given_up = tokio::spawn(async move { silent.response("POST").await });
        let mut sent = 0;
        eventually("the silent caller is disconnected", async || {
            connection.write.write_all(&chunked(b"x")).await.unwrap();
            sent += 1;
            given_up.is_finished().then_some(())
        })
        .await;
        given_up.await.unwrap().unwrap().refused(400, "validation_error");
        connection.write.write_all(b"0\r\n\r\n").await.unwrap();
        let response = connection.response("POST").await.unwrap();
        assert_eq!((response.status, response.body.len()), (200, sent));
    });
}

#[test]
fn a_provider_that_does_not_answer_in_time_costs_nothing() {
    run(async {
        let shop = shop(&["--answer-timeout-seconds=3"]).await;
        let gate = Gate::default();
        let endpoint = shop.provider(move || vec![Step::Wait(gate.clone())]);
        let credential = shop.merchant.billing(&shop.customer, &shop.meter);
        let request = forward("GET", &endpoint.url).bearer(&credential);
        let response = request.send(shop.gateway.address).await.unwrap();
        response.refused(504, "provider_timeout");
        assert_eq!(shop.merchant.failed(&response).await["reason"], "provider_timeout");
        shop.merchant.nothing_is_held().await;
        assert_eq!(shop.merchant.balance(&shop.customer).await, "10.0000000000");
    });
}

#[test]
fn a_provider_that_falls_silent_is_charged_as_reported() {
    run(async {
        let shop = shop(&["--silence-timeout-seconds=3"]).await;
        let gate = Gate::default();
        let silent = |usage: &'static str| {
            let gate = gate.clone();
            shop.provider(move || vec![event_stream(), chunk(usage), Step::Wait(gate.clone()), last_chunk()])
        };
        let endpoint = silent("data: {\"usage\":{\"tokens\":1000000}}\n\n");
        let (mut connection, id) = shop.begun(&endpoint).await;
        let (_, end) = connection.read.rest().await;
        assert!(end.is_err(), "the response of a silent provider was completed");
        let metered = shop.metered(&id).await;
        assert_eq!(metered["total_wallet_cost"], "1.0000000000", "{metered}");
        assert_eq!(metered["marks"], json!(["partial"]));

        let endpoint = silent("data: {}\n\n");
        let (mut connection, id) = shop.begun(&endpoint).await;
        assert!(connection.read.rest().await.1.is_err());
        assert_eq!(shop.merchant.failed_request(&id).await["reason"], "provider_gone");
        shop.merchant.nothing_is_held().await;
        assert_eq!(shop.merchant.balance(&shop.customer).await, "9.0000000000");
    });
}
