//! Each checkout mode from its first page to its completion, in a frame of the merchant's app, with the result in REST
//! and the message to the app.

use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::run;
use serde_json::{Value, json};

use crate::merchant_app::{ACCEPTED_CARD, Checkout, fill_card, fill_person, send};
use crate::window::Device;

/// Creates a plan with this monthly price and a bundle of 6 dollars of credit for 5.
async fn plan(merchant: &Merchant, name: &str, price: &str) -> Value {
    let body = json!({
        "name": name, "period_amount": price,
        "credit_bundles": [{"name": "Small bundle", "cost": "5", "credit_amount": "6"}],
    });
    merchant.post("/v1/plans", &body).await.expect(201)
}

/// Checks that the last payment has this amount and purpose, and that all payments succeeded.
async fn expect_payment(checkout: &Checkout<'_>, amount: &str, purpose: &str) {
    let requested = checkout.events("payment.requested").await;
    let last = requested.last().unwrap();
    assert_eq!((&last["amount"], &last["purpose"]["for"]), (&json!(amount), &json!(purpose)), "{last}");
    let succeeded = checkout.events("payment.succeeded").await;
    assert_eq!(succeeded.len(), requested.len());
    assert_eq!(succeeded.last().unwrap()["payment_id"], last["payment_id"]);
}

#[test]
fn onboarding_creates_a_customer() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({"checkout_mode": "onboarding", "reference_id": "ada"});
        let checkout = Checkout::new(&merchant, body).await;
        let window = checkout.open_embedded(Device::Phone).await;
        assert_eq!(window.text("h1").await, "Your details");
        fill_person(&window).await;
        window.fill("#phone", "+49 30 123456").await;
        send(&window).await;
        let customer_id = checkout.expect_completed(&window).await;
        let customer = merchant.get("/v1/customers/ada").await.expect(200);
        assert_eq!(customer["customer_id"], json!(customer_id));
        let contact = json!({
            "first_name": "Ada", "last_name": "King Lovelace", "email": "ada@example.com", "phone": "+4930123456",
        });
        assert_eq!((&customer["contact"], &customer["subscription"]), (&contact, &Value::Null));
        assert_eq!(checkout.events("payment.requested").await.len(), 0);
    });
}

#[test]
fn onboarding_with_a_plan_also_subscribes() {
    run(async {
        let merchant = Merchant::new().await;
        let pro = plan(&merchant, "Pro", "20").await;
        let body = json!({"checkout_mode": "onboarding", "plan_id": pro["plan_id"]});
        let checkout = Checkout::new(&merchant, body).await;
        let window = checkout.open_embedded(Device::Desk).await;
        assert_eq!(window.text(".product .price").await, "$20.00 per month");
        assert_eq!(window.text("button[type=submit]").await, "Pay $20.00");
        fill_person(&window).await;
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        let customer_id = checkout.expect_completed(&window).await;
        expect_payment(&checkout, "20.0000000000", "subscribe").await;
        let customer = merchant.get(&format!("/v1/customers/{customer_id}")).await.expect(200);
        assert_eq!(customer["contact"]["email"], "ada@example.com");
        assert_eq!(customer["subscription"]["plan_id"], pro["plan_id"]);
        let subscription = checkout.subscription(&customer_id).await;
        assert_eq!(subscription["credits"]["cycle_remaining"], "20.0000000000");
        assert_eq!(checkout.connection(&customer_id).await["wallet"]["balance"], "0.0000000000");
    });
}

#[test]
fn a_top_up_is_added_to_the_balance() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.open_embedded(Device::Phone).await;
        fill_person(&window).await;
        window.fill("#amount", "25.50").await;
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        let customer_id = checkout.expect_completed(&window).await;
        expect_payment(&checkout, "25.5000000000", "fund").await;
        assert_eq!(checkout.connection(&customer_id).await["wallet"]["balance"], "25.5000000000");
    });
}

#[test]
fn a_subscription_starts_when_paid_upgrades_at_once_and_downgrades_at_the_end_of_its_cycle() {
    run(async {
        let merchant = Merchant::new().await;
        let (pro, team) = (plan(&merchant, "Pro", "20").await, plan(&merchant, "Team", "50").await);
        let subscribe = |plan: &Value, customer: Value| {
            let mut body = json!({"checkout_mode": "subscription", "plan_id": plan["plan_id"]});
            body.as_object_mut().unwrap().extend(customer.as_object().unwrap().clone());
            body
        };
        let checkout = Checkout::new(&merchant, subscribe(&pro, json!({}))).await;
        let window = checkout.open_embedded(Device::Desk).await;
        assert_eq!(window.text("h1").await, "Subscribe");
        fill_person(&window).await;
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        let customer_id = checkout.expect_completed(&window).await;
        drop(window);
        expect_payment(&checkout, "20.0000000000", "subscribe").await;
        let first = checkout.subscription(&customer_id).await;
        assert_eq!((&first["plan_id"], &first["status"]), (&pro["plan_id"], &json!("active")));
        assert_eq!(first["credits"]["cycle_remaining"], "20.0000000000");

        // An upgrade is charged to the saved card and takes effect at once.
        let known = json!({"customer_id": customer_id});
        let checkout = Checkout::new(&merchant, subscribe(&team, known.clone())).await;
        let window = checkout.open_embedded(Device::Phone).await;
        assert_eq!(window.text("h1").await, "Change your plan");
        assert_eq!(window.all("#name, #email").await.len(), 0, "the customer is known");
        let (role, name) = window.accessible(&window.find("#pay-known").await).await;
        assert_eq!((role.as_str(), name.as_str()), ("radio", "Visa ending in 4242"));
        send(&window).await;
        assert_eq!(checkout.expect_completed(&window).await, customer_id);
        drop(window);
        expect_payment(&checkout, "50.0000000000", "upgrade").await;
        let second = checkout.subscription(&customer_id).await;
        assert_eq!(second["subscription_id"], first["subscription_id"]);
        assert_eq!((&second["plan_id"], &second["pending_change"]), (&team["plan_id"], &Value::Null));
        assert_eq!(second["credits"]["cycle_remaining"], "70.0000000000", "the remaining credit is kept");

        // A downgrade takes effect at the end of the cycle, without a payment now.
        let checkout = Checkout::new(&merchant, subscribe(&pro, known.clone())).await;
        let window = checkout.open_embedded(Device::Desk).await;
        assert_eq!(window.all("#card_number, #pay-known").await.len(), 0, "nothing is paid now");
        assert!(window.text(".product").await.contains("You pay nothing today"));
        send(&window).await;
        assert_eq!(checkout.expect_completed(&window).await, customer_id);
        drop(window);
        assert_eq!(checkout.events("payment.requested").await.len(), 2);
        let third = checkout.subscription(&customer_id).await;
        assert_eq!(third["plan_id"], team["plan_id"]);
        let pending = &third["pending_change"];
        assert_eq!(
            (&pending["type"], &pending["effective_at"]),
            (&json!("downgrade"), &third["cycle_end_at"])
        );

        // The current plan cannot be bought again.
        let checkout = Checkout::new(&merchant, subscribe(&team, known)).await;
        let window = checkout.open_embedded(Device::Desk).await;
        assert_eq!(window.text("h1").await, "You already have this plan");
        assert_eq!(window.all("form").await.len(), 0);
    });
}

#[test]
fn a_credit_bundle_is_bought_by_a_subscriber() {
    run(async {
        let merchant = Merchant::new().await;
        let free = plan(&merchant, "Free", "0").await;
        let Customer { id: customer_id, .. } = merchant.customer("0").await;
        let subscribe = json!({"customer_id": customer_id, "plan_id": free["plan_id"]});
        merchant.post("/v1/subscriptions", &subscribe).await.expect(201);
        let bundle_id = &free["credit_bundles"][0]["credit_bundle_id"];
        let body = json!({
            "checkout_mode": "credit_bundle", "credit_bundle_id": bundle_id, "customer_id": customer_id,
        });
        let checkout = Checkout::new(&merchant, body).await;
        let window = checkout.open_embedded(Device::Phone).await;
        assert_eq!(window.text(".product .name").await, "Small bundle");
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        assert_eq!(checkout.expect_completed(&window).await, customer_id);
        expect_payment(&checkout, "5.0000000000", "bundle").await;
        let subscription = checkout.subscription(&customer_id).await;
        assert_eq!(subscription["credits"]["bundle_remaining"], "6.0000000000");
        assert_eq!(checkout.connection(&customer_id).await["wallet"]["balance"], "0.0000000000");
    });
}
