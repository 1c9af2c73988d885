//! Which origins may embed the hosted page, and which messages it sends to the app.

use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::json;

use crate::merchant_app::{Checkout, expect_no_policy_violation, fill_person, send};
use crate::window::{Device, Window};

#[test]
fn another_origin_than_the_apps_cannot_embed_the_page() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        let window = Window::open(Device::Desk).await;
        // The same server under another host name is another origin.
        let elsewhere = checkout.embedding_url().replacen("127.0.0.1", "localhost", 1);
        window.visit(&elsewhere).await;
        let violation = eventually("the browser logs that it refused the frame", async || {
            window.log().await.into_iter().find(|entry| entry.contains("frame-ancestors"))
        })
        .await;
        assert!(violation.contains("Content Security Policy"), "{violation}");
        window.enter_frame().await;
        assert_eq!(window.all("form, main").await.len(), 0);
        window.leave_frame().await;
        assert_eq!(window.run("return window.messages").await, json!([]));

        // The app's own origin may embed the page.
        window.visit(&checkout.embedding_url()).await;
        window.enter_frame().await;
        window.find("form").await;
        expect_no_policy_violation(&window).await;
    });
}

#[test]
fn an_app_that_embeds_the_page_receives_a_message_on_cancellation() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.open_embedded(Device::Phone).await;
        window.click("#cancel").await;
        window.leave_frame().await;
        checkout.expect_message(&window, "checkout_cancel").await;
        assert!(checkout.session().await["completed_at"].is_null());
        expect_no_policy_violation(&window).await;
    });
}

#[test]
fn an_app_that_opens_the_page_in_a_window_receives_its_message() {
    run(async {
        let merchant = Merchant::new().await;
        for ends in ["checkout_cancel", "checkout_success"] {
            let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
            let window = Window::open(Device::Desk).await;
            window.visit(&checkout.opening_url()).await;
            let app = window.tabs().await.remove(0);
            window.click("#buy").await;
            let page = eventually("the window opens", async || {
                window.tabs().await.into_iter().find(|tab| *tab != app)
            })
            .await;
            window.switch(&page).await;
            if ends == "checkout_cancel" {
                window.click("#cancel").await;
                eventually("the window closes", async || (window.tabs().await.len() == 1).then_some(()))
                    .await;
            } else {
                fill_person(&window).await;
                send(&window).await;
                window.find("main[data-message-type=checkout_success]").await;
            }
            window.switch(&app).await;
            checkout.expect_message(&window, ends).await;
            expect_no_policy_violation(&window).await;
        }
    });
}

#[test]
fn the_cancel_button_is_hidden_without_an_app_to_return_to() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        let window = checkout.open_directly(Device::Desk).await;
        window.find("form").await;
        assert_eq!(window.run("return document.querySelector('#cancel').hidden").await, json!(true));
    });
}
