//! The merchant's app: pages on another origin than the gateway's that embed or open a checkout and record the messages
//! they receive, with their origins.

use farthing_tests::merchant::Merchant;
use farthing_tests::provider::whole;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::window::{Device, Window};

/// An app page that embeds the checkout in a frame.
const EMBEDDING_PAGE: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
    <link rel=icon href='data:,'><title>App</title>\
    <style>body{margin:0}iframe{width:100vw;height:100vh;border:0;display:block}</style>\
    <iframe src='CHECKOUT' title=Checkout></iframe>\
    <script>window.messages = []; onmessage = ({origin, data}) => messages.push({origin, data})</script>";

/// An app page that opens the checkout in a window.
const OPENING_PAGE: &str = "<!doctype html><html lang=en><meta charset=utf-8><link rel=icon href='data:,'><title>App</title>\
    <button id=buy onclick=\"window.open('CHECKOUT')\">Buy</button>\
    <script>window.messages = []; onmessage = ({origin, data}) => messages.push({origin, data})</script>";

/// A test card that the processor accepts.
pub(crate) const ACCEPTED_CARD: &str = "4242 4242 4242 4242";

/// A test card that the processor declines.
pub(crate) const DECLINED_CARD: &str = "4000 0000 0000 0002";

/// A checkout session of a merchant with an app.
pub(crate) struct Checkout<'a> {
    pub(crate) merchant: &'a Merchant,
    pub(crate) id: String,
    /// The URL of the hosted page.
    pub(crate) url: String,
}

impl<'a> Checkout<'a> {
    /// Creates a session of `merchant`, whose app is at [`origin`].
    pub(crate) async fn new(merchant: &'a Merchant, body: Value) -> Self {
        let mut request = json!({"origin_url": format!("{}/cart", origin(merchant))});
        request.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let made = merchant.post("/v1/checkout_sessions", &request).await.expect(201);
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Self { merchant, id: text("checkout_session_id"), url: text("url") }
    }

    /// The session, from `GET /v1/checkout_sessions/{id}`.
    pub(crate) async fn session(&self) -> Value {
        self.merchant.get(&format!("/v1/checkout_sessions/{}", self.id)).await.expect(200)
    }

    /// The URL of an app page that embeds the checkout.
    pub(crate) fn embedding_url(&self) -> String {
        self.page(EMBEDDING_PAGE)
    }

    /// The URL of an app page that opens the checkout in a window.
    pub(crate) fn opening_url(&self) -> String {
        self.page(OPENING_PAGE)
    }

    fn page(&self, html: &str) -> String {
        let html = html.replace("CHECKOUT", &self.url);
        let headers = [("Content-Type", "text/html; charset=utf-8")];
        self.merchant.instance.provider.endpoint(move |_| whole(200, &headers, html.as_bytes())).url
    }

    /// Opens the checkout in a frame of the app.
    pub(crate) async fn open_embedded(&self, device: Device) -> Window {
        let window = Window::open(device).await;
        window.visit(&self.embedding_url()).await;
        window.enter_frame().await;
        window.find("main").await;
        window
    }

    /// Opens the checkout without the app.
    pub(crate) async fn open_directly(&self, device: Device) -> Window {
        let window = Window::open(device).await;
        window.visit(&self.url).await;
        window
    }

    /// Checks that the page reports success, that REST shows the session completed, and that the embedding app received
    /// one message. Returns the session's customer.
    pub(crate) async fn expect_completed(&self, window: &Window) -> String {
        window.find("main[data-message-type=checkout_success]").await;
        let session = self.session().await;
        assert!(session["completed_at"].is_string(), "{session}");
        window.leave_frame().await;
        self.expect_message(window, "checkout_success").await;
        expect_no_policy_violation(window).await;
        session["customer_id"].as_str().unwrap().to_owned()
    }

    /// Checks that the app in this tab received one message, of this type, from the origin of the hosted page.
    pub(crate) async fn expect_message(&self, window: &Window, kind: &str) {
        let messages = eventually("the app received a message", async || {
            let messages = window.run("return window.messages").await;
            messages.as_array().is_some_and(|messages| !messages.is_empty()).then_some(messages)
        })
        .await;
        let session = self.session().await;
        let data = json!({
            "type": kind, "checkoutSessionId": self.id,
            "connectionId": session["connection_id"], "customerId": session["customer_id"],
        });
        assert_eq!(
            messages,
            json!([{"origin": format!("http://{}", self.merchant.hosted_pages()), "data": data}])
        );
    }

    /// The bodies of the merchant's events of this kind, from the log.
    pub(crate) async fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.merchant.events().await.into_iter();
        events.filter(|event| event.kind == kind).map(|event| event.body).collect()
    }

    /// The connection of a customer, from REST.
    pub(crate) async fn connection(&self, customer_id: &str) -> Value {
        self.merchant.get(&format!("/v1/connections/{customer_id}")).await.expect(200)
    }

    /// The subscription of a customer, from REST.
    pub(crate) async fn subscription(&self, customer_id: &str) -> Value {
        let response = self.merchant.get(&format!("/v1/customers/{customer_id}/subscription")).await;
        response.expect(200)["subscription"].clone()
    }
}

/// The origin of the app.
pub(crate) fn origin(merchant: &Merchant) -> String {
    format!("http://{}", merchant.instance.provider.authority())
}

/// Checks that the browser logged no violation of a content security policy.
pub(crate) async fn expect_no_policy_violation(window: &Window) {
    let log = window.log().await;
    let violations = log.iter().filter(|entry| entry.contains("Content Security Policy"));
    assert_eq!(violations.count(), 0, "{log:?}");
}

/// Fills in the customer's details.
pub(crate) async fn fill_person(window: &Window) {
    window.fill("#name", "Ada King Lovelace").await;
    window.fill("#email", "ada@example.com").await;
}

/// Fills in a card.
pub(crate) async fn fill_card(window: &Window, number: &str) {
    window.fill("#card_number", number).await;
    window.fill("#card_expiry", "04/39").await;
    window.fill("#card_cvc", "123").await;
}

/// Submits the form.
pub(crate) async fn send(window: &Window) {
    window.click("button[type=submit]").await;
}
