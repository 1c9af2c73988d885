//! Calls without a pause: with a limit of the rate of a merchant's calls, they wait for their turns, and those of others
//! do not.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::json;
use tokio::task::JoinSet;

/// The rate, in calls per second.
const RATE: usize = 20;

/// More calls than can begin within the second of burst and the second of waiting.
const CALLS: usize = 20 * RATE;

#[test]
fn a_merchant_calls_no_faster_than_its_rate_and_keeps_no_other_waiting() {
    run(async {
        let (attacker, victim) = (Merchant::funded("10").await, Merchant::funded("10").await);
        let flags = [
            "--allow-address=127.0.0.0/8",
            &format!("--max-call-rate-per-merchant={RATE}"),
            "--max-calls=2000",
        ];
        let gateway = SideGateway::start(attacker.instance, &flags).await;
        let endpoint = attacker.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let made = attacker.post("/v1/spend_keys", &json!({"name": "the attacker's"})).await.expect(201);
        let spend_key = made["key"].as_str().unwrap().to_owned();
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            let (call, to) = (forward("GET", &endpoint.url).bearer(&spend_key), gateway.address);
            calls.spawn(async move { call.send(to).await.unwrap() });
        }
        // Reads count, too, and another merchant's calls are served.
        let list = Request::new("GET", "/v1/requests");
        let quick = victim.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        for _ in 0..RATE / 2 {
            list.clone().bearer(&victim.secret_key).send(gateway.address).await.unwrap().expect(200);
            let call = forward("GET", &quick.url).bearer(&victim.secret_key);
            call.send(gateway.address).await.unwrap().expect(200);
        }
        // So do those of the attacker's merchant with its other key, which may wait for a moment.
        let call = forward("GET", &quick.url).bearer(&attacker.secret_key);
        call.send(gateway.address).await.unwrap().expect(200);
        let (mut served, mut refused) = (0, 0);
        for response in calls.join_all().await {
            if response.status == 200 {
                served += 1;
            } else {
                response.refused(503, "ledger_unavailable");
                assert!(response.head.header("retry-after").is_some());
                refused += 1;
            }
        }
        assert!(served >= RATE && refused > 0, "{served} served, {refused} refused");
        assert_eq!(endpoint.calls().len(), served, "a refused call reaches no provider");
        let metered = attacker.events().await.into_iter().filter(|event| event.kind == "request.metered");
        assert_eq!(metered.count(), served + 1);
        attacker.nothing_is_held().await;
    });
}
