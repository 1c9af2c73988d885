//! Two vocabularies, one API: the same scenario in the older terms (connections, products) and in the newer ones (customers,
//! meters) has the same result.

use farthing_tests::merchant::{Merchant, deleted, token};
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::{Value, json};

/// The terms of a client library.
struct Words {
    customers: &'static str,
    customer_id: &'static str,
    meters: &'static str,
    meter_id: &'static str,
    spend_keys: &'static str,
}

const OLDER: Words = Words {
    customers: "/v1/connections",
    customer_id: "connection_id",
    meters: "/v1/products",
    meter_id: "product_id",
    spend_keys: "/v1/manage/spend_keys",
};

const NEWER: Words = Words {
    customers: "/v1/customers",
    customer_id: "customer_id",
    meters: "/v1/meters",
    meter_id: "meter_id",
    spend_keys: "/v1/spend_keys",
};

/// The responses of a scenario, without the values that differ between merchants.
#[derive(Debug, Default, PartialEq)]
struct Seen(Vec<Value>);

impl Seen {
    /// Records `shown` without the named members, which must exist.
    fn note(&mut self, mut shown: Value, but: &[&str]) {
        let members = shown.as_object_mut().unwrap();
        for name in but {
            assert!(members.remove(*name).is_some(), "{name} is missing in {members:?}");
        }
        self.0.push(shown);
    }
}

const OWN_OF_A_METER: [&str; 4] = ["meter_id", "product_id", "product_secret", "created_at"];
const OWN_OF_A_REQUEST: [&str; 8] = [
    "request_id",
    "customer_id",
    "connection_id",
    "meter_id",
    "product_id",
    "created_at",
    "completed_at",
    "timestamp",
];

async fn walk(words: &Words) -> Seen {
    let mut seen = Seen::default();
    let merchant = Merchant::funded("10").await;
    let get = async |path: String| merchant.get(&path).await.expect(200);
    let text = |shown: &Value, name: &str| shown[name].as_str().unwrap().to_owned();

    // A price.
    let price = json!({
        "name": "Tokens", "tier_type": "tokens_1m", "tiers": [{"start": 0, "rate": "100"}],
        "service_charge_payer": "merchant",
    });
    let meter = merchant.post(words.meters, &price).await.expect(201);
    let meter_id = text(&meter, words.meter_id);
    let path = format!("{}/{meter_id}", words.meters);
    assert_eq!(get(path.clone()).await, meter);
    assert_eq!(get(words.meters.to_owned()).await["data"], json!([meter]));
    let changed = merchant.patch(&path, &json!({"tiers": [{"start": 0, "rate": "200"}]})).await.expect(200);
    seen.note(changed, &OWN_OF_A_METER);

    // A customer; connections are made as customers in either vocabulary.
    let made = merchant.customer_called("ada", "5").await;
    let customer = get(format!("{}/ada", words.customers)).await;
    assert_eq!(customer, get(format!("{}/{}", words.customers, made.id)).await);
    assert_eq!(text(&customer, words.customer_id), made.id);
    let listed = get(format!("{}?reference_id=ada", words.customers)).await;
    assert_eq!(listed["data"], json!([customer]));
    let subscription = get(format!("{}/ada/subscription", words.customers)).await;
    seen.note(subscription, &["subscription"]);

    // A spend key on the customer's wallet.
    let key = json!({"name": "laptop", words.customer_id: "ada"});
    let key = merchant.post(words.spend_keys, &key).await.expect(201);
    let shown = get(format!("{}/{}", words.spend_keys, text(&key, "spend_key_id"))).await;
    assert_eq!(text(&shown, words.customer_id), made.id);

    // Calls by ids, by reference ids and slugs, and by secrets, in these terms.
    let endpoint = merchant.instance.provider.endpoint(|_| {
        json(200, &json!({"id": "a", "model": "m", "created": 1_790_000_000, "usage": {"tokens": 1000}}))
    });
    let secret_key = &merchant.secret_key;
    let mut ids = Vec::new();
    for fields in [
        json!({"secret_key": secret_key, words.customer_id: made.id, words.meter_id: meter_id}),
        json!({"secret_key": secret_key, words.customer_id: "ada", "meter_slug": "tokens"}),
        json!({
            "secret_key": secret_key, "product_secret": meter["product_secret"],
            "connection_secret": get(format!("/v1/connections/{}", made.id)).await["connection_secret"],
        }),
    ] {
        let answer = merchant.call(&token(&fields), &endpoint.url).await;
        answer.expect(200);
        ids.insert(0, answer.request_id());
        let mut shown = merchant.shown(&answer.request_id(), "completed").await;
        assert_eq!(text(&shown, words.customer_id), made.id);
        assert_eq!(text(&shown, words.meter_id), meter_id);
        assert_eq!(shown["endpoint"], format!("POST {}", endpoint.url));
        shown["endpoint"] = Value::Null;
        seen.note(shown, &OWN_OF_A_REQUEST);
    }

    // Lists of calls by filters in these terms.
    let (customer_id, meter_name) = (words.customer_id, words.meter_id);
    for filter in [
        format!("{customer_id}=ada"),
        format!("{customer_id}={}&{meter_name}={meter_id}", made.id),
        format!("{meter_name}=tokens"),
    ] {
        let listed = merchant.pages(&format!("/v1/requests?{filter}"), 2).await;
        let listed: Vec<_> = listed.iter().map(|request| text(request, "request_id")).collect();
        assert_eq!(listed, ids, "{filter}");
    }
    seen.0.push(json!(merchant.balance(&made).await));

    // Deletion of both.
    for (path, id) in [(path, &meter_id), (format!("{}/ada", words.customers), &made.id)] {
        assert_eq!(merchant.delete(&path).await.expect(200), deleted(id));
        assert_eq!(merchant.get(&path).await.status, 404);
    }
    let kinds = merchant.events().await.into_iter().map(|event| event.kind).collect::<Vec<_>>();
    seen.0.push(json!(kinds));
    seen
}

#[test]
fn both_vocabularies_have_the_same_results() {
    run(async {
        let older = walk(&OLDER).await;
        let newer = walk(&NEWER).await;
        assert_eq!(older, newer);
        assert!(older.0.contains(&json!("4.4000000000")), "three calls of 1000 tokens at 200 per million");
    });
}

#[test]
fn both_terms_in_one_request_must_agree() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let (ada, eve) =
            (merchant.customer_called("ada", "1").await, merchant.customer_called("eve", "1").await);
        let (one, two) = (merchant.call_meter("0.1").await, merchant.call_meter("0.2").await);
        let issue = |error: &Value| error["issues"][0]["path"][0].as_str().unwrap_or_default().to_owned();
        for (filter, path) in [
            (format!("connection_id={}&customer_id={}", ada.id, eve.id), "customer_id"),
            ("connection_id=ada&customer_id=eve".to_owned(), "customer_id"),
            (format!("product_id={}&meter_id={}", one.id, two.id), "meter_id"),
        ] {
            let error =
                merchant.get(&format!("/v1/requests?{filter}")).await.refused(400, "validation_error");
            assert_eq!(issue(&error), path, "{filter}");
        }
        for filter in [
            format!("connection_id={0}&customer_id={0}", ada.id),
            "connection_id=ada&customer_id=ada".to_owned(),
            format!("product_id={0}&meter_id={0}", one.id),
        ] {
            merchant.get(&format!("/v1/requests?{filter}")).await.expect(200);
        }
        let body =
            |older: &str, newer: &str| json!({"name": "k", "connection_id": older, "customer_id": newer});
        let error =
            merchant.post("/v1/spend_keys", &body(&ada.id, &eve.id)).await.refused(400, "validation_error");
        assert_eq!(issue(&error), "customer_id");
        merchant.post("/v1/spend_keys", &body(&ada.id, &ada.id)).await.expect(201);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        for fields in [
            json!({"secret_key": merchant.secret_key, "customer_id": ada.id, "connection_id": eve.id}),
            json!({"secret_key": merchant.secret_key, "meter_id": one.id, "product_id": two.id}),
        ] {
            let refused = merchant.call(&token(&fields), &endpoint.url).await;
            refused.refused(400, "forward_token_json_invalid");
        }
        assert_eq!(endpoint.calls().len(), 0);
        let key = &merchant.secret_key;
        for fields in [
            json!({"secret_key": key, "customer_id": ada.id, "connection_id": ada.id, "meter_id": one.id, "product_id": one.id}),
            json!({"secret_key": key, "customer_id": "ada", "connection_id": "ada", "meter_id": one.slug, "product_id": one.slug}),
            json!({"secret_key": key, "connection_id": "ada", "product_id": one.slug}),
        ] {
            let answer = merchant.call(&token(&fields), &endpoint.url).await;
            let shown = merchant.shown(&answer.request_id(), "completed").await;
            assert_eq!(
                (&shown["customer_id"], &shown["meter_id"]),
                (&json!(ada.id), &json!(one.id)),
                "{fields}"
            );
        }
    });
}

#[test]
fn a_slug_is_accepted_wherever_a_meter_id_is() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let meter = merchant.call_meter("0.1").await;
        for (number, (name, value)) in [
            ("meter_id", &meter.id),
            ("product_id", &meter.id),
            ("meter_id", &meter.slug),
            ("product_id", &meter.slug),
            ("meter_slug", &meter.slug),
        ]
        .into_iter()
        .enumerate()
        {
            let mut report = json!({"request_id": format!("report {number}"), "tokens": 1});
            report[name] = json!(value);
            let made = merchant.post("/v1/requests", &report).await.expect(201);
            assert_eq!(made["meter_id"], meter.id.as_str(), "{report}");
        }
        for name in ["meter_id", "product_id"] {
            for value in [&meter.id, &meter.slug] {
                let listed = merchant.get(&format!("/v1/requests?{name}={value}")).await.expect(200);
                assert_eq!(listed["data"].as_array().unwrap().len(), 5, "{name}={value}");
                merchant.get(&format!("/v1/meters/{value}")).await.expect(200);
            }
        }
        let both = json!({"request_id": "both", "meter_id": meter.id, "product_id": meter.slug});
        let error = merchant.post("/v1/requests", &both).await.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["meter_id"]));
    });
}
