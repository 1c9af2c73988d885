//! In test mode the merchant's clock decides when windows end: the usage period, the day of a report, the expiry of a spend
//! key. (Spend key cycles have tests of their own.)

use chrono::{DateTime, Duration, Months, SecondsFormat, Utc};
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use serde_json::{Value, json};

const DAY: i64 = 86_400;

async fn put_forward(merchant: &Merchant, seconds: i64) -> DateTime<Utc> {
    let answer = merchant.post("/v1/test_clock", &json!({"advance_seconds": seconds})).await.expect(200);
    instant(&answer["now"])
}

fn instant(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn a_connections_usage_period_contains_the_merchants_now() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let path = format!("/v1/connections/{}", customer.id);
        let created = instant(&merchant.get(&path).await.expect(200)["created_at"]);
        // 45 days later it is the second month, for any two months.
        put_forward(&merchant, 45 * DAY).await;
        let listed = merchant.get("/v1/connections").await.expect(200)["data"][0].clone();
        for shown in [merchant.get(&path).await.expect(200), listed] {
            assert_eq!(instant(&shown["previous_usage_reset"]), created + Months::new(1));
            assert_eq!(instant(&shown["next_usage_reset"]), created + Months::new(2));
        }
    });
}

#[test]
fn a_report_without_an_end_ends_with_the_merchants_day() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint =
            merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 7}})));
        let now = put_forward(&merchant, 40 * DAY).await;
        let called = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
        called.expect(200);
        merchant.shown(&called.request_id(), "completed").await;
        let start = (now - Duration::days(1)).to_rfc3339_opts(SecondsFormat::Millis, true);
        let usage = merchant.get(&format!("/v1/usage?start={start}")).await.expect(200);
        let end = instant(&usage["end"]);
        assert!(end > now && end - now <= Duration::days(2), "{usage}");
        assert_eq!(
            (end.timestamp() % DAY, usage["totals"]["total_requests"].clone()),
            (0, json!(1)),
            "{usage}"
        );
    });
}

#[test]
fn a_key_expires_by_the_merchants_clock() {
    run(async {
        let merchant = Merchant::new().await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let now = put_forward(&merchant, 40 * DAY).await;
        let at = |instant: DateTime<Utc>| json!({"name": "k", "expires_at": instant.to_rfc3339_opts(SecondsFormat::Millis, true)});
        // The expiry is in the future for the machine and in the past for the merchant.
        let over = merchant.post("/v1/spend_keys", &at(now - Duration::days(1))).await;
        assert_eq!(over.refused(400, "validation_error")["issues"][0]["path"], json!(["expires_at"]));
        let key = merchant.post("/v1/spend_keys", &at(now + Duration::hours(1))).await.expect(201);
        let path = format!("/v1/spend_keys/{}", key["spend_key_id"].as_str().unwrap());
        let key = key["key"].as_str().unwrap();
        for _ in 0..2 {
            merchant.fetch(key, &endpoint.url).await.expect(200);
            let models = farthing_tests::client::Request::new("GET", "/v1/models").bearer(key);
            models.send(merchant.gateway()).await.unwrap().expect(200);
        }
        put_forward(&merchant, 3600).await;
        for gateway in [0, 1] {
            for request in [
                farthing_tests::client::Request::new("GET", "/v1/models"),
                farthing_tests::merchant::forward("GET", &endpoint.url),
            ] {
                let refused = request.bearer(key).send(merchant.instance.gateway(gateway)).await.unwrap();
                refused.refused(401, "spend_key_expired");
            }
        }
        let over = farthing_tests::client::Request::new("PUT", path.as_str()).json(&at(now));
        merchant.rest(over).await.refused(400, "validation_error");
        // Without its expiry it works again.
        let lifted =
            farthing_tests::client::Request::new("PUT", path.as_str()).json(&json!({"expires_at": null}));
        assert_eq!(merchant.rest(lifted).await.expect(200)["expires_at"], Value::Null);
        merchant.fetch(key, &endpoint.url).await.expect(200);
    });
}
