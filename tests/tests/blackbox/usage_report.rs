//! The usage report: by day in any UTC offset, exactly the sum of the listed requests.

use std::collections::BTreeMap;

use chrono::{DateTime, Days, FixedOffset, NaiveDate, TimeDelta, Utc};
use farthing_core::command::{Command, DecideError, Decision};
use farthing_core::event::{Fact, codec};
use farthing_core::ids::{GatewayId, Mint, RequestId};
use farthing_core::state::StateCache;
use farthing_log::appender::Appender;
use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::leader;
use farthing_tests::merchant::{Customer, Merchant, Meter, encoded, forward};
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::scratch::Scratch;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The counters that sum amounts, with the member of a request that they sum.
const AMOUNTS: [(&str, &str); 8] = [
    ("total_cost", "/cost"),
    ("total_charge", "/charge/amount"),
    ("total_usage_cost", "/model_usage/total_cost"),
    ("total_fee_amount", "/fee/amount"),
    ("total_service_charge_amount", "/service_charge/amount"),
    ("total_request_cost", "/total_request_cost"),
    ("total_wallet_cost", "/total_wallet_cost"),
    ("total_merchant_cost", "/total_merchant_cost"),
];

/// The expected counters, computed from the list of requests.
fn counted<'a>(requests: impl Iterator<Item = &'a Value>) -> BTreeMap<&'static str, String> {
    let (mut number, mut tokens) = (0, 0);
    let mut amounts = AMOUNTS.map(|_| Decimal::ZERO);
    for request in requests {
        number += 1;
        tokens += request["model_usage"]["total_tokens"].as_u64().unwrap();
        for (sum, (_, path)) in amounts.iter_mut().zip(AMOUNTS) {
            *sum += request.pointer(path).unwrap().as_str().unwrap().parse::<Decimal>().unwrap();
        }
    }
    let mut counters: BTreeMap<_, _> =
        AMOUNTS.iter().zip(amounts).map(|((name, _), sum)| (*name, format!("{sum:.10}"))).collect();
    counters.insert("total_requests", number.to_string());
    counters.insert("total_usage_tokens", tokens.to_string());
    counters
}

fn created_at(request: &Value) -> DateTime<Utc> {
    request["created_at"].as_str().unwrap().parse().unwrap()
}

/// All requests of the merchant that match a filter.
async fn requests(merchant: &Merchant, filter: &str) -> Vec<Value> {
    let mut requests = Vec::new();
    let mut path = format!("/v1/requests?limit=100{filter}");
    loop {
        let page = merchant.get(&path).await.expect(200);
        requests.extend(page["data"].as_array().unwrap().iter().cloned());
        let Some(cursor) = page["next_cursor"].as_str() else { return requests };
        path = format!("/v1/requests?limit=100{filter}&cursor={cursor}");
    }
}

async fn usage(merchant: &Merchant, start: DateTime<FixedOffset>, end: DateTime<Utc>, filter: &str) -> Value {
    let (start, end) = (encoded(&start.to_rfc3339()), encoded(&end.to_rfc3339()));
    merchant.get(&format!("/v1/usage?start={start}&end={end}{filter}")).await.expect(200)
}

/// Asserts that the report from `start` to `end` equals the list of requests, by day and in total.
pub(crate) async fn check(
    merchant: &Merchant,
    start: DateTime<FixedOffset>,
    end: DateTime<Utc>,
    filter: &str,
) {
    let report = usage(merchant, start, end, filter).await;
    let listed = requests(merchant, filter).await;
    let within = |request: &&Value| (start.to_utc()..end).contains(&created_at(request));
    let listed: Vec<_> = listed.iter().filter(within).collect();
    let date_of = |at: DateTime<Utc>| at.with_timezone(start.offset()).date_naive();

    let items = report["items"].as_array().unwrap();
    let mut date = start.date_naive();
    let last = date_of(end - TimeDelta::milliseconds(1));
    assert_eq!(i64::try_from(items.len()).unwrap(), (last - date).num_days() + 1, "every day is listed");
    for item in items {
        assert_eq!(item["date"].as_str().unwrap().parse::<NaiveDate>().unwrap(), date);
        let of_day = listed.iter().filter(|request| date_of(created_at(request)) == date);
        assert_same(item, &counted(of_day.copied()), &format!("{start} to {end}{filter} on {date}"));
        date = date + Days::new(1);
    }
    let totals = counted(listed.iter().copied());
    assert_same(&report["totals"], &totals, &format!("{start} to {end}{filter} in all"));
}

fn assert_same(shown: &Value, counters: &BTreeMap<&'static str, String>, of: &str) {
    for (name, wanted) in counters {
        let text = shown[*name].as_str().map_or_else(|| shown[*name].to_string(), str::to_owned);
        assert_eq!(&text, wanted, "{name} of {of}: {shown}");
    }
}

/// The server's own time zone has summer time from midnight of 1 March 2026 on. Sessions that are open end.
const SUMMER_TIME: &str = "\
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'AAA0BBB,M3.1.0/0,M11.1.0/0'); END $$;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

/// Sums of two days that need more than the 28 digits of a decimal, as many calls with large fees that nobody pays make them.
const LARGE_SUMS: &str = "
    INSERT INTO usage.quarters
        (partition, merchant_id, customer_id, meter_id, starts_at, requests, tokens, model_cost, fee_amount,
         service_charge_amount, total_request_cost, total_wallet_cost, total_merchant_cost)
    VALUES
        ($1::smallint, $2::text, '', '', '2026-03-01T10:00:00Z', 9000001, 7, 0, 9000000000000000000.0000000001, 0, 0, 0, 0),
        ($1::smallint, $2::text, '', '', '2026-03-02T23:45:00Z', 10000000, 8, 0, 9999999999999999999.9999999998, 0, 0, 0, 0)";

/// Appends facts of the past unchanged.
struct Past(Vec<Fact>);

impl Command for Past {
    type Outcome = ();

    fn decide(&self, _: &StateCache) -> Result<Decision<()>, DecideError> {
        Ok(Decision { facts: self.0.clone(), personal: None, outcome: () })
    }
}

/// A synthetic call of the past: opened, and metered a little later or never.
fn past_call(
    merchant: &Merchant,
    mint: &Mint,
    at: DateTime<Utc>,
    number: u64,
    of: (Option<&Customer>, Option<&Meter>),
) -> Vec<Fact> {
    let id = RequestId::new(mint.next(at));
    let wallet = of.0.map(|_| &merchant.wallet_id);
    let parties = json!({
        "customer_id": of.0.map(|customer| &customer.id), "wallet_id": wallet,
        "merchant_wallet_id": merchant.wallet_id,
    });
    let hold = json!({"wallet": "0.0000000000", "merchant": "0.0000000000"});
    let tiers = json!([{"start": "0", "rate": "5.0000000000"}]);
    let terms = of.1.map(|meter| {
        let price = json!({"rate_type": "fixed", "tier_type": "tokens_1m", "tiers": tiers, "token_basis": "input+output",
                           "base_cost_payer": "wallet", "service_charge_payer": "wallet"});
        json!({"meter_id": meter.id, "price": price, "service_charge_rate": "0.019"})
    });
    let opened = json!({
        "request_id": id, "gateway_id": GatewayId::new(mint.next(at)), "charge": "customer_billing",
        "parties": parties, "provider": "other", "provider_key_type": "unmanaged",
        "endpoint": "POST http://provider.example/", "model": null, "terms": terms, "period_start": null,
        "hold": hold, "metadata": {"all": "yes", "parity": (number % 2).to_string()},
    });
    let amount = |of: u64| format!("{:.10}", Decimal::from_i128_with_scale((number * of + of).into(), 10));
    let metered = json!({
        "request_id": id, "parties": parties, "meter_id": of.1.map(|meter| &meter.id), "period_start": null,
        "opened_at": at, "hold": hold, "http_status": 200, "tier_position": "0", "units": "0",
        "usage": {"tokens": {"input": number, "output": number * 3}, "characters": {"input": 0, "output": 0},
                  "seconds": {"input": "0", "output": "0"}},
        "model_cost": {"input": amount(0), "output": amount(7_000_000_001), "total": amount(7_000_000_001)},
        "fee": {"amount": amount(13), "breakdown": []},
        "service_charge": {"amount": amount(3), "payer": "wallet"},
        "total_request_cost": amount(16), "total_wallet_cost": amount(9), "total_merchant_cost": amount(7),
        "overrun": "0.0000000000", "marks": [], "response_id": null, "model": null, "provider_timestamp": null,
    });
    let later = at + TimeDelta::minutes(40);
    let merchant_id = merchant.id.parse().unwrap();
    let fact = |kind: &str, body: &Value, occurred_at| Fact {
        merchant_id,
        occurred_at,
        event: codec::decode(kind, 1, &body.to_string()).unwrap(),
    };
    let mut facts = vec![fact("request.opened", &opened, at)];
    if !number.is_multiple_of(7) {
        facts.push(fact("request.metered", &metered, later));
    }
    facts
}

#[test]
fn every_day_of_a_report_is_the_sum_of_its_requests_in_any_utc_offset() {
    run(async {
        // A separate instance, because these facts do not come from decisions.
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        let (ada, bob) = (merchant.customer("0").await, merchant.customer_called("bob", "0").await);
        let (words, calls) = (merchant.call_meter("1").await, merchant.call_meter("2").await);
        let (stop, tasks, mint) = (CancellationToken::new(), TaskTracker::new(), Mint::default());
        let partition = merchant.log.partition_of(&merchant.id).await;
        let lease = leader::take_lease(&merchant.log.sql, partition).await;
        let config = leader::appender(&instance.ready().database_url, partition);
        let appender = Appender::start(config, lease.subscribe(), &stop, &tasks);
        let first: DateTime<Utc> = "2026-02-27T21:03:00Z".parse().unwrap();
        for number in 0..160_u64 {
            // Uneven steps of half an hour and more, some exactly to the start of a day in some UTC offset.
            let later = TimeDelta::minutes(i64::try_from(number * 37).unwrap());
            let at = if number.is_multiple_of(10) {
                let midnight: DateTime<Utc> = "2026-02-28T18:15:00Z".parse().unwrap();
                midnight + TimeDelta::hours(i64::try_from(number % 60 / 10 * 24).unwrap())
            } else {
                first + later + TimeDelta::milliseconds(i64::try_from(number).unwrap())
            };
            let customer = [None, Some(&ada), Some(&bob)][usize::try_from(number % 3).unwrap()];
            let meter =
                [None, Some(&words), Some(&calls), Some(&words)][usize::try_from(number % 4).unwrap()];
            appender
                .submit(None, Past(past_call(&merchant, &mint, at, number, (customer, meter))))
                .await
                .unwrap();
        }
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        leader::give_back(&merchant.log.sql, partition).await;
        merchant.log.sql.batch_execute(SUMMER_TIME).await.unwrap();
        eventually("reads go over new sessions", async || {
            (merchant.get("/v1/customers").await.status == 200).then_some(())
        })
        .await;

        let end: DateTime<Utc> = "2026-03-05T12:00:00Z".parse().unwrap();
        for offset in ["Z", "+05:45", "-11:00", "+14:00", "+05:37", "-00:01"] {
            let start = |text: &str| DateTime::parse_from_rfc3339(&format!("{text}{offset}")).unwrap();
            check(&merchant, start("2026-02-27T00:00:00"), end, "").await;
            check(&merchant, start("2026-03-01T10:07:33.333"), end - TimeDelta::minutes(61), "").await;
        }
        let kathmandu = DateTime::parse_from_rfc3339("2026-02-27T00:00:00+05:45").unwrap();
        for filter in [
            format!("&customer_id={}", ada.id),
            format!("&connection_id={}", bob.id),
            "&customer_id=bob".to_owned(),
            format!("&meter_id={}", words.id),
            format!("&product_id={}&customer_id={}", calls.id, ada.id),
            format!("&metadata_filters={}", encoded(r#"[["parity","1"]]"#)),
            format!("&customer_id=bob&metadata_filters={}", encoded(r#"[["parity","0"],["all","yes"]]"#)),
        ] {
            check(&merchant, kathmandu, end, &filter).await;
        }
        // Every request has this metadata pair, so the sums of single requests must equal the sums of quarter hours.
        let all = format!("&metadata_filters={}", encoded(r#"[["all","yes"]]"#));
        assert_eq!(usage(&merchant, kathmandu, end, &all).await, usage(&merchant, kathmandu, end, "").await);

        // A window that begins and ends at the exact time of requests includes the first and excludes the last.
        let mut instants: Vec<_> = requests(&merchant, "").await.iter().map(created_at).collect();
        instants.sort_unstable();
        let (from, to) = (instants[20], instants[90]);
        let count = instants.iter().filter(|at| (from..to).contains(at)).count();
        let report = usage(&merchant, from.fixed_offset(), to, "").await;
        assert_eq!(report["totals"]["total_requests"], count);
        assert!((60..80).contains(&count));
        let report = instance.operate(&["projections", "verify", "usage"]).await;
        assert_eq!(report["differences"], 0, "{report}");
        instance.stop().await;
        instance.clear();
    });
}

#[test]
fn calls_are_in_the_report_as_soon_as_they_end() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m", "service_charge_payer": "wallet",
                "tiers": [{"start": 0, "rate": "5"}, {"start": 100, "rate": "2"}],
            }))
            .await;
        let good = merchant
            .instance
            .provider
            .endpoint(|_| json(200, &json!({"usage": {"input_tokens": 33, "output_tokens": 44}})));
        let bad = merchant.instance.provider.endpoint(|_| json(500, &json!({})));
        let start = Utc::now() - TimeDelta::hours(1);
        for number in 0..9 {
            let url = if number % 4 == 3 { &bad.url } else { &good.url };
            let request = forward("POST", url)
                .header("x-service-metadata", json!({"n": (number % 2).to_string()}).to_string())
                .json(&json!({"max_tokens": 100}));
            merchant.send(&merchant.billing(&customer, &meter), request).await;
            let report = usage(&merchant, start.fixed_offset(), start + TimeDelta::hours(2), "").await;
            assert_eq!(report["totals"]["total_requests"], number + 1);
        }
        // Without an end the report covers the current day.
        let path = format!("/v1/usage?start={}", encoded(&start.to_rfc3339()));
        let report = merchant.get(&path).await.expect(200);
        assert_eq!(report["totals"]["total_usage_tokens"], 7 * 77);
        let listed = requests(&merchant, "").await;
        assert_same(&report["totals"], &counted(listed.iter()), "all");
        for filter in ["", "&customer_id=", "&meter_id=", "&metadata_filters="] {
            let value = match filter {
                "&customer_id=" => customer.id.clone(),
                "&meter_id=" => meter.id.clone(),
                "&metadata_filters=" => encoded(r#"[["n","1"]]"#),
                _ => String::new(),
            };
            let filter = format!("{filter}{value}");
            check(&merchant, start.fixed_offset(), start + TimeDelta::hours(2), &filter).await;
        }
        let other = Merchant::new().await;
        for filter in ["", &format!("&customer_id={}", customer.id), "&customer_id=nobody"] {
            let report = usage(&other, start.fixed_offset(), start + TimeDelta::hours(2), filter).await;
            assert_same(&report["totals"], &counted(std::iter::empty()), filter);
        }
    });
}

#[test]
fn an_invalid_report_request_is_refused_with_its_issues() {
    run(async {
        let merchant = Merchant::new().await;
        let start = "start=2026-11-01T00:00:00Z";
        for (query, path) in [
            (String::new(), "start"),
            ("start=yesterday".to_owned(), "start"),
            ("start=2026-11-01".to_owned(), "start"),
            ("start=%00".to_owned(), "start"),
            (format!("{start}&{start}"), "start"),
            (format!("{start}&end=x"), "end"),
            (format!("{start}&end=2026-11-01T00:00:00Z"), "end"),
            (format!("{start}&end=2028-11-01T00:00:00Z"), "end"),
            (format!("{start}&customer_id=con_x"), "customer_id"),
            (format!("{start}&meter_id=prd_x"), "meter_id"),
            (format!("{start}&metadata_filters=x"), "metadata_filters"),
        ] {
            let error = merchant.get(&format!("/v1/usage?{query}")).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([path]), "{query}: {error}");
        }
        let path = format!("/v1/usage?{start}");
        let bare = Request::new("GET", path.clone());
        bare.send(merchant.gateway()).await.unwrap().refused(401, "auth_header_missing");
        merchant.rest(Request::new("POST", path)).await.refused(405, "method_not_allowed");
        // An unencoded plus is a space by the rules of queries, but is accepted as a plus.
        let report = merchant
            .get("/v1/usage?start=2026-11-01T00:00:00+05:45&end=2026-11-02T00:00:00+05:45")
            .await
            .expect(200);
        assert_eq!(report["start"], "2026-11-01T00:00:00.000+05:45");
        assert_eq!(report["items"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn sums_beyond_28_digits_are_exact() {
    run(async {
        let instance = Instance::shared().await;
        let scratch = Scratch::filled(instance, "large_sums", 0).await;
        let partition = scratch.partition().await;
        scratch.sql.execute(LARGE_SUMS, &[&partition, &scratch.merchant_id]).await.unwrap();
        let gateway = SideGateway::on(instance, &scratch.database_url, &[]).await;
        let path = "/v1/usage?start=2026-03-01T00:00:00Z&end=2026-03-03T00:00:00Z";
        let request = Request::new("GET", path).bearer(&scratch.secret_key);
        let report = request.send(gateway.address).await.unwrap().expect(200);
        let (days, totals) = (&report["items"], &report["totals"]);
        for name in ["total_charge", "total_fee_amount"] {
            assert_eq!(days[0][name], "9000000000000000000.0000000001");
            assert_eq!(days[1][name], "9999999999999999999.9999999998");
            assert_eq!(totals[name], "18999999999999999999.9999999999");
        }
        let [requests, tokens] = ["total_requests", "total_usage_tokens"].map(|name| totals[name].as_u64());
        assert_eq!((requests, tokens), (Some(19_000_001), Some(15)));
    });
}
