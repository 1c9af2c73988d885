//! Calls that somebody must look at, and calls whose events do not fit together.

use std::time::Duration;

use chrono::{Days, Utc};
use farthing_tests::books::decimal;
use farthing_tests::client::Connection;
use farthing_tests::instance::Instance;
use farthing_tests::made_log::{MadeLog, golden};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::kill;
use farthing_tests::provider::{Gate, Step, json as answer_json};
use farthing_tests::run;
use farthing_tests::wait::{eventually, within};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{file, reconcile, reconcile_on, refused, result, result_on};

#[test]
fn calls_that_somebody_must_look_at_are_listed_and_all_are_counted() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        let (nothing, code) = result(instance, &[]).await;
        assert_eq!(
            (&nothing["ok"], &nothing["calls"], code),
            (&json!(true), &json!([]), Some(0)),
            "{nothing}"
        );

        let customer = merchant.customer("0.5").await;
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
                "tiers": [{"start": 0, "rate": "1"}], "service_charge_payer": "merchant",
            }))
            .await;
        let credential = merchant.billing(&customer, &meter);
        let answer = |status, usage: Value| {
            instance.provider.endpoint(move |_| answer_json(status, &json!({"usage": usage})))
        };
        let clean = answer(200, json!({"tokens": 1}));
        merchant.fetch(&credential, &clean.url).await.expect(200);
        let silent = instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let silent = merchant.fetch(&credential, &silent.url).await.request_id();
        let failing = instance.provider.endpoint(|_| answer_json(500, &json!({})));
        merchant.fetch(&credential, &failing.url).await;
        let absurd = answer(200, json!({"tokens": -1}));
        let absurd = merchant.fetch(&credential, &absurd.url).await.request_id();
        let dear = answer(200, json!({"tokens": 2_000_000}));
        let dear = merchant.fetch(&credential, &dear.url).await.request_id();
        merchant.nothing_is_held().await;

        let (ended, code) = result(instance, &[]).await;
        assert_eq!((code, &ended["ok"]), (Some(1), &json!(false)), "{ended}");
        let listed: Vec<_> = ended["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| (call["class"].as_str().unwrap(), call["request_id"].as_str().unwrap()))
            .collect();
        let expected = [("usage_missing", silent.as_str()), ("usage_invalid", &absurd), ("overrun", &dear)];
        assert_eq!(listed, expected, "{ended}");
        let overrun = &ended["calls"][2];
        assert_eq!(
            (&overrun["provider"], &overrun["age_seconds"]),
            (&json!("other"), &Value::Null),
            "{overrun}"
        );
        assert_eq!(overrun["overrun"], ended["total"]["overrun"]);
        assert!(decimal(&overrun["overrun"]) > Decimal::ONE, "{overrun}");
        adds_up(&ended, 5);

        // A call in flight at a live gateway is listed, and is no difference.
        let gate = Gate::default();
        let wait = gate.clone();
        let open = instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(wait.clone())];
            steps.extend(answer_json(200, &json!({"usage": {"tokens": 1}})));
            steps
        });
        let mut call = begin(&merchant, &open.url, 6).await;
        let since = merchant.events().await.last().unwrap().occurred_at.to_rfc3339();
        let (flying, code) = result(instance, &["--from", &since]).await;
        assert_eq!((code, &flying["classes"]["in_flight"]["count"]), (Some(0), &json!(1)), "{flying}");
        assert!(flying["calls"][0]["gateway_id"].is_string(), "{flying}");
        assert!(
            flying["calls"][0]["age_seconds"].as_i64().is_some_and(|age| (0..600).contains(&age)),
            "{flying}"
        );
        adds_up(&flying, 1);
        gate.open();
        call.response("GET").await.unwrap();
        merchant.nothing_is_held().await;

        let shown = String::from_utf8(reconcile(instance, &[]).await.stdout).unwrap();
        assert!(
            shown.contains("usage_missing ") && shown.contains(&format!("{dear}  other  -  charged 2.")),
            "{shown}"
        );
        let csv = String::from_utf8(reconcile(instance, &["--csv"]).await.stdout).unwrap();
        assert_eq!(csv.lines().count(), 4, "{csv}");
        assert!(csv.starts_with("class,request_id,partition,position,"), "{csv}");
        let before = ["--to", "2020-01-01"];
        let (none, code) = result(instance, &before).await;
        assert_eq!((code, &none["total"]["count"]), (Some(0), &json!(0)), "{none}");
        refused(instance, &["--from", "2026-02-01", "--to", "2026-01-01"], "--to is not after --from").await;
        refused(instance, &["--mapping", "x"], "--mapping needs --payments or --usage").await;

        // The only gateway dies with a call in flight, so no other one sweeps it.
        let never = instance.provider.endpoint(|_| vec![Step::Wait(Gate::default())]);
        let _call = begin(&merchant, &never.url, 7).await;
        kill(instance.ready().pids.gateways[0]);
        let open_call = within(Duration::from_mins(1), "the call is open at a dead gateway", async || {
            let (listed, code) = result(instance, &["--from", &since]).await;
            (listed["classes"]["open_at_dead_gateway"]["count"] == 1).then_some((listed, code))
        });
        let (listed, code) = open_call.await;
        assert_eq!((code, &listed["classes"]["metered"]["count"]), (Some(1), &json!(1)), "{listed}");
        adds_up(&listed, 2);
    });
}

/// Begins a call, which is the merchant's `number`th to be opened.
async fn begin(merchant: &Merchant, url: &str, number: usize) -> Connection {
    let mut call = Connection::open(merchant.gateway()).await.unwrap();
    call.send(&forward("GET", url).bearer(&merchant.secret_key)).await.unwrap();
    eventually("the call is open", async || {
        (merchant.of_kind("request.opened").await.len() == number).then_some(())
    })
    .await;
    call
}

/// The classes add up to the total, which has so many calls.
fn adds_up(result: &Value, count: u64) {
    let classes = result["classes"].as_object().unwrap().values();
    for name in ["hold", "charged", "overrun"] {
        let sum: Decimal = classes.clone().map(|class| decimal(&class[name])).sum();
        assert_eq!(sum, decimal(&result["total"][name]), "{name}: {result}");
    }
    let counted: u64 = classes.map(|class| class["count"].as_u64().unwrap()).sum();
    assert_eq!((counted, result["total"]["count"].as_u64()), (count, Some(count)), "{result}");
}

#[test]
fn ends_without_an_opening_and_holds_that_do_not_add_up_are_findings() {
    run(async {
        let instance = Instance::shared().await;
        let made = MadeLog::new(instance, "damaged_calls").await;
        let request = |last: char| json!(format!("req_01M3250V0628T5CY4TQKFF049{last}"));
        let too_much = json!({"wallet": "900000000000", "merchant": "900000000000.5"});
        let events = vec![
            // Opened and metered as it should be, by another provider than the export's.
            golden("request.opened.v1", &[("request_id", request('A')), ("provider", json!("other"))]),
            golden("request.metered.v1", &[("request_id", request('A'))]),
            // The openings of these are not in the log.
            golden("request.metered.v1", &[("request_id", request('B'))]),
            golden("request.failed.v1", &[("request_id", request('C'))]),
            // Its hold is beyond any amount; and so is that of a call that stays open.
            golden("request.opened.v1", &[("request_id", request('D'))]),
            golden("request.failed.v1", &[("request_id", request('D')), ("hold", too_much.clone())]),
            golden("request.opened.v1", &[("request_id", request('E')), ("hold", too_much)]),
        ];
        let first = made.append(events).await;
        let at = |offset: i64| format!("partition {}, position {}: ", made.partition, first + offset);
        let findings = |result: &Value| -> Vec<String> {
            assert_eq!(result["findings_count"], json!(result["findings"].as_array().unwrap().len()));
            let texts = result["findings"].as_array().unwrap().iter();
            texts.map(|finding| finding.as_str().unwrap().to_owned()).collect()
        };

        let (calls, code) = result_on(&made.database_url, &[]).await;
        let found = findings(&calls);
        assert_eq!((code, &calls["ok"], found.len()), (Some(1), &json!(false), 4), "{calls}");
        for (finding, (offset, request, rest)) in found.iter().zip([
            (2, request('B'), "ends, and is not open"),
            (3, request('C'), "ends, and is not open"),
            (
                5,
                request('D'),
                "900000000000.0000000000 on the customer's wallet and 900000000000.5000000000 on",
            ),
            (
                6,
                request('E'),
                "900000000000.0000000000 on the customer's wallet and 900000000000.5000000000 on",
            ),
        ]) {
            assert!(finding.starts_with(&at(offset)), "{finding}");
            assert!(finding.contains(request.as_str().unwrap()) && finding.contains(rest), "{finding}");
        }
        // All calls are listed and counted, those with findings too.
        adds_up(&calls, 5);
        let listed: Vec<_> =
            calls["calls"].as_array().unwrap().iter().map(|call| &call["request_id"]).collect();
        assert_eq!(listed, ['A', 'B', 'C', 'D', 'E'].map(request).iter().collect::<Vec<_>>(), "{calls}");
        assert_eq!(calls["calls"][3]["hold"], "0.0000000000", "{calls}");
        let output = reconcile_on(&made.database_url, &[]).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(&found[0]) && stderr.contains("4 findings"), "{stderr}");

        let today = Utc::now().date_naive();
        let mapping = json!({"day": "day", "model": "model", "input_tokens": ["in"]});
        let mapping = file(instance, "damaged-mapping.json", &mapping.to_string());
        let path = file(instance, "damaged.csv", "day,model,in\n");
        let (from, to) = ((today - Days::new(1)).to_string(), (today + Days::new(2)).to_string());
        let arguments =
            ["--usage", &path, "--mapping", &mapping, "--keys", "all", "--from", &from, "--to", &to];
        let (usage, code) =
            result_on(&made.database_url, &[&arguments[..], &["--provider", "openai"]].concat()).await;
        let found = findings(&usage);
        assert_eq!((code, &usage["ok"], found.len()), (Some(1), &json!(false), 2), "{usage}");
        assert!(found[0].starts_with(&at(2)) && found[0].contains(request('B').as_str().unwrap()), "{usage}");
        let figures = "model \"gpt-4o-2024-08-06\", 1200 input tokens, 200000 output tokens, provider's cost 2.0030000000";
        assert!(found[0].ends_with(figures), "{usage}");
        assert!(found[1].starts_with(&at(3)), "{usage}");
        assert_eq!(usage["matches"], json!([]), "{usage}");
    });
}
