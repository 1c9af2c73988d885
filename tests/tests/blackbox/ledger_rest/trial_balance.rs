//! `GET /ledger/trial_balance` shows the accounts of the merchant's own events at any moment.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use farthing_tests::books::decimal;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{Story, accounts, named, shown_accounts, time};

/// The accounts of the log's own trial balance.
async fn of_log(instance: &Instance, at: &[&str]) -> BTreeMap<String, Decimal> {
    let report = instance.operate(&[&["audit", "trial-balance"], at].concat()).await;
    let accounts = report["accounts"].as_object().unwrap();
    accounts.iter().map(|(name, balance)| (name.clone(), decimal(balance))).collect()
}

#[test]
fn the_trial_balance_is_that_of_the_merchants_own_events_at_every_moment() {
    run(async {
        let instance = Instance::of_test(2).await;
        let before = of_log(instance, &[]).await;
        let story = Story::tell(Merchant::of(instance).await).await;
        let merchant = &story.merchant;
        let ask = async |moment: String| -> Value {
            merchant.get(&format!("/v1/ledger/trial_balance?{moment}")).await.expect(200)
        };
        let events = merchant.events().await;
        let now = ask(String::new()).await;
        let expected = named(accounts(&events, |_| true));
        assert_eq!(shown_accounts(&now), expected);
        assert_eq!((&now["at"], &now["position"]), (&Value::Null, &json!(events.last().unwrap().position)));
        // The same as the auditor's command, which has the events of all merchants.
        let log = of_log(instance, &[]).await;
        for (account, balance) in &expected {
            let of =
                |accounts: &BTreeMap<String, Decimal>| accounts.get(account).copied().unwrap_or_default();
            assert_eq!(of(&log) - of(&before), *balance, "{account}");
        }
        assert!(expected["fee_revenue"] < Decimal::ZERO && expected["payments_received"] > Decimal::ZERO);
        assert!(expected["plan_revenue"] > Decimal::ZERO, "credit that nobody paid for: {expected:?}");

        for event in &events {
            let position = event.position;
            let answer = ask(format!("position={position}")).await;
            assert_eq!(answer["position"], json!(position));
            let expected = accounts(&events, |event| event.position <= position);
            assert_eq!(shown_accounts(&answer), named(expected), "{position}");
            for at in [event.occurred_at, event.occurred_at + TimeDelta::milliseconds(1)] {
                let answer = ask(format!("at={}", time(at))).await;
                let expected = accounts(&events, |event| event.occurred_at < at);
                assert_eq!(shown_accounts(&answer), named(expected), "{at}");
            }
        }
        let never = ask("at=2000-01-01T00:00:00Z".to_owned()).await;
        assert_eq!((&never["position"], &never["at"]), (&json!(0), &json!("2000-01-01T00:00:00.000Z")));
        assert!(shown_accounts(&never).values().all(Decimal::is_zero));
        let later = ask("at=2900-01-01T00:00:00Z".to_owned()).await;
        assert_eq!(later["accounts"], now["accounts"]);

        let head = merchant.log.heads().await[usize::try_from(merchant.partition().await).unwrap()].position;
        for (moment, path) in [
            (format!("position={}", head + 1), "position"),
            ("position=0".to_owned(), "position"),
            ("position=x".to_owned(), "position"),
            ("at=2026-01-01T00:00:00Z&position=1".to_owned(), "position"),
            ("at=2026-01-01".to_owned(), "at"),
        ] {
            let answer = merchant.get(&format!("/v1/ledger/trial_balance?{moment}")).await;
            let error = answer.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([path]), "{moment}: {error}");
        }
        let nobody = Merchant::of(instance).await;
        let nothing = nobody.get("/v1/ledger/trial_balance").await.expect(200);
        assert!(shown_accounts(&nothing).values().all(Decimal::is_zero), "{nothing}");
        for model in ["verify", "rebuild"] {
            let report = instance.operate(&["projections", model, "journal"]).await;
            assert_eq!(report["differences"], 0, "{report}");
        }
        assert_eq!(ask(String::new()).await["accounts"], now["accounts"]);
    });
}
