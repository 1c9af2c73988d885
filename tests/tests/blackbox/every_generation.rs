//! Answers that clients of every generation read (completion.md section 10).

use farthing_tests::client::{Body, Request};
use farthing_tests::merchant::{Merchant, deleted, forward, token};
use farthing_tests::provider::json as answer;
use farthing_tests::run;
use serde_json::{Value, json};

/// A well-formed id that does not exist.
const NOBODY: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn id(shown: &Value, name: &str) -> String {
    shown[name].as_str().unwrap_or_else(|| panic!("{name} in {shown}")).to_owned()
}

/// The paths of the issues of a refusal.
fn issues(error: &Value) -> Vec<Value> {
    error["issues"].as_array().unwrap().iter().map(|issue| issue["path"].clone()).collect()
}

#[test]
fn each_tier_of_a_meter_names_its_unit() {
    run(async {
        let merchant = Merchant::new().await;
        for (tier_type, rate) in
            [("tokens_1m", "1"), ("characters_1m", "0.5"), ("minutes", "2"), ("requests", "1000000000000")]
        {
            let body = json!({
                "name": tier_type, "tier_type": tier_type,
                "tiers": [{"start": 0, "rate": rate}, {"start": 10, "rate": "0"}],
            });
            let made = merchant.post("/v1/meters", &body).await.expect(201);
            let tier = |start: u64, rate: &str| json!({"start": start, "rate": rate, "type": tier_type});
            let rate = format!("{:.10}", rate.parse::<rust_decimal::Decimal>().unwrap());
            assert_eq!(made["tiers"], json!([tier(0, &rate), tier(10, "0.0000000000")]), "{tier_type}");
            for path in ["meters", "products"] {
                let shown = merchant.get(&format!("/v1/{path}/{}", id(&made, "meter_id"))).await.expect(200);
                assert_eq!(shown, made);
            }
            let changed = json!({"tiers": made["tiers"]});
            let path = format!("/v1/meters/{}", id(&made, "meter_id"));
            assert_eq!(merchant.patch(&path, &changed).await.expect(200), made, "they are accepted as shown");
        }
        for rate in [json!("1000000000000.0000000001"), json!(1_000_000_000_001_u64), json!("-1")] {
            let body = json!({"name": "x", "tier_type": "requests", "tiers": [{"start": 0, "rate": rate}]});
            let error = merchant.post("/v1/meters", &body).await.refused(400, "validation_error");
            assert_eq!(issues(&error), [json!(["tiers", "0", "rate"])], "{rate}");
        }
        // A percentage has a unit as well: that in which its tiers start.
        let body = json!({"name": "p", "rate_type": "percentage", "tiers": [{"start": 0, "rate": "10"}]});
        let made = merchant.post("/v1/meters", &body).await.expect(201);
        assert_eq!(made["tiers"][0]["type"], made["tier_type"]);
    });
}

#[test]
fn a_fee_at_the_highest_rate_is_exact() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer("3").await;
        // 10^12 dollars for a million tokens: a token is a million dollars.
        let meter = merchant
            .meter(json!({
                "name": "dear", "tier_type": "tokens_1m", "service_charge_payer": "merchant",
                "tiers": [{"start": 0, "rate": "1000000000000"}],
            }))
            .await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer(200, &json!({"usage": {"tokens": 1}})));
        let response = merchant.fetch(&merchant.billing(&customer, &meter), &endpoint.url).await;
        let charged = merchant.charged(&response).await;
        assert_eq!(charged["fee"]["amount"], "1000000.0000000000");
        assert_eq!(
            (&charged["total_wallet_cost"], &charged["overrun"]),
            (&json!("3.0000000000"), &json!("999997.0000000000"))
        );
        assert_eq!(merchant.balance(&customer).await, "0.0000000000");
    });
}

#[test]
fn every_deletion_names_what_it_deleted() {
    run(async {
        let merchant = Merchant::new().await;
        let made = async |path: &str, body: Value| merchant.post(path, &body).await.expect(201);
        let meter = made(
            "/v1/meters",
            json!({"name": "m", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]}),
        )
        .await;
        let plan = made("/v1/plans", json!({"name": "p", "period_amount": 0})).await;
        let customer = made("/v1/customers", json!({"reference_id": "ada"})).await;
        let connection = made("/v1/customers", json!({"reference_id": "eve"})).await;
        let key = made("/v1/spend_keys", json!({"name": "k"})).await;
        let webhook = made("/v1/webhooks", json!({"url": "https://receiver.example/"})).await;
        let issued = merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id]).await;
        for (path, id) in [
            (format!("/v1/meters/{}", id(&meter, "meter_slug")), id(&meter, "meter_id")),
            (format!("/v1/plans/{}", id(&plan, "plan_id")), id(&plan, "plan_id")),
            ("/v1/customers/ada".to_owned(), id(&customer, "customer_id")),
            ("/v1/connections/eve".to_owned(), id(&connection, "connection_id")),
            (format!("/v1/manage/spend_keys/{}", id(&key, "spend_key_id")), id(&key, "spend_key_id")),
            (format!("/v1/webhooks/{}", id(&webhook, "webhook_id")), id(&webhook, "webhook_id")),
            (format!("/v1/secret_keys/{}", id(&issued, "secret_key_id")), id(&issued, "secret_key_id")),
        ] {
            assert_eq!(merchant.delete(&path).await.expect(200), deleted(&id), "{path}");
            assert_eq!(merchant.delete(&path).await.status, 404, "{path}");
        }
    });
}

#[test]
fn a_paid_plan_is_refused_before_anything_else_is_looked_at() {
    run(async {
        let merchant = Merchant::new().await;
        let paid = json!({"name": "paid", "period_amount": "10"});
        let paid = id(&merchant.post("/v1/plans", &paid).await.expect(201), "plan_id");
        let free = json!({"name": "free", "period_amount": 0});
        let free = id(&merchant.post("/v1/plans", &free).await.expect(201), "plan_id");
        let customer = merchant.customer("0").await;
        let body = json!({"customer_id": customer.id, "plan_id": free});
        let started = merchant.post("/v1/subscriptions", &body).await.expect(201);
        assert_eq!(started.as_object().unwrap().keys().collect::<Vec<_>>(), ["subscription"]);
        let before = merchant.events().await.len();
        for body in [
            json!({"plan_id": paid}),
            json!({"subscription_config_id": paid}),
            json!({"plan_id": paid, "customer_id": "nobody"}),
            json!({"plan_id": paid, "customer_id": 7, "auto_top_up_bundle_id": "x"}),
            json!({"plan_id": paid, "customer_id": customer.id, "auto_top_up_bundle_id": format!("cb_{NOBODY}")}),
            json!({"plan_id": paid, "customer_id": customer.id}),
        ] {
            merchant.post("/v1/subscriptions", &body).await.refused(400, "plan_not_free");
        }
        // The paid plan of another merchant is unknown.
        let other = Merchant::new().await;
        let body = json!({"plan_id": paid, "customer_id": other.customer("0").await.id});
        other.post("/v1/subscriptions", &body).await.refused(404, "plan_not_found");
        assert_eq!(merchant.events().await.len(), before);
    });
}

#[test]
fn subscriptions_have_the_names_of_both_vocabularies_everywhere() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = json!({"name": "free", "period_amount": 0});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        merchant.customer_called("ada", "0").await;
        let body = json!({"customer_id": "ada", "plan_id": plan["plan_id"]});
        let made = merchant.post("/v1/subscriptions", &body).await.expect(201)["subscription"].clone();
        let get = async |path: &str| merchant.get(path).await.expect(200);
        for (place, shown) in [
            ("created", made.clone()),
            ("listed", get("/v1/subscriptions").await["data"][0].clone()),
            ("found", get(&format!("/v1/subscriptions/{}", id(&made, "subscription_id"))).await),
            ("listed in the older form", get("/v1/active-subscriptions").await[0].clone()),
            ("of a customer", get("/v1/customers/ada").await["subscription"].clone()),
            ("in a list of customers", get("/v1/customers").await["data"][0]["subscription"].clone()),
            ("of a customer, alone", get("/v1/customers/ada/subscription").await["subscription"].clone()),
            ("of a connection, alone", get("/v1/connections/ada/subscription").await["subscription"].clone()),
        ] {
            for name in ["subscription_id", "active_subscription_id"] {
                assert_eq!(shown[name], made["subscription_id"], "{name}, {place}");
            }
            for name in ["plan_id", "subscription_config_id"] {
                assert_eq!(shown[name], plan["plan_id"], "{name}, {place}");
            }
        }
    });
}

#[test]
fn a_credit_bundle_is_found_with_its_plan() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({
            "name": "p", "period_amount": 0, "credit_bundles": [{"name": "b", "cost": "5", "credit_amount": "6"}],
        });
        let plan = merchant.post("/v1/plans", &body).await.expect(201);
        let bundle = &plan["credit_bundles"][0];
        let path = format!("/v1/credit_bundles/{}", id(bundle, "credit_bundle_id"));
        let shown = merchant.get(&path).await.expect(200);
        assert_eq!(shown, *bundle);
        assert_eq!(
            (&shown["plan_id"], &shown["subscription_config_id"]),
            (&plan["plan_id"], &plan["plan_id"])
        );
        for name in ["nobody", &format!("cb_{NOBODY}"), &id(&plan, "plan_id")] {
            let unknown = merchant.get(&format!("/v1/credit_bundles/{name}")).await;
            unknown.refused(404, "credit_bundle_not_found");
        }
        Merchant::new().await.get(&path).await.refused(404, "credit_bundle_not_found");
        let removed = json!({"credit_bundles": [{"id": bundle["credit_bundle_id"], "is_deleted": true}]});
        merchant.patch(&format!("/v1/plans/{}", id(&plan, "plan_id")), &removed).await.expect(200);
        merchant.get(&path).await.refused(404, "credit_bundle_not_found");
    });
}

#[test]
fn only_the_dashed_list_of_plans_is_a_bare_array() {
    run(async {
        let merchant = Merchant::new().await;
        let mut plans = Vec::new();
        for number in 0..3 {
            let body = json!({"name": format!("plan {number}"), "period_amount": 0});
            plans.insert(0, merchant.post("/v1/plans", &body).await.expect(201));
        }
        assert_eq!(merchant.get("/v1/subscription-configs").await.expect(200), json!(plans));
        for path in ["/v1/plans", "/v1/subscription_configs"] {
            let page = merchant.get(&format!("{path}?limit=2")).await.expect(200);
            let cursor = &plans[1]["plan_id"];
            assert_eq!(page, json!({"data": plans[..2], "has_more": true, "next_cursor": cursor}), "{path}");
            assert_eq!(merchant.pages(path, 2).await, plans, "{path}");
        }
    });
}

#[test]
fn a_webhook_has_an_optional_name() {
    run(async {
        let merchant = Merchant::new().await;
        let url = "https://receiver.example/";
        let plain = merchant.post("/v1/webhooks", &json!({"url": url})).await.expect(201);
        assert_eq!(plain["name"], Value::Null);
        let longest = "é".repeat(255);
        let named = merchant.post("/v1/webhooks", &json!({"url": url, "name": longest})).await.expect(201);
        assert_eq!(named["name"], longest);
        let path = format!("/v1/webhooks/{}", id(&named, "webhook_id"));
        for (body, name) in [
            (json!({"enabled": false}), json!(longest)),
            (json!({"name": "orders"}), json!("orders")),
            (json!({"name": null}), Value::Null),
        ] {
            assert_eq!(merchant.patch(&path, &body).await.expect(200)["name"], name, "{body}");
            assert_eq!(merchant.get(&path).await.expect(200)["name"], name, "{body}");
        }
        let listed = merchant.get("/v1/webhooks").await.expect(200);
        assert!(
            listed["data"].as_array().unwrap().iter().all(|webhook| webhook["name"].is_null()),
            "{listed}"
        );
        for bad in [json!(""), json!("x".repeat(256)), json!(7)] {
            let body = json!({"url": url, "name": bad});
            let error = merchant.post("/v1/webhooks", &body).await.refused(400, "validation_error");
            assert_eq!(issues(&error), [json!(["name"])]);
            let error = merchant.patch(&path, &json!({"name": bad})).await.refused(400, "validation_error");
            assert_eq!(issues(&error), [json!(["name"])]);
        }
    });
}

#[test]
fn a_new_spend_key_speaks_openai_unless_it_says_otherwise() {
    run(async {
        let merchant = Merchant::new().await;
        for (given, shape) in [
            (json!({"name": "k"}), "openai"),
            (json!({"name": "k", "request_shape": "openai"}), "openai"),
            (json!({"name": "k", "request_shape": "anthropic"}), "anthropic"),
        ] {
            let made = merchant.post("/v1/spend_keys", &given).await.expect(201);
            assert_eq!(made["request_shape"], shape, "{given}");
            let path = format!("/v1/spend_keys/{}", id(&made, "spend_key_id"));
            assert_eq!(merchant.get(&path).await.expect(200)["request_shape"], shape, "{given}");
        }
        let logged = merchant.events().await;
        let created: Vec<_> = logged.iter().filter(|event| event.kind == "spend_key.created").collect();
        assert_eq!(created[0].body["request_shape"], "openai", "{}", created[0].body);
    });
}

#[test]
fn null_is_refused_where_a_field_cannot_be_null() {
    run(async {
        let merchant = Merchant::new().await;
        let made = async |path: &str, body: Value| merchant.post(path, &body).await.expect(201);
        let key = made("/v1/spend_keys", json!({"name": "k"})).await;
        let meter = made(
            "/v1/meters",
            json!({"name": "m", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]}),
        )
        .await;
        let plan = made("/v1/plans", json!({"name": "p", "period_amount": 0})).await;
        let webhook = made("/v1/webhooks", json!({"url": "https://receiver.example/"})).await;
        let before = merchant.events().await.len();
        for (method, path, names) in [
            (
                "PUT",
                format!("/v1/spend_keys/{}", id(&key, "spend_key_id")),
                &["name", "status", "request_shape"][..],
            ),
            ("PUT", format!("/v1/manage/spend_keys/{}", id(&key, "spend_key_id")), &["name", "status"][..]),
            (
                "PATCH",
                format!("/v1/meters/{}", id(&meter, "meter_id")),
                &[
                    "name",
                    "tiers",
                    "base_cost_payer",
                    "service_charge_payer",
                    "on_disconnect",
                    "meter_slug",
                    "rate_type",
                    "tier_type",
                    "token_basis",
                ][..],
            ),
            (
                "PATCH",
                format!("/v1/plans/{}", id(&plan, "plan_id")),
                &[
                    "name",
                    "period_amount",
                    "billing_interval",
                    "included_credit",
                    "rollover_type",
                    "bundle_rollover_type",
                    "credit_bundles",
                ][..],
            ),
            ("PATCH", format!("/v1/webhooks/{}", id(&webhook, "webhook_id")), &["url", "enabled"][..]),
            ("PATCH", "/v1/wallet".to_owned(), &["autopay_enabled"][..]),
            ("POST", "/v1/spend_keys".to_owned(), &["name"][..]),
            ("POST", "/v1/webhooks".to_owned(), &["url"][..]),
        ] {
            let all: serde_json::Map<_, _> =
                names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
            let request = Request::new(method, path.as_str()).json(&Value::Object(all));
            let error = merchant.rest(request).await.refused(400, "validation_error");
            let expected: Vec<_> = names.iter().map(|name| json!([name])).collect();
            assert_eq!(issues(&error), expected, "{method} {path}");
        }
        assert_eq!(merchant.events().await.len(), before, "nothing changes");
    });
}

#[test]
fn a_new_thing_takes_the_default_of_an_absent_field_and_not_of_null() {
    run(async {
        let merchant = Merchant::new().await;
        let before = merchant.events().await.len();
        let tiers = json!([{"start": 0, "rate": "1"}]);
        let price = ["token_basis", "base_cost_payer", "service_charge_payer", "on_disconnect"];
        let of_a_meter = [&["name", "meter_slug", "rate_type", "tier_type"][..], &price[..]].concat();
        let of_a_product = [&["name", "meter_slug", "provider", "managedKeys"][..], &price[..]].concat();
        let of_a_plan = [
            "included_credit",
            "billing_interval",
            "rollover_type",
            "bundle_rollover_type",
            "credit_bundles",
        ];
        let meter = json!({"name": "m", "tier_type": "requests", "tiers": tiers});
        let product = json!({"feeStructure": {"fixedFee": 1}, "billingBasis": "requests"});
        for (path, body, names) in [
            ("/v1/spend_keys", json!({"name": "k"}), &["request_shape"][..]),
            ("/v1/meters", meter, &of_a_meter[..]),
            ("/v1/products", product, &of_a_product[..]),
            ("/v1/plans", json!({"name": "p", "period_amount": 0}), &of_a_plan[..]),
            ("/v1/webhooks", json!({"url": "https://receiver.example/"}), &["enabled"][..]),
        ] {
            for name in names {
                let mut with_null = body.clone();
                with_null[*name] = Value::Null;
                let error = merchant.post(path, &with_null).await.refused(400, "validation_error");
                let null = json!({"path": [name], "message": "must not be null"});
                assert!(error["issues"].as_array().unwrap().contains(&null), "{path} {name}: {error}");
            }
        }
        let tier =
            json!({"name": "m", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1", "type": null}]});
        let error = merchant.post("/v1/meters", &tier).await.refused(400, "validation_error");
        assert_eq!(issues(&error), [json!(["tiers", "0", "type"])]);
        assert_eq!(merchant.events().await.len(), before, "nothing is made");
    });
}

#[test]
fn a_customers_metadata_are_returned_as_given_and_a_requests_are_strings() {
    run(async {
        let merchant = Merchant::new().await;
        let metadata = r#"{"flag":true,"float":1.50,"int":-7,"large":123456789012345678901234567890,"off":false,"small":1e-7,"text":"1.50"}"#;
        let create = |body: String| {
            Request::new("POST", "/v1/customers")
                .header("Content-Type", "application/json")
                .body(Body::Whole(body.into_bytes()))
        };
        let made = merchant.rest(create(format!(r#"{{"reference_id":"ada","metadata":{metadata}}}"#))).await;
        made.expect(201);
        let shown = format!(r#""metadata":{metadata}"#);
        assert!(made.text().contains(&shown), "{}", made.text());
        for path in ["/v1/customers/ada", "/v1/customers"] {
            let got = merchant.get(path).await;
            assert!(got.text().contains(&shown), "{path}: {}", got.text());
        }
        let changed = merchant.patch("/v1/customers/ada", &json!({"metadata": {"n": 2, "s": "2"}})).await;
        assert_eq!(changed.expect(200)["metadata"], json!({"n": 2, "s": "2"}));
        assert_eq!(
            merchant.get("/v1/customers/ada").await.expect(200)["metadata"],
            json!({"n": 2, "s": "2"})
        );
        for (bad, path) in [
            (json!({"a": null}), json!(["metadata", "a"])),
            (json!({"a": [1]}), json!(["metadata", "a"])),
            (json!({"a": {"b": 1}}), json!(["metadata", "a"])),
            (json!({"a": ""}), json!(["metadata", "a"])),
            (json!({"a b": 1}), json!(["metadata", "a b"])),
        ] {
            let error = merchant.patch("/v1/customers/ada", &json!({"metadata": bad})).await;
            assert_eq!(issues(&error.refused(400, "validation_error")), [path], "{bad}");
        }

        let endpoint = merchant.instance.provider.endpoint(|_| answer(200, &json!({})));
        let credential = token(&json!({"secret_key": merchant.secret_key}));
        let with = |metadata: &str| forward("GET", &endpoint.url).header("x-service-metadata", metadata);
        merchant.send(&credential, with(r#"{"a":1}"#)).await.refused(400, "metadata_invalid");
        merchant.send(&credential, with(r#"{"a":true}"#)).await.refused(400, "metadata_invalid");
        let called = merchant.send(&credential, with(r#"{"a":"1"}"#)).await;
        called.expect(200);
        let request = merchant.shown(&called.request_id(), "completed").await;
        assert_eq!(request["metadata"], json!({"a": "1"}));
    });
}
