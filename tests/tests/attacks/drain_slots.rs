//! Calls whose callers left are read on in drain slots: nobody's leaving costs another caller its own.

use std::time::Duration;

use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::Gate;
use farthing_tests::run;
use farthing_tests::wait::{eventually, within};
use serde_json::json;

use super::leaving::{ask, events, leave, streaming};

/// The drain slots of a merchant.
const PLACES: usize = 100;

/// The drain slots that one customer or spend key takes of its merchant's.
const PLACES_OF_ONE: usize = PLACES / 5;

/// The timeout for many calls to end.
const MANY: Duration = Duration::from_mins(1);

#[test]
fn one_spend_key_does_not_empty_the_drain_slots_of_its_merchant() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let spend_key = async || {
            let made = merchant.post("/v1/spend_keys", &json!({"name": "a test's"})).await.expect(201);
            made["key"].as_str().unwrap().to_owned()
        };
        let (attackers, others) = (spend_key().await, spend_key().await);
        let gate = Gate::default();
        let endpoint = streaming(&managed.openai, &gate);
        for _ in 0..PLACES_OF_ONE + 5 {
            leave(&managed, &attackers, ask(&endpoint)).await;
        }
        let charged = async || {
            let events = merchant.events().await.into_iter();
            let metered: Vec<_> = events.filter(|event| event.kind == "request.metered").collect();
            let of_hold = metered.iter().filter(|event| {
                event.body["marks"] == json!(["usage_missing", "hold_charged", "partial"])
                    && event.body["total_merchant_cost"] == event.body["hold"]["merchant"]
            });
            (of_hold.count(), metered.len())
        };
        eventually("five find no slot and pay their hold", async || {
            (charged().await == (5, 5)).then_some(())
        })
        .await;
        // Others of the same merchant are read on.
        let theirs = leave(&managed, &others, ask(&endpoint)).await;
        let own = leave(&managed, &merchant.secret_key, ask(&endpoint)).await;
        gate.open();
        for id in [theirs, own] {
            let (_, metered) = events(&merchant, &id).await;
            assert_eq!(metered["marks"], json!([]));
            assert_eq!(metered["usage"]["tokens"], json!({"input": 10, "output": 3}));
        }
        eventually("the others are read to their end", async || {
            (charged().await == (5, PLACES_OF_ONE + 7)).then_some(())
        })
        .await;
        merchant.nothing_is_held().await;
    });
}

#[test]
fn customers_who_take_all_drain_slots_of_their_merchant_share_them_with_the_next_one() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let gate = Gate::default();
        let endpoint = streaming(&managed.openai, &gate);
        for number in 0..PLACES / PLACES_OF_ONE {
            let customer = merchant.customer_called(&format!("customer {number}"), "10").await;
            let credential = token(&json!({"secret_key": merchant.secret_key, "customer_id": customer.id}));
            for _ in 0..PLACES_OF_ONE {
                leave(&managed, &credential, ask(&endpoint)).await;
            }
        }
        let charged = async || {
            let events = merchant.events().await.into_iter();
            let metered: Vec<_> = events.filter(|event| event.kind == "request.metered").collect();
            let of_hold = metered.iter().filter(|event| event.body["marks"] != json!([])).count();
            (of_hold, metered.len())
        };
        let customer = merchant.customer("10").await;
        let credential = token(&json!({"secret_key": merchant.secret_key, "customer_id": customer.id}));
        let theirs = leave(&managed, &credential, ask(&endpoint)).await;
        within(MANY, "one of the others loses its slot and pays its hold", async || {
            (charged().await == (1, 1)).then_some(())
        })
        .await;
        gate.open();
        let (_, metered) = events(&merchant, &theirs).await;
        assert_eq!(metered["marks"], json!([]), "the next one is read on");
        within(MANY, "the others are read to their end", async || {
            (charged().await == (1, PLACES + 1)).then_some(())
        })
        .await;
        merchant.nothing_is_held().await;
    });
}
