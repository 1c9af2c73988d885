//! Absurd usages. On a managed provider key they are bounded by what the call could have used; on a provider of the
//! caller's, by the largest fee that the merchant set. A merchant that one has sunk all the same gets nothing that the
//! instance pays for.

use farthing_tests::books::Books;
use farthing_tests::client::{Body, Request, Response};
use farthing_tests::merchant::{Customer, Merchant, Meter, forward, token};
use farthing_tests::provider::{Call, json as answer_json, json_text};
use farthing_tests::run;
use serde_json::json;

use farthing_tests::managed::Managed;

async fn minutes(merchant: &Merchant, rate: &str) -> Meter {
    merchant
        .meter(json!({
            "name": "minutes", "rate_type": "fixed", "tier_type": "minutes", "tiers": [{"start": 0, "rate": rate}],
            "service_charge_payer": "wallet",
        }))
        .await
}

/// A meter at the highest rate that there is.
async fn dearest(merchant: &Merchant) -> Meter {
    merchant
        .meter(json!({
            "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
            "tiers": [{"start": 0, "rate": "1000000000000"}], "service_charge_payer": "merchant",
        }))
        .await
}

fn report(merchant: &Merchant, id: &str, customer: &Customer, meter: &Meter, seconds: &str) -> Request {
    Request::new("POST", "/v1/requests").bearer(&merchant.secret_key).json(&json!({
        "request_id": id, "customer_id": customer.id, "meter_slug": meter.slug, "provider": "other",
        "endpoint": "POST https://a.example/", "usage": {"duration_seconds": seconds},
    }))
}

#[test]
fn a_merchant_that_sinks_itself_gets_no_managed_calls_for_nothing() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("5").await;
        let customer = merchant.customer("50").await;
        let meter = minutes(&merchant, "1000000").await;
        let usage = json!({"usage": {"prompt_tokens": 1000, "completion_tokens": 1000}});
        let endpoint =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| answer_json(200, &usage));
        let asked = json!({"model": "gpt-4o", "max_tokens": 5, "messages": []});
        let ask = || forward("POST", &endpoint.url).json(&asked);
        let customers = token(&json!({"secret_key": merchant.secret_key, "customer_id": customer.id}));
        managed.send(&customers, ask()).await.expect(200);

        // A report is the merchant's own word. $1,000,000 a minute: it sinks to -2 * 10^11.
        let sink = report(&merchant, "a", &customer, &meter, "12000000");
        sink.send(merchant.gateway()).await.unwrap().expect(201);
        merchant.credit(&customer, "50").await;
        for credential in [&customers, &merchant.secret_key] {
            managed.send(credential, ask()).await.refused(402, "insufficient_balance");
        }
        assert_eq!(endpoint.calls().len(), 1);
        // On the customer's own key the instance pays nothing.
        let own = json!({"secret_key": merchant.secret_key, "customer_id": customer.id, "provider_key": "sk-theirs"});
        managed.send(&token(&own), ask()).await.expect(200);

        merchant.credit_own("99999999999").await;
        merchant.credit_own("99999999999").await;
        managed.send(&customers, ask()).await.expect(200);
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn a_managed_call_that_reports_more_than_its_model_can_do_is_charged_its_hold() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = |payer: &'static str| {
            merchant.meter(json!({
                "name": payer, "rate_type": "fixed", "tier_type": "tokens_1m", "tiers": [{"start": 0, "rate": "1"}],
                "base_cost_payer": payer, "service_charge_payer": "merchant",
            }))
        };
        let (on_wallet, on_merchant) = (meter("wallet").await, meter("merchant").await);
        // gpt-4o takes 128,000 tokens and gives 16,384 for each answer; ten times as much is believed.
        let asked = |n: u64| json!({"model": "gpt-4o", "n": n, "max_tokens": 5, "messages": []});
        let reporting = |input: u64, output: u64| {
            let usage = json!({"prompt_tokens": input, "completion_tokens": output});
            let raw = usage.to_string();
            let usage = json!({"usage": usage});
            let respond = move |_: &Call| answer_json(200, &usage);
            (managed.openai.endpoint_ending("/v1/chat/completions", respond), raw)
        };
        let most = (1_280_000, 163_840);
        for (n, (input, output), is_believed) in [
            (1, most, true),
            (1, (most.0 + 1, 1), false),
            (1, (1, most.1 + 1), false),
            (3, (1, most.1 + 1), true),
            (3, (1, 3 * most.1 + 1), false),
            (1, (1_000_000_000_000, 1_000_000_000_000), false),
        ] {
            for (credential, payer) in [
                (merchant.billing(&customer, &on_wallet), "wallet"),
                (merchant.billing(&customer, &on_merchant), "merchant"),
            ] {
                let (endpoint, raw) = reporting(input, output);
                let response =
                    managed.send(&credential, forward("POST", &endpoint.url).json(&asked(n))).await;
                assert_eq!((response.status, response.complete), (200, true));
                let metered = merchant.charged(&response).await;
                if is_believed {
                    assert_eq!(metered["usage"]["tokens"], json!({"input": input, "output": output}));
                    continue;
                }
                assert_eq!(metered["marks"], json!(["usage_invalid", "hold_charged"]), "{input} {output}");
                assert_eq!(metered["raw_usage"], raw, "it is kept");
                assert_eq!(metered["overrun"], "0.0000000000");
                let opened = merchant.log.event(&format!("{}/opened", response.request_id())).await.unwrap();
                let hold = &opened.body["hold"][payer];
                assert_eq!(&metered[format!("total_{payer}_cost")], hold, "{metered}");
                assert_ne!(hold, "0.0000000000");
                let shown = merchant.shown(&response.request_id(), "completed").await;
                assert_eq!(shown["raw_usage"], raw);
                assert_eq!(shown["model_usage"]["total_tokens"], 0, "no usage is made up");
            }
        }
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn a_managed_usage_that_cannot_be_priced_is_charged_the_hold_too() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let usage = json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 2}}});
        let endpoint =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| answer_json(200, &usage));
        let asked = json!({"model": "gpt-4o", "max_tokens": 5, "messages": []});
        let response = managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&asked)).await;
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["marks"], json!(["usage_invalid", "hold_charged"]));
        assert_eq!(metered["total_merchant_cost"], metered["hold"]["merchant"], "{metered}");
        // The specification's own bound: over 10^12 is an error that is charged nothing (section 5).
        let usage = json!({"usage": {"prompt_tokens": 1_000_000_000_001_u64, "completion_tokens": 1}});
        let endpoint =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| answer_json(200, &usage));
        let response = managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&asked)).await;
        assert_eq!(merchant.failed(&response).await["reason"], "usage_invalid");
    });
}

#[test]
fn a_lying_provider_of_a_caller_costs_its_merchant_no_more_than_the_largest_fee_of_the_meter() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("50").await;
        let meter = minutes(&merchant, "6").await;
        let path = format!("/v1/meters/{}", meter.id);
        for bad in [json!("0"), json!("-1"), json!("1e3"), json!("1.00000000001"), json!(1.5), json!("")] {
            let refused = merchant.patch(&path, &json!({"max_fee": bad})).await;
            assert_eq!(refused.refused(400, "validation_error")["issues"][0]["path"], json!(["max_fee"]));
        }
        let shown = merchant.get(&path).await.expect(200);
        assert_eq!(shown.get("max_fee"), None, "there is none by default");
        let patched = merchant.patch(&path, &json!({"max_fee": "2.5"})).await.expect(200);
        assert_eq!(patched["max_fee"], "2.5000000000");
        assert_eq!(merchant.get(&path).await.expect(200)["max_fee"], "2.5000000000");

        let call = async |seconds: &str| {
            let text = format!(r#"{{"usage":{{"duration_seconds":{seconds}}}}}"#);
            let endpoint = merchant.instance.provider.endpoint(move |_| json_text(200, &text));
            merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await
        };
        // $6 a minute: 25 seconds are 2.5.
        for (seconds, fee) in [("25", Some("2.5000000000")), ("25.1", None), ("1000000000000", None)] {
            let response = call(seconds).await;
            assert_eq!((response.status, response.complete), (200, true), "the response passes");
            if let Some(fee) = fee {
                assert_eq!(merchant.charged(&response).await["fee"]["amount"], fee);
            } else {
                let failed = merchant.failed(&response).await;
                assert_eq!(failed["reason"], "usage_invalid");
                assert_eq!(failed["raw_usage"], format!(r#"{{"duration_seconds":{seconds}}}"#), "it is kept");
            }
        }
        assert_eq!(merchant.balance(&customer).await, "47.4525000000", "one call was charged");
        assert_eq!(merchant.own_balance().await, "10.0000000000", "nothing of it fell to the merchant");
        // The limit is the admission's, as the price is, and can be removed.
        let patched = merchant.patch(&path, &json!({"max_fee": null})).await.expect(200);
        assert_eq!(patched.get("max_fee"), None);
        assert_eq!(merchant.charged(&call("25.1").await).await["fee"]["amount"], "2.5100000000");
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn the_largest_fee_does_not_make_a_managed_call_free_and_is_no_limit_of_fees_per_call() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = |tier_type: &'static str, rate: &'static str| {
            merchant.meter(json!({
                "name": tier_type, "rate_type": "fixed", "tier_type": tier_type, "max_fee": "0.5",
                "tiers": [{"start": 0, "rate": rate}], "service_charge_payer": "merchant",
            }))
        };
        let (by_tokens, by_calls) = (meter("tokens_1m", "1000000").await, meter("requests", "1").await);
        let usage = json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1}});
        let endpoint =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| answer_json(200, &usage));
        let asked = json!({"model": "gpt-4o", "max_tokens": 5, "messages": []});
        let ask = || forward("POST", &endpoint.url).json(&asked);
        let response = managed.send(&merchant.billing(&customer, &by_tokens), ask()).await;
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["marks"], json!(["usage_invalid"]));
        assert_eq!(metered["fee"]["amount"], "0.0000000000");
        assert_ne!(metered["model_cost"]["total"], "0.0000000000", "the provider is paid: {metered}");
        assert_eq!(metered["total_request_cost"], metered["model_cost"]["total"], "{metered}");
        // Nobody pays the fee of a call of the merchant's own, so it is no reason to disbelieve the usage.
        let own = token(&json!({"secret_key": merchant.secret_key, "meter_slug": by_tokens.slug}));
        let response = managed.send(&own, ask()).await;
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["marks"], json!([]), "{metered}");
        assert_eq!(metered["total_merchant_cost"], metered["model_cost"]["total"], "{metered}");
        let response = managed.send(&merchant.billing(&customer, &by_calls), ask()).await;
        let metered = merchant.charged(&response).await;
        assert_eq!((&metered["marks"], &metered["fee"]["amount"]), (&json!([]), &json!("1.0000000000")));
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_fee_beyond_every_amount_does_not_make_a_managed_call_cheap() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = dearest(&merchant).await;
        // As many as gpt-4o is believed to take.
        let usage = json!({"usage": {"prompt_tokens": 1_200_000, "completion_tokens": 1}});
        let endpoint =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| answer_json(200, &usage));
        let asked = json!({"model": "gpt-4o", "messages": []});
        // Nobody pays the fee of a call of the merchant's own.
        let own = token(&json!({"secret_key": merchant.secret_key, "meter_slug": meter.slug}));
        for credential in [own, merchant.billing(&customer, &meter)] {
            let response = managed.send(&credential, forward("POST", &endpoint.url).json(&asked)).await;
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["marks"], json!(["usage_invalid"]), "{metered}");
            assert_eq!(metered["usage"]["tokens"]["input"], 1_200_000);
            assert_eq!(metered["model_cost"]["total"], "3.0000100000", "the provider is paid");
            assert_eq!(metered["total_request_cost"], metered["model_cost"]["total"], "{metered}");
            let id = response.request_id();
            let explained = merchant.instance.operate(&["audit", "explain", &id]).await;
            assert_eq!(explained["ok"], true, "{explained}");
            assert_eq!(explained["recomputed"]["model_cost"], metered["model_cost"], "{explained}");
        }
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

/// The counts of a report that are whole numbers, and those that are seconds.
const COUNTS: [&str; 8] = [
    "tokens",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "characters",
    "input_characters",
    "output_characters",
    "total_characters",
];
const SECONDS: [&str; 4] = ["duration_seconds", "input_seconds", "output_seconds", "total_seconds"];

/// What is no count: below zero, over 10^12, no number, or another value.
const NO_COUNTS: [&str; 13] = [
    "-1",
    "-1e999",
    "1e999",
    "1e13",
    "1000000000001",
    r#""1000000000001""#,
    r#""1e999""#,
    r#""-1""#,
    r#""1_000""#,
    r#""many""#,
    r#""""#,
    "true",
    "[1]",
];

/// Reports a call of the id `absurd` with these members.
async fn report_raw(merchant: &Merchant, customer: &Customer, meter: &Meter, members: &str) -> Response {
    let body = format!(
        r#"{{"request_id":"absurd","customer_id":"{}","meter_slug":"{}",{members}}}"#,
        customer.id, meter.slug
    );
    let request = Request::new("POST", "/v1/requests").header("Content-Type", "application/json");
    merchant.rest(request.body(Body::Whole(body.into_bytes()))).await
}

/// Reports absurd usages of each kind, which must be refused for the count and change nothing.
async fn absurd_reports_are_refused(merchant: &Merchant, customer: &Customer, meter: &Meter) {
    let wallets = async || (merchant.balance(customer).await, merchant.own_balance().await);
    let before = (merchant.events().await.len(), wallets().await);
    let of_counts = ["1.5", r#""1.5""#, "0.000000001"];
    let of_seconds = ["-0.5", "0.0000000001", "1000000000000.000000001"];
    for (names, of_kind) in [(&COUNTS[..], of_counts), (&SECONDS[..], of_seconds)] {
        for name in names {
            for bad in NO_COUNTS.iter().chain(&of_kind) {
                let members = format!(r#""usage":{{"{name}":{bad}}}"#);
                let refused = report_raw(merchant, customer, meter, &members).await;
                assert_eq!(refused.status, 400, "{members}: {}", refused.text());
                let error = refused.refused(400, "validation_error");
                assert_eq!(error["issues"][0]["path"], json!(["usage", name]), "{members}: {error}");
            }
            let beside = report_raw(merchant, customer, meter, &format!(r#""{name}":1e999"#)).await;
            let error = beside.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([name]), "{error}");
        }
    }
    for members in [
        // Each is a count, and they are two.
        r#""tokens":1,"usage":{"tokens":2}"#,
        r#""usage":1e12"#,
        r#""usage":"1""#,
        r#""usage":[{"tokens":1}]"#,
    ] {
        let error = report_raw(merchant, customer, meter, members).await.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["usage"]), "{members}: {error}");
    }
    for no_json in ["NaN", "Infinity", "0x10", "01", "+1"] {
        let members = format!(r#""usage":{{"tokens":{no_json}}}"#);
        let refused = report_raw(merchant, customer, meter, &members).await;
        assert_eq!(refused.status, 400, "{members}: {}", refused.text());
    }
    merchant.get("/v1/requests/absurd").await.refused(404, "request_not_found");
    assert_eq!(
        (merchant.events().await.len(), wallets().await),
        before,
        "a refused report changed something"
    );
}

/// F13: whoever holds a merchant's key reports what no call can have used, before and after the merchant is sunk. Each
/// report is refused, leaves no event, moves no money, and does not take its id.
#[test]
fn reports_of_absurd_usages_are_refused_and_change_nothing() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let customer = merchant.customer("50").await;
        let meter = minutes(&merchant, "1000000").await;
        absurd_reports_are_refused(&merchant, &customer, &meter).await;
        // $1,000,000 a minute: it sinks to -2 * 10^11.
        let sink = report(&merchant, "sinks", &customer, &meter, "12000000");
        sink.send(merchant.gateway()).await.unwrap().expect(201);
        assert!(merchant.own_balance().await.starts_with('-'));
        absurd_reports_are_refused(&merchant, &customer, &meter).await;
        // The id is free.
        let members = r#""usage":{"duration_seconds":"0"}"#;
        report_raw(&merchant, &customer, &meter, members).await.expect(201);
        Books::of(&merchant.log.after(0).await);
    });
}

/// F13: a report whose usage is a count, but costs more than the meter's largest fee, or than any amount.
#[test]
fn a_report_above_the_largest_fee_or_every_amount_is_refused_and_changes_nothing() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let customer = merchant.customer("50").await;
        let (limited, endless) = (minutes(&merchant, "6").await, dearest(&merchant).await);
        let path = format!("/v1/meters/{}", limited.id);
        merchant.patch(&path, &json!({"max_fee": "2.5"})).await.expect(200);
        let before = merchant.events().await.len();
        for (meter, usage) in [
            // $6 a minute: 25 seconds are 2.5.
            (&limited, r#"{"duration_seconds":25.1}"#),
            (&limited, r#"{"duration_seconds":1e12}"#),
            (&endless, r#"{"input_tokens":1000000000000}"#),
        ] {
            let members = format!(r#""usage":{usage}"#);
            let refused = report_raw(&merchant, &customer, meter, &members).await;
            let error = refused.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["usage"]), "{usage}: {error}");
        }
        assert_eq!(merchant.events().await.len(), before, "a refused report is recorded");
        assert_eq!(merchant.balance(&customer).await, "50.0000000000");
        assert_eq!(merchant.own_balance().await, "5.0000000000");
        let within = report_raw(&merchant, &customer, &limited, r#""usage":{"duration_seconds":25}"#).await;
        assert_eq!(within.expect(201)["fee"]["amount"], "2.5000000000");
        Books::of(&merchant.log.after(0).await);
    });
}
