//! How a form is filled in: by keyboard alone, again after a refusal, in a hurry, and without script.

use fantoccini::key::Key;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::json;

use crate::app::{BAD, Checkout, GOOD, fill_card, fill_person, quiet, send};
use crate::window::{Device, Window};

/// How often a session went to the payment processor.
const ATTEMPTS: &str = "SELECT attempts FROM ledger.checkout_attempt WHERE checkout_session_id = $1";

/// Is the ring around what has the focus seen?
const RING: &str = "const style = getComputedStyle(document.activeElement); \
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2";

/// The focus is on this, and is seen.
async fn is_on(window: &Window, id: &str) {
    eventually(&format!("the focus is on {id}, and seen"), async || {
        (window.focus().await == id && window.run(RING).await == json!(true)).then_some(())
    })
    .await;
}

async fn attempts(checkout: &Checkout<'_>) -> i32 {
    checkout.merchant.log.sql.query_one(ATTEMPTS, &[&checkout.id]).await.unwrap().get(0)
}

#[test]
fn a_keyboard_is_enough() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.alone(Device::Desk).await;
        for (field, text) in [
            ("name", "Ada Lovelace"),
            ("email", "ada@example.com"),
            ("phone", ""),
            ("amount", "5"),
            ("card_number", "4242424242424242"),
            ("card_expiry", "0439"),
            ("card_cvc", "123"),
        ] {
            window.press(&Key::Tab).await;
            is_on(&window, field).await;
            window.press(text).await;
        }
        window.press(&Key::Tab).await;
        is_on(&window, "submit").await;
        window.press(&Key::Enter).await;

        // Too little: the focus is where it is to be mended, and what is typed takes the place of what is wrong.
        window.find("#amount[aria-invalid=true]").await;
        is_on(&window, "amount").await;
        assert!(window.run("return document.title").await.as_str().unwrap().starts_with("Error: "));
        let [tab, enter] = [Key::Tab, Key::Enter];
        window.press(&format!("25{tab}4242424242424242{tab}0439{tab}123{enter}")).await;
        window.find("main[data-message-type=checkout_success]").await;
        assert_eq!(checkout.events("payment.succeeded").await.len(), 1);
        quiet(&window).await;
    });
}

#[test]
fn a_declined_card_is_told_of_and_another_one_pays_and_is_kept() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.framed(Device::Phone).await;
        fill_person(&window).await;
        window.fill("#amount", "25").await;
        fill_card(&window, BAD).await;
        send(&window).await;
        window.find("#card_number[aria-invalid=true]").await;
        assert_eq!(window.focus().await, "card_number");
        assert!(window.text("#card_number-error").await.contains("declined"));
        assert_eq!(window.run("return document.querySelector('#card_number').value").await, json!(""));
        assert_eq!(checkout.events("payment_method.added").await.len(), 0, "a declined card is not kept");
        // What was said once is not asked again.
        assert_eq!(window.all("#name").await.len(), 0);
        assert_eq!(window.run("return document.querySelector('#amount').value").await, json!("25"));
        fill_card(&window, GOOD).await;
        send(&window).await;
        let customer_id = checkout.is_done(&window).await;
        drop(window);
        let kept = checkout.events("payment_method.added").await;
        assert_eq!((kept.len(), &kept[0]["card"]["last4"]), (1, &json!("4242")));
        assert_eq!(checkout.events("payment.succeeded").await.len(), 1);
        assert_eq!(checkout.connection(&customer_id).await["wallet"]["balance"], "25.0000000000");

        // Another card that is declined does not take the place of the one that is kept.
        let body = json!({"checkout_mode": "topup", "customer_id": customer_id});
        let checkout = Checkout::new(&merchant, body).await;
        let window = checkout.alone(Device::Phone).await;
        window.fill("#amount", "10").await;
        window.click("#pay-card").await;
        fill_card(&window, BAD).await;
        send(&window).await;
        window.find("#card_number[aria-invalid=true]").await;
        assert_eq!(window.text("label:has(#pay-known)").await, "Visa ending in 4242");
        window.click("#pay-known").await;
        send(&window).await;
        window.find("main[data-message-type=checkout_success]").await;
        assert_eq!(checkout.connection(&customer_id).await["wallet"]["balance"], "35.0000000000");
    });
}

#[test]
fn who_clicks_twice_pays_once() {
    run(async {
        let merchant = Merchant::new().await;
        for script in [true, false] {
            let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
            let window = Window::open(Device::Desk).await;
            if !script {
                window.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
            }
            window.go(&checkout.url).await;
            fill_person(&window).await;
            window.fill("#amount", "10").await;
            fill_card(&window, GOOD).await;
            window.click_twice("button[type=submit]").await;
            window.find("main[data-message-type=checkout_success]").await;
            let shown = checkout.shown().await;
            let connection = checkout.connection(shown["customer_id"].as_str().unwrap()).await;
            assert_eq!(connection["wallet"]["balance"], "10.0000000000");
            let payments = checkout.events("payment.requested").await.into_iter();
            let payments = payments.filter(|payment| payment["checkout_session_id"] == checkout.id.as_str());
            assert_eq!(payments.count(), 1);
            if script {
                assert_eq!(attempts(&checkout).await, 1, "the script sends the form once");
            }
        }
    });
}

#[test]
fn the_page_works_without_script() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = Window::open(Device::Phone).await;
        window.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
        window.go(&checkout.framing()).await;
        assert_eq!(window.run("return window.told ?? null").await, json!(null), "no script runs");
        window.go(&checkout.url).await;
        fill_person(&window).await;
        window.fill("#amount", "9").await;
        fill_card(&window, GOOD).await;
        send(&window).await;
        window.find("#amount[aria-invalid=true]").await;
        assert_eq!(window.focus().await, "amount", "`autofocus` is enough where the page is not in a frame");
        window.fill("#amount", "10").await;
        fill_card(&window, GOOD).await;
        send(&window).await;
        window.find("main[data-message-type=checkout_success]").await;
        let shown = checkout.shown().await;
        let connection = checkout.connection(shown["customer_id"].as_str().unwrap()).await;
        assert_eq!(connection["wallet"]["balance"], "10.0000000000");
    });
}

#[test]
fn what_is_wrong_leads_to_its_field() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.framed(Device::Phone).await;
        // The browser itself tells what is missing, and sends nothing.
        send(&window).await;
        assert_eq!(window.focus().await, "name");
        assert_eq!(window.all(".alert").await.len(), 0);
        fill_person(&window).await;
        window.fill("#amount", "1").await;
        fill_card(&window, "1234").await;
        window.fill("#card_expiry", "soon").await;
        send(&window).await;
        window.find(".alert").await;
        assert_eq!(window.focus().await, "amount");
        window.click(".alert a[href='#card_expiry']").await;
        assert_eq!(window.focus().await, "card_expiry");
        for field in ["amount", "card_expiry"] {
            let describes =
                format!("return document.querySelector('#{field}').getAttribute('aria-describedby')");
            assert_eq!(window.run(&describes).await, json!(format!("{field}-error {field}-hint")));
            let (role, _) = window.accessible(&window.find(&format!("#{field}")).await).await;
            assert_eq!(role, "textbox");
        }
        quiet(&window).await;
    });
}
