//! A live instance without a payment processor takes no money, and never by test cards.

use std::net::SocketAddr;

use farthing_tests::client::{Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::forward;
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::instant;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::tenant::Tenant;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use farthing_tests::checkout_page::{ACCEPTED, PERSON, card, form, hidden};

const CHARGES: &str = "SELECT count(*) FROM test_processor.charge";

/// The seconds that are left of a cycle when the test's gateway stops.
const LEFT_OF_CYCLE: i64 = 20;

fn test_card() -> Value {
    json!({"card": {"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"}})
}

async fn charges(tenant: &Tenant) -> i64 {
    tenant.log.sql.query_one(CHARGES, &[]).await.unwrap().get(0)
}

async fn submit(to: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Response {
    form(path, fields).send(to).await.unwrap()
}

async fn page(at: SocketAddr, path: &str) -> Response {
    Request::new("GET", path).send(at).await.unwrap()
}

/// Asserts that the page says that there are no payments, and asks for no card.
fn takes_nothing(page: &Response) {
    assert_eq!(page.status, 501, "{}", page.text());
    let html = page.text();
    assert!(html.contains("Payments are not available"), "{html}");
    assert!(!html.contains("card_number") && !html.contains("<form"), "{html}");
}

#[test]
fn nothing_takes_money_on_a_live_instance() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "live_takes_nothing", "live").await;
        let gateway = tenant.gateway(instance).await;
        let (at, pages) = (gateway.address, gateway.pages);
        let plan = |price: &str| {
            json!({"name": "a plan", "period_amount": price,
                   "credit_bundles": [{"name": "more", "cost": "10", "credit_amount": "10"}]})
        };
        let customer = tenant.post(at, "/v1/customers", &json!({"reference_id": "ada"})).await.expect(201);
        let customer = customer["customer_id"].as_str().unwrap();
        let priced = tenant.post(at, "/v1/plans", &plan("5")).await.expect(201);
        let free = tenant.post(at, "/v1/plans", &plan("0")).await.expect(201);
        let bundle = priced["credit_bundles"][0]["credit_bundle_id"].as_str().unwrap();
        let before = tenant.events().await.len();

        let session = |mode: &str, more: Value| {
            let mut body = json!({"checkout_mode": mode, "origin_url": "https://app.example"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let autopay = json!({"autopay_enabled": true, "autopay_threshold": "5", "autopay_amount": "10"});
        let of_customer = json!({"customer_id": customer});
        let bought = json!({"customer_id": customer, "credit_bundle_id": bundle});
        let dear = json!({"plan_id": priced["plan_id"]});
        for (method, path, body) in [
            ("POST", "/v1/payment_methods", test_card()),
            ("POST", "/v1/payment_methods", json!({"card": "nonsense"})),
            ("POST", "/v1/wallet/fund", json!({"amount": "10000"})),
            (
                "POST",
                "/v1/wallet/fund",
                json!({"amount": "10", "payment_method_id": "pm_01ARZ3NDEKTSV4RRFFQ69G5FAV"}),
            ),
            ("PATCH", "/v1/wallet", autopay.clone()),
            ("PATCH", "/v1/customers/ada/wallet", autopay.clone()),
            ("PATCH", "/v1/connections/ada/wallet", autopay),
            ("POST", "/v1/checkout_sessions", session("topup", json!({}))),
            ("POST", "/v1/checkout_sessions", session("topup", of_customer)),
            ("POST", "/v1/checkout_sessions", session("credit_bundle", bought)),
            ("POST", "/v1/checkout_sessions", session("subscription", dear.clone())),
            ("POST", "/v1/checkout_sessions", session("onboarding", dear)),
        ] {
            for key in [None, Some("a-key")] {
                let mut request = Request::new(method, path).json(&body);
                if let (Some(key), "POST") = (key, method) {
                    request = request.header("Idempotency-Key", format!("{key} {body}").as_str());
                }
                tenant.rest(at, request).await.refused(501, "payments_unavailable");
            }
        }
        assert_eq!(tenant.events().await.len(), before, "a refusal leaves no trace");

        // What costs nothing works, without a card.
        for (mode, more) in [("onboarding", json!({})), ("subscription", json!({"plan_id": free["plan_id"]}))]
        {
            let path = tenant.page(at, mode, &more).await;
            let shown = page(pages, &path).await;
            assert_eq!(shown.status, 200, "{}", shown.text());
            assert!(!shown.text().contains("card_number"), "{}", shown.text());
            let text = shown.text();
            let offer = ["price", "credit"].map(|name| (name, hidden(&text, name)));
            if mode == "onboarding" {
                let typed = [&PERSON[..], &card(ACCEPTED), &offer].concat();
                takes_nothing(&submit(pages, &path, &typed).await);
            }
            let sent = submit(pages, &path, &[&PERSON[..], &offer].concat()).await;
            assert_eq!(sent.status, 303, "{}", sent.text());
        }
        let off = Request::new("PATCH", "/v1/wallet").json(&json!({"autopay_enabled": false}));
        assert_eq!(tenant.rest(at, off).await.expect(200)["autopay_enabled"], false);
        assert_eq!(charges(&tenant).await, 0);
        let kinds: Vec<_> = tenant.events().await.into_iter().map(|event| event.kind).collect();
        assert!(kinds.iter().all(|kind| !kind.starts_with("payment")), "{kinds:?}");
        assert!(gateway.logged().contains("payment.no_processor"), "{}", gateway.logged());
    });
}

/// What an earlier release, or a mistake, may have left on an instance that is live now: a card of the test processor,
/// open pages, automatic recharges and a paid subscription that is about to renew.
struct LeftBehind {
    topup: String,
    plan_page: String,
    spend_key: String,
}

impl LeftBehind {
    async fn on(tenant: &Tenant, gateway: &SideGateway) -> Self {
        let (at, pages) = (gateway.address, gateway.pages);
        tenant.post(at, "/v1/payment_methods", &test_card()).await.expect(201);
        let autopay = json!({"autopay_enabled": true, "autopay_threshold": "5", "autopay_amount": "10"});
        tenant.rest(at, Request::new("PATCH", "/v1/wallet").json(&autopay)).await.expect(200);
        let plan = json!({"name": "daily", "period_amount": "1", "billing_interval": "day"});
        let plan = tenant.post(at, "/v1/plans", &plan).await.expect(201);
        let of_plan = json!({"plan_id": plan["plan_id"]});
        let subscribed = tenant.page(at, "subscription", &of_plan).await;
        let shown = page(pages, &subscribed).await.text();
        let price = |name: &str| {
            let (_, rest) = shown.split_once(&format!(r#"name="{name}" value=""#)).unwrap();
            rest.split_once('"').unwrap().0
        };
        let offer = [("price", price("price")), ("credit", price("credit")), ("pay", "card")];
        let sent = submit(pages, &subscribed, &[&PERSON[..], &card(ACCEPTED), &offer].concat()).await;
        assert_eq!(sent.status, 303, "{}", sent.text());
        let topup = tenant.page(at, "topup", &json!({"reference_id": "bob"})).await;
        let plan_page = tenant.page(at, "subscription", &of_plan).await;
        let key = tenant.post(at, "/v1/spend_keys", &json!({"name": "k"})).await.expect(201);
        Self { topup, plan_page, spend_key: key["key"].as_str().unwrap().to_owned() }
    }
}

/// Puts the merchant's clock shortly before the end of the subscription's cycle, and stops the gateway before that end.
async fn stopped_before_the_renewal(tenant: &Tenant, instance: &Instance, mut gateway: SideGateway) {
    loop {
        let renewals = tenant.of_kind("subscription.renewed").await.len();
        let started = tenant.of_kind("subscription.started").await.remove(0);
        let renewed = tenant.of_kind("subscription.renewed").await;
        let last = renewed.last().unwrap_or(&started);
        let end = instant(&last.body["cycle"]["end"]);
        let clock = async |seconds: i64| {
            let body = json!({"advance_seconds": seconds});
            instant(&tenant.post(gateway.address, "/v1/test_clock", &body).await.expect(200)["now"])
        };
        let now = clock(1).await;
        let ahead = (end - now).num_seconds() - LEFT_OF_CYCLE;
        if ahead > 0 {
            clock(ahead).await;
        }
        drop(gateway);
        if tenant.of_kind("payment.requested").await.len() == renewals + 1 {
            return;
        }
        // The machine was slow, and the cycle has ended.
        gateway = tenant.gateway(instance).await;
        eventually("the cycle is renewed", async || {
            (tenant.of_kind("subscription.renewed").await.len() > renewals).then_some(())
        })
        .await;
    }
}

#[test]
fn what_test_mode_left_behind_takes_no_money_on_a_live_instance() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "live_after_test", "test").await;
        let gateway = tenant.gateway(instance).await;
        let left = LeftBehind::on(&tenant, &gateway).await;
        stopped_before_the_renewal(&tenant, instance, gateway).await;
        let (charged, requested) = (charges(&tenant).await, tenant.of_kind("payment.requested").await.len());
        let live = "UPDATE ledger.instance SET mode = 'live'";
        tenant.log.sql.batch_execute(live).await.unwrap();

        let gateway = tenant.gateway(instance).await;
        let (at, pages) = (gateway.address, gateway.pages);
        takes_nothing(&page(pages, &left.topup).await);
        let typed =
            [&PERSON[..], &card(ACCEPTED), &[("amount", "10"), ("price", ""), ("credit", "")]].concat();
        takes_nothing(&submit(pages, &left.topup, &typed).await);
        takes_nothing(&page(pages, &left.plan_page).await);
        let offer = [("price", "1.0000000000"), ("credit", "1.0000000000")];
        takes_nothing(
            &submit(pages, &left.plan_page, &[&PERSON[..], &card(ACCEPTED), &offer].concat()).await,
        );
        tenant
            .post(at, "/v1/wallet/fund", &json!({"amount": "10"}))
            .await
            .refused(501, "payments_unavailable");
        // A call that the wallet does not cover recharges nothing.
        let priced = instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let meter = json!({"name": "m", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]});
        let meter = tenant.post(at, "/v1/meters", &meter).await.expect(201);
        let customer = tenant.post(at, "/v1/customers", &json!({})).await.expect(201);
        let token = farthing_tests::merchant::token(&json!({
            "secret_key": tenant.secret_key, "customer_id": customer["customer_id"],
            "meter_slug": meter["meter_slug"], "disable_billing": true,
        }));
        let refused = forward("GET", &priced.url).bearer(&token).send(at).await.unwrap();
        refused.refused(402, "insufficient_balance");
        let called = forward("GET", &priced.url).bearer(&left.spend_key).send(at).await.unwrap();
        assert_eq!(called.status, 200, "a call without a cost goes on: {}", called.text());

        // The renewal is due by the merchant's clock. Its payment stays open.
        eventually("the renewal is requested", async || {
            (tenant.of_kind("payment.requested").await.len() > requested).then_some(())
        })
        .await;
        drop(gateway);
        let all = tenant.of_kind("payment.requested").await;
        assert_eq!(all.len(), requested + 1, "{:?}", all.iter().map(|event| &event.text).collect::<Vec<_>>());
        let last = all.last().unwrap();
        let ends: Vec<_> = tenant.events().await.into_iter().map(|event| event.key).collect();
        let of_last = |key: &String| key.starts_with(&format!("{}/", last.text("payment_id")));
        assert_eq!(ends.iter().filter(|key| of_last(key)).count(), 1, "the payment has no end: {ends:?}");
        assert_eq!(charges(&tenant).await, charged, "the test processor was not asked");
    });
}
