//! Hostile contents in events: no merchant's names stop the projector or the feed, or make a rebuild differ.

use farthing_tests::client::{Body, Connection, Request};
use farthing_tests::feed;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::tenant::Tenant;
use farthing_tests::wait::eventually;
use serde_json::json;

const READ_MODELS: [&str; 13] = [
    "customers",
    "connections",
    "meters",
    "spend_keys",
    "secret_keys",
    "checkout_sessions",
    "requests",
    "usage",
    "payment_methods",
    "plans",
    "subscriptions",
    "entries",
    "journal",
];

/// Hostile values, as JSON.
fn values() -> Vec<String> {
    let plain = [
        r#""a\u0000b""#,
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""__proto__""#,
        r#""\u202etxt""#,
        r#""\ufeff""#,
        r#""\u2028""#,
        r#""'; DROP TABLE ledger.batches;--""#,
        r#""{customers}""#,
        r#""\\N""#,
        r#""\\.""#,
        r#""a\tb\n""#,
        r#""\u007f\u0085""#,
        r#""\uffff""#,
        r#""e\u0301""#,
        r#""\u00e9""#,
        r#""\"due_ms\":1""#,
        r#""\"merchant_id\":\"mer_01ARZ3NDEKTSV4RRFFQ69G5FAV\"""#,
        r#""{\"a\":1}""#,
        r#""""#,
        "null",
        "true",
        "1e400",
        "-0",
        "1e-400",
        "123456789012345678901234567890",
        "0.1",
    ];
    let mut values: Vec<String> = plain.map(str::to_owned).into();
    values.push(format!("\"{}\"", "x".repeat(255)));
    values.push(format!("\"{}\"", "x".repeat(1_000_000)));
    values.push(format!("{}{}", "[".repeat(300), "]".repeat(300)));
    values.push(format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300)));
    values
}

/// Bodies with a hostile value in each place, by path. `#` is a number that is used once.
const BODIES: [(&str, &str); 21] = [
    ("/v1/customers", r#"{"reference_id":?}"#),
    ("/v1/customers", r#"{"reference_id":"r#","first_name":?}"#),
    ("/v1/customers", r#"{"reference_id":"r#","email":?}"#),
    ("/v1/customers", r#"{"reference_id":"r#","metadata":{"k":?}}"#),
    ("/v1/customers", r#"{"reference_id":"r#","metadata":{?:"v"}}"#),
    ("/v1/meters", r#"{"name":?,"tier_type":"requests","tiers":[{"start":0,"rate":"1"}]}"#),
    ("/v1/meters", r#"{"name":"a","tier_type":"requests","tiers":[{"start":0,"rate":?}]}"#),
    ("/v1/meters", r#"{"name":"a","tier_type":"requests","tiers":[{"start":?,"rate":"1"}]}"#),
    ("/v1/spend_keys", r#"{"name":?}"#),
    ("/v1/spend_keys", r#"{"name":"a","metadata":{"k":?}}"#),
    ("/v1/spend_keys", r#"{"name":"a","spend_limit":?}"#),
    ("/v1/plans", r#"{"name":?,"period_amount":"1"}"#),
    ("/v1/plans", r#"{"name":"p","period_amount":?}"#),
    (
        "/v1/plans",
        r#"{"name":"p","period_amount":"1","credit_bundles":[{"name":?,"cost":"1","credit_amount":"1"}]}"#,
    ),
    ("/v1/requests", r#"{"request_id":?,"tokens":1}"#),
    ("/v1/requests", r#"{"request_id":"q#","tokens":?}"#),
    ("/v1/requests", r#"{"request_id":"q#","tokens":1,"model":?}"#),
    ("/v1/requests", r#"{"request_id":"q#","tokens":1,"metadata":{"k":?}}"#),
    ("/v1/requests", r#"{"request_id":"q#","tokens":1,"metadata":{?:"v"}}"#),
    (
        "/v1/checkout_sessions",
        r#"{"checkout_mode":"onboarding","origin_url":"https://a.example","reference_id":?}"#,
    ),
    ("/v1/checkout_sessions", r#"{"checkout_mode":"onboarding","origin_url":?}"#),
];

#[test]
fn hostile_contents_stop_no_projection_and_are_rebuilt_as_they_were() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "hostile_contents", "test").await;
        let projector = SideProjector::on(instance, &tenant.database_url).await;
        let gateway = tenant.gateway(instance).await;
        let credit =
            ["wallet", "credit", "--merchant", &tenant.id, "--amount", "1000", "--reason", "\u{202e}x"];
        operate(&tenant.database_url, &credit).await;
        let mut key = tenant.secret_key.clone();
        let (mut number, mut kept) = (0, 0);
        for (path, template) in BODIES {
            // The rate limit of a key is reached otherwise.
            let issue = ["key", "issue", "--merchant", &tenant.id, "--name", "\u{2066}\u{feff}"];
            key = if number % 600 < 30 {
                operate(&tenant.database_url, &issue).await["secret_key"].as_str().unwrap().to_owned()
            } else {
                key
            };
            for value in values() {
                number += 1;
                let body = template.replace('#', &number.to_string()).replace('?', &value);
                let mut request =
                    Request::new("POST", path).bearer(&key).header("Content-Type", "application/json");
                if number % 3 == 0 {
                    request = request.header("Idempotency-Key", format!("{number}"));
                }
                let answer = request.body(Body::Whole(body.into())).send(gateway.address).await.unwrap();
                assert!(
                    [200, 201, 400, 404, 409, 413].contains(&answer.status),
                    "{path} {template} {value:.80}: {}",
                    answer.text()
                );
                kept += usize::from(answer.status < 300);
            }
        }
        assert!(kept > 100, "{kept}");
        // Metadata of calls, and what a provider says.
        let endpoint = instance.provider.endpoint(|_| {
            answer_json(
                200,
                &json!({"id": "\u{202e}\u{1}'", "model": "\u{fffd}$1", "usage": {"input_tokens": 1}}),
            )
        });
        let credential = token(&json!({"secret_key": tenant.secret_key}));
        for value in values().iter().filter(|value| value.len() < 10_000) {
            for metadata in [format!(r#"{{"k":{value}}}"#), format!(r#"{{{value}:"v"}}"#)] {
                let call =
                    forward("POST", &endpoint.url).bearer(&credential).json(&json!({"model": "\u{202e}"}));
                let answer =
                    call.header("X-Service-Metadata", metadata.clone()).send(gateway.address).await.unwrap();
                assert!([200, 400].contains(&answer.status), "{metadata}: {}", answer.text());
            }
        }
        let list = Request::new("GET", "/v1/requests").bearer(&key).send(gateway.address).await.unwrap();
        list.expect(200);
        assert_eq!(list.head.header("x-service-stale"), None, "the projector works");
        for model in READ_MODELS {
            for command in ["verify", "rebuild", "verify"] {
                let report = operate(&tenant.database_url, &["projections", command, model]).await;
                assert_eq!(report["differences"], 0, "{command} {model}: {report}");
            }
        }
        drop((gateway, projector));
        let verified = operate(&tenant.database_url, &["log", "verify"]).await;
        assert_eq!(verified["ok"], true, "{verified}");
    });
}

/// The transactions that wrote the pairs of metadata.
const TRANSACTIONS: &str = "SELECT count(*), count(DISTINCT xmin::text) FROM requests.metadata_pairs";

#[test]
fn calls_with_many_pairs_of_metadata_do_not_make_a_long_transaction() {
    /// The most pairs of a call, and more calls than one transaction has pairs.
    const PAIRS: i64 = 100;
    const CALLS: i64 = 1_100;
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "many_pairs", "test").await;
        let gateway = tenant.gateway(instance).await;
        let credit = ["wallet", "credit", "--merchant", &tenant.id, "--amount", "1000", "--reason", "x"];
        operate(&tenant.database_url, &credit).await;
        let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let pairs = (0..PAIRS).map(|number| (format!("k{number}"), json!("v")));
        let metadata = json!(pairs.collect::<serde_json::Map<_, _>>()).to_string();
        let call = forward("POST", &endpoint.url)
            .bearer(&token(&json!({"secret_key": tenant.secret_key})))
            .header("X-Service-Metadata", metadata)
            .json(&json!({}));
        let mut connection = Connection::open(gateway.address).await.unwrap();
        for _ in 0..CALLS {
            connection.send(&call).await.unwrap();
            connection.response("POST").await.unwrap().expect(200);
        }
        // The whole log is there when its first event is folded.
        let projector = SideProjector::on(instance, &tenant.database_url).await;
        eventually("the calls are shown", async || {
            let row = tenant.log.sql.query_one(TRANSACTIONS, &[]).await.ok()?;
            let (pairs, transactions): (i64, i64) = (row.get(0), row.get(1));
            (pairs == CALLS * PAIRS).then(|| assert!(transactions > 1, "{transactions}"))
        })
        .await;
        let report = operate(&tenant.database_url, &["projections", "rebuild", "requests"]).await;
        assert_eq!(report["differences"], 0, "{report}");
        let row = tenant.log.sql.query_one(TRANSACTIONS, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), CALLS * PAIRS);
        assert!(row.get::<_, i64>(1) > 1, "of the rebuild");
        drop(projector);
    });
}

/// The largest message of a NATS server by default, in bytes.
const MAX_PAYLOAD: usize = 1024 * 1024;

#[test]
fn no_merchant_makes_an_event_that_the_feed_does_not_carry() {
    run(async {
        largest_events_of("\u{1f600}").await;
        // JSON writes it as `\u0001`.
        largest_events_of("\u{1}").await;
    });
}

/// Makes the largest events whose texts consist of `character`.
async fn largest_events_of(character: &str) {
    let merchant = Merchant::new().await;
    let text = |number: usize, length: usize| format!("{number:04}{}", character.repeat(length - 4));
    // The longest names of which a thousand have 100,000 bytes.
    let longest = 4 + 96 / (json!(character).to_string().len() - 2);
    let names = |length: usize| (0..1_000).map(|number| text(number, length)).collect::<Vec<_>>();
    let pairs = (0..100).map(|number| (format!("k{number:0>254}"), json!(text(number, 255))));
    let metadata = json!(pairs.collect::<serde_json::Map<_, _>>());
    let key = merchant
        .post("/v1/spend_keys", &json!({"name": "a", "allowed_models": names(longest)}))
        .await
        .expect(201);
    let path = format!("/v1/spend_keys/{}", key["spend_key_id"].as_str().unwrap());
    let put = |body| merchant.rest(Request::new("PUT", path.clone()).json(&body));
    put(json!({"allowed_providers": names(longest)})).await.expect(200);
    for list in ["allowed_models", "allowed_providers"] {
        let refused = put(json!({list: names(longest + 1)})).await.refused(400, "validation_error");
        assert_eq!(refused["issues"][0]["path"], json!([list]), "{refused}");
        let new = json!({"name": "b", list: names(2 * longest)});
        merchant.post("/v1/spend_keys", &new).await.refused(400, "validation_error");
    }
    let customer = json!({"reference_id": text(1, 255), "metadata": metadata});
    merchant.post("/v1/customers", &customer).await.expect(201);
    let report =
        json!({"request_id": text(2, 255), "tokens": 1, "model": text(3, 255), "metadata": metadata});
    merchant.post("/v1/requests", &report).await.expect(201);
    let bundle = |number| json!({"name": text(number, 255), "cost": "1", "credit_amount": "1"});
    let plan = json!({
        "name": text(4, 255), "period_amount": "1", "credit_bundles": (0..100).map(bundle).collect::<Vec<_>>(),
    });
    merchant.post("/v1/plans", &plan).await.expect(201);
    let events = merchant.events().await;
    let largest = events.iter().max_by_key(|event| event.record.len()).unwrap();
    assert!(largest.record.len() < MAX_PAYLOAD / 2, "{}: {}", largest.kind, largest.record.len());
    let stream = feed::stream_of(merchant.instance, merchant.partition().await).await.unwrap();
    eventually("the feed carries all of them", async || {
        (feed::end(&stream).await? >= events.last()?.position).then_some(())
    })
    .await;
}
