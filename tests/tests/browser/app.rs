//! The merchant's app: pages of another origin than the gateway's, that frame a checkout or open it, and remember what they
//! are told, and by whom.

use farthing_tests::merchant::Merchant;
use farthing_tests::provider::whole;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::window::{Device, Window};

/// Frames the checkout.
const FRAMES: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
    <link rel=icon href='data:,'><title>App</title>\
    <style>body{margin:0}iframe{width:100vw;height:100vh;border:0;display:block}</style>\
    <iframe src='CHECKOUT' title=Checkout></iframe>\
    <script>window.told = []; onmessage = ({origin, data}) => told.push({origin, data})</script>";

/// Opens the checkout in a window.
const OPENS: &str = "<!doctype html><html lang=en><meta charset=utf-8><link rel=icon href='data:,'><title>App</title>\
    <button id=buy onclick=\"window.open('CHECKOUT')\">Buy</button>\
    <script>window.told = []; onmessage = ({origin, data}) => told.push({origin, data})</script>";

/// A card that is accepted.
pub(crate) const GOOD: &str = "4242 4242 4242 4242";

/// A card that is declined.
pub(crate) const BAD: &str = "4000 0000 0000 0002";

/// A checkout session, and the app that it belongs to.
pub(crate) struct Checkout<'a> {
    pub(crate) merchant: &'a Merchant,
    pub(crate) id: String,
    /// The hosted page.
    pub(crate) url: String,
}

impl<'a> Checkout<'a> {
    /// A session of `merchant`, whose app is at [`origin`].
    pub(crate) async fn new(merchant: &'a Merchant, body: Value) -> Self {
        let mut wanted = json!({"origin_url": format!("{}/cart", origin(merchant))});
        wanted.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let made = merchant.post("/v1/checkout_sessions", &wanted).await.expect(201);
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Self { merchant, id: text("checkout_session_id"), url: text("url") }
    }

    /// The session as REST shows it.
    pub(crate) async fn shown(&self) -> Value {
        self.merchant.get(&format!("/v1/checkout_sessions/{}", self.id)).await.expect(200)
    }

    /// The address of an app page that frames the checkout.
    pub(crate) fn framing(&self) -> String {
        self.page(FRAMES)
    }

    /// The address of an app page that opens the checkout in a window.
    pub(crate) fn opening(&self) -> String {
        self.page(OPENS)
    }

    fn page(&self, html: &str) -> String {
        let html = html.replace("CHECKOUT", &self.url);
        let headers = [("Content-Type", "text/html; charset=utf-8")];
        self.merchant.instance.provider.endpoint(move |_| whole(200, &headers, html.as_bytes())).url
    }

    /// In a frame of the app.
    pub(crate) async fn framed(&self, device: Device) -> Window {
        let window = Window::open(device).await;
        window.go(&self.framing()).await;
        window.enter_frame().await;
        window.find("main").await;
        window
    }

    /// By itself.
    pub(crate) async fn alone(&self, device: Device) -> Window {
        let window = Window::open(device).await;
        window.go(&self.url).await;
        window
    }

    /// The page says that all is done, REST agrees, and the app that frames it is told so, once; the session's customer.
    pub(crate) async fn is_done(&self, window: &Window) -> String {
        window.find("main[data-message-type=checkout_success]").await;
        let shown = self.shown().await;
        assert!(shown["completed_at"].is_string(), "{shown}");
        window.leave_frame().await;
        self.told(window, "checkout_success").await;
        quiet(window).await;
        shown["customer_id"].as_str().unwrap().to_owned()
    }

    /// The app in this tab is told this, by the page's own origin, once.
    pub(crate) async fn told(&self, window: &Window, kind: &str) {
        let told = eventually("the app is told", async || {
            let told = window.run("return window.told").await;
            told.as_array().is_some_and(|told| !told.is_empty()).then_some(told)
        })
        .await;
        let shown = self.shown().await;
        let data = json!({
            "type": kind, "checkoutSessionId": self.id,
            "connectionId": shown["connection_id"], "customerId": shown["customer_id"],
        });
        assert_eq!(told, json!([{"origin": format!("http://{}", self.merchant.gateway()), "data": data}]));
    }

    /// The bodies of the merchant's events of this kind.
    pub(crate) async fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.merchant.events().await.into_iter();
        events.filter(|event| event.kind == kind).map(|event| event.body).collect()
    }

    /// The connection of a customer as REST shows it.
    pub(crate) async fn connection(&self, customer_id: &str) -> Value {
        self.merchant.get(&format!("/v1/connections/{customer_id}")).await.expect(200)
    }

    /// The subscription of a customer as REST shows it.
    pub(crate) async fn subscription(&self, customer_id: &str) -> Value {
        let shown = self.merchant.get(&format!("/v1/customers/{customer_id}/subscription")).await;
        shown.expect(200)["subscription"].clone()
    }
}

/// Where the app is.
pub(crate) fn origin(merchant: &Merchant) -> String {
    format!("http://{}", merchant.instance.provider.authority())
}

/// The browser had nothing to say of a content security policy.
pub(crate) async fn quiet(window: &Window) {
    let said = window.log().await;
    let violations = said.iter().filter(|said| said.contains("Content Security Policy"));
    assert_eq!(violations.count(), 0, "{said:?}");
}

/// Says who the customer is.
pub(crate) async fn fill_person(window: &Window) {
    window.fill("#name", "Ada King Lovelace").await;
    window.fill("#email", "ada@example.com").await;
}

/// Types a card.
pub(crate) async fn fill_card(window: &Window, number: &str) {
    window.fill("#card_number", number).await;
    window.fill("#card_expiry", "04/39").await;
    window.fill("#card_cvc", "123").await;
}

/// Sends the form.
pub(crate) async fn send(window: &Window) {
    window.click("button[type=submit]").await;
}
