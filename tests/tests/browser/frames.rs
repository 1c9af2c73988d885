//! Where the page may be shown, and whom it talks to.

use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::json;

use crate::app::{Checkout, fill_person, quiet, send};
use crate::window::{Device, Window};

#[test]
fn the_browser_shows_the_page_in_no_frame_of_another_origin() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        let window = Window::open(Device::Desk).await;
        // The same server under another name is another origin.
        let elsewhere = checkout.framing().replacen("127.0.0.1", "localhost", 1);
        window.go(&elsewhere).await;
        let said = eventually("the browser says that it refuses", async || {
            let said = window.log().await;
            said.into_iter().find(|said| said.contains("frame-ancestors"))
        })
        .await;
        assert!(said.contains("Content Security Policy"), "{said}");
        window.enter_frame().await;
        assert_eq!(window.all("form, main").await.len(), 0);
        window.leave_frame().await;
        assert_eq!(window.run("return window.told").await, json!([]));

        // The frame is allowed where the app is.
        window.go(&checkout.framing()).await;
        window.enter_frame().await;
        window.find("form").await;
        quiet(&window).await;
    });
}

#[test]
fn an_app_that_frames_the_page_is_told_of_a_cancellation() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "topup"})).await;
        let window = checkout.framed(Device::Phone).await;
        window.click("#cancel").await;
        window.leave_frame().await;
        checkout.told(&window, "checkout_cancel").await;
        assert!(checkout.shown().await["completed_at"].is_null());
        quiet(&window).await;
    });
}

#[test]
fn an_app_that_opens_the_page_in_a_window_is_told_and_the_window_goes() {
    run(async {
        let merchant = Merchant::new().await;
        for ends in ["checkout_cancel", "checkout_success"] {
            let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
            let window = Window::open(Device::Desk).await;
            window.go(&checkout.opening()).await;
            let app = window.tabs().await.remove(0);
            window.click("#buy").await;
            let page = eventually("the window is open", async || {
                window.tabs().await.into_iter().find(|tab| *tab != app)
            })
            .await;
            window.switch(&page).await;
            if ends == "checkout_cancel" {
                window.click("#cancel").await;
                eventually("it closes", async || (window.tabs().await.len() == 1).then_some(())).await;
            } else {
                fill_person(&window).await;
                send(&window).await;
                window.find("main[data-message-type=checkout_success]").await;
            }
            window.switch(&app).await;
            checkout.told(&window, ends).await;
            quiet(&window).await;
        }
    });
}

#[test]
fn nobody_is_asked_to_cancel_who_has_no_app_to_go_back_to() {
    run(async {
        let merchant = Merchant::new().await;
        let checkout = Checkout::new(&merchant, json!({"checkout_mode": "onboarding"})).await;
        let window = checkout.alone(Device::Desk).await;
        window.find("form").await;
        assert_eq!(window.run("return document.querySelector('#cancel').hidden").await, json!(true));
    });
}
