//! Spend keys at the forward endpoint: every limit exact, at any concurrency and on any gateway (completion.md
//! section 6).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use chrono::{DateTime, Duration, SecondsFormat, Utc};
use farthing_tests::client::{Body, Request, Response};
use farthing_tests::merchant::{Merchant, deleted, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, json};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// A spend key of a test.
struct Key {
    id: String,
    raw: String,
}

async fn key(merchant: &Merchant, settings: Value) -> Key {
    let mut body = json!({"name": "a test's"});
    body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    Key { id: text("spend_key_id"), raw: text("key") }
}

async fn put(merchant: &Merchant, key: &Key, body: &Value) -> Value {
    let request = Request::new("PUT", format!("/v1/manage/spend_keys/{}", key.id)).json(body);
    merchant.rest(request).await.expect(200)
}

async fn shown(merchant: &Merchant, key: &Key) -> Value {
    merchant.get(&format!("/v1/manage/spend_keys/{}", key.id)).await.expect(200)
}

fn both_gateways(merchant: &Merchant) -> [SocketAddr; 2] {
    let gateways = [merchant.instance.gateway(0), merchant.instance.gateway(1)];
    assert_ne!(gateways[0], gateways[1]);
    gateways
}

/// Makes `count` concurrent calls over both gateways.
async fn at_once(gateways: [SocketAddr; 2], request: &Request, count: usize) -> Vec<Response> {
    let calls: Vec<_> = (0..count)
        .map(|number| {
            let request = request.clone();
            tokio::spawn(async move { request.send(gateways[number % 2]).await.unwrap() })
        })
        .collect();
    let mut answers = Vec::with_capacity(count);
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

fn free(merchant: &Merchant) -> Endpoint {
    merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})))
}

fn retry_after_seconds(response: &Response) -> u64 {
    response.head.header("retry-after").expect("Retry-After").parse().unwrap()
}

/// The admission times of the calls with the merchant's keys, by the log.
async fn admissions(merchant: &Merchant) -> Vec<DateTime<Utc>> {
    let opened = merchant.events().await.into_iter().filter(|event| event.kind == "request.opened");
    opened.map(|event| event.body["spend_key"]["admitted_at"].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn every_cycle_of_a_limit_is_shown_as_it_was_given() {
    run(async {
        let merchant = Merchant::new().await;
        for cycle in ["daily", "weekly", "monthly", "total"] {
            let limits = json!({
                "spend_limit": {"amount": "5.0000000000", "cycle": cycle}, "request_limit": {"count": 7, "cycle": cycle},
                "rate_limit": {"rpm": 60, "burst": 10},
            });
            let key = key(&merchant, limits.clone()).await;
            let shown = shown(&merchant, &key).await;
            for (name, limit) in limits.as_object().unwrap() {
                assert_eq!(&shown[name], limit, "{cycle}");
            }
            assert_eq!(shown.get("key"), None, "{shown}");
        }
    });
}

#[test]
fn a_number_whose_value_is_an_integer_is_that_integer() {
    run(async {
        let merchant = Merchant::new().await;
        let send = async |limits: &str| {
            let body = format!(r#"{{"name": "a test's", {limits}}}"#).into_bytes();
            let request = Request::new("POST", "/v1/spend_keys").header("Content-Type", "application/json");
            merchant.rest(request.body(Body::Whole(body))).await
        };
        let limits = r#""spend_limit": {"amount": 2.5e1, "cycle": "daily"}, "request_limit": {"count": 1e3, "cycle": "total"},
            "rate_limit": {"rpm": 60.0, "burst": 100e-1}"#;
        let made = send(limits).await.expect(201);
        assert_eq!(made["spend_limit"], json!({"amount": "25.0000000000", "cycle": "daily"}));
        assert_eq!(made["request_limit"], json!({"count": 1000, "cycle": "total"}));
        assert_eq!(made["rate_limit"], json!({"rpm": 60, "burst": 10}));
        for (limits, path) in [
            (r#""rate_limit": {"rpm": 60.5}"#, json!(["rate_limit", "rpm"])),
            (r#""rate_limit": {"rpm": 1e999999999999999999999}"#, json!(["rate_limit", "rpm"])),
            (r#""request_limit": {"count": 5e-1, "cycle": "total"}"#, json!(["request_limit", "count"])),
            (r#""spend_limit": {"amount": 1e400, "cycle": "daily"}"#, json!(["spend_limit", "amount"])),
        ] {
            let error = send(limits).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], path, "{limits}");
        }
    });
}

#[test]
fn a_request_limit_of_100_admits_exactly_100_of_1000_concurrent_calls_on_two_gateways() {
    run(async {
        let merchant = Merchant::new().await;
        let key = key(&merchant, json!({"request_limit": {"count": 100, "cycle": "total"}})).await;
        let endpoint = free(&merchant);
        let answers =
            at_once(both_gateways(&merchant), &forward("GET", &endpoint.url).bearer(&key.raw), 1_000).await;
        let (answered, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|response| response.status == 200);
        for response in &answered {
            response.expect(200);
        }
        for response in &refused {
            response.refused(429, "request_limit_exceeded");
            assert_eq!(retry_after_seconds(response), 86_400, "a total limit never resets");
        }
        assert_eq!((answered.len(), refused.len()), (100, 900));
        assert_eq!(endpoint.calls().len(), 100, "only admitted calls reach the provider");
        assert_eq!(admissions(&merchant).await.len(), 100, "a refused call is not a request");
        let shown = shown(&merchant, &key).await;
        assert_eq!((&shown["current_requests"], &shown["total_requests"]), (&json!(100), &json!(100)));
    });
}

#[test]
fn no_time_span_has_more_calls_than_the_bucket_allows_on_two_gateways() {
    run(async {
        let merchant = Merchant::new().await;
        let key = key(&merchant, json!({"rate_limit": {"rpm": 100, "burst": 10}})).await;
        let endpoint = free(&merchant);
        let answers =
            at_once(both_gateways(&merchant), &forward("GET", &endpoint.url).bearer(&key.raw), 1_022).await;
        let admitted = answers.iter().filter(|response| response.status == 200).count();
        for response in answers.iter().filter(|response| response.status != 200) {
            response.refused(429, "rate_limit_exceeded");
            assert_eq!(retry_after_seconds(response), 1, "the next token is at most 600 ms away");
        }
        let instants = admissions(&merchant).await;
        assert_eq!(instants.len(), admitted);
        assert!(admitted >= 10, "the burst is admitted: {admitted}");
        assert!(instants.is_sorted(), "the key's clock never runs backwards");
        for (first, from) in instants.iter().enumerate() {
            for (last, to) in instants.iter().enumerate().skip(first) {
                let ms = (*to - *from).num_milliseconds();
                let calls = i64::try_from(last - first + 1).unwrap();
                assert!(calls * 60_000 <= 10 * 60_000 + 100 * ms, "{calls} calls in {ms} ms");
            }
        }
        // The bucket refills by one token every 600 ms.
        eventually("a token comes back", async || {
            let request = forward("GET", &endpoint.url).bearer(&key.raw);
            (request.send(merchant.gateway()).await.unwrap().status == 200).then_some(())
        })
        .await;
    });
}

#[test]
fn a_rotated_key_is_refused_everywhere_after_the_response_and_its_calls_in_flight_settle() {
    run(async {
        let merchant = Merchant::new().await;
        let key = key(&merchant, json!({})).await;
        let gate = Gate::default();
        let held = gate.clone();
        let slow = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({"usage": {"tokens": 5}})));
            steps
        });
        let in_flight: Vec<_> = both_gateways(&merchant)
            .into_iter()
            .map(|gateway| {
                let request = forward("GET", &slow.url).bearer(&key.raw);
                tokio::spawn(async move { request.send(gateway).await.unwrap() })
            })
            .collect();
        eventually("both calls are in flight", async || (slow.calls().len() == 2).then_some(())).await;

        let rotate = Request::new("POST", format!("/v1/spend_keys/{}/rotate", key.id));
        let rotated = merchant.rest(rotate).await.expect(200);
        let endpoint = free(&merchant);
        for gateway in both_gateways(&merchant).into_iter().rev() {
            let old = forward("GET", &endpoint.url).bearer(&key.raw).send(gateway).await.unwrap();
            old.refused(401, "spend_key_invalid");
            let new = forward("GET", &endpoint.url).bearer(rotated["key"].as_str().unwrap());
            new.send(gateway).await.unwrap().expect(200);
        }
        gate.open();
        for call in in_flight {
            let response = call.await.unwrap();
            response.expect(200);
            assert_eq!(merchant.charged(&response).await["usage"]["tokens"]["input"], 5);
        }
        let shown = shown(&merchant, &key).await;
        assert_eq!(shown["total_requests"], 4, "settings, counters and history are kept");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_paused_key_is_refused_on_every_gateway_until_it_is_active_again() {
    run(async {
        let merchant = Merchant::new().await;
        let key = key(&merchant, json!({})).await;
        let endpoint = free(&merchant);
        let call =
            async |gateway| forward("GET", &endpoint.url).bearer(&key.raw).send(gateway).await.unwrap();
        for gateway in both_gateways(&merchant) {
            call(gateway).await.expect(200);
        }
        assert_eq!(put(&merchant, &key, &json!({"status": "paused"})).await["status"], "paused");
        for gateway in both_gateways(&merchant).into_iter().rev() {
            call(gateway).await.refused(403, "spend_key_paused");
        }
        assert_eq!(put(&merchant, &key, &json!({"status": "active"})).await["status"], "active");
        for gateway in both_gateways(&merchant).into_iter().rev() {
            call(gateway).await.expect(200);
        }
        assert_eq!(endpoint.calls().len(), 4);
    });
}

#[test]
fn a_key_that_is_created_paused_is_refused_until_it_is_active() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({"name": "k", "status": "paused", "rate_limit": {"rpm": 60, "burst": 10}});
        let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
        assert_eq!(made["status"], "paused", "{made}");
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let key = Key { id: text("spend_key_id"), raw: text("key") };
        let listed = merchant.get("/v1/spend_keys").await.expect(200);
        for shown in [shown(&merchant, &key).await, listed["data"][0].clone()] {
            assert_eq!((&shown["spend_key_id"], &shown["status"]), (&json!(key.id), &json!("paused")));
            assert_eq!(shown["rate_limit"], body["rate_limit"], "{shown}");
        }
        let endpoint = free(&merchant);
        let call =
            async |gateway| forward("GET", &endpoint.url).bearer(&key.raw).send(gateway).await.unwrap();
        for gateway in both_gateways(&merchant) {
            call(gateway).await.refused(403, "spend_key_paused");
        }
        assert_eq!(put(&merchant, &key, &json!({"status": "active"})).await["status"], "active");
        for gateway in both_gateways(&merchant) {
            call(gateway).await.expect(200);
        }
        assert_eq!(endpoint.calls().len(), 2);
        let active = json!({"name": "k", "status": "active"});
        assert_eq!(merchant.post("/v1/spend_keys", &active).await.expect(201)["status"], "active");
        for status in [json!("bogus"), json!("Paused"), json!(null), json!(7)] {
            let body = json!({"name": "k", "status": status});
            let error = merchant.post("/v1/spend_keys", &body).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["status"]), "{body}: {error}");
        }
        let listed = merchant.get("/v1/spend_keys").await.expect(200);
        assert_eq!(listed["data"].as_array().unwrap().len(), 2, "{listed}");
    });
}

#[test]
fn a_key_expires_at_its_exact_time() {
    run(async {
        let merchant = Merchant::new().await;
        let mut ahead = Duration::zero();
        // The clock is advanced to three seconds before the expiry; the rest is waited for.
        let put_forward = async |seconds: i64| {
            let answer =
                merchant.post("/v1/test_clock", &json!({"advance_seconds": seconds})).await.expect(200);
            answer["now"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap()
        };
        let now = put_forward(1).await;
        ahead += Duration::seconds(1);
        let expires_at = now + Duration::hours(1);
        let shown = expires_at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let key = key(&merchant, json!({"expires_at": shown})).await;
        put_forward(3_597).await;
        ahead += Duration::seconds(3_597);
        let endpoint = free(&merchant);
        let mut last_asked = None;
        let refused = eventually("the key expires", async || {
            let row = merchant.log.sql.query_one("SELECT clock_timestamp()", &[]).await.unwrap();
            let asked = row.get::<_, DateTime<Utc>>(0) + ahead;
            let response = merchant.fetch(&key.raw, &endpoint.url).await;
            if response.status == 200 {
                last_asked = Some(asked);
                return None;
            }
            Some(response)
        })
        .await;
        refused.refused(401, "spend_key_expired");
        assert!(last_asked.is_none_or(|asked| asked < expires_at), "admitted at {last_asked:?}");
        assert!(admissions(&merchant).await.iter().all(|admitted| *admitted < expires_at));
        let row = merchant.log.sql.query_one("SELECT clock_timestamp()", &[]).await.unwrap();
        assert!(row.get::<_, DateTime<Utc>>(0) + ahead >= expires_at, "refused before its expiry");
        // Without its expiry it works again.
        assert_eq!(put(&merchant, &key, &json!({"expires_at": null})).await["expires_at"], Value::Null);
        merchant.fetch(&key.raw, &endpoint.url).await.expect(200);
    });
}

#[test]
fn only_listed_models_and_providers_are_allowed_and_an_empty_list_allows_none() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let key = key(&merchant, json!({})).await;
        let answer = |_: &_| json(200, &json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1}}));
        let (other, openai) =
            (merchant.instance.provider.endpoint(answer), merchant.instance.openai.endpoint(answer));
        let ask = async |url: &str, body: &Value| {
            let credential =
                farthing_tests::merchant::token(&json!({"spend_key": key.raw, "provider_key": "theirs"}));
            merchant.send(&credential, forward("POST", url).json(body)).await
        };
        let (cheap, dear) = (json!({"model": "cheap"}), json!({"model": "dear"}));
        put(&merchant, &key, &json!({"allowed_models": ["cheap"]})).await;
        ask(&other.url, &cheap).await.expect(200);
        for body in [&dear, &json!({"model": "CHEAP"}), &json!({"model": null}), &json!({}), &json!([])] {
            ask(&other.url, body).await.refused(403, "model_not_allowed");
        }
        let unnamed = merchant.fetch(&key.raw, &other.url).await;
        unnamed.refused(403, "model_not_allowed");
        let hidden = forward("POST", &other.url)
            .header("Content-Type", "text/plain")
            .body(Body::Whole(dear.to_string().into_bytes()));
        merchant.send(&key.raw, hidden).await.refused(403, "model_not_allowed");

        put(&merchant, &key, &json!({"allowed_models": null, "allowed_providers": ["openai"]})).await;
        ask(&openai.url, &dear).await.expect(200);
        ask(&other.url, &dear).await.refused(403, "provider_not_allowed");
        put(&merchant, &key, &json!({"allowed_models": [], "allowed_providers": null})).await;
        ask(&other.url, &cheap).await.refused(403, "model_not_allowed");
        put(&merchant, &key, &json!({"allowed_models": null, "allowed_providers": []})).await;
        ask(&other.url, &cheap).await.refused(403, "provider_not_allowed");

        assert_eq!((other.calls().len(), openai.calls().len()), (1, 1), "refused calls reach no provider");
        assert_eq!(admissions(&merchant).await.len(), 2, "and are not requests");
        assert_eq!(shown(&merchant, &key).await["total_requests"], 2);
    });
}

#[test]
fn a_deleted_key_is_refused_at_once_on_every_gateway_and_its_calls_in_flight_settle() {
    run(async {
        let merchant = Merchant::new().await;
        let key = key(&merchant, json!({"request_limit": {"count": 9, "cycle": "daily"}})).await;
        let gate = Gate::default();
        let held = gate.clone();
        let slow = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({"usage": {"tokens": 5}})));
            steps
        });
        let request = forward("GET", &slow.url).bearer(&key.raw);
        let gateway = merchant.gateway();
        let in_flight = tokio::spawn(async move { request.send(gateway).await.unwrap() });
        eventually("the call is in flight", async || (slow.calls().len() == 1).then_some(())).await;
        let path = format!("/v1/spend_keys/{}", key.id);
        let gone = merchant.rest(Request::new("DELETE", path.as_str())).await.expect(200);
        assert_eq!(gone, deleted(&key.id));
        for gateway in both_gateways(&merchant).into_iter().rev() {
            let dead = forward("GET", &slow.url).bearer(&key.raw).send(gateway).await.unwrap();
            dead.refused(401, "spend_key_invalid");
        }
        gate.open();
        let response = in_flight.await.unwrap();
        response.expect(200);
        assert_eq!(merchant.charged(&response).await["spend_key"]["spend_key_id"], key.id.as_str());
        merchant.get(&path).await.refused(404, "spend_key_not_found");
        merchant.nothing_is_held().await;
        let kept = merchant.log.states("spending").await;
        assert!(!kept.iter().any(|(id, _)| *id == key.id), "the counters of a deleted key were not removed");
    });
}

#[test]
fn a_keys_counters_are_the_sum_of_its_requests_and_failed_calls_count_without_cost() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let key = key(
            &merchant,
            json!({"spend_limit": {"amount": "90", "cycle": "monthly"}, "request_limit": {"count": 90, "cycle": "daily"}}),
        )
        .await;
        assert_eq!(shown(&merchant, &key).await["last_used_at"], Value::Null);
        let good = free(&merchant);
        let bad = merchant.instance.provider.endpoint(|_| json(500, &json!({"error": "theirs"})));
        for _ in 0..3 {
            merchant.fetch(&key.raw, &good.url).await.expect(200);
        }
        let failed = merchant.fetch(&key.raw, &bad.url).await;
        assert_eq!(failed.status, 500);
        merchant.failed(&failed).await;
        merchant.nothing_is_held().await;

        let events = merchant.events().await;
        let of_key: BTreeMap<_, _> = events
            .iter()
            .filter(|event| event.body["spend_key"]["spend_key_id"] == key.id.as_str())
            .map(|event| (event.key.clone(), event))
            .collect();
        let opened = of_key.values().filter(|event| event.kind == "request.opened");
        let last = opened.clone().map(|event| event.body["spend_key"]["admitted_at"].clone()).next_back();
        let spent: rust_decimal::Decimal = of_key
            .values()
            .filter(|event| event.kind == "request.metered")
            .map(|event| farthing_tests::books::decimal(&event.body["total_request_cost"]))
            .sum();
        let shown = shown(&merchant, &key).await;
        assert_eq!(opened.count(), 4);
        assert_eq!((&shown["current_requests"], &shown["total_requests"]), (&json!(4), &json!(4)));
        for name in ["current_spend", "total_spend"] {
            assert_eq!(shown[name], format!("{spent:.10}"), "{name}");
        }
        let last: DateTime<Utc> = last.unwrap().as_str().unwrap().parse().unwrap();
        let used: DateTime<Utc> = shown["last_used_at"].as_str().unwrap().parse().unwrap();
        assert_eq!(used, last);
    });
}

#[test]
fn a_spend_limit_of_a_dollar_admits_exactly_100_of_1000_concurrent_calls_at_a_cent_on_two_gateways() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let openai = &merchant.instance.openai;
        let prices = merchant.instance.file("a-cent-a-call.json");
        let entry = json!({"provider": "openai", "model": "a-cent", "per_request": "0.01"});
        let catalogue =
            json!({"source": "a test", "licence": "none", "taken": "2026-11-20", "models": [entry]});
        std::fs::write(&prices, catalogue.to_string()).unwrap();
        let flags = [
            format!("--prices={}", prices.display()),
            format!("--provider-host=openai={}", openai.authority()),
            merchant.instance.provider_key("openai", "sk-managed"),
            "--allow-address=127.0.0.0/8".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let gateways = [
            SideGateway::start(merchant.instance, &flags).await,
            SideGateway::start(merchant.instance, &flags).await,
        ];
        let limits = json!({"spend_limit": {"amount": "1.00", "cycle": "total"}});
        let key = key(&merchant, limits).await;
        let endpoint = openai.endpoint(|_| {
            json(200, &json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}))
        });
        let request = forward("POST", &endpoint.url).bearer(&key.raw).json(&json!({"model": "a-cent"}));
        let answers = at_once(gateways.each_ref().map(|gateway| gateway.address), &request, 1_000).await;
        let (answered, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|response| response.status == 200);
        for response in &answered {
            response.expect(200);
            let metered = merchant.charged(response).await;
            assert_eq!(metered["total_request_cost"], "0.0100000000", "{metered}");
        }
        for response in &refused {
            response.refused(402, "spend_limit_exceeded");
        }
        assert_eq!((answered.len(), refused.len()), (100, 900));
        assert_eq!(endpoint.calls().len(), 100, "only admitted calls reach the provider");
        assert_eq!(admissions(&merchant).await.len(), 100, "a refused call is not a request");
        merchant.nothing_is_held().await;
        assert_eq!(merchant.own_balance().await, "9.0000000000");
        let shown = shown(&merchant, &key).await;
        for (name, value) in [
            ("current_spend", json!("1.0000000000")),
            ("total_spend", json!("1.0000000000")),
            ("current_requests", json!(100)),
            ("total_requests", json!(100)),
        ] {
            assert_eq!(shown[name], value, "{name}");
        }
        // No further call is admitted on either gateway.
        for gateway in &gateways {
            request.send(gateway.address).await.unwrap().refused(402, "spend_limit_exceeded");
        }
    });
}
