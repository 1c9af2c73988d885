//! Plans (subscription configs in the older vocabulary) and their credit bundles.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, deleted};
use farthing_tests::run;
use serde_json::{Value, json};

/// The paths of plans, in both vocabularies.
const PATHS: [&str; 3] = ["/v1/plans", "/v1/subscription_configs", "/v1/subscription-configs"];

/// An id that does not exist.
const NOBODY: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn id(shown: &Value, name: &str) -> String {
    shown[name].as_str().unwrap_or_else(|| panic!("{name} in {shown}")).to_owned()
}

/// The paths of the issues of a refusal.
fn issues(error: &Value) -> Vec<String> {
    let issues = error["issues"].as_array().unwrap().iter();
    let path = |issue: &Value| {
        let parts = issue["path"].as_array().unwrap().iter();
        parts.map(|part| part.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(".")
    };
    issues.map(path).collect()
}

#[test]
fn a_plan_is_created_with_its_bundles_and_meters() {
    run(async {
        let merchant = Merchant::new().await;
        let meter = merchant.call_meter("1").await;
        for (path, word) in PATHS.into_iter().zip(["meter_ids", "product_ids", "meter_ids"]) {
            let body = json!({
                "name": "Pro", "period_amount": "20", "billing_interval": "year", "rollover_type": "full",
                "bundle_rollover_type": "none", word: [meter.slug, meter.id],
                "credit_bundles": [
                    {"name": "Small", "cost": 5, "credit_amount": "6"},
                    {"name": "Large", "cost": "0.5", "credit_amount": "0.0000000001"},
                ],
            });
            let made = merchant.post(path, &body).await.expect(201);
            let plan_id = id(&made, "plan_id");
            assert!(plan_id.starts_with("sc_"), "{made}");
            let bundle = |at: usize, name: &str, cost: &str, credit: &str| {
                let bundle_id = id(&made["credit_bundles"][at], "credit_bundle_id");
                assert!(bundle_id.starts_with("cb_"), "{made}");
                json!({
                    "credit_bundle_id": bundle_id, "plan_id": plan_id, "subscription_config_id": plan_id,
                    "name": name, "cost": cost, "credit_amount": credit, "created_at": made["created_at"],
                })
            };
            let expected = json!({
                "plan_id": plan_id, "subscription_config_id": plan_id, "merchant_id": merchant.id, "name": "Pro",
                "period_amount": "20.0000000000", "included_credit": "20.0000000000",
                "billing_interval": "year", "rollover_type": "full", "bundle_rollover_type": "none",
                "default_auto_top_up_bundle_id": null,
                "linked_meters": [{"meter_id": meter.id, "product_id": meter.id, "meter_slug": meter.slug}],
                "credit_bundles": [
                    bundle(0, "Small", "5.0000000000", "6.0000000000"),
                    bundle(1, "Large", "0.5000000000", "0.0000000001"),
                ],
                "created_at": made["created_at"],
            });
            assert_eq!(made, expected);
            for path in PATHS {
                assert_eq!(merchant.get(&format!("{path}/{plan_id}")).await.expect(200), made, "{path}");
            }
        }
        let all = merchant.get("/v1/plans?limit=100").await.expect(200)["data"].clone();
        assert_eq!(all.as_array().unwrap().len(), 3);
        let [_, paged, bare] = PATHS;
        assert_eq!(merchant.get(paged).await.expect(200)["data"], all);
        assert_eq!(merchant.get(bare).await.expect(200), all, "a bare array");
        merchant.delete(&format!("/v1/meters/{}", meter.id)).await.expect(200);
        let shown = merchant.get(&format!("/v1/plans/{}", id(&all[0], "plan_id"))).await.expect(200);
        let linked = json!([{"meter_id": meter.id, "product_id": meter.id, "meter_slug": null}]);
        assert_eq!(shown["linked_meters"], linked, "a deleted meter has no slug");
    });
}

#[test]
fn an_invalid_plan_is_refused_with_its_issues_and_not_created() {
    run(async {
        let merchant = Merchant::new().await;
        let before = merchant.events().await.len();
        let error = merchant.post("/v1/plans", &json!({})).await.refused(400, "validation_error");
        assert_eq!(issues(&error), ["name", "period_amount"]);
        for (member, value) in [
            ("period_amount", json!("10000.01")),
            ("period_amount", json!(-1)),
            ("period_amount", json!(0.5)),
            ("included_credit", json!("10.0000000001")),
            ("billing_interval", json!("hour")),
            ("rollover_type", json!("some")),
            ("bundle_rollover_type", json!(true)),
            ("meter_ids", json!("chat")),
            ("credit_bundles", json!({})),
        ] {
            let mut body = json!({"name": "Ten", "period_amount": "10"});
            body[member] = value;
            let error = merchant.post("/v1/plans", &body).await.refused(400, "validation_error");
            assert_eq!(issues(&error), [member], "{body}");
        }
        let bundles = json!([{"name": "b", "cost": 0, "credit_amount": -1}, {"name": ""}]);
        let body = json!({"name": "Ten", "period_amount": "10", "credit_bundles": bundles});
        let error = merchant.post("/v1/plans", &body).await.refused(400, "validation_error");
        assert_eq!(
            issues(&error),
            [
                "credit_bundles.0.cost",
                "credit_bundles.0.credit_amount",
                "credit_bundles.1.name",
                "credit_bundles.1.cost",
                "credit_bundles.1.credit_amount",
            ]
        );
        for (member, value, code) in [
            ("meter_ids", json!(["nobody"]), "meter_not_found"),
            ("product_ids", json!([format!("prd_{NOBODY}")]), "meter_not_found"),
            ("default_auto_top_up_bundle_id", json!(format!("cb_{NOBODY}")), "credit_bundle_not_found"),
        ] {
            let mut body = json!({"name": "Ten", "period_amount": "10"});
            body[member] = value;
            merchant.post("/v1/plans", &body).await.refused(404, code);
        }
        for path in PATHS {
            for name in ["nobody".to_owned(), format!("sc_{NOBODY}"), format!("cb_{NOBODY}")] {
                let path = format!("{path}/{name}");
                merchant.get(&path).await.refused(404, "plan_not_found");
                merchant.patch(&path, &json!({"name": "x"})).await.refused(404, "plan_not_found");
                merchant.delete(&path).await.refused(404, "plan_not_found");
            }
        }
        assert_eq!(merchant.events().await.len(), before);
    });
}

#[test]
fn a_change_reconciles_the_bundles_and_keeps_the_rest() {
    run(async {
        let merchant = Merchant::new().await;
        let meter = merchant.call_meter("1").await;
        let body = json!({
            "name": "Ten", "period_amount": "10", "meter_ids": [meter.id],
            "credit_bundles": [
                {"name": "a", "cost": "1", "credit_amount": "1"}, {"name": "b", "cost": "2", "credit_amount": "2"},
                {"name": "c", "cost": "3", "credit_amount": "3"},
            ],
        });
        let made = merchant.post("/v1/plans", &body).await.expect(201);
        let path = format!("/v1/plans/{}", id(&made, "plan_id"));
        let bundle = |at: usize| id(&made["credit_bundles"][at], "credit_bundle_id");
        let body_of_all = json!({
            "name": "Ten and more", "included_credit": "7", "rollover_type": "full", "meter_ids": null,
            "period_amount": "10", "billing_interval": "month", "default_auto_top_up_bundle_id": bundle(2),
            "credit_bundles": [
                {"credit_bundle_id": bundle(0), "is_deleted": true},
                {"id": bundle(1), "name": "b2", "cost": "2.5"},
                {"name": "d", "cost": "4", "credit_amount": "5"},
            ],
        });
        let changed = merchant.patch(&path, &body_of_all).await.expect(200);
        assert_eq!(merchant.get(&path).await.expect(200), changed);
        let offers: Vec<_> = changed["credit_bundles"].as_array().unwrap().iter().collect();
        let shown_offers: Vec<_> =
            offers.iter().map(|offer| (offer["name"].clone(), offer["cost"].clone())).collect();
        let offer_of = |name: &str, cost: &str| (json!(name), json!(cost));
        assert_eq!(
            shown_offers,
            [offer_of("b2", "2.5000000000"), offer_of("c", "3.0000000000"), offer_of("d", "4.0000000000")]
        );
        assert_eq!(
            (offers[0]["credit_bundle_id"].clone(), &offers[0]["credit_amount"]),
            (json!(bundle(1)), &json!("2.0000000000"))
        );
        assert_eq!(changed["default_auto_top_up_bundle_id"], json!(bundle(2)));
        assert_eq!(
            (&changed["included_credit"], &changed["rollover_type"], &changed["linked_meters"]),
            (&json!("7.0000000000"), &json!("full"), &json!([]))
        );

        // A removed bundle is no longer a default.
        let gone = json!({"credit_bundles": [{"credit_bundle_id": bundle(2), "is_deleted": true}]});
        let changed = merchant.patch(&path, &gone).await.expect(200);
        assert_eq!(changed["default_auto_top_up_bundle_id"], json!(null));
        let before = merchant.events().await.len();
        assert_eq!(merchant.patch(&path, &json!({})).await.expect(200), changed);

        for (body, issue) in [
            (json!({"period_amount": "11"}), "period_amount"),
            (json!({"billing_interval": "day"}), "billing_interval"),
            (json!({"included_credit": "10.5"}), "included_credit"),
            (
                json!({"credit_bundles": [{"credit_bundle_id": bundle(1)}, {"id": bundle(1)}]}),
                "credit_bundles.1.credit_bundle_id",
            ),
            (json!({"credit_bundles": [{"name": "e"}]}), "credit_bundles.0.cost"),
        ] {
            let error = merchant.patch(&path, &body).await.refused(400, "validation_error");
            assert_eq!(issues(&error)[0], issue, "{body}");
        }
        let other = merchant.post("/v1/plans", &body).await.expect(201);
        let theirs = id(&other["credit_bundles"][0], "credit_bundle_id");
        for body in [
            json!({"name": "x", "credit_bundles": [{"credit_bundle_id": bundle(0), "name": "gone"}]}),
            json!({"name": "x", "credit_bundles": [{"credit_bundle_id": theirs, "name": "another plan's"}]}),
            json!({"name": "x", "credit_bundles": [{"credit_bundle_id": theirs, "is_deleted": true}]}),
            json!({"name": "x", "default_auto_top_up_bundle_id": theirs}),
        ] {
            merchant.patch(&path, &body).await.refused(404, "credit_bundle_not_found");
        }
        merchant.patch(&path, &json!({"meter_ids": ["nobody"]})).await.refused(404, "meter_not_found");
        assert_eq!(merchant.get(&path).await.expect(200), changed, "a refused change changes nothing");
        // The other plan with its three bundles.
        assert_eq!(merchant.events().await.len(), before + 4);
    });
}

#[test]
fn bundles_are_listed_by_plan_and_deleted_with_it() {
    run(async {
        let merchant = Merchant::new().await;
        let bundles = |count: usize| -> Value {
            (0..count).map(|n| json!({"name": format!("b{n}"), "cost": "1", "credit_amount": "1"})).collect()
        };
        let mut plans = Vec::new();
        for count in [3, 2] {
            let body = json!({"name": "p", "period_amount": "1", "credit_bundles": bundles(count)});
            plans.push(merchant.post("/v1/plans", &body).await.expect(201));
        }
        let ids = |plan: &Value| -> Vec<Value> {
            let bundles = plan["credit_bundles"].as_array().unwrap().iter().rev();
            bundles.cloned().collect()
        };
        let (first, second) = (ids(&plans[0]), ids(&plans[1]));
        let all: Vec<_> = second.iter().chain(&first).cloned().collect();
        assert_eq!(merchant.pages("/v1/credit_bundles", 2).await, all, "newest first");
        let plan_id = id(&plans[0], "plan_id");
        for filter in [
            format!("plan_id={plan_id}"),
            format!("subscription_config_id={plan_id}"),
            format!("plan_id={plan_id}&subscription_config_id={plan_id}"),
        ] {
            assert_eq!(merchant.pages(&format!("/v1/credit_bundles?{filter}"), 2).await, first, "{filter}");
        }
        let none = merchant.get(&format!("/v1/credit_bundles?plan_id=sc_{NOBODY}")).await.expect(200);
        assert_eq!(none["data"], json!([]));
        for bad in [
            "plan_id=x",
            "subscription_config_id=cb_1",
            &format!("plan_id={plan_id}&subscription_config_id=sc_{NOBODY}"),
        ] {
            let error = merchant.get(&format!("/v1/credit_bundles?{bad}")).await;
            let named = issues(&error.refused(400, "validation_error"));
            assert_eq!(named.len(), 1, "{bad}: {named:?}");
        }

        let path = format!("/v1/subscription_configs/{plan_id}");
        assert_eq!(merchant.delete(&path).await.expect(200), deleted(&plan_id));
        merchant.get(&path).await.refused(404, "plan_not_found");
        merchant.delete(&path).await.refused(404, "plan_not_found");
        merchant.patch(&path, &json!({"name": "x"})).await.refused(404, "plan_not_found");
        assert_eq!(merchant.pages("/v1/credit_bundles", 100).await, second);
        // The cursor of a deleted bundle keeps its place in the list.
        let cursor = id(&first[0], "credit_bundle_id");
        let after = merchant.get(&format!("/v1/credit_bundles?cursor={cursor}")).await.expect(200);
        assert_eq!(after["data"], json!([]));
        let after = merchant.get(&format!("/v1/plans?cursor={}", id(&plans[1], "plan_id"))).await.expect(200);
        assert_eq!(after["data"], json!([]));
    });
}

#[test]
fn plans_are_listed_newest_first_a_page_at_a_time() {
    run(async {
        let merchant = Merchant::new().await;
        let mut made = Vec::new();
        for n in 0..5 {
            let body = json!({"name": format!("p{n}"), "period_amount": 0, "included_credit": n});
            made.insert(0, merchant.post("/v1/plans", &body).await.expect(201));
        }
        for limit in [1, 2, 5, 100] {
            assert_eq!(merchant.pages("/v1/plans", limit).await, made);
        }
    });
}

#[test]
fn a_repeated_creation_creates_one_plan() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({
            "name": "Ten", "period_amount": "10",
            "credit_bundles": [{"name": "b", "cost": "1", "credit_amount": "1"}],
        });
        let again = async |gateway: usize| {
            let request = Request::new("POST", "/v1/plans").json(&body).header("Idempotency-Key", "one");
            let address = merchant.instance.gateway(gateway);
            request.bearer(&merchant.secret_key).send(address).await.unwrap()
        };
        let first = again(0).await;
        let repeated = again(1).await;
        assert_eq!((first.status, repeated.status, &first.body), (201, 201, &repeated.body));
        assert_eq!(repeated.head.header("idempotency-replayed"), Some("true"));
        assert_eq!(merchant.get("/v1/plans").await.expect(200)["data"], json!([first.json()]));
    });
}
