//! Customers: lists, partial changes and deletion, with what a deletion erases and what it keeps.

use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::{Customer, Merchant, deleted, encoded, forward, token};
use farthing_tests::provider::{Gate, Step, json};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// A customer with every field set.
async fn ada(merchant: &Merchant) -> Value {
    let body = json!({
        "reference_id": "ada", "name": "Ada King Lovelace", "email": "ada@example.com", "phone": "+491701234567",
        "metadata": {"plan": "gold"},
    });
    merchant.post("/v1/customers", &body).await.expect(201)
}

fn path_of(customer: &Value) -> String {
    format!("/v1/customers/{}", customer["customer_id"].as_str().unwrap())
}

/// `customer` with some members replaced.
fn with(customer: &Value, changes: &Value) -> Value {
    let mut after = customer.clone();
    for (name, value) in changes.as_object().unwrap() {
        after[name] = value.clone();
    }
    after
}

#[test]
fn a_patch_changes_the_fields_it_names_and_null_clears_them() {
    run(async {
        let merchant = Merchant::new().await;
        let made = ada(&merchant).await;
        let path = path_of(&made);
        assert_eq!(
            merchant.patch(&path, &json!({})).await.expect(200),
            made,
            "nothing named, nothing changed"
        );
        let contact = |changes: &Value| with(&made["contact"], changes);
        let mut expected = made.clone();
        for (body, changes) in [
            (
                json!({"email": "king@example.com"}),
                json!({"contact": contact(&json!({"email": "king@example.com"}))}),
            ),
            (json!({"email": null}), json!({"contact": contact(&json!({"email": null}))})),
            (
                json!({"name": "Grace Brewster Hopper", "phone": null}),
                json!({"contact": {"first_name": "Grace", "last_name": "Brewster Hopper", "email": null, "phone": null}}),
            ),
            (
                json!({"name": "Grace"}),
                json!({"contact": {"first_name": "Grace", "last_name": null, "email": null, "phone": null}}),
            ),
            (
                json!({"name": null, "phone": "+4930123456"}),
                json!({"contact": {"first_name": null, "last_name": null, "email": null, "phone": "+4930123456"}}),
            ),
            (json!({"metadata": {"team": "blue"}, "unknown": 1}), json!({"metadata": {"team": "blue"}})),
            (json!({"metadata": {}}), json!({"metadata": {}})),
            (json!({"metadata": {"a": "\u{1F600}"}}), json!({"metadata": {"a": "\u{1F600}"}})),
            (json!({"metadata": null}), json!({"metadata": {}})),
            (json!({"reference_id": "grace/1 \u{1F600}"}), json!({"reference_id": "grace/1 \u{1F600}"})),
            (json!({"reference_id": null}), json!({"reference_id": null})),
            (
                json!({"reference_id": "\u{1F600}".repeat(255)}),
                json!({"reference_id": "\u{1F600}".repeat(255)}),
            ),
        ] {
            expected = with(&expected, &changes);
            assert_eq!(merchant.patch(&path, &body).await.expect(200), expected, "{body}");
            assert_eq!(merchant.get(&path).await.expect(200), expected, "{body}, read back");
        }
        let long =
            merchant.patch(&path, &json!({"name": format!("A {}", "é".repeat(253))})).await.expect(200);
        assert_eq!(long["contact"]["last_name"], "é".repeat(253));

        let events = merchant.events().await;
        let updates: Vec<_> = events.iter().filter(|event| event.kind == "customer.updated").collect();
        for (revision, event) in (1..).zip(&updates) {
            assert_eq!(event.body["revision"], revision, "{}", event.key);
        }
        let logged: String = events.iter().map(|event| event.text.as_str()).collect();
        for personal in ["Grace", "Hopper", "king@example.com", "+4930123456"] {
            assert!(!logged.contains(personal), "the log contains {personal}");
        }
    });
}

#[test]
fn a_customer_can_be_patched_by_reference_id() {
    run(async {
        let merchant = Merchant::new().await;
        let made = ada(&merchant).await;
        let patched =
            merchant.patch("/v1/customers/ada", &json!({"reference_id": "a/b c"})).await.expect(200);
        assert_eq!(patched, with(&made, &json!({"reference_id": "a/b c"})));
        merchant.get("/v1/customers/ada").await.refused(404, "customer_not_found");
        let renamed = format!("/v1/customers/{}", encoded("a/b c"));
        assert_eq!(merchant.get(&renamed).await.expect(200), patched);
        let found =
            merchant.get(&format!("/v1/connections?reference_id={}", encoded("a/b c"))).await.expect(200);
        assert_eq!(found["data"][0]["customer_id"], made["customer_id"]);
        let listed = merchant.get("/v1/customers?reference_id=ada").await.expect(200);
        assert_eq!(listed["data"], json!([]));
        merchant.patch("/v1/customers/nobody", &json!({})).await.refused(404, "customer_not_found");
    });
}

#[test]
fn an_invalid_patch_is_refused_with_its_issues_and_changes_nothing() {
    run(async {
        let merchant = Merchant::new().await;
        let made = ada(&merchant).await;
        let path = path_of(&made);
        let before = merchant.events().await.len();
        for (body, paths) in [
            (json!({"name": ""}), vec!["name"]),
            (json!({"name": " "}), vec!["name"]),
            (json!({"name": "\t\u{a0}\u{3000}"}), vec!["name"]),
            (json!({"name": 7}), vec!["name"]),
            (json!({"name": "\u{1F600}".repeat(256)}), vec!["name"]),
            (json!({"name": "a\0b"}), vec!["name"]),
            (json!({"email": "nobody"}), vec!["email"]),
            (json!({"email": "a@b@c"}), vec!["email"]),
            (json!({"email": ["a@b"]}), vec!["email"]),
            (json!({"phone": "0301234567"}), vec!["phone"]),
            (json!({"phone": "+0301234567"}), vec!["phone"]),
            (json!({"phone": "+1 555 123"}), vec!["phone"]),
            (json!({"phone": "+1234567890123456"}), vec!["phone"]),
            (json!({"reference_id": ""}), vec!["reference_id"]),
            (json!({"reference_id": "con_1"}), vec!["reference_id"]),
            (json!({"reference_id": "a\0"}), vec!["reference_id"]),
            (json!({"reference_id": "\u{1F600}".repeat(256)}), vec!["reference_id"]),
            (json!({"metadata": []}), vec!["metadata"]),
            (json!({"metadata": "x"}), vec!["metadata"]),
            (json!({"metadata": {"a-b": "c"}}), vec!["metadata.a-b"]),
            (json!({"metadata": {"a": null}}), vec!["metadata.a"]),
            (json!({"metadata": {"a": "x".repeat(256)}}), vec!["metadata.a"]),
            (json!({"metadata": {"a": "\0"}}), vec!["metadata.a"]),
            (json!({"email": "x", "phone": "y", "metadata": {"ok": "z"}}), vec!["email", "phone"]),
            (json!([]), vec![""]),
            (json!("text"), vec![""]),
        ] {
            let error = merchant.patch(&path, &body).await.refused(400, "validation_error");
            let issues = error["issues"].as_array().unwrap();
            let found: Vec<String> = issues.iter().map(issue_path).collect();
            assert_eq!(found, paths, "{body}");
        }
        assert_eq!(merchant.get(&path).await.expect(200), made);
        assert_eq!(merchant.events().await.len(), before, "nothing was appended");
    });
}

fn issue_path(issue: &Value) -> String {
    let parts: Vec<&str> =
        issue["path"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
    parts.join(".")
}

#[test]
fn a_reference_id_names_one_customer_at_a_time() {
    run(async {
        let (merchant, other) = (Merchant::new().await, Merchant::new().await);
        let made = ada(&merchant).await;
        let theirs = ada(&other).await;
        let second = merchant.post("/v1/customers", &json!({"reference_id": "second"})).await.expect(201);
        let path = path_of(&second);
        let conflict = json!({"reference_id": "ada", "email": "second@example.com", "metadata": {"a": "b"}});
        merchant.patch(&path, &conflict).await.refused(409, "reference_id_conflict");
        assert_eq!(merchant.get(&path).await.expect(200), second, "a refused patch changes nothing");
        merchant.patch(&path, &json!({"reference_id": "second"})).await.expect(200);
        merchant.patch(&path_of(&made), &json!({"reference_id": "first"})).await.expect(200);
        let renamed = merchant.patch(&path, &json!({"reference_id": "ada"})).await.expect(200);
        assert_eq!(renamed["customer_id"], second["customer_id"]);
        let existing = merchant.post("/v1/customers", &json!({"reference_id": "ada"})).await.expect(200);
        assert_eq!(existing, renamed, "creation follows the change");
        merchant.post("/v1/customers", &json!({"reference_id": "second"})).await.expect(201);
        assert_eq!(other.get("/v1/customers/ada").await.expect(200), theirs, "another merchant's is another");
    });
}

#[test]
fn one_of_two_concurrent_patches_to_the_same_reference_id_is_refused() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::new().await));
        for round in 0..10 {
            let reference = format!("wanted {round}");
            let mut patches = Vec::new();
            for gateway in 0..2 {
                let customer = merchant.post("/v1/customers", &json!({})).await.expect(201);
                let body = json!({"reference_id": reference, "metadata": {"won": "yes"}});
                let request = Request::new("PATCH", path_of(&customer)).json(&body);
                let request = request.bearer(&merchant.secret_key);
                let gateway = merchant.instance.gateway(gateway);
                patches.push(tokio::spawn(async move { request.send(gateway).await.unwrap() }));
            }
            let mut answers = Vec::new();
            for patch in patches {
                answers.push(patch.await.unwrap());
            }
            answers.sort_by_key(|answer: &Response| answer.status);
            let winner = answers[0].expect(200);
            answers[1].refused(409, "reference_id_conflict");
            let found = merchant.get(&format!("/v1/customers/{}", encoded(&reference))).await.expect(200);
            assert_eq!(found, winner);
        }
    });
}

#[test]
fn a_deletion_is_immediate_and_keeps_the_history() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let made = ada(&merchant).await;
        let id = made["customer_id"].as_str().unwrap().to_owned();
        let customer = Customer { id: id.clone(), reference_id: "ada".to_owned() };
        merchant.credit(&customer, "5").await;
        let meter = merchant.call_meter("0.5").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let secret = merchant.get("/v1/connections/ada").await.expect(200)["connection_secret"].clone();
        let answer = merchant.fetch(&merchant.billing(&customer, &meter), &endpoint.url).await;
        answer.expect(200);
        let request = merchant.shown(&answer.request_id(), "completed").await;
        let key = merchant.post("/v1/spend_keys", &json!({"name": "k", "customer_id": id})).await.expect(201);

        let gone = merchant.delete(&path_of(&made)).await.expect(200);
        assert_eq!(gone, deleted(&id));

        for name in ["ada", &id] {
            for (method, tail) in [("GET", ""), ("GET", "/subscription"), ("PATCH", ""), ("DELETE", "")] {
                let path = format!("/v1/customers/{name}{tail}");
                let body = json!({"email": "again@example.com"});
                merchant
                    .rest(Request::new(method, path).json(&body))
                    .await
                    .refused(404, "customer_not_found");
            }
            for (method, tail) in [("GET", ""), ("GET", "/subscription"), ("DELETE", "")] {
                let path = format!("/v1/connections/{name}{tail}");
                merchant.rest(Request::new(method, path)).await.refused(404, "connection_not_found");
            }
            let key = json!({"name": "k", "connection_id": name});
            merchant.post("/v1/spend_keys", &key).await.refused(404, "customer_not_found");
        }
        for list in ["/v1/customers", "/v1/connections", "/v1/customers?reference_id=ada"] {
            assert_eq!(merchant.get(list).await.expect(200)["data"], json!([]), "{list}");
        }
        let before = merchant.events().await.len();
        for gateway in 0..2 {
            for (fields, status, code) in [
                (json!({"customer_id": id, "meter_slug": meter.slug}), 404, "customer_not_found"),
                (json!({"customer_id": "ada", "meter_slug": meter.slug}), 404, "customer_not_found"),
                (json!({"connection_secret": secret}), 401, "connection_secret_invalid"),
                (
                    json!({"connection_secret": secret, "product_secret": meter.secret}),
                    401,
                    "connection_secret_invalid",
                ),
            ] {
                let credential = token(&with(&fields, &json!({"secret_key": merchant.secret_key})));
                let call = forward("GET", &endpoint.url).bearer(&credential);
                call.send(merchant.instance.gateway(gateway)).await.unwrap().refused(status, code);
            }
            let call = forward("GET", &endpoint.url).bearer(key["key"].as_str().unwrap());
            call.send(merchant.instance.gateway(gateway)).await.unwrap().refused(401, "spend_key_invalid");
        }
        assert_eq!(endpoint.calls().len(), 1, "no further call reached the provider");
        assert_eq!(merchant.events().await.len(), before, "nothing was appended");
        let credit = ["wallet", "credit", "--connection", &id, "--amount", "1", "--reason", "x"];
        assert!(!merchant.instance.command(&credit).await.status.success());

        let shown = merchant.get(&format!("/v1/requests/{}", answer.request_id())).await.expect(200);
        assert_eq!(shown, request, "its calls are kept");
        let listed = merchant.get(&format!("/v1/requests?customer_id={id}")).await.expect(200);
        assert_eq!(listed["data"], json!([request]));
        let wallets = merchant.log.states("wallet").await;
        let mine = wallets.iter().find(|(_, wallet)| wallet["owner"] == json!({"customer": id}));
        assert_eq!(mine.unwrap().1["balance"], "4.5000000000", "its money is kept in the log");
        let personal = "SELECT count(*) FROM personal.customer WHERE customer_id = $1";
        let kept: i64 = merchant.log.sql.query_one(personal, &[&id]).await.unwrap().get(0);
        assert_eq!(kept, 0, "its personal data is erased");

        let again = merchant.post("/v1/customers", &json!({"reference_id": "ada"})).await.expect(201);
        assert_ne!(again["customer_id"], made["customer_id"], "the reference id was free again");
        assert_eq!(again["contact"]["email"], json!(null));
        assert_eq!(merchant.get("/v1/customers/ada").await.expect(200), again);
        for model in ["customers", "connections"] {
            let report = merchant.instance.operate(&["projections", "verify", model]).await;
            assert_eq!(report["differences"], 0, "{report}");
        }
        let audit = merchant.instance.operate(&["log", "verify"]).await;
        assert_eq!(audit["ok"], true, "{audit}");
    });
}

#[test]
fn a_call_in_flight_at_the_deletion_is_charged_as_admitted() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::funded("10").await));
        let customer = merchant.customer("5").await;
        let meter = merchant.call_meter("0.5").await;
        let gate = Gate::default();
        let held = gate.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({})));
            steps
        });
        let call = forward("GET", &endpoint.url).bearer(&merchant.billing(&customer, &meter));
        let gateway = merchant.gateway();
        let call = tokio::spawn(async move { call.send(gateway).await.unwrap() });
        eventually("the call is at the provider", async || (endpoint.calls().len() == 1).then_some(())).await;
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        gate.open();
        let answer = call.await.unwrap();
        answer.expect(200);
        let metered = merchant.charged(&answer).await;
        assert_eq!(metered["total_wallet_cost"], "0.5000000000");
        let wallets = merchant.log.states("wallet").await;
        let (_, wallet) =
            wallets.iter().find(|(_, wallet)| wallet["owner"] == json!({"customer": customer.id})).unwrap();
        assert_eq!((&wallet["balance"], &wallet["held"]), (&json!("4.5000000000"), &json!("0.0000000000")));
        merchant.shown(&answer.request_id(), "completed").await;
    });
}

#[test]
fn one_of_several_concurrent_deletions_succeeds() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::new().await));
        let customer = ada(merchant).await;
        let deletions: Vec<_> = (0..8)
            .map(|number| {
                let request = Request::new("DELETE", path_of(&customer)).bearer(&merchant.secret_key);
                let gateway = merchant.instance.gateway(number);
                tokio::spawn(async move { request.send(gateway).await.unwrap() })
            })
            .collect();
        let mut successes = 0;
        for deletion in deletions {
            let answer = deletion.await.unwrap();
            if answer.status == 200 {
                successes += 1;
                assert_eq!(answer.json(), deleted(customer["customer_id"].as_str().unwrap()));
            } else {
                answer.refused(404, "customer_not_found");
            }
        }
        assert_eq!(successes, 1);
        let deleted = merchant.events().await.iter().filter(|event| event.kind == "customer.deleted").count();
        assert_eq!(deleted, 1);
    });
}

#[test]
fn customers_are_listed_newest_first_page_by_page() {
    run(async {
        let merchant = Merchant::new().await;
        assert_eq!(merchant.get("/v1/customers").await.expect(200), json!({"data": [], "has_more": false}));
        let mut made = Vec::new();
        for number in 0..12 {
            let body = json!({"reference_id": format!("c{number}"), "name": format!("Customer {number}")});
            made.insert(0, merchant.post("/v1/customers", &body).await.expect(201));
        }
        for limit in [1, 5, 12, 100] {
            assert_eq!(merchant.pages("/v1/customers", limit).await, made, "limit {limit}");
        }
        let page = merchant.get("/v1/customers").await.expect(200);
        assert_eq!(page["data"].as_array().unwrap().len(), 10, "10 by default");
        assert_eq!((&page["has_more"], &page["next_cursor"]), (&json!(true), &made[9]["customer_id"]));
        let found = merchant.get("/v1/customers?reference_id=c3").await.expect(200);
        assert_eq!(found["data"], json!([made[8]]));
        let cursor = made[5]["customer_id"].as_str().unwrap().to_owned();
        let beyond = format!("/v1/customers?reference_id=c3&cursor={cursor}");
        assert_eq!(merchant.get(&beyond).await.expect(200)["data"], json!([made[8]]));
        let before = format!("/v1/customers?reference_id=c11&cursor={cursor}");
        assert_eq!(merchant.get(&before).await.expect(200)["data"], json!([]));

        merchant.delete(&path_of(&made[5])).await.expect(200);
        let rest = merchant.get(&format!("/v1/customers?limit=100&cursor={cursor}")).await.expect(200);
        assert_eq!(rest["data"], json!(made[6..]), "the cursor of a deleted customer stays valid");
        made.remove(5);
        assert_eq!(merchant.pages("/v1/customers", 4).await, made);

        let theirs = ada(&Merchant::new().await).await;
        for cursor in
            ["con_x", "x", "%00", theirs["customer_id"].as_str().unwrap(), "con_01ARZ3NDEKTSV4RRFFQ69G5FAV"]
        {
            let refused = merchant.get(&format!("/v1/customers?cursor={cursor}")).await;
            assert_eq!(refused.status, 400, "{cursor}: {}", refused.text());
            assert_eq!(refused.json()["error"]["issues"][0]["path"], json!(["cursor"]), "{cursor}");
        }
        for limit in ["0", "101", "-1", "1.5", "ten", ""] {
            let error = merchant.get(&format!("/v1/customers?limit={limit}")).await;
            let error = error.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["limit"]), "{limit}");
        }
    });
}

#[test]
fn a_customer_without_a_subscription_is_shown_without_one() {
    run(async {
        let merchant = Merchant::new().await;
        let made = ada(&merchant).await;
        for path in [path_of(&made), "/v1/customers/ada".to_owned(), "/v1/connections/ada".to_owned()] {
            let shown = merchant.get(&format!("{path}/subscription")).await.expect(200);
            assert_eq!(shown, json!({"subscription": null}));
        }
        merchant.get("/v1/customers/eve/subscription").await.refused(404, "customer_not_found");
        merchant.get("/v1/connections/eve/subscription").await.refused(404, "connection_not_found");
        assert_eq!(merchant.get("/v1/active-subscriptions").await.expect(200), json!([]), "a bare array");
        let bare = Request::new("GET", "/v1/active-subscriptions").send(merchant.gateway()).await.unwrap();
        bare.refused(401, "auth_header_missing");
    });
}

#[test]
fn a_customer_of_another_merchant_is_not_found() {
    run(async {
        let (merchant, other) = (Merchant::new().await, Merchant::new().await);
        let theirs = ada(&other).await;
        let path = path_of(&theirs);
        for (method, tail) in [("GET", ""), ("GET", "/subscription"), ("PATCH", ""), ("DELETE", "")] {
            let body = json!({"email": "eve@example.com"});
            let request = Request::new(method, format!("{path}{tail}")).json(&body);
            merchant.rest(request).await.refused(404, "customer_not_found");
        }
        let id = theirs["customer_id"].as_str().unwrap();
        for (method, tail) in [("GET", ""), ("GET", "/subscription"), ("DELETE", "")] {
            let request = Request::new(method, format!("/v1/connections/{id}{tail}"));
            merchant.rest(request).await.refused(404, "connection_not_found");
        }
        assert_eq!(merchant.get("/v1/customers").await.expect(200)["data"], json!([]));
        assert_eq!(other.get(&path).await.expect(200), theirs);
    });
}
