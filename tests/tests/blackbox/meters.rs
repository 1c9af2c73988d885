//! Meters and products, one resource under two paths: lists, changes and deletion, and how they affect calls.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, deleted, forward, token};
use farthing_tests::provider::{Gate, Step, json};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

const PATHS: [&str; 2] = ["/v1/meters", "/v1/products"];

fn per_call(name: &str, rate: &str) -> Value {
    json!({
        "name": name, "rate_type": "fixed", "tier_type": "requests", "tiers": [{"start": 0, "rate": rate}],
        "service_charge_payer": "merchant",
    })
}

fn text<'a>(shown: &'a Value, name: &str) -> &'a str {
    shown[name].as_str().unwrap_or_else(|| panic!("{name} in {shown}"))
}

#[test]
fn a_meter_is_found_under_both_paths_by_id_and_by_slug() {
    run(async {
        let (merchant, other) = (Merchant::new().await, Merchant::new().await);
        let made = merchant.post("/v1/products", &per_call("Calls", "0.1")).await.expect(201);
        for path in PATHS {
            for name in [text(&made, "meter_id"), "calls"] {
                assert_eq!(merchant.get(&format!("{path}/{name}")).await.expect(200), made);
                let foreign = format!("{path}/{name}");
                for method in ["GET", "PATCH", "DELETE"] {
                    let request = Request::new(method, &foreign).json(&json!({"name": "mine"}));
                    other.rest(request).await.refused(404, "meter_not_found");
                }
            }
            for name in ["nothing", "prd_x", "prd_01ARZ3NDEKTSV4RRFFQ69G5FAV", "%00", "con_1"] {
                for method in ["GET", "PATCH", "DELETE"] {
                    let request = Request::new(method, format!("{path}/{name}")).json(&json!({}));
                    merchant.rest(request).await.refused(404, "meter_not_found");
                }
            }
        }
        assert_eq!(merchant.get("/v1/meters/calls").await.expect(200), made);
        let mut named = per_call("x", "1");
        named["meter_slug"] = json!("prd_calls");
        let error = merchant.post("/v1/meters", &named).await.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["meter_slug"]), "a slug does not look like an id");
    });
}

#[test]
fn meters_are_listed_newest_first_page_by_page() {
    run(async {
        let merchant = Merchant::new().await;
        assert_eq!(merchant.get("/v1/products").await.expect(200), json!({"data": [], "has_more": false}));
        let mut made = Vec::new();
        for number in 0..11 {
            let path = PATHS[number % 2];
            made.insert(0, merchant.post(path, &per_call(&format!("m{number}"), "1")).await.expect(201));
        }
        for path in PATHS {
            for limit in [1, 4, 11, 100] {
                assert_eq!(merchant.pages(path, limit).await, made, "{path} by {limit}");
            }
            let page = merchant.get(path).await.expect(200);
            assert_eq!(page["data"].as_array().unwrap().len(), 10, "10 by default");
            assert_eq!(page["next_cursor"], made[9]["product_id"]);
            let error = merchant.get(&format!("{path}?limit=0")).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["limit"]));
        }
        let cursor = text(&made[4], "meter_id").to_owned();
        merchant.delete(&format!("/v1/meters/{cursor}")).await.expect(200);
        let rest = merchant.get(&format!("/v1/meters?limit=100&cursor={cursor}")).await.expect(200);
        assert_eq!(rest["data"], json!(made[5..]), "the cursor of a deleted meter stays valid");
        made.remove(4);
        assert_eq!(merchant.pages("/v1/products", 3).await, made);
        let theirs = Merchant::new().await.call_meter("1").await;
        for cursor in ["prd_x", "m1", theirs.id.as_str()] {
            merchant.get(&format!("/v1/meters?cursor={cursor}")).await.refused(400, "cursor_invalid");
        }
    });
}

#[test]
fn only_name_tiers_and_payers_can_change() {
    run(async {
        let merchant = Merchant::new().await;
        let made = merchant.post("/v1/meters", &per_call("Calls", "0.1")).await.expect(201);
        let path = format!("/v1/meters/{}", text(&made, "meter_id"));
        let before = merchant.events().await.len();
        for body in [json!({}), json!({"name": "Calls"})] {
            assert_eq!(merchant.patch(&path, &body).await.expect(200), made, "{body}");
        }
        assert_eq!(merchant.events().await.len(), before, "a patch without a change appends nothing");
        let mut expected = made.clone();
        for (path, body, changes) in [
            (path.as_str(), json!({"name": "Dear calls"}), json!({"name": "Dear calls"})),
            (
                "/v1/products/calls",
                json!({"tiers": [{"start": 0, "rate": "0.2"}, {"start": "10", "rate": 1}]}),
                json!({"tiers": [
                    {"start": 0, "rate": "0.2000000000", "type": "requests"},
                    {"start": 10, "rate": "1.0000000000", "type": "requests"},
                ]}),
            ),
            (
                "/v1/meters/calls",
                json!({"base_cost_payer": "merchant", "service_charge_payer": "wallet"}),
                json!({"base_cost_payer": "merchant", "service_charge_payer": "wallet"}),
            ),
            (
                "/v1/products/calls",
                json!({"billingBasis": "requests", "feeStructure": {"fixedFee": 0.3}}),
                json!({"tiers": [{"start": 0, "rate": "0.3000000000", "type": "requests"}]}),
            ),
            ("/v1/meters/calls", json!({"meter_slug": "calls", "rate_type": "fixed", "more": 1}), json!({})),
        ] {
            for (name, value) in changes.as_object().unwrap() {
                expected[name] = value.clone();
            }
            assert_eq!(merchant.patch(path, &body).await.expect(200), expected, "{body}");
            assert_eq!(merchant.get("/v1/meters/calls").await.expect(200), expected, "{body}, read back");
            assert_eq!(merchant.pages("/v1/products", 10).await, std::slice::from_ref(&expected));
        }
        let before = merchant.events().await.len();
        for (body, paths) in [
            (json!({"name": ""}), vec!["name"]),
            (json!({"name": "\u{1F600}".repeat(256)}), vec!["name"]),
            (json!({"tiers": []}), vec!["tiers"]),
            (json!({"tiers": [{"start": 1, "rate": "1"}]}), vec!["tiers.0.start"]),
            (json!({"tiers": [{"start": 0, "rate": 0.5}]}), vec!["tiers.0.rate"]),
            (json!({"tiers": [{"start": 0, "rate": "-1"}]}), vec!["tiers.0.rate"]),
            (json!({"tiers": [{"start": 0, "rate": "1", "type": "minutes"}]}), vec!["tiers.0.type"]),
            (json!({"base_cost_payer": "nobody"}), vec!["base_cost_payer"]),
            (json!({"service_charge_payer": 1}), vec!["service_charge_payer"]),
            (json!({"meter_slug": "other"}), vec!["meter_slug"]),
            (json!({"rate_type": "percentage"}), vec!["rate_type"]),
            (json!({"tier_type": "minutes"}), vec!["tier_type"]),
            (json!({"token_basis": "output"}), vec!["token_basis"]),
            (json!({"billingBasis": "tokens", "feeStructure": {"fixedFee": 1}}), vec!["billingBasis"]),
            (
                json!({"billingBasis": "requests", "feeStructure": {"fixedFee": "x"}}),
                vec!["feeStructure.fixedFee"],
            ),
            (json!([]), vec![""]),
        ] {
            let error = merchant.patch(&path, &body).await.refused(400, "validation_error");
            let issues = error["issues"].as_array().unwrap().iter();
            let found: Vec<String> = issues
                .map(|issue| {
                    let parts = issue["path"].as_array().unwrap().iter();
                    parts.map(|part| part.as_str().unwrap()).collect::<Vec<_>>().join(".")
                })
                .collect();
            assert_eq!(found, paths, "{body}");
        }
        assert_eq!(merchant.get(&path).await.expect(200), expected);
        assert_eq!(merchant.events().await.len(), before, "a refused patch appends nothing");
    });
}

#[test]
fn a_new_price_applies_to_new_calls_only() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::funded("10").await));
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("1").await;
        let gate = Gate::default();
        let held = gate.clone();
        let slow = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({})));
            steps
        });
        let quick = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let billing = merchant.billing(&customer, &meter);
        let past = merchant.fetch(&billing, &quick.url).await;
        let call = forward("GET", &slow.url).bearer(&billing);
        let gateway = merchant.gateway();
        let in_flight = tokio::spawn(async move { call.send(gateway).await.unwrap() });
        eventually("the call is at the provider", async || (slow.calls().len() == 1).then_some(())).await;

        let cheaper = json!({"tiers": [{"start": 0, "rate": "0.25"}], "service_charge_payer": "wallet"});
        merchant.patch(&format!("/v1/meters/{}", meter.id), &cheaper).await.expect(200);
        gate.open();
        let in_flight = in_flight.await.unwrap();
        let call = forward("GET", &quick.url).bearer(&billing);
        let new = call.send(merchant.instance.gateway(1)).await.unwrap();
        for (answer, cost, payer) in [
            (&past, "1.0000000000", "merchant"),
            (&in_flight, "1.0000000000", "merchant"),
            (&new, "0.2547500000", "wallet"),
        ] {
            answer.expect(200);
            let shown = merchant.shown(&answer.request_id(), "completed").await;
            assert_eq!(shown["total_wallet_cost"], cost);
            assert_eq!(shown["service_charge"]["payer"], payer);
        }
        assert_eq!(merchant.balance(&customer).await, "7.7452500000");
    });
}

#[test]
fn a_deleted_meter_is_refused_and_its_calls_are_kept() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::funded("10").await));
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("1").await;
        let gate = Gate::default();
        let held = gate.clone();
        let slow = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({})));
            steps
        });
        let quick = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let billing = merchant.billing(&customer, &meter);
        let past = merchant.fetch(&billing, &quick.url).await;
        past.expect(200);
        let call = forward("GET", &slow.url).bearer(&billing);
        let gateway = merchant.gateway();
        let in_flight = tokio::spawn(async move { call.send(gateway).await.unwrap() });
        eventually("the call is at the provider", async || (slow.calls().len() == 1).then_some(())).await;

        let gone = merchant.delete(&format!("/v1/products/{}", meter.slug)).await.expect(200);
        assert_eq!(gone, deleted(&meter.id));

        for path in PATHS {
            for name in [&meter.id, &meter.slug] {
                for method in ["GET", "PATCH", "DELETE"] {
                    let request = Request::new(method, format!("{path}/{name}")).json(&json!({"name": "x"}));
                    merchant.rest(request).await.refused(404, "meter_not_found");
                }
            }
            assert_eq!(merchant.get(path).await.expect(200)["data"], json!([]));
        }
        let key = &merchant.secret_key;
        for gateway in 0..2 {
            for (fields, status, code) in [
                (json!({"customer_id": customer.id, "meter_slug": meter.slug}), 404, "meter_not_found"),
                (json!({"customer_id": customer.id, "meter_id": meter.id}), 404, "meter_not_found"),
                (
                    json!({"customer_id": customer.id, "product_secret": meter.secret}),
                    401,
                    "product_secret_invalid",
                ),
                (json!({"product_secret": meter.secret}), 401, "product_secret_invalid"),
            ] {
                let mut fields = fields;
                fields["secret_key"] = json!(key);
                let call = forward("GET", &quick.url).bearer(&token(&fields));
                call.send(merchant.instance.gateway(gateway)).await.unwrap().refused(status, code);
            }
        }
        gate.open();
        let in_flight = in_flight.await.unwrap();
        in_flight.expect(200);
        merchant.shown(&in_flight.request_id(), "completed").await;
        let listed = merchant.pages(&format!("/v1/requests?meter_id={}", meter.id), 10).await;
        let ids: Vec<_> = listed.iter().map(|request| text(request, "request_id")).collect();
        assert_eq!(ids, [in_flight.request_id(), past.request_id()]);
        for request in &listed {
            assert_eq!(
                (text(request, "product_id"), text(request, "total_wallet_cost")),
                (&*meter.id, "1.0000000000")
            );
        }

        let mut same_slug = per_call("Another", "2");
        same_slug["meter_slug"] = json!(meter.slug);
        let another = merchant.post("/v1/meters", &same_slug).await.expect(201);
        assert_ne!(another["meter_id"], meter.id, "the slug was free again");
        assert_eq!(merchant.get(&format!("/v1/meters/{}", meter.slug)).await.expect(200), another);
        let answer = merchant.fetch(&billing, &quick.url).await;
        answer.expect(200);
        assert_eq!(merchant.charged(&answer).await["meter_id"], another["meter_id"]);
        assert_eq!(merchant.balance(&customer).await, "6.0000000000");
        let old = token(&json!({"secret_key": key, "product_secret": meter.secret}));
        merchant.fetch(&old, &quick.url).await.refused(401, "product_secret_invalid");
        let report = merchant.instance.operate(&["projections", "verify", "meters"]).await;
        assert_eq!(report["differences"], 0, "{report}");
    });
}

#[test]
fn concurrent_changes_of_a_meter_are_applied_one_after_another() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::new().await));
        let meter = merchant.call_meter("1").await;
        let changes: Vec<_> = (0..20)
            .map(|number| {
                let body = if number % 2 == 0 {
                    json!({"name": format!("name {number}")})
                } else {
                    json!({"tiers": [{"start": 0, "rate": number + 10}]})
                };
                let request = Request::new("PATCH", format!("/v1/meters/{}", meter.id)).json(&body);
                let request = request.bearer(&merchant.secret_key);
                let gateway = merchant.instance.gateway(number);
                tokio::spawn(async move { request.send(gateway).await.unwrap().expect(200) })
            })
            .collect();
        for change in changes {
            change.await.unwrap();
        }
        let events = merchant.events().await;
        let updates: Vec<_> = events.iter().filter(|event| event.kind == "meter.updated").collect();
        assert_eq!(updates.len(), 20);
        let shown = merchant.get(&format!("/v1/meters/{}", meter.id)).await.expect(200);
        let last = &updates[19].body;
        assert_eq!((&shown["name"], &shown["tiers"][0]["rate"]), (&last["name"], &last["tiers"][0]["rate"]));
    });
}
