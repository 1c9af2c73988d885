//! The ledger over REST: events, the trial balance and proofs, against the log itself (completion.md section 13).

mod events;
mod lagging;
mod out_of_order;
mod proof;
mod trial_balance;

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use farthing_core::accounts::{Account, Journal, TrialBalance};
use farthing_core::event::codec;
use farthing_core::secret::hex;
use farthing_tests::books::decimal;
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Customer, Merchant, encoded};
use farthing_tests::provider::json as answer_json;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// The members of bodies that no merchant sees.
const HIDDEN: [&str; 4] = ["key_hash", "old_key_hash", "token", "gateway_id"];

/// A merchant with events of many kinds, some of two customers, and with the ids of a metered and of a failed call.
struct Story {
    merchant: Merchant,
    customers: [Customer; 2],
    calls: Vec<String>,
}

impl Story {
    async fn tell(merchant: Merchant) -> Self {
        merchant.credit_own("20").await;
        let customers =
            [merchant.customer_called("first", "5").await, merchant.customer_called("second", "0").await];
        let meter = merchant.call_meter("0.5").await;
        let key = json!({"name": "a key", "customer_id": customers[0].id});
        let key = merchant.post("/v1/spend_keys", &key).await.expect(201);
        let rotate = format!("/v1/spend_keys/{}/rotate", key["spend_key_id"].as_str().unwrap());
        merchant.post(&rotate, &json!({})).await.expect(200);
        let card = json!({"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"});
        merchant.post("/v1/payment_methods", &json!({"card": card})).await.expect(201);
        merchant.post("/v1/wallet/fund", &json!({"amount": "10"})).await.expect(200);
        let plan = json!({"name": "free", "period_amount": 0, "included_credit": "3"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let subscription = json!({"customer_id": customers[1].id, "plan_id": plan["plan_id"]});
        merchant.post("/v1/subscriptions", &subscription).await.expect(201);
        let usage = json!({"usage": {"tokens": 3}});
        let answers = merchant.instance.provider.endpoint(move |_| answer_json(200, &usage));
        let fails = merchant.instance.provider.endpoint(|_| answer_json(500, &json!({})));
        let mut calls = Vec::new();
        for customer in [&customers[0], &customers[1], &customers[0]] {
            let response = merchant.fetch(&merchant.billing(customer, &meter), &answers.url).await;
            assert_eq!(response.status, 200, "{}", response.text());
            calls.push(response.request_id());
        }
        let failed = merchant.call(&merchant.secret_key, &fails.url).await;
        merchant.failed(&failed).await;
        calls.push(failed.request_id());
        merchant.nothing_is_held().await;
        Self { merchant, customers, calls }
    }
}

/// An instant as a query parameter.
fn time(at: DateTime<Utc>) -> String {
    encoded(&at.to_rfc3339_opts(SecondsFormat::Micros, true))
}

/// What REST shows of an event.
fn shown(event: &Logged) -> Value {
    let mut body = event.body.clone();
    let members = body.as_object_mut().unwrap();
    for name in HIDDEN {
        members.remove(name);
    }
    if let Some(brought) = members.get_mut("brings").and_then(Value::as_object_mut) {
        brought.remove("token");
    }
    let millis = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
    json!({
        "id": event.position.to_string(), "partition": event.partition, "position": event.position,
        "hash": hex(&event.hash), "kind": event.kind, "version": event.schema_version,
        "occurred_at": millis(event.occurred_at), "recorded_at": millis(event.recorded_at), "body": body,
    })
}

/// The accounts of those of a merchant's events that count, without the read model.
fn accounts(events: &[Logged], counts: impl Fn(&Logged) -> bool) -> BTreeMap<&'static str, Decimal> {
    let (mut journal, mut balance) = (Journal::default(), TrialBalance::default());
    for logged in events {
        let event = codec::decode(&logged.kind, logged.schema_version, &logged.text).unwrap();
        let entry = journal.enter(&event).unwrap();
        if counts(logged) {
            balance.post(&entry).unwrap();
        }
    }
    Account::ALL.map(|account| (account.name(), balance.of(account).decimal().normalize())).into()
}

/// The accounts of an answer, which add up to zero.
fn shown_accounts(answer: &Value) -> BTreeMap<String, Decimal> {
    assert_eq!(answer["sum"], "0.0000000000", "{answer}");
    let accounts = answer["accounts"].as_array().unwrap().iter();
    accounts
        .map(|account| {
            (account["account"].as_str().unwrap().to_owned(), decimal(&account["balance"]).normalize())
        })
        .collect()
}

fn named(accounts: BTreeMap<&'static str, Decimal>) -> BTreeMap<String, Decimal> {
    accounts.into_iter().map(|(name, balance)| (name.to_owned(), balance)).collect()
}
