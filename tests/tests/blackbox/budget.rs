//! A budget holds exactly at any concurrency: calls that the wallet covers succeed, the rest are refused.

use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::json;

const CALLS: usize = 1_000;
const ROUNDS: usize = 10;

#[test]
fn a_thousand_concurrent_calls_over_two_gateways_spend_a_wallet_to_exactly_zero_ten_times() {
    run(async {
        for round in 0..ROUNDS {
            one_round(round).await;
        }
    });
}

async fn one_round(round: usize) {
    let merchant = Merchant::funded("100").await;
    let customer = merchant.customer("5.0000000000").await;
    let meter = merchant.call_meter("0.10").await;
    let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
    let request = forward("GET", &endpoint.url).bearer(&merchant.billing(&customer, &meter));
    let gateways = [merchant.instance.gateway(0), merchant.instance.gateway(1)];
    assert_ne!(gateways[0], gateways[1]);
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let request = request.clone();
            tokio::spawn(async move { request.send(gateways[number % 2]).await.unwrap() })
        })
        .collect();
    let (mut answered, mut refused) = (0, 0);
    for call in calls {
        let response = call.await.unwrap();
        if response.status == 200 {
            response.expect(200);
            merchant.charged(&response).await;
            answered += 1;
        } else {
            response.refused(402, "insufficient_balance");
            refused += 1;
        }
    }
    assert_eq!((answered, refused), (50, 950), "round {round}");
    assert_eq!(endpoint.calls().len(), 50, "round {round}: only covered calls reach the provider");
    assert_eq!(merchant.balance(&customer).await, "0.0000000000");
    merchant.nothing_is_held().await;
    let shown = farthing_tests::wait::eventually("the balance is shown", async || {
        let shown = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
        (shown["wallet"]["balance"] == "0.0000000000").then_some(shown)
    })
    .await;
    assert_eq!(shown["connection_id"], customer.id.as_str());
}

/// A price that does not divide the wallet: what is left over pays for no further call.
#[test]
fn a_wallet_of_a_dollar_pays_for_exactly_9_of_200_concurrent_calls_at_0_1019_on_two_gateways() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let (customer, meter) = (merchant.customer("1").await, merchant.call_meter("0.1019").await);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let request = forward("GET", &endpoint.url).bearer(&merchant.billing(&customer, &meter));
        let calls: Vec<_> = (0..200)
            .map(|number| {
                let (request, gateway) = (request.clone(), merchant.instance.gateway(number % 2));
                tokio::spawn(async move { request.send(gateway).await.unwrap() })
            })
            .collect();
        let mut answered = 0;
        for call in calls {
            let response = call.await.unwrap();
            if response.status == 200 {
                assert_eq!(merchant.charged(&response).await["total_wallet_cost"], "0.1019000000");
                answered += 1;
            } else {
                response.refused(402, "insufficient_balance");
            }
        }
        assert_eq!((answered, endpoint.calls().len()), (9, 9));
        assert_eq!(merchant.balance(&customer).await, "0.0829000000");
        merchant.nothing_is_held().await;
    });
}
