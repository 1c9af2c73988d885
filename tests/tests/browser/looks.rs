//! Every state of the page, on a phone and on a desk: judged for eyes, fingers and screen readers, and kept as a picture
//! under `target/screenshots`.

use farthing_tests::client::{Body, Request};
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::app::{BAD, Checkout, GOOD, fill_card, fill_person, quiet, send};
use crate::window::{Device, Window};

/// Judges the page as it stands.
const AUDIT: &str = include_str!("audit.js");

/// The page as it stands is well on both devices, and every control has a name.
async fn well(window: &Window, name: &str) {
    for device in Device::BOTH {
        window.on(device).await;
        assert_eq!(window.run(AUDIT).await, json!([]), "{name} on a {}", device.name());
        window.picture(&format!("{name}-{}", device.name())).await;
    }
    for control in window.all("a, button:not([hidden]), input:not([type=hidden])").await {
        let (role, label) = window.accessible(&control).await;
        let is_seen = control.is_displayed().await.unwrap();
        assert!(!is_seen || !label.is_empty(), "{name}: a {role} without a name");
    }
}

/// The controls as a screen reader tells them, in their order.
async fn told(window: &Window) -> Vec<(String, String)> {
    let mut told = Vec::new();
    for control in window.all("fieldset, input:not([type=hidden]), button:not([hidden])").await {
        told.push(window.accessible(&control).await);
    }
    told
}

/// Sends a form without the browser; the status of the answer.
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
    request.send(checkout.merchant.gateway()).await.unwrap().status
}

async fn plan(merchant: &Merchant, name: &str, price: &str) -> Value {
    let body = json!({
        "name": name, "period_amount": price,
        "credit_bundles": [{"name": "Small bundle", "cost": "5", "credit_amount": "6"}],
    });
    merchant.post("/v1/plans", &body).await.expect(201)
}

#[test]
fn the_forms_of_a_new_customer_are_well() {
    run(async {
        let merchant = Merchant::new().await;
        let window = Window::open(Device::Phone).await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        window.go(&checkout.url).await;
        well(&window, "topup").await;
        let controls = told(&window).await;
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
        fill_card(&window, GOOD).await;
        window.fill("#card_expiry", "soon").await;
        send(&window).await;
        window.find(".alert").await;
        well(&window, "topup-errors").await;
        window.fill("#amount", "25").await;
        fill_card(&window, BAD).await;
        send(&window).await;
        window.find("#card_number-error").await;
        well(&window, "topup-declined").await;

        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        window.go(&checkout.url).await;
        well(&window, "onboarding").await;
        fill_person(&window).await;
        send(&window).await;
        window.find("main[data-message-type=checkout_success]").await;
        well(&window, "done").await;

        let pro = plan(&merchant, "Pro", "20").await;
        let body = json!({"checkout_mode": "onboarding", "plan_id": pro["plan_id"]});
        let checkout = Checkout::new(&merchant, body).await;
        window.go(&checkout.url).await;
        well(&window, "onboarding-plan").await;
        quiet(&window).await;
    });
}

#[test]
fn the_forms_of_a_subscriber_are_well() {
    run(async {
        let merchant = Merchant::new().await;
        let (pro, team) = (plan(&merchant, "Pro", "20").await, plan(&merchant, "Team", "50").await);
        let free = plan(&merchant, "Free", "0").await;
        let customer = merchant.customer("0").await;
        let window = Window::open(Device::Desk).await;
        let of = |mode: &str, name: &str, value: &Value| json!({"checkout_mode": mode, name: value, "customer_id": customer.id});
        let checkout = Checkout::new(&merchant, of("subscription", "plan_id", &pro["plan_id"])).await;
        window.go(&checkout.url).await;
        well(&window, "subscription").await;
        fill_card(&window, GOOD).await;
        send(&window).await;
        window.find("main[data-message-type=checkout_success]").await;
        well(&window, "subscription-done").await;
        for (name, plan) in [("upgrade", &team), ("downgrade", &free), ("has-it", &pro)] {
            let checkout = Checkout::new(&merchant, of("subscription", "plan_id", &plan["plan_id"])).await;
            window.go(&checkout.url).await;
            well(&window, name).await;
        }
        let bundle = &pro["credit_bundles"][0]["credit_bundle_id"];
        let checkout = Checkout::new(&merchant, of("credit_bundle", "credit_bundle_id", bundle)).await;
        window.go(&checkout.url).await;
        well(&window, "bundle").await;
        window.click("#pay-card").await;
        well(&window, "bundle-other-card").await;
        // The price is another one by now: nothing is charged that was not seen.
        let cheaper =
            json!({"credit_bundles": [{"credit_bundle_id": bundle, "cost": "4", "credit_amount": "6"}]});
        merchant
            .patch(&format!("/v1/plans/{}", pro["plan_id"].as_str().unwrap()), &cheaper)
            .await
            .expect(200);
        window.click("#pay-known").await;
        send(&window).await;
        window.find("#problems").await;
        assert_eq!(window.focus().await, "problems", "what is no field's is told first");
        assert_eq!(window.text("button[type=submit]").await, "Pay $4.00");
        well(&window, "price-changed").await;
        quiet(&window).await;
    });
}

#[test]
fn the_pages_that_only_say_something_are_well() {
    run(async {
        let merchant = Merchant::new().await;
        let window = Window::open(Device::Phone).await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        window.go(&format!("{}x", checkout.url)).await;
        assert_eq!(window.text("h1").await, "This link is not valid");
        well(&window, "unknown").await;

        let customer = merchant.customer("0").await;
        let body = json!({"checkout_mode": "topup", "customer_id": customer.id});
        let gone = Checkout::new(&merchant, body).await;
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        window.go(&gone.url).await;
        assert_eq!(window.text("h1").await, "No longer available");
        well(&window, "gone").await;

        let closed = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        for _ in 0..10 {
            assert_eq!(post(&closed, BAD).await, 422);
        }
        window.go(&closed.url).await;
        assert_eq!(window.text("h1").await, "Too many attempts");
        well(&window, "closed").await;

        merchant.post("/v1/test_clock", &json!({"advance_seconds": 90_000})).await.expect(200);
        window.go(&checkout.url).await;
        assert_eq!(window.text("h1").await, "This link has expired");
        well(&window, "expired").await;
        quiet(&window).await;
    });
}

#[test]
fn a_page_whose_payment_is_being_made_goes_on_by_itself() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = Window::open(Device::Phone).await;
        // The processor, which remembers its charges there, does not answer meanwhile.
        merchant.log.sql.batch_execute("BEGIN; LOCK TABLE test_processor.charge").await.unwrap();
        let looked = async {
            eventually("the payment is asked for", async || {
                (checkout.events("payment.requested").await.len() == 1).then_some(())
            })
            .await;
            window.go(&checkout.url).await;
            assert_eq!(window.text("h1").await, "Processing your payment");
            well(&window, "under-way").await;
            merchant.log.sql.batch_execute("ROLLBACK").await.unwrap();
            window.find("main[data-message-type=checkout_success]").await;
        };
        tokio::join!(looked, post(&checkout, GOOD));
        assert_eq!(checkout.events("payment.succeeded").await.len(), 1);
        quiet(&window).await;
    });
}

#[test]
fn the_audit_finds_what_is_made_wrong() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = Window::open(Device::Phone).await;
        for (spoil, complaint) in [
            ("document.documentElement.lang = 'de'", "the language is not told"),
            ("document.querySelector('h1').outerHTML = '<h2>Add money</h2>'", "not one h1"),
            ("document.querySelector('main').style.width = '470px'", "scrolls sideways: 470 of 390"),
            ("document.querySelector('#phone-hint').remove()", "#phone is described by nothing: phone-hint"),
            ("document.querySelector('button').style.minHeight = '0'", "too small to touch: Pay"),
            ("document.querySelector('h1').style.color = '#999'", "contrast 2.85: Add money"),
            (
                "document.querySelector('#name').style.borderColor = '#ccc'",
                "contrast 1.61: the frame of #name",
            ),
        ] {
            window.go(&checkout.url).await;
            window.run(spoil).await;
            let found = window.run(AUDIT).await;
            let found: Vec<_> = found.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
            assert!(found.len() == 1 && found[0].starts_with(complaint), "{spoil}: {found:?}");
        }
    });
}
