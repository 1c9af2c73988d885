//! `farthing audit reconcile`: calls that somebody must look at, payments against the processor's list, and usage against a
//! provider's export. Every row is in one class, and the classes add up.

use std::process::{Output, Stdio};
use std::time::Duration;

use chrono::{Days, Utc};
use farthing_tests::books::decimal;
use farthing_tests::client::Connection;
use farthing_tests::instance::{Instance, kill, program};
use farthing_tests::made_log::{MadeLog, golden};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Gate, Step, json as answer_json, json_text};
use farthing_tests::run;
use farthing_tests::wait::{eventually, within};
use rust_decimal::Decimal;
use serde_json::{Value, json};

const CHARGES: &str =
    "SELECT payment_id, reference, amount::text, declined FROM test_processor.charge ORDER BY payment_id";

/// Runs `farthing audit reconcile`.
async fn reconcile(instance: &Instance, arguments: &[&str]) -> Output {
    reconcile_on(&instance.ready().database_url, arguments).await
}

async fn reconcile_on(database_url: &str, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(["audit", "reconcile"]).args(arguments).args(["--database-url", database_url]);
    command.stdin(Stdio::null()).output().await.unwrap()
}

/// The JSON that it prints, with its exit code.
async fn result(instance: &Instance, arguments: &[&str]) -> (Value, Option<i32>) {
    result_on(&instance.ready().database_url, arguments).await
}

async fn result_on(database_url: &str, arguments: &[&str]) -> (Value, Option<i32>) {
    let output = reconcile_on(database_url, &[arguments, &["--json"]].concat()).await;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let result = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout} {stderr}"));
    (result, output.status.code())
}

async fn refused(instance: &Instance, arguments: &[&str], why: &str) {
    let output = reconcile(instance, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
}

/// A file of the instance with this text; its path.
fn file(instance: &Instance, name: &str, text: &str) -> String {
    let path = instance.file(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn own_instance(instance: Instance) -> &'static Instance {
    Box::leak(Box::new(instance))
}

#[test]
fn calls_that_somebody_must_look_at_are_listed_and_all_are_counted() {
    run(async {
        let instance = own_instance(Instance::start(1).await);
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
fn payments_are_matched_with_the_processors_own_list() {
    run(async {
        let instance = own_instance(Instance::start(1).await);
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1").await;
        let card = |number: &str| json!({"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"});
        let card = |number: &str| json!({"card": card(number)});
        for (number, amount, status) in [
            ("4242424242424242", "25.5", 200),
            ("5555555555554444", "10", 200),
            ("4000000000000341", "30", 402),
        ] {
            merchant.post("/v1/payment_methods", &card(number)).await.expect(201);
            let funded = merchant.post("/v1/wallet/fund", &json!({"amount": amount})).await;
            assert_eq!(funded.status, status, "{funded:?}");
        }
        let charges = merchant.log.sql.query(CHARGES, &[]).await.unwrap();
        let mut rows = Vec::new();
        for row in &charges {
            let (payment, reference, amount): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            let declined: Option<String> = row.get(3);
            let status = if declined.is_some() { "failed" } else { "succeeded" };
            rows.push(format!("{reference},{payment},{amount},usd,{status}"));
        }
        assert_eq!(rows.len(), 3, "{rows:?}");
        let list = |rows: &[String]| {
            format!("\u{feff}id,payment_id,amount,currency,status\r\n{}\r\n\r\n", rows.join("\r\n"))
        };
        let path = file(instance, "list.csv", &list(&rows));
        let (whole, code) = result(instance, &["--payments", &path]).await;
        assert_eq!((code, &whole["classes"]["matched"]["listed"]), (Some(0), &json!(3)), "{whole}");
        assert_eq!(whole["total"]["recorded_amount"], "35.5000000000");
        assert_eq!(whole["total"]["listed_amount"], "35.5000000000");

        // The processor lists two failed tries of a payment that succeeded: they are no difference, and take no money.
        let paid = charges.iter().find(|row| row.get::<_, Option<String>>(3).is_none()).unwrap();
        let tries = [1, 2].map(|number| {
            format!("ch_try_{number},{},{},usd,failed", paid.get::<_, &str>(0), paid.get::<_, &str>(2))
        });
        let path = file(instance, "tries.csv", &list(&[&tries[..1], &rows, &tries[1..]].concat()));
        let (whole, code) = result(instance, &["--payments", &path]).await;
        assert_eq!((code, &whole["classes"]["matched"]["listed"]), (Some(0), &json!(3)), "{whole}");
        let failed = json!({"recorded": 0, "listed": 2, "recorded_amount": "0.0000000000",
            "listed_amount": "0.0000000000"});
        assert_eq!(
            (&whole["classes"]["failed_try"], &whole["total"]["listed"]),
            (&failed, &json!(5)),
            "{whole}"
        );
        assert_eq!(whole["total"]["listed_amount"], "35.5000000000");
        let shown = String::from_utf8(reconcile(instance, &["--payments", &path]).await.stdout).unwrap();
        assert!(shown.contains("failed_try") && !shown.contains("missing"), "{shown}");

        // Another amount, a payment that is not in the list, and one that is not in the log.
        let mut other = rows.clone();
        let of_25 = other.iter().position(|row| row.contains("25.5")).unwrap();
        other[of_25] = other[of_25].replace("25.5", "26.5");
        other.retain(|row| !row.contains(",10"));
        other.push("ch_x,,7,usd,succeeded".to_owned());
        let path = file(instance, "other.csv", &list(&other));
        let (differs, code) = result(instance, &["--payments", &path]).await;
        let classes: Vec<_> = differs["matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| (found["class"].as_str().unwrap(), found["listed"]["line"].as_u64()))
            .collect();
        let line_of = |text: &str| 2 + other.iter().position(|row| row.contains(text)).unwrap() as u64;
        let expected = [
            ("different", Some(line_of("26.5"))),
            ("missing_in_log", Some(line_of("ch_x"))),
            ("missing_in_list", None),
            ("matched", Some(line_of("failed"))),
        ];
        assert_eq!((code, classes), (Some(1), expected.to_vec()), "{differs}");
        let total = &differs["total"];
        assert_eq!(
            (&total["recorded_amount"], &total["listed_amount"]),
            (&json!("35.5000000000"), &json!("33.5000000000"))
        );
        for side in ["recorded", "listed"] {
            let classes = differs["classes"].as_object().unwrap().values();
            let amount = format!("{side}_amount");
            let sum: Decimal = classes.clone().map(|class| decimal(&class[&amount])).sum();
            assert_eq!(sum, decimal(&total[&amount]), "{differs}");
            let count: u64 = classes.map(|class| class[side].as_u64().unwrap()).sum();
            assert_eq!(Some(count), total[side].as_u64(), "{differs}");
        }
        let shown = String::from_utf8(reconcile(instance, &["--payments", &path]).await.stdout).unwrap();
        assert!(shown.contains("different") && shown.contains("26.5000000000"), "{shown}");
        let csv =
            String::from_utf8(reconcile(instance, &["--payments", &path, "--csv"]).await.stdout).unwrap();
        assert_eq!(csv.lines().count(), 5, "{csv}");

        // A list of successes alone, with other columns.
        let mapping = json!({
            "id": "Charge", "amount": "Cents", "in_cents": true, "status": "State",
            "statuses": {"Paid": "succeeded"}, "delimiter": ";",
        });
        let mapping = file(instance, "mapping.json", &mapping.to_string());
        let paid = charges.iter().filter(|row| row.get::<_, Option<String>>(3).is_none());
        let paid = paid.map(|row| {
            let cents = row.get::<_, &str>(2).parse::<Decimal>().unwrap() * Decimal::ONE_HUNDRED;
            format!("{};{};Paid\n", row.get::<_, String>(1), cents.normalize())
        });
        let path = file(instance, "cents.csv", &format!("Charge;Cents;State\n{}", paid.collect::<String>()));
        let arguments = ["--payments", &path, "--mapping", &mapping, "--without-failures"];
        let (matched, code) = result(instance, &arguments).await;
        assert_eq!(
            (code, &matched["classes"]["nothing_moved"]["recorded"]),
            (Some(0), &json!(1)),
            "{matched}"
        );
        assert_eq!(
            result(instance, &arguments[..4]).await.1,
            Some(1),
            "the declined payment is not in the list"
        );

        for (name, text, why) in [
            ("twice", format!("{}{}\n", list(&rows), rows[0]), "the id \""),
            (
                "thousands",
                "id,amount,status\na,\"1,000.00\",succeeded\n".to_owned(),
                "line 2, column \"amount\"",
            ),
            ("header", "id,amount\n".to_owned(), "the file has no column \"status\""),
            ("empty", String::new(), "the file is empty"),
        ] {
            let path = file(instance, &format!("{name}.csv"), &text);
            refused(instance, &["--payments", &path], why).await;
        }
        refused(instance, &["--payments", "/nowhere.csv"], "cannot read").await;
        let bad = file(instance, "bad.json", r#"{"idd": "x"}"#);
        refused(instance, &["--payments", &path, "--mapping", &bad], "unknown field `idd`").await;
        refused(instance, &["--payments", &path, "--usage", &path], "cannot be used with").await;
    });
}

#[test]
fn a_refunded_payment_is_matched_by_the_processors_id_of_the_refund() {
    run(async {
        let instance = Instance::shared().await;
        let made = MadeLog::new(instance, "refunds").await;
        made.append(vec![golden("payment.requested.v1", &[("amount", json!("25.5"))])]).await;
        made.append(vec![golden("payment.voided.v1", &[])]).await;
        let list =
            |name: &str, id: &str| file(instance, name, &format!("id,amount,status\n{id},25.50,refunded\n"));
        let (found, code) = result_on(&made.database_url, &["--payments", &list("re.csv", "re_1")]).await;
        assert_eq!((code, &found["classes"]["matched"]["listed"]), (Some(0), &json!(1)), "{found}");
        assert_eq!(found["matches"][0]["recorded"]["reference"], "re_1", "{found}");
        let (other, code) = result_on(&made.database_url, &["--payments", &list("re2.csv", "re_2")]).await;
        let count = |class: &str| (&other["classes"][class]["recorded"], &other["classes"][class]["listed"]);
        assert_eq!(code, Some(1), "{other}");
        assert_eq!(count("missing_in_list"), (&json!(1), &json!(0)), "{other}");
        assert_eq!(count("missing_in_log"), (&json!(0), &json!(1)), "{other}");
    });
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

#[test]
fn usage_is_compared_by_day_and_model() {
    run(async {
        let instance = own_instance(Instance::start(1).await);
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        for (model, input, output) in [("big", 1_000, 10), ("big", 500, 5), ("small", 7, 0)] {
            let answer = json!({"model": model, "usage": {"input_tokens": input, "output_tokens": output}});
            let endpoint = instance.provider.endpoint(move |_| answer_json(200, &answer));
            merchant.fetch(&merchant.secret_key, &endpoint.url).await.expect(200);
        }
        merchant.nothing_is_held().await;
        let opened = merchant.of_kind("request.opened").await;
        let days: Vec<_> = opened.iter().map(|event| event.occurred_at.date_naive().to_string()).collect();
        let mapping = json!({"day": "day", "model": "model", "requests": ["n"], "input_tokens": ["plain", "cached"],
            "output_tokens": ["out"], "models": {"Big One": "big"}});
        let mapping = file(instance, "mapping.json", &mapping.to_string());
        let head = "day,model,n,plain,cached,out\n";
        let rows = [
            format!("{},Big One,1,900,100,10\n", days[0]),
            format!("{},big,1,500,0,5\n", days[1]),
            format!("{},small,1,7.0,,0\n", days[2]),
        ];
        let usage = async |name: &str, rows: &[String], more: &[&str]| {
            let path = file(instance, name, &format!("{head}{}", rows.concat()));
            let arguments = ["--usage", &path, "--provider", "other", "--mapping", &mapping, "--keys", "all"];
            result(instance, &[&arguments, more].concat()).await
        };
        let (same, code) = usage("same.csv", &rows, &[]).await;
        assert_eq!(
            (code, &same["ok"], &same["classes"]["matched"]["rows"]),
            (Some(0), &json!(true), &json!(3)),
            "{same}"
        );
        assert_eq!(
            same["total"]["listed"],
            json!({"requests": "3", "input_tokens": "1507", "output_tokens": "15"})
        );

        let mut other = rows[..2].to_vec();
        other[1] = other[1].replace(",500,", ",501,");
        other.push(format!("{},third,1,1,1,1\n", days[2]));
        let (differs, code) = usage("other.csv", &other, &[]).await;
        let classes: Vec<_> = differs["matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| (found["class"].as_str().unwrap(), found["model"].as_str().unwrap()))
            .collect();
        let expected = [("different", "big"), ("missing_in_log", "third"), ("missing_in_list", "small")];
        assert_eq!((code, classes), (Some(1), expected.to_vec()), "{differs}");
        assert_eq!(differs["matches"][0]["difference"]["input_tokens"], "1", "{differs}");

        // Rows outside of the period are left out, and counted.
        let next = opened[2].occurred_at.date_naive() + Days::new(1);
        let (none, code) =
            usage("later.csv", &rows, &["--from", &next.to_string(), "--to", "2100-01-01"]).await;
        assert_eq!((code, &none["rows_outside_period"]), (Some(0), &json!(3)), "{none}");

        let path = file(instance, "bad.csv", &format!("{head}soon,m,1,1,1,1\n"));
        let arguments = ["--usage", &path, "--provider", "other", "--mapping", &mapping];
        refused(instance, &arguments, "line 2, column \"day\": \"soon\" is not a date").await;
        refused(instance, &arguments[..4], "no columns are built in for \"other\"").await;
        refused(instance, &arguments[..2], "--provider").await;
        let noon = [&arguments[..], &["--from", "2026-11-01T12:00:00Z"]].concat();
        let fine = file(instance, "bad.csv", &format!("{head}2026-11-02,m,1,1,1,1\n"));
        assert_eq!(fine, path);
        refused(instance, &noon, "--from must be a day").await;
    });
}

#[test]
fn the_exports_of_openai_are_compared_with_managed_calls() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        // The usage of other tests is of other models.
        let model = format!("gpt-4o-of-{}", merchant.id);
        let answer = format!(
            r#"{{"model":"{model}","usage":{{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,
            "prompt_tokens_details":{{"cached_tokens":1920}}}}}}"#
        );
        let answer: &'static str = answer.leak();
        let endpoint = managed.openai.endpoint(move |_| json_text(200, answer));
        let response = managed.ask(&merchant.secret_key, &endpoint.url, "gpt-4o").await;
        let metered = merchant.charged(&response).await;
        let opened = merchant.of_kind("request.opened").await;
        let day = opened[0].occurred_at.date_naive();
        let tokens = format!(
            "start_time_iso,num_model_requests,model,input_tokens,output_tokens,input_cached_tokens\n\
             {day}T00:00:00+00:00,1.0,{model},2006.0,300.0,1920.0\n"
        );
        let cost = format!(
            "start_time_iso,amount_value,amount_currency,line_item\n\
             {day}T00:00:00+00:00,{},usd,\"{model}, input\"\n{day}T00:00:00+00:00,{}000,usd,\"{model}, output\"\n",
            metered["model_cost"]["input"].as_str().unwrap(),
            metered["model_cost"]["output"].as_str().unwrap(),
        );
        for (name, text, figure, value) in
            [("tokens", &tokens, "cache_read_tokens", "1920"), ("cost", &cost, "cost", "0.005615")]
        {
            let path = file(merchant.instance, &format!("{}-{name}.csv", merchant.id), text);
            let (report, _) = result(merchant.instance, &["--usage", &path, "--provider", "openai"]).await;
            let matches = report["matches"].as_array().unwrap();
            let own: Vec<_> = matches.iter().filter(|found| found["model"] == json!(model)).collect();
            assert_eq!(own.len(), 1, "{report}");
            assert_eq!(
                (&own[0]["class"], &own[0]["recorded"][figure]),
                (&json!("matched"), &json!(value)),
                "{report}"
            );
        }
        // Calls on keys of the callers do not count.
        let path = file(merchant.instance, &format!("{}-keys.csv", merchant.id), &tokens);
        let arguments = ["--usage", &path, "--provider", "openai", "--keys", "unmanaged"];
        let (report, code) = result(merchant.instance, &arguments).await;
        let matches = report["matches"].as_array().unwrap();
        let own = matches.iter().find(|found| found["model"] == json!(model)).unwrap();
        assert_eq!((code, &own["class"]), (Some(1), &json!("missing_in_log")), "{report}");
    });
}
