//! A spend key that is stopped while calls with it come without a pause at two gateways: once it is stopped, no further one
//! is admitted anywhere, and each that was admitted is charged once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::json;
use tokio::task::JoinSet;

use super::stopped_keys::{Stop, in_an_hour, spend_key};

/// The callers, half of them at each gateway.
const CALLERS: usize = 30;

/// The calls that each gateway answers before the key is stopped.
const ANSWERED_BEFORE: usize = 100;

/// The calls that each caller makes after the key was stopped.
const CALLS_AFTER: usize = 5;

/// A model at a cent per call.
const MODEL: &str = "a-cent";

/// What the callers have seen, and what they may see.
#[derive(Default)]
struct Load {
    /// The calls that each gateway has answered.
    answered: [AtomicUsize; 2],
    /// Whether the key may be stopped: set before it is asked for.
    may_be_stopped: AtomicBool,
    /// Whether the key is stopped: set once this is answered.
    is_stopped: AtomicBool,
}

impl Load {
    /// Calls a gateway until [`CALLS_AFTER`] calls have begun after the key was stopped. Returns the ids of those that were
    /// admitted. Every second call has an idempotency key of its own.
    async fn call(&self, caller: usize, to: SocketAddr, request: &Request, stop: Stop) -> Vec<String> {
        let (mut admitted, mut after) = (Vec::new(), 0);
        for number in 0_usize.. {
            let mut request = request.clone();
            if number % 2 == 1 {
                request = request.header("Idempotency-Key", format!("{caller} {number}"));
            }
            let began_after = self.is_stopped.load(Ordering::SeqCst);
            let response = request.send(to).await.unwrap();
            if response.status == 200 {
                response.expect(200);
                assert!(!began_after, "{stop:?}: admitted after the key was stopped");
                self.answered[caller % 2].fetch_add(1, Ordering::SeqCst);
                admitted.push(response.request_id());
                continue;
            }
            let (status, code) = stop.refusal();
            response.refused(status, code);
            assert!(self.may_be_stopped.load(Ordering::SeqCst), "{stop:?}: refused before it was stopped");
            after += usize::from(began_after);
            if after == CALLS_AFTER {
                break;
            }
        }
        admitted
    }
}

async fn is_stopped_at_once(stop: Stop, gateways: [SocketAddr; 2]) {
    let merchant = Merchant::funded("1000").await;
    let key = spend_key(&merchant, &in_an_hour(&merchant).await, json!({})).await;
    let endpoint = merchant.instance.openai.endpoint(|_| {
        answer_json(200, &json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}))
    });
    let request = forward("POST", &endpoint.url).bearer(&key.key).json(&json!({"model": MODEL}));
    let load = Arc::new(Load::default());
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (load, request, to) = (Arc::clone(&load), request.clone(), gateways[caller % 2]);
        callers.spawn(async move { load.call(caller, to, &request, stop).await });
    }
    eventually("both gateways answer", async || {
        if let Some(ended) = callers.try_join_next() {
            panic!("{stop:?}: a caller has ended: {ended:?}");
        }
        let is_enough = |answered: &AtomicUsize| answered.load(Ordering::SeqCst) >= ANSWERED_BEFORE;
        load.answered.iter().all(is_enough).then_some(())
    })
    .await;
    load.may_be_stopped.store(true, Ordering::SeqCst);
    stop.stop(&merchant, &key.id).await;
    load.is_stopped.store(true, Ordering::SeqCst);
    let admitted: BTreeSet<_> = callers.join_all().await.into_iter().flatten().collect();

    merchant.nothing_is_held().await;
    let events = merchant.events().await;
    let stopped_at = events.iter().rfind(|event| event.kind == stop.event()).unwrap().position;
    for event in events.iter().filter(|event| event.kind == "request.opened") {
        assert!(event.position < stopped_at, "{stop:?}: {} was admitted later in the log", event.key);
    }
    let ids = |kind: &str| -> Vec<String> {
        let of_kind = events.iter().filter(|event| event.kind == kind);
        let mut ids: Vec<_> = of_kind.map(|event| event.text("request_id").to_owned()).collect();
        ids.sort_unstable();
        ids
    };
    let admitted: Vec<_> = admitted.into_iter().collect();
    assert_eq!(ids("request.opened"), admitted, "{stop:?}: each admitted call was answered");
    assert_eq!(ids("request.metered"), admitted, "{stop:?}: each is metered once");
    assert!(ids("request.failed").is_empty(), "{stop:?}");
    assert_eq!(endpoint.calls().len(), admitted.len(), "{stop:?}: no other call reached the provider");
    let paid = Decimal::new(1, 2) * Decimal::from(admitted.len());
    assert_eq!(merchant.own_balance().await, format!("{:.10}", Decimal::from(1000) - paid), "{stop:?}");
}

/// The attacker calls from 30 connections while the merchant pauses the key, lets it expire or deletes it. The response to
/// that is the limit: no call that begins later is admitted, at any gateway, and none comes later in the log.
#[test]
fn a_key_that_is_stopped_under_load_admits_no_further_call_and_each_admitted_one_is_charged_once() {
    run(async {
        let instance = Instance::shared().await;
        let prices = instance.file("stopped-under-load.json");
        let entry = json!({"provider": "openai", "model": MODEL, "per_request": "0.01"});
        let catalogue =
            json!({"source": "a test", "licence": "none", "taken": "2026-11-20", "models": [entry]});
        std::fs::write(&prices, catalogue.to_string()).unwrap();
        let flags = [
            format!("--prices={}", prices.display()),
            format!("--provider-host=openai={}", instance.openai.authority()),
            instance.provider_key("openai", "sk-managed"),
            "--allow-address=127.0.0.0/8".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let sides = [SideGateway::start(instance, &flags).await, SideGateway::start(instance, &flags).await];
        let gateways = sides.each_ref().map(|gateway| gateway.address);
        for stop in Stop::ALL {
            is_stopped_at_once(stop, gateways).await;
        }
    });
}
