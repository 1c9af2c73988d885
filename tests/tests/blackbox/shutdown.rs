//! Shutdown of a gateway: calls in flight finish, new ones are refused, and calls that exceed the grace period are cut off and
//! settled with the usage reported so far. No request stays open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farthing_tests::client::{Connection, Request};
use farthing_tests::merchant::{Customer, Merchant, Meter, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, json, last_chunk};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::net::TcpStream;

const LOCAL: &str = "--allow-address=127.0.0.0/8";

struct Shop {
    merchant: Merchant,
    customer: Customer,
    meter: Meter,
    gateway: SideGateway,
}

/// A customer with 10 on a meter at 0.01 per call, and a gateway with this grace period.
async fn shop(grace: &str) -> Shop {
    let merchant = Merchant::funded("10").await;
    let customer = merchant.customer("10").await;
    let meter = merchant.call_meter("0.01").await;
    let gateway = SideGateway::start(merchant.instance, &[LOCAL, grace]).await;
    Shop { merchant, customer, meter, gateway }
}

impl Shop {
    async fn send(&self, endpoint: &Endpoint) -> Connection {
        let mut connection = Connection::open(self.gateway.address).await.unwrap();
        let credential = self.merchant.billing(&self.customer, &self.meter);
        connection.send(&forward("GET", &endpoint.url).bearer(&credential)).await.unwrap();
        connection
    }

    async fn takes_no_more(&self) {
        eventually("the gateway accepts no more connections", async || {
            TcpStream::connect(self.gateway.address).await.err()
        })
        .await;
    }

    async fn count(&self, kind: &str) -> usize {
        self.merchant.events().await.iter().filter(|event| event.kind == kind).count()
    }
}

#[test]
fn calls_in_flight_finish_and_new_ones_are_refused() {
    run(async {
        let mut shop = shop("--grace-seconds=60").await;
        let gate = Gate::default();
        let (late, streaming) = (gate.clone(), gate.clone());
        let late = shop.merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(late.clone())];
            steps.extend(json(200, &json!({"a": 1})));
            steps
        });
        let streaming = shop.merchant.instance.provider.endpoint(move |_| {
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(streaming.clone()), last_chunk()]
        });
        let mut idle = Connection::open(shop.gateway.address).await.unwrap();
        idle.send(&Request::new("GET", "/v1/requests").bearer(&shop.merchant.secret_key)).await.unwrap();
        idle.response("GET").await.unwrap().expect(200);
        let mut calls = [shop.send(&late).await, shop.send(&streaming).await];
        eventually("both are in flight", async || {
            (late.calls().len() + streaming.calls().len() == 2).then_some(())
        })
        .await;

        shop.gateway.terminate();
        shop.takes_no_more().await;
        assert!(idle.response("GET").await.is_err(), "an idle connection is closed");
        gate.open();
        for call in &mut calls {
            let response = call.response("GET").await.unwrap();
            assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
            shop.merchant.charged(&response).await;
        }
        assert!(shop.gateway.ended().await.success());
        assert_eq!(shop.merchant.balance(&shop.customer).await, "9.9800000000");
        shop.merchant.nothing_is_held().await;
    });
}

#[test]
fn calls_that_exceed_the_grace_period_are_cut_off_and_settled() {
    run(async {
        let mut shop = shop("--grace-seconds=1").await;
        let never = Gate::default();
        let endless = |first: Vec<Step>| {
            let never = never.clone();
            shop.merchant.instance.provider.endpoint(move |_| {
                let mut steps = first.clone();
                steps.push(Step::Wait(never.clone()));
                steps
            })
        };
        let reported = endless(vec![event_stream(), chunk("data: {\"usage\":{\"tokens\":7}}\n\n")]);
        let silent = endless(vec![event_stream(), chunk("data: {}\n\n")]);
        let unanswered = endless(Vec::new());
        let left = endless(vec![event_stream(), chunk("data: {\"usage\":{\"tokens\":8}}\n\n")]);
        let mut begun = Vec::new();
        for endpoint in [&reported, &silent] {
            let mut connection = shop.send(endpoint).await;
            let id = connection.head("GET").await.unwrap().header("x-service-request-id").unwrap().to_owned();
            connection.read.piece().await.unwrap();
            begun.push((connection, id));
        }
        let mut waiting = shop.send(&unanswered).await;
        eventually("it is in flight", async || (!unanswered.calls().is_empty()).then_some(())).await;
        // One whose caller has disconnected, and which is being drained.
        let mut gone = shop.send(&left).await;
        let gone_id = gone.head("GET").await.unwrap().header("x-service-request-id").unwrap().to_owned();
        gone.read.piece().await.unwrap();
        drop(gone);

        shop.gateway.terminate();
        assert!(shop.gateway.ended().await.success());
        for (connection, _) in &mut begun {
            assert!(connection.read.rest().await.1.is_err(), "a cut response looks complete");
        }
        assert!(waiting.response("GET").await.is_err());
        for id in [&begun[0].1, &gone_id] {
            let metered = shop.merchant.log.event(&format!("{id}/metered")).await.expect("settled by now");
            assert_eq!(metered.body["marks"], json!(["partial"]));
            assert_eq!(metered.body["total_wallet_cost"], "0.0100000000");
        }
        assert_eq!(shop.merchant.failed_request(&begun[1].1).await["reason"], "provider_gone");
        let failed = shop.merchant.events().await;
        assert!(failed.iter().any(|event| event.body["reason"] == "abandoned"), "the unanswered call");
        assert_eq!(shop.merchant.balance(&shop.customer).await, "9.9800000000");
        shop.merchant.nothing_is_held().await;
    });
}

#[test]
fn a_gateway_stopped_under_load_settles_every_call_and_charges_every_complete_response() {
    run(async {
        let mut shop = shop("--grace-seconds=30").await;
        let endpoint = shop.merchant.instance.provider.endpoint(|_| json(200, &json!({"a": 1})));
        let credential = shop.merchant.billing(&shop.customer, &shop.meter);
        let (address, whole) = (shop.gateway.address, Arc::new(AtomicUsize::new(0)));
        let callers: Vec<_> = (0..16)
            .map(|_| {
                let request = forward("GET", &endpoint.url).bearer(&credential);
                let whole = Arc::clone(&whole);
                tokio::spawn(async move {
                    // Until the gateway accepts no more calls.
                    while let Ok(response) = request.send(address).await {
                        assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
                        whole.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        eventually("calls are answered", async || (whole.load(Ordering::SeqCst) >= 100).then_some(())).await;
        shop.gateway.terminate();
        assert!(shop.gateway.ended().await.success());
        for caller in callers {
            caller.await.unwrap();
        }
        let (opened, metered) = (shop.count("request.opened").await, shop.count("request.metered").await);
        assert_eq!((opened, metered), (endpoint.calls().len(), endpoint.calls().len()));
        assert_eq!(metered, whole.load(Ordering::SeqCst), "every accepted call got a complete response");
        shop.merchant.nothing_is_held().await;
    });
}
