//! Calls that are held open: those of one merchant, and of one key, leave room for the calls of others.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Gate, Step, json as answer_json};
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::task::JoinSet;

/// The calls that the gateway takes, and those that it takes of one merchant.
const CALLS: usize = 8;
const OF_ONE: usize = CALLS / 2;

/// The requests that callers make.
const API: &[(&str, &str)] = &[("listener", "api")];

#[test]
fn one_merchant_does_not_take_all_calls() {
    run(async {
        let (attacker, victim) = (Merchant::funded("10").await, Merchant::funded("10").await);
        let made = attacker.post("/v1/spend_keys", &json!({"name": "the attacker's"})).await.expect(201);
        let spend_key = made["key"].as_str().unwrap().to_owned();
        let gateway = SideGateway::start(
            attacker.instance,
            &["--allow-address=127.0.0.0/8", &format!("--max-calls={CALLS}")],
        )
        .await;
        let gate = Gate::default();
        let waits = gate.clone();
        let held = attacker
            .instance
            .provider
            .endpoint(move |_| [vec![Step::Wait(waits.clone())], answer_json(200, &json!({}))].concat());
        let mut calls = JoinSet::new();
        for _ in 0..OF_ONE {
            let (call, to) = (forward("GET", &held.url).bearer(&spend_key), gateway.address);
            calls.spawn(async move { call.send(to).await.unwrap() });
        }
        eventually("the attacker's calls are held", async || (held.calls().len() == OF_ONE).then_some(()))
            .await;
        // Further ones are refused, by any of its keys and at any endpoint.
        let quick = victim.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 3}})));
        for credential in [&spend_key, &attacker.secret_key] {
            let refused = forward("GET", &quick.url).bearer(credential).send(gateway.address).await.unwrap();
            refused.refused(503, "ledger_unavailable");
            assert!(refused.head.header("retry-after").is_some());
        }
        let list = Request::new("GET", "/v1/requests");
        let refused = list.clone().bearer(&attacker.secret_key).send(gateway.address).await.unwrap();
        refused.refused(503, "ledger_unavailable");
        // Another merchant's calls are served.
        list.bearer(&victim.secret_key).send(gateway.address).await.unwrap().expect(200);
        for _ in 0..CALLS {
            let call = forward("GET", &quick.url).bearer(&victim.secret_key);
            let response = call.send(gateway.address).await.unwrap();
            response.expect(200);
            assert_eq!(victim.charged(&response).await["usage"]["tokens"]["input"], 3);
        }
        gate.open();
        for response in calls.join_all().await {
            response.expect(200);
        }
        forward("GET", &quick.url).bearer(&spend_key).send(gateway.address).await.unwrap().expect(200);
        attacker.nothing_is_held().await;
        victim.nothing_is_held().await;
    });
}

#[test]
fn merchants_that_hold_all_calls_they_get_leave_some_to_another_one() {
    run(async {
        const ALL: usize = 64;
        let victim = Merchant::funded("10").await;
        let gateway = SideGateway::start(
            victim.instance,
            &["--allow-address=127.0.0.0/8", &format!("--max-calls={ALL}")],
        )
        .await;
        let gate = Gate::default();
        let waits = gate.clone();
        let held = victim
            .instance
            .provider
            .endpoint(move |_| [vec![Step::Wait(waits.clone())], answer_json(200, &json!({}))].concat());
        let (mut calls, mut is_held) = (JoinSet::new(), Vec::new());
        for _ in 0..4 {
            let attacker = Merchant::funded("10").await;
            let mut of_attacker = 0;
            // One after the other, until one is refused.
            loop {
                let (call, to) = (forward("GET", &held.url).bearer(&attacker.secret_key), gateway.address);
                let before = held.calls().len();
                calls.spawn(async move { call.send(to).await.unwrap() });
                let is_refused = eventually("the call is held or refused", async || {
                    if let Some(refused) = calls.try_join_next() {
                        refused.unwrap().refused(503, "ledger_unavailable");
                        return Some(true);
                    }
                    (held.calls().len() > before).then_some(false)
                })
                .await;
                if is_refused {
                    break;
                }
                of_attacker += 1;
            }
            is_held.push(of_attacker);
        }
        assert_eq!(is_held[0], ALL / 2);
        assert!(is_held.iter().all(|calls| *calls > 0), "{is_held:?}");
        let quick = victim.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        for _ in 0..ALL {
            let call = forward("GET", &quick.url).bearer(&victim.secret_key);
            call.send(gateway.address).await.unwrap().expect(200);
        }
        gate.open();
        for response in calls.join_all().await {
            response.expect(200);
        }
        victim.nothing_is_held().await;
    });
}

#[test]
fn one_key_of_a_merchant_leaves_calls_to_its_other_keys() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let made = merchant.post("/v1/spend_keys", &json!({"name": "the attacker's"})).await.expect(201);
        let spend_key = made["key"].as_str().unwrap().to_owned();
        let gateway = SideGateway::start(
            merchant.instance,
            &["--allow-address=127.0.0.0/8", &format!("--max-calls={CALLS}")],
        )
        .await;
        let quick = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let call = async || {
            let call = forward("GET", &quick.url).bearer(&merchant.secret_key);
            call.send(gateway.address).await.unwrap()
        };
        // The merchant's other key calls now and then.
        call().await.expect(200);
        eventually("its call has ended", async || {
            (scrape(gateway.operator).await.count("farthing_requests_in_flight", API) == 0).then_some(())
        })
        .await;
        let gate = Gate::default();
        let waits = gate.clone();
        let held = merchant
            .instance
            .provider
            .endpoint(move |_| [vec![Step::Wait(waits.clone())], answer_json(200, &json!({}))].concat());
        let mut calls = JoinSet::new();
        for _ in 0..OF_ONE {
            let (call, to) = (forward("GET", &held.url).bearer(&spend_key), gateway.address);
            calls.spawn(async move { call.send(to).await.unwrap() });
        }
        // Of four calls it holds three.
        let refused = calls.join_next().await.unwrap().unwrap();
        refused.refused(503, "ledger_unavailable");
        eventually("the others are held", async || (held.calls().len() == OF_ONE - 1).then_some(())).await;
        for _ in 0..CALLS {
            // One place is left for it. The call before may not have ended.
            eventually("the other key's call is served", async || (call().await.status == 200).then_some(()))
                .await;
        }
        gate.open();
        for response in calls.join_all().await {
            response.expect(200);
        }
        merchant.nothing_is_held().await;
    });
}
