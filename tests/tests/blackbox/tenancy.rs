//! Merchants are isolated: every operation of the served API document is called with every id of another merchant. An
//! operation that this file has no values for is a failure, so no endpoint is left out.

use std::collections::{BTreeMap, BTreeSet};

use farthing_tests::client::Request;
use farthing_tests::document::{Document, Operation};
use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// A merchant with one resource of each kind.
struct Owner {
    merchant: Merchant,
    customer_id: String,
    reference_id: String,
    meter_id: String,
    meter_slug: String,
    spend_key_id: String,
    secret_key_id: String,
    payment_method_id: String,
    request_id: String,
    checkout_session_id: String,
    webhook_id: String,
    webhook_event_id: String,
    plan_id: String,
    credit_bundle_id: String,
    subscription_id: String,
    customers_wallet_id: String,
}

impl Owner {
    async fn new() -> Self {
        let merchant = Merchant::funded("5").await;
        let customer = merchant.customer("5").await;
        let meter = merchant.call_meter("0.01").await;
        let body = json!({"name": "theirs", "customer_id": customer.id});
        let spend_key = merchant.post("/v1/spend_keys", &body).await.expect(201);
        let session = json!({"checkout_mode": "onboarding", "origin_url": "https://app.example", "customer_id": customer.id});
        let session = merchant.post("/v1/checkout_sessions", &session).await.expect(201);
        let card = json!({"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"});
        let payment_method = merchant.post("/v1/payment_methods", &json!({"card": card})).await.expect(201);
        let issued = merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id]).await;
        let endpoint =
            merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 3}})));
        let credential = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
        }));
        let call = Request::new(
            "POST",
            format!("/v1/forward?u={}", farthing_tests::merchant::encoded(&endpoint.url)),
        )
        .header("x-service-metadata", r#"{"owner":"theirs"}"#)
        .json(&json!({"input": "hello"}));
        let called = merchant.send(&credential, call).await;
        assert_eq!(called.status, 200, "{}", called.text());
        merchant.shown(&called.request_id(), "completed").await;
        let receiver = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let body = json!({"url": receiver.url, "events": ["customer.created"]});
        let webhook = merchant.post("/v1/webhooks", &body).await.expect(201);
        merchant.customer_called("delivered", "0").await;
        let deliveries = format!("/v1/webhooks/{}/deliveries", webhook["webhook_id"].as_str().unwrap());
        let delivery = eventually("the webhook is delivered", async || {
            let delivery = merchant.get(&deliveries).await.expect(200)["data"][0].clone();
            (delivery["status"] == "delivered").then_some(delivery)
        })
        .await;
        let plan = json!({
            "name": "theirs", "period_amount": 0, "included_credit": "1",
            "credit_bundles": [{"name": "theirs", "cost": "1", "credit_amount": "1"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let subscription = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
        let subscription =
            merchant.post("/v1/subscriptions", &subscription).await.expect(201)["subscription"].clone();
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let wallet = merchant.get(&format!("/v1/customers/{}/wallet", customer.id)).await.expect(200);
        Self {
            customers_wallet_id: text(&wallet, "wallet_id"),
            subscription_id: text(&subscription, "subscription_id"),
            plan_id: text(&plan, "plan_id"),
            credit_bundle_id: text(&plan["credit_bundles"][0], "credit_bundle_id"),
            customer_id: customer.id,
            reference_id: customer.reference_id,
            meter_id: meter.id,
            meter_slug: meter.slug,
            spend_key_id: text(&spend_key, "spend_key_id"),
            secret_key_id: text(&issued, "secret_key_id"),
            payment_method_id: text(&payment_method, "payment_method_id"),
            request_id: called.request_id(),
            checkout_session_id: text(&session, "checkout_session_id"),
            webhook_id: text(&webhook, "webhook_id"),
            webhook_event_id: text(&delivery, "webhook_event_id"),
            merchant,
        }
    }

    /// The ids that may follow `segment` in a path.
    fn named(&self, segment: &str, operation: &Operation) -> Vec<String> {
        match segment {
            "customers" | "connections" => vec![self.customer_id.clone(), self.reference_id.clone()],
            "meters" | "products" => vec![self.meter_id.clone(), self.meter_slug.clone()],
            "spend_keys" => vec![self.spend_key_id.clone()],
            "secret_keys" => vec![self.secret_key_id.clone()],
            "requests" => vec![self.request_id.clone()],
            "checkout_sessions" => vec![self.checkout_session_id.clone()],
            "webhooks" => vec![self.webhook_id.clone()],
            "deliveries" => vec![self.webhook_event_id.clone()],
            "plans" | "subscription_configs" | "subscription-configs" => vec![self.plan_id.clone()],
            "subscriptions" => vec![self.subscription_id.clone()],
            "credit_bundles" => vec![self.credit_bundle_id.clone()],
            _ => panic!("{}: no value for the parameter after {segment}/", operation.name()),
        }
    }

    /// The ids that a filter or body member called `name` may hold; `None` if it names no resource.
    fn mentioned(&self, name: &str, operation: &Operation) -> Vec<String> {
        match name {
            "customer_id" => vec![self.customer_id.clone(), self.reference_id.clone()],
            "connection_id" => vec![self.customer_id.clone()],
            "reference_id" => vec![self.reference_id.clone()],
            "meter_id" | "product_id" => vec![self.meter_id.clone()],
            "meter_ids" | "product_ids" => vec![self.meter_id.clone(), self.meter_slug.clone()],
            "plan_id" | "subscription_config_id" => vec![self.plan_id.clone()],
            "auto_top_up_bundle_id" | "default_auto_top_up_bundle_id" | "credit_bundle_id" => {
                vec![self.credit_bundle_id.clone()]
            }
            "meter_slug" => vec![self.meter_slug.clone()],
            "request_id" => vec![self.request_id.clone()],
            // The provider's own id of its response is not a resource.
            "response_id" => Vec::new(),
            "payment_method_id" => vec![self.payment_method_id.clone()],
            "wallet_id" => vec![self.merchant.wallet_id.clone(), self.customers_wallet_id.clone()],
            "metadata_filters" => vec![r#"[["owner","theirs"]]"#.to_owned()],
            _ if name.ends_with("_id") || name.ends_with("_ids") || name.ends_with("_secret") => {
                panic!("{}: no value for {name}", operation.name())
            }
            _ => Vec::new(),
        }
    }

    fn secrets_and_ids(&self) -> [&str; 13] {
        [
            &self.customer_id,
            &self.reference_id,
            &self.meter_id,
            &self.spend_key_id,
            &self.secret_key_id,
            &self.payment_method_id,
            &self.request_id,
            &self.checkout_session_id,
            &self.webhook_id,
            &self.webhook_event_id,
            &self.plan_id,
            &self.credit_bundle_id,
            &self.subscription_id,
        ]
    }

    /// Everything that its own GETs show, apart from values that depend on the clock. A proof depends on the events of others.
    async fn shown(&self, operations: &[Operation]) -> BTreeMap<String, Value> {
        let mut shown = BTreeMap::new();
        let is_own = |operation: &&Operation| operation.method == "GET" && operation.id != "get_ledger_proof";
        for operation in operations.iter().filter(is_own) {
            let target = operation.target(|segment| self.named(segment, operation).remove(0));
            let target = with_required(operation, &target, &self.merchant);
            let answer = self.merchant.get(&target).await;
            assert_eq!(answer.status, 200, "{target}: {}", answer.text());
            shown.insert(target, answer.json());
        }
        shown
    }
}

/// `target` with the operation's required query parameters; a wallet is the one of `merchant`.
fn with_required(operation: &Operation, target: &str, merchant: &Merchant) -> String {
    let takes = |name: &str| operation.query.iter().any(|query| query == name);
    let mut parameters = Vec::new();
    if takes("start") {
        parameters.push("start=2026-01-01T00:00:00Z&end=2026-12-31T00:00:00Z".to_owned());
    }
    if takes("wallet_id") && !target.contains("wallet_id=") {
        parameters.push(format!("wallet_id={}", merchant.wallet_id));
    }
    if parameters.is_empty() {
        return target.to_owned();
    }
    let joint = if target.contains('?') { '&' } else { '?' };
    format!("{target}{joint}{}", parameters.join("&"))
}

/// A body that would succeed but for the ids in it.
fn body_of(operation: &Operation) -> Value {
    match operation.id.split("_at_").next().unwrap_or_default() {
        // The caller adds the ids that a subscription requires.
        "create_customer" | "create_subscription" => json!({}),
        "create_meter" => {
            json!({"name": "mine", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]})
        }
        "create_checkout_session" => {
            json!({"checkout_mode": "onboarding", "origin_url": "https://app.example"})
        }
        "create_spend_key" => json!({"name": "mine"}),
        "create_plan" => json!({"name": "mine", "period_amount": "1"}),
        "report_request" | "create_request" => json!({"request_id": "mine", "tokens": 1}),
        "fund_wallet" => json!({"amount": "10"}),
        "create_payment_method" => {
            json!({"card": {"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"}})
        }
        "advance_test_clock" => json!({"advance_seconds": 1}),
        "update_wallet" | "update_customer_wallet" | "update_connection_wallet" => {
            json!({"autopay_enabled": false})
        }
        _ if ["PUT", "PATCH"].contains(&operation.method.as_str()) => json!({"name": "mine"}),
        _ => panic!("{}: this test does not know a good body", operation.name()),
    }
}

fn request(operation: &Operation, target: String) -> Request {
    let request = Request::new(&operation.method, target);
    if operation.body.is_some() { request.json(&body_of(operation)) } else { request }
}

#[test]
fn resources_of_another_merchant_are_not_found_by_id() {
    run(async {
        let (owner, stranger) = (Owner::new().await, Merchant::new().await);
        let operations = Document::served().await.standard();
        let before = owner.shown(&operations).await;
        for operation in &operations {
            let parameters = operation.path_parameters();
            let Some((segment, _)) = parameters.first() else { continue };
            for name in owner.named(segment, operation) {
                let target = operation.target(|before| {
                    let name = if before == segment {
                        name.clone()
                    } else {
                        owner.named(before, operation).remove(0)
                    };
                    farthing_tests::merchant::encoded(&name)
                });
                let answer = stranger.rest(request(operation, target.clone())).await;
                assert_eq!(answer.status, 404, "{} {target}: {}", operation.method, answer.text());
                let code = operation.refuses(&answer, &target);
                assert!(code.ends_with("_not_found") && code != "route_not_found", "{target}: {code}");
            }
        }
        assert_eq!(owner.shown(&operations).await, before, "another merchant changed something");
    });
}

#[test]
fn no_list_or_filter_returns_resources_of_another_merchant() {
    run(async {
        let (owner, stranger) = (Owner::new().await, Merchant::new().await);
        for operation in Document::served().await.standard() {
            if operation.method != "GET" || !operation.path_parameters().is_empty() {
                continue;
            }
            let plain = operation.target(|_| String::new());
            let mut targets = vec![plain.clone()];
            for name in &operation.query {
                let values = owner.mentioned(name, &operation).into_iter();
                targets
                    .extend(values.map(|value| {
                        format!("{plain}?{name}={}", farthing_tests::merchant::encoded(&value))
                    }));
            }
            for target in targets {
                let target = with_required(&operation, &target, &stranger);
                let answer = stranger.get(&target).await;
                assert!([200, 404].contains(&answer.status), "{target}: {}", answer.text());
                for id in owner.secrets_and_ids() {
                    assert!(!answer.text().contains(id), "{target} shows {id}: {}", answer.text());
                }
                if answer.status == 200 && answer.json()["totals"].is_object() {
                    assert_eq!(answer.json()["totals"]["total_requests"], 0, "{target}");
                }
            }
            if operation.query.iter().any(|name| name == "cursor") {
                for id in owner.secrets_and_ids() {
                    let cursor = farthing_tests::merchant::encoded(id);
                    let target = with_required(&operation, &format!("{plain}?cursor={cursor}"), &stranger);
                    let answer = stranger.get(&target).await;
                    assert_eq!(answer.status, 400, "{plain}?cursor={id}: {}", answer.text());
                    operation.refuses(&answer, id);
                }
            }
        }
    });
}

#[test]
fn bodies_cannot_refer_to_resources_of_another_merchant() {
    run(async {
        let (owner, stranger) = (Owner::new().await, Merchant::new().await);
        let mine = stranger.customer("0").await.id;
        let plan = json!({"name": "mine", "period_amount": 0});
        let plan = stranger.post("/v1/plans", &plan).await.expect(201)["plan_id"].clone();
        let subscribing =
            [(["customer_id", "connection_id"], json!(mine)), (["plan_id", "subscription_config_id"], plan)];
        // Ids that merchants choose may be chosen by another merchant too.
        let own = BTreeSet::from(["reference_id", "meter_slug", "request_id", "name"]);
        for operation in Document::served().await.standard() {
            let parameters = operation.path_parameters();
            for member in operation.body.iter().flatten().filter(|_| parameters.is_empty()) {
                if own.contains(member.as_str()) {
                    continue;
                }
                for value in owner.mentioned(member, &operation) {
                    let mut body = body_of(&operation);
                    let all_else = subscribing.iter().filter(|(words, _)| !words.contains(&member.as_str()));
                    for (words, own) in all_else.filter(|_| operation.id == "create_subscription") {
                        body[words[0]] = own.clone();
                    }
                    body[member] = if member.ends_with("_ids") { json!([value]) } else { json!(value) };
                    let target = operation.target(|_| String::new());
                    let answer = stranger.rest(Request::new(&operation.method, target).json(&body)).await;
                    assert_eq!(answer.status, 404, "{} {body}: {}", operation.name(), answer.text());
                    operation.refuses(&answer, member);
                }
            }
        }
    });
}

#[test]
fn changes_cannot_refer_to_resources_of_another_merchant() {
    run(async {
        let (owner, stranger) = (Owner::new().await, Owner::new().await);
        let operations = Document::served().await.standard();
        let before = [owner.shown(&operations).await, stranger.shown(&operations).await];
        // Ids that merchants choose may be chosen by another merchant too.
        let own = BTreeSet::from(["reference_id", "meter_slug", "name"]);
        let mut crossed = BTreeSet::new();
        for operation in &operations {
            if operation.path_parameters().is_empty() {
                continue;
            }
            let target = operation.target(|segment| stranger.named(segment, operation).remove(0));
            let members = operation.body.iter().flatten().filter(|member| !own.contains(member.as_str()));
            for member in members {
                // Both merchants may have the same slug.
                let values = owner.mentioned(member, operation).into_iter();
                for value in values.filter(|value| *value != stranger.meter_slug) {
                    let mut body = body_of(operation);
                    body[member] = if member.ends_with("_ids") { json!([value]) } else { json!(value) };
                    let request = Request::new(&operation.method, target.clone()).json(&body);
                    let answer = stranger.merchant.rest(request).await;
                    assert_eq!(answer.status, 404, "{} {body}: {}", operation.name(), answer.text());
                    operation.refuses(&answer, member);
                    crossed.insert(member.clone());
                }
            }
            if operation.body.iter().flatten().any(|member| member == "credit_bundles") {
                for bundle in [
                    json!({"credit_bundle_id": owner.credit_bundle_id, "cost": "2"}),
                    json!({"credit_bundle_id": owner.credit_bundle_id, "is_deleted": true}),
                ] {
                    let body = json!({"credit_bundles": [bundle]});
                    let request = Request::new(&operation.method, target.clone()).json(&body);
                    let answer = stranger.merchant.rest(request).await;
                    assert_eq!(answer.status, 404, "{} {body}: {}", operation.name(), answer.text());
                    operation.refuses(&answer, "credit_bundles");
                    crossed.insert("credit_bundles".to_owned());
                }
            }
        }
        for member in
            ["auto_top_up_bundle_id", "default_auto_top_up_bundle_id", "meter_ids", "credit_bundles"]
        {
            assert!(crossed.contains(member), "{member} is named in no change: {crossed:?}");
        }
        let after = [owner.shown(&operations).await, stranger.shown(&operations).await];
        assert_eq!(after, before, "something was changed");
    });
}
