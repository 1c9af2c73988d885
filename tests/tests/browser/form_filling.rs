//! Filling in the form: by keyboard alone, again after an error, with a double click, and without scripts.

use fantoccini::key::Key;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::json;

use crate::merchant_app::{
    ACCEPTED_CARD, Checkout, DECLINED_CARD, expect_no_policy_violation, fill_card, fill_person, send,
};
use crate::window::{Device, Window};

/// The number of payment attempts of a session.
const ATTEMPTS: &str = "SELECT attempts FROM ledger.checkout_attempt WHERE checkout_session_id = $1";

/// Returns whether the focused element has a visible outline.
const HAS_OUTLINE: &str = "const style = getComputedStyle(document.activeElement); \
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2";

/// Waits until the element with this id has the focus and a visible outline.
async fn focus_is_visible_on(window: &Window, id: &str) {
    eventually(&format!("{id} has the focus and an outline"), async || {
        (window.focus().await == id && window.run(HAS_OUTLINE).await == json!(true)).then_some(())
    })
    .await;
}

async fn attempts(checkout: &Checkout<'_>) -> i32 {
    checkout.merchant.log.sql.query_one(ATTEMPTS, &[&checkout.id]).await.unwrap().get(0)
}

#[test]
fn the_form_works_by_keyboard_alone() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.open_directly(Device::Desk).await;
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
            focus_is_visible_on(&window, field).await;
            window.press(text).await;
        }
        window.press(&Key::Tab).await;
        focus_is_visible_on(&window, "submit").await;
        window.press(&Key::Enter).await;

        // The amount is too small: its field has the focus, with its text selected, so typing replaces it.
        window.find("#amount[aria-invalid=true]").await;
        focus_is_visible_on(&window, "amount").await;
        assert!(window.run("return document.title").await.as_str().unwrap().starts_with("Error: "));
        let [tab, enter] = [Key::Tab, Key::Enter];
        window.press(&format!("25{tab}4242424242424242{tab}0439{tab}123{enter}")).await;
        window.find("main[data-message-type=checkout_success]").await;
        assert_eq!(checkout.events("payment.succeeded").await.len(), 1);
        expect_no_policy_violation(&window).await;
    });
}

#[test]
fn a_declined_card_is_reported_and_another_card_pays_and_is_saved() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.open_embedded(Device::Phone).await;
        fill_person(&window).await;
        window.fill("#amount", "25").await;
        fill_card(&window, DECLINED_CARD).await;
        send(&window).await;
        window.find("#card_number[aria-invalid=true]").await;
        assert_eq!(window.focus().await, "card_number");
        assert!(window.text("#card_number-error").await.contains("declined"));
        assert_eq!(window.run("return document.querySelector('#card_number').value").await, json!(""));
        assert_eq!(checkout.events("payment_method.added").await.len(), 0, "a declined card is not saved");
        // Details that were accepted are not asked for again.
        assert_eq!(window.all("#name").await.len(), 0);
        assert_eq!(window.run("return document.querySelector('#amount').value").await, json!("25"));
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        let customer_id = checkout.expect_completed(&window).await;
        drop(window);
        let saved = checkout.events("payment_method.added").await;
        assert_eq!((saved.len(), &saved[0]["card"]["last4"]), (1, &json!("4242")));
        assert_eq!(checkout.events("payment.succeeded").await.len(), 1);
        assert_eq!(checkout.connection(&customer_id).await["wallet"]["balance"], "25.0000000000");

        // A declined card does not replace the saved one.
        let body = json!({"checkout_mode": "topup", "customer_id": customer_id});
        let checkout = Checkout::new(&merchant, body).await;
        let window = checkout.open_directly(Device::Phone).await;
        window.fill("#amount", "10").await;
        window.click("#pay-card").await;
        fill_card(&window, DECLINED_CARD).await;
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
fn a_double_click_pays_once() {
    run(async {
        let merchant = Merchant::new().await;
        for has_scripts in [true, false] {
            let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
            let window = Window::open(Device::Desk).await;
            if !has_scripts {
                window.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
            }
            window.visit(&checkout.url).await;
            fill_person(&window).await;
            window.fill("#amount", "10").await;
            fill_card(&window, ACCEPTED_CARD).await;
            window.click_twice("button[type=submit]").await;
            window.find("main[data-message-type=checkout_success]").await;
            let session = checkout.session().await;
            let connection = checkout.connection(session["customer_id"].as_str().unwrap()).await;
            assert_eq!(connection["wallet"]["balance"], "10.0000000000");
            let payments = checkout.events("payment.requested").await.into_iter();
            let payments = payments.filter(|payment| payment["checkout_session_id"] == checkout.id.as_str());
            assert_eq!(payments.count(), 1);
            if has_scripts {
                assert_eq!(attempts(&checkout).await, 1, "the script submits the form once");
            }
        }
    });
}

#[test]
fn the_page_works_without_scripts() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = Window::open(Device::Phone).await;
        window.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
        window.visit(&checkout.embedding_url()).await;
        assert_eq!(window.run("return window.messages ?? null").await, json!(null), "scripts are disabled");
        window.visit(&checkout.url).await;
        fill_person(&window).await;
        window.fill("#amount", "9").await;
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        window.find("#amount[aria-invalid=true]").await;
        assert_eq!(window.focus().await, "amount", "`autofocus` works outside a frame");
        window.fill("#amount", "10").await;
        fill_card(&window, ACCEPTED_CARD).await;
        send(&window).await;
        window.find("main[data-message-type=checkout_success]").await;
        let session = checkout.session().await;
        let connection = checkout.connection(session["customer_id"].as_str().unwrap()).await;
        assert_eq!(connection["wallet"]["balance"], "10.0000000000");
    });
}

#[test]
fn errors_focus_and_link_to_their_fields() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.open_embedded(Device::Phone).await;
        // The browser reports required fields itself and submits nothing.
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
        expect_no_policy_violation(&window).await;
    });
}
