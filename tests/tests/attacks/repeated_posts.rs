//! One idempotency key for many payments at once: the same payment again and again, and payments of other amounts.

use std::collections::BTreeSet;

use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::Merchant;
use farthing_tests::recurring::PAYS;
use farthing_tests::run;
use rust_decimal::Decimal;
use serde_json::json;
use tokio::task::JoinSet;

/// A new merchant with a card, by which it can fund its wallet.
async fn with_a_card() -> Merchant {
    let merchant = Merchant::new().await;
    let card = json!({"card": {"number": PAYS, "exp_month": 12, "exp_year": 2040, "cvc": "123"}});
    merchant.post("/v1/payment_methods", &card).await.expect(201);
    merchant
}

/// Funds the wallet by these amounts at once, all under one key, in turn at both gateways.
async fn funded_at_once(merchant: &Merchant, amounts: impl Iterator<Item = usize>) -> Vec<Response> {
    let mut calls = JoinSet::new();
    for (number, amount) in amounts.enumerate() {
        let body = json!({"amount": amount.to_string()});
        let request = Request::new("POST", "/v1/wallet/fund").json(&body).bearer(&merchant.secret_key);
        let request = request.header("Idempotency-Key", "one key");
        let gateway = merchant.instance.gateway(number % 2);
        calls.spawn(async move { request.send(gateway).await.unwrap() });
    }
    calls.join_all().await
}

/// Asserts that the card was charged once, by what is returned, and that it is the balance.
async fn charged_once(merchant: &Merchant) -> Decimal {
    let charges = merchant.charges().await;
    let [(amount, None)] = charges[..] else { panic!("{charges:?}") };
    assert_eq!(merchant.of_kind("payment.succeeded").await.len(), 1);
    assert_eq!(merchant.own_balance().await.parse::<Decimal>().unwrap(), amount);
    amount
}

/// A merchant sends one payment 30 times at once, over both gateways: it is charged once, and all get the same answer.
#[test]
fn one_payment_that_is_sent_30_times_at_once_is_one_charge_with_one_answer() {
    run(async {
        let merchant = with_a_card().await;
        let answers = funded_at_once(&merchant, [25; 30].into_iter()).await;
        for answer in &answers {
            assert_eq!(answer.expect(200)["balance"], "25.0000000000");
        }
        let bodies: BTreeSet<_> = answers.iter().map(|answer| &answer.body).collect();
        assert_eq!((answers.len(), bodies.len()), (30, 1), "{bodies:?}");
        assert_eq!(charged_once(&merchant).await, Decimal::from(25));
    });
}

/// A merchant sends 20 payments of different amounts under one key at once: one is made, and the others are refused.
#[test]
fn twenty_payments_under_one_key_at_once_are_one_charge_and_19_refusals() {
    run(async {
        let merchant = with_a_card().await;
        let (mut paid, mut refused) = (0, 0);
        for answer in funded_at_once(&merchant, 10..30).await {
            if answer.status == 200 {
                paid += 1;
            } else {
                answer.refused(422, "idempotency_key_reused");
                refused += 1;
            }
        }
        assert_eq!((paid, refused), (1, 19));
        charged_once(&merchant).await;
    });
}
