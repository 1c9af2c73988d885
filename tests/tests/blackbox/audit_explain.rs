//! `farthing audit explain`: a request from its credential to the last digit, by its events alone.

use std::collections::BTreeSet;

use farthing_core::event::codec;
use farthing_core::secret::hex;
use farthing_tests::books::decimal;
use farthing_tests::instance::program;
use farthing_tests::log::Logged;
use farthing_tests::made_log::MadeLog;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{json as answer_json, json_text};
use farthing_tests::run;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::audit::{Story, refused, text};
use crate::credentials;

#[test]
fn a_request_is_explained_from_its_credential_to_the_last_digit() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let usage = r#"{"model":"gpt-4o-2024-08-06","usage":{"prompt_tokens":2006,"completion_tokens":300,
            "total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920}}}"#;
        let endpoint = managed.openai.endpoint(move |_| json_text(200, usage));
        let meter = json!({
            "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
            "tiers": [{"start": 0, "rate": "1000"}, {"start": 2000, "rate": "500"}],
            "base_cost_payer": "wallet", "service_charge_payer": "merchant",
        });
        let meter = merchant.meter(meter).await;
        let response = managed.ask(&merchant.billing(&customer, &meter), &endpoint.url, "gpt-4o").await;
        let id = response.request_id();
        let metered = merchant.charged(&response).await;

        let explained = merchant.instance.operate(&["audit", "explain", &id]).await;
        assert_eq!((&explained["ok"], &explained["merchant_id"]), (&json!(true), &json!(merchant.id)));
        assert_eq!(explained["metered"], metered);
        let again = &explained["recomputed"];
        assert_eq!(again["model_cost"], metered["model_cost"]);
        assert_eq!((&again["fee"], &again["on_wallet"]), (&metered["fee"], &metered["total_wallet_cost"]));
        // 2000 tokens at 0.001 each, and 306 at 0.0005.
        assert_eq!(again["fee"]["amount"], "2.1530000000");
        let debits = explained["debits"].as_array().unwrap();
        let drawn: Decimal = debits.iter().map(|debit| decimal(&debit["amount"])).sum();
        assert_eq!(drawn, decimal(&metered["total_request_cost"]));
        assert_eq!(debits[0]["balance_before"], "100.0000000000");
        let posted: Decimal =
            explained["postings"].as_array().unwrap().iter().map(|posting| decimal(&posting["amount"])).sum();
        assert_eq!(posted, Decimal::ZERO, "{explained}");
        let logged = merchant.events().await;
        let logged: Vec<_> = logged
            .iter()
            .filter(|event| event.key.starts_with(&id))
            .map(|event| (json!(event.kind), json!(event.position), json!(hex(&event.hash))))
            .collect();
        let events = explained["events"].as_array().unwrap().iter();
        let events: Vec<_> = events
            .map(|event| (event["kind"].clone(), event["position"].clone(), event["hash"].clone()))
            .collect();
        assert_eq!(events, logged);
        assert_eq!(events.len(), 4, "opened, metered, and a debit of each wallet");

        let shown = text(merchant.instance, &["explain", &id]).await;
        for part in [
            "credential      a secret key, a customer and a meter: the customer pays the fee",
            "price file      the built-in one, prices of 2026-",
            "tier            from 2000: 500.0000000000",
            "base cost       paid by the wallet",
            " % of the fee, paid by the merchant",
            "provider cost   0.0056150000 = input 0.0026150000 + output 0.0030000000",
            "fee line        0.1530000000 = 306 in the tier from 2000 at 500.0000000000",
            "computed again  the same",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    });
}

#[test]
fn a_request_that_was_not_charged_is_explained_by_its_failure() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(500, &json!({})));
        let response = merchant.call(&merchant.secret_key, &endpoint.url).await;
        let id = response.request_id();
        merchant.failed(&response).await;
        let shown = text(merchant.instance, &["explain", &id]).await;
        assert!(shown.contains("not charged     provider_status, status 500"), "{shown}");
        let explained = merchant.instance.operate(&["audit", "explain", &id]).await;
        assert_eq!((&explained["debits"], &explained["postings"]), (&json!([]), &json!([])));
        assert_eq!(explained["events"].as_array().unwrap().len(), 2, "{explained}");
        let nobody = "req_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let why = format!("no event of the log names the request {nobody}");
        refused(merchant.instance, &["explain", nobody], 2, &why).await;
    });
}

/// What `audit explain` says of the credential, by the mode of charging.
fn said_of(charge: &str) -> &'static str {
    match charge {
        "merchant" => "a secret key: the merchant pays",
        "meter_only" => {
            "a secret key and a meter: the merchant pays the provider's cost, the fee is only counted"
        }
        "customer" => "a secret key and a customer: the customer pays",
        "customer_billing" => "a secret key, a customer and a meter: the customer pays the fee",
        "recorded" => "a secret key, a customer and a meter, billing disabled: the merchant pays",
        "metering_only" => "a provider key alone: metered, nobody pays",
        "spend_key" => "a spend key: its wallet pays the provider's cost",
        other => panic!("{other}"),
    }
}

#[test]
fn every_form_of_credential_is_explained_by_who_pays() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let made = merchant.post("/v1/spend_keys", &json!({"name": "a laptop"})).await.expect(201);
        let spend_key = (made["key"].as_str().unwrap().to_owned(), "spend_key");
        let answer = r#"{"model":"gpt-4o","usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}"#;
        let endpoint = managed.openai.endpoint(move |_| json_text(200, answer));
        let mut seen = BTreeSet::new();
        for (credential, charge) in credentials::shapes(&merchant).await.into_iter().chain([spend_key]) {
            let response = managed.ask(&credential, &endpoint.url, "gpt-4o").await;
            let metered = merchant.charged(&response).await;
            let id = response.request_id();
            let shown = text(merchant.instance, &["explain", &id]).await;
            let credential = format!("credential      {}\n", said_of(charge));
            assert!(
                shown.contains(&credential) && shown.contains("computed again  the same"),
                "{charge}: {shown}"
            );
            assert_eq!(shown.contains("\nbase cost "), charge == "customer_billing", "{charge}: {shown}");
            let explained = merchant.instance.operate(&["audit", "explain", &id]).await;
            assert_eq!((&explained["ok"], &explained["metered"]), (&json!(true), &metered), "{charge}");
            let drawn: Decimal =
                explained["debits"].as_array().unwrap().iter().map(|debit| decimal(&debit["amount"])).sum();
            assert_eq!(drawn, decimal(&metered["total_request_cost"]), "{charge}: {explained}");
            seen.insert(charge);
        }
        assert_eq!(seen.len(), 7, "{seen:?}");
    });
}

#[test]
fn the_draws_of_a_request_are_explained_by_their_sources_with_the_balance_before_and_after() {
    run(async {
        let story = Story::tell().await;
        let (mut sources, mut balance) = (BTreeSet::new(), Decimal::ONE);
        for metered in story.events.iter().filter(|event| event.kind == "request.metered") {
            let id = metered.body["request_id"].as_str().unwrap();
            let explained = story.instance.operate(&["audit", "explain", id]).await;
            let debits = explained["debits"].as_array().unwrap();
            let debit = debits.iter().find(|debit| debit["wallet_id"] == story.wallet_id.as_str()).unwrap();
            let mut drawn = Decimal::ZERO;
            assert_eq!(decimal(&debit["balance_before"]), balance, "{debit}");
            for part in debit["sources"].as_array().unwrap() {
                let amount = decimal(&part["amount"]);
                drawn += amount;
                let source = match &part["source"] {
                    Value::String(source) => source.clone(),
                    source => source.as_object().unwrap().keys().next().unwrap().clone(),
                };
                balance -= if source == "balance" { amount } else { Decimal::ZERO };
                sources.insert(source);
            }
            assert_eq!(decimal(&debit["amount"]), drawn, "{debit}");
            assert_eq!(decimal(&debit["balance_after"]), balance, "{debit}");
        }
        assert_eq!(sources, ["balance", "bundle_credit", "plan_credit"].map(str::to_owned).into());
    });
}

#[test]
fn a_bill_that_its_terms_do_not_give_and_debits_that_are_not_the_cost_are_findings() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let (customer, meter) = (merchant.customer("100").await, merchant.call_meter("0.5").await);
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let response = merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await;
        merchant.charged(&response).await;
        let id = response.request_id();
        let events: Vec<Logged> =
            merchant.events().await.into_iter().filter(|event| event.key.starts_with(&id)).collect();
        // A log of another merchant with the same request, in which one member of one event is another.
        let of = |kind: &'static str, change: fn(&mut Value)| {
            events.iter().map(move |event| {
                let mut body = event.body.clone();
                if event.kind == kind {
                    change(&mut body);
                }
                codec::decode(&event.kind, 1, &body.to_string()).unwrap()
            })
        };
        let same: fn(&mut Value) = |_| {};
        let fee: fn(&mut Value) = |body| body["fee"]["amount"] = json!("0.4000000000");
        // The other debit is the merchant's, of the service charge.
        let drawn: fn(&mut Value) = |body| {
            if body["customer_id"].is_null() {
                return;
            }
            body["amount"] = json!("0.4000000000");
            body["sources"][0]["amount"] = json!("0.4000000000");
        };
        for (name, kind, change, finding) in [
            ("explained_same", "", same, None),
            ("explained_fee", "request.metered", fee, Some("the bill computed again is another one")),
            ("explained_debit", "wallet.debited", drawn, Some("the debits are 0.4")),
        ] {
            let made = MadeLog::new(merchant.instance, name).await;
            made.append(of(kind, change).collect()).await;
            let mut explain = tokio::process::Command::new(program());
            explain.args(["audit", "explain", &id, "--json", "--database-url", &made.database_url]);
            let output = explain.stdin(std::process::Stdio::null()).output().await.unwrap();
            let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
            let found: Vec<_> =
                explained["findings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let code = i32::from(finding.is_some());
            assert_eq!(
                (output.status.code(), &explained["ok"]),
                (Some(code), &json!(code == 0)),
                "{explained}"
            );
            match finding {
                Some(finding) => assert!(found[0].starts_with(finding) && found.len() == 1, "{found:?}"),
                None => assert!(found.is_empty(), "{found:?}"),
            }
        }
    });
}
