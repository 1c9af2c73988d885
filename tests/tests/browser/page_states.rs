//! Every state of the page, on a phone and on a desktop: audited for contrast, touch targets and accessibility, with a
//! screenshot in `target/screenshots`.

use farthing_tests::client::{Body, Request};
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::merchant_app::{
    ACCEPTED_CARD, Checkout, DECLINED_CARD, expect_no_policy_violation, fill_card, fill_person, send,
};
use crate::window::{Device, Window};

/// Returns the list of defects of the current page.
const AUDIT: &str = include_str!("audit.js");

/// Checks that the audit finds no defect of the current page on either device, and that every visible control has a
/// name.
async fn passes_audit(window: &Window, name: &str) {
    for device in Device::BOTH {
        window.set_device(device).await;
        assert_eq!(window.run(AUDIT).await, json!([]), "{name} on a {}", device.name());
        window.picture(&format!("{name}-{}", device.name())).await;
    }
    for control in window.all("a, button:not([hidden]), input:not([type=hidden])").await {
        let (role, label) = window.accessible(&control).await;
        let is_visible = control.is_displayed().await.unwrap();
        assert!(!is_visible || !label.is_empty(), "{name}: a {role} without a name");
    }
}

/// The roles and names of the controls for assistive technology, in document order.
async fn controls(window: &Window) -> Vec<(String, String)> {
    let mut controls = Vec::new();
    for control in window.all("fieldset, input:not([type=hidden]), button:not([hidden])").await {
        controls.push(window.accessible(&control).await);
    }
    controls
}

/// Submits the form without the browser. Returns the status of the response.
async fn post(checkout: &Checkout<'_>, card: &str) -> u16 {
    let fields = [
        ("name", "Ada"),
        ("email", "ada@example.com"),
        ("amount", "10"),
        ("card_number", card),
        ("card_expiry", "0439"),
        ("card_cvc", "123"),
    ];
    let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let (_, path) = checkout.url.split_once("/embed/").unwrap();
    let request = Request::new("POST", format!("/embed/{path}"))
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(Body::Whole(pairs.join("&").into_bytes()));
    request.send(checkout.merchant.hosted_pages()).await.unwrap().status
}

async fn plan(merchant: &Merchant, name: &str, price: &str) -> Value {
    let body = json!({
        "name": name, "period_amount": price,
        "credit_bundles": [{"name": "Small bundle", "cost": "5", "credit_amount": "6"}],
    });
    merchant.post("/v1/plans", &body).await.expect(201)
}

#[test]
fn the_forms_of_a_new_customer_pass_the_audit() {
    run(async {
        let merchant = Merchant::new().await;
        let window = Window::open(Device::Phone).await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        window.visit(&checkout.url).await;
        passes_audit(&window, "topup").await;
        let controls = controls(&window).await;
        let controls: Vec<_> = controls.iter().map(|(role, name)| (role.as_str(), name.as_str())).collect();
        assert_eq!(
            controls,
            [
                ("group", "Your details"),
                ("textbox", "Name"),
                ("textbox", "Email address"),
                ("textbox", "Phone number (optional)"),
                ("group", "Top-up"),
                ("textbox", "Amount"),
                ("group", "Payment"),
                ("textbox", "Card number"),
                ("textbox", "Expiry date"),
                ("textbox", "Security code"),
                ("button", "Pay"),
            ]
        );
        fill_person(&window).await;
        window.fill("#amount", "1").await;
        fill_card(&window, ACCEPTED_CARD).await;
        window.fill("#card_expiry", "soon").await;
        send(&window).await;
        window.find(".alert").await;
        passes_audit(&window, "topup-errors").await;
        window.fill("#amount", "25").await;
        fill_card(&window, DECLINED_CARD).await;
        send(&window).await;
        window.find("#card_number-error").await;
        passes_audit(&window, "topup-declined").await;

        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        window.visit(&checkout.url).await;
        passes_audit(&window, "onboarding").await;
        fill_person(&window).await;
        send(&window).await;
        window.find("main[data-message-type=checkout_success]").await;
        passes_audit(&window, "done").await;

        let pro = plan(&merchant, "Pro", "20").await;
        let body = json!({"checkout_mode": "onboarding", "plan_id": pro["plan_id"]});
        let checkout = Checkout::new(&merchant, body).await;
        window.visit(&checkout.url).await;
        passes_audit(&window, "onboarding-plan").await;
        expect_no_policy_violation(&window).await;
    });
}

#[test]
fn the_forms_of_a_subscriber_pass_the_audit() {
    run(async {
        let merchant = Merchant::new().await;
        let (pro, team) = (plan(&merchant, "Pro", "20").await, plan(&merchant, "Team", "50").await);
        let free = plan(&merchant, "Free", "0").await;
        let customer = merchant.customer("0").await;
        let window = Window::open(Device::Desk).await;
        let of = |mode: &str, name: &str, value: &Value| json!({"checkout_mode": mode, name: value, "customer_id": customer.id});
        let checkout = Checkout::new(&merchant, of("subscription", "plan_id", &pro["plan_id"])).await;
        window.visit(&checkout.url).await;
        passes_audit(&window, "subscription").await;
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        window.find("main[data-message-type=checkout_success]").await;
        passes_audit(&window, "subscription-done").await;
        for (name, plan) in [("upgrade", &team), ("downgrade", &free), ("has-it", &pro)] {
            let checkout = Checkout::new(&merchant, of("subscription", "plan_id", &plan["plan_id"])).await;
            window.visit(&checkout.url).await;
            passes_audit(&window, name).await;
        }
        let bundle = &pro["credit_bundles"][0]["credit_bundle_id"];
        let checkout = Checkout::new(&merchant, of("credit_bundle", "credit_bundle_id", bundle)).await;
        window.visit(&checkout.url).await;
        passes_audit(&window, "bundle").await;
        window.click("#pay-card").await;
        passes_audit(&window, "bundle-other-card").await;
        // The price has changed since the page was loaded: the new price is shown before it is charged.
        let cheaper =
            json!({"credit_bundles": [{"credit_bundle_id": bundle, "cost": "4", "credit_amount": "6"}]});
        merchant
            .patch(&format!("/v1/plans/{}", pro["plan_id"].as_str().unwrap()), &cheaper)
            .await
            .expect(200);
        window.click("#pay-known").await;
        send(&window).await;
        window.find("#problems").await;
        assert_eq!(window.focus().await, "problems", "an error of no field comes first");
        assert_eq!(window.text("button[type=submit]").await, "Pay $4.00");
        passes_audit(&window, "price-changed").await;
        expect_no_policy_violation(&window).await;
    });
}

#[test]
fn the_pages_without_a_form_pass_the_audit() {
    run(async {
        let merchant = Merchant::new().await;
        let window = Window::open(Device::Phone).await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        window.visit(&format!("{}x", checkout.url)).await;
        assert_eq!(window.text("h1").await, "This link is not valid");
        passes_audit(&window, "unknown").await;

        let customer = merchant.customer("0").await;
        let body = json!({"checkout_mode": "topup", "customer_id": customer.id});
        let gone = Checkout::new(&merchant, body).await;
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        window.visit(&gone.url).await;
        assert_eq!(window.text("h1").await, "No longer available");
        passes_audit(&window, "gone").await;

        let closed = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        for _ in 0..10 {
            assert_eq!(post(&closed, DECLINED_CARD).await, 422);
        }
        window.visit(&closed.url).await;
        assert_eq!(window.text("h1").await, "Too many attempts");
        passes_audit(&window, "closed").await;

        merchant.post("/v1/test_clock", &json!({"advance_seconds": 90_000})).await.expect(200);
        window.visit(&checkout.url).await;
        assert_eq!(window.text("h1").await, "This link has expired");
        passes_audit(&window, "expired").await;
        expect_no_policy_violation(&window).await;
    });
}

#[test]
fn a_page_with_a_pending_payment_updates_itself() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = Window::open(Device::Phone).await;
        // The test processor stores charges in this table, so the lock delays its response.
        merchant.log.sql.batch_execute("BEGIN; LOCK TABLE test_processor.charge").await.unwrap();
        let watching = async {
            eventually("the payment is requested", async || {
                (checkout.events("payment.requested").await.len() == 1).then_some(())
            })
            .await;
            window.visit(&checkout.url).await;
            assert_eq!(window.text("h1").await, "Processing your payment");
            passes_audit(&window, "under-way").await;
            merchant.log.sql.batch_execute("ROLLBACK").await.unwrap();
            window.find("main[data-message-type=checkout_success]").await;
        };
        tokio::join!(watching, post(&checkout, ACCEPTED_CARD));
        assert_eq!(checkout.events("payment.succeeded").await.len(), 1);
        expect_no_policy_violation(&window).await;
    });
}

#[test]
fn the_audit_finds_each_defect() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = Window::open(Device::Phone).await;
        for (script, defect) in [
            ("document.documentElement.lang = 'de'", "the language is missing"),
            ("document.querySelector('h1').outerHTML = '<h2>Add money</h2>'", "0 h1 elements, expected 1"),
            ("document.querySelector('main').style.width = '470px'", "scrolls sideways: 470 of 390"),
            ("document.querySelector('#phone-hint').remove()", "#phone has an empty description: phone-hint"),
            ("document.querySelector('button').style.minHeight = '0'", "too small to touch: Pay"),
            ("document.querySelector('h1').style.color = '#999'", "contrast 2.85: Add money"),
            (
                "document.querySelector('#name').style.borderColor = '#ccc'",
                "contrast 1.61: the border of #name",
            ),
        ] {
            window.visit(&checkout.url).await;
            window.run(script).await;
            let found = window.run(AUDIT).await;
            let found: Vec<_> = found.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
            assert!(found.len() == 1 && found[0].starts_with(defect), "{script}: {found:?}");
        }
    });
}
