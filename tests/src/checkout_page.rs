//! The hosted page of a checkout session, over plain HTTP.

use serde_json::{Value, json};

use crate::client::{Body, Request, Response};
use crate::merchant::{Merchant, encoded};

/// The fields of a person.
pub const PERSON: [(&str, &str); 3] =
    [("name", "Ada King Lovelace"), ("email", "ada@example.com"), ("phone", "+49 30 123456")];

/// A card that pays.
pub const ACCEPTED: &str = "4242 4242 4242 4242";

/// A card that is declined.
pub const DECLINED: &str = "4000000000000002";

/// A checkout session with the path of its page.
pub struct Checkout {
    /// Its merchant.
    pub merchant: Merchant,
    /// Its id.
    pub id: String,
    /// The path of the page.
    pub path: String,
}

impl Checkout {
    /// A session of `merchant` with these fields.
    pub async fn of(merchant: Merchant, body: Value) -> Self {
        let mut asked = json!({"origin_url": "https://app.example:8443/cart"});
        asked.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let made = merchant.post("/v1/checkout_sessions", &asked).await.expect(201);
        let url = made["url"].as_str().unwrap();
        let path = url.split_once("/embed/").map(|(_, rest)| format!("/embed/{rest}")).unwrap();
        Self { id: made["checkout_session_id"].as_str().unwrap().to_owned(), merchant, path }
    }

    /// A session of a new merchant in this mode.
    pub async fn new(mode: &str) -> Self {
        Self::of(Merchant::new().await, json!({"checkout_mode": mode})).await
    }

    /// Opens the page.
    pub async fn get(&self) -> Response {
        Request::new("GET", self.path.clone()).send(self.merchant.hosted_pages()).await.unwrap()
    }

    /// Sends the form to the first gateway.
    pub async fn post(&self, fields: &[(&str, &str)]) -> Response {
        self.post_to(0, fields).await
    }

    /// Sends the form to a gateway.
    pub async fn post_to(&self, gateway: usize, fields: &[(&str, &str)]) -> Response {
        form(&self.path, fields).send(self.merchant.instance.hosted_pages(gateway)).await.unwrap()
    }

    /// The session as REST shows it.
    pub async fn shown(&self) -> Value {
        self.merchant.get(&format!("/v1/checkout_sessions/{}", self.id)).await.expect(200)
    }

    /// The merchant's events of this kind.
    pub async fn of_kind(&self, kind: &str) -> Vec<Value> {
        let events = self.merchant.events().await.into_iter();
        events.filter(|event| event.kind == kind).map(|event| event.body).collect()
    }
}

/// A request that sends a form.
pub fn form(path: &str, fields: &[(&str, &str)]) -> Request {
    let pairs: Vec<_> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    Request::new("POST", path)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(Body::Whole(pairs.join("&").into_bytes()))
}

/// The value of a hidden field of a page; empty if the page does not have it.
pub fn hidden<'a>(html: &'a str, name: &str) -> &'a str {
    let field = html.split_once(&format!(r#"name="{name}" value=""#));
    field.and_then(|(_, rest)| rest.split_once('"')).map_or("", |(value, _)| value)
}

/// The fields of a card.
pub fn card(number: &str) -> [(&str, &str); 3] {
    [("card_number", number), ("card_expiry", "04/39"), ("card_cvc", "123")]
}

/// The fields of a payment of `amount` by a new card.
pub fn money<'a>(amount: &'a str, number: &'a str) -> Vec<(&'a str, &'a str)> {
    [&PERSON[..], &card(number), &[("amount", amount)]].concat()
}

/// Asserts that the form succeeded: the browser is redirected to the page, which may name a pending payment.
pub fn went_through(response: &Response, checkout: &Checkout) {
    assert_eq!(response.status, 303, "{}", response.text());
    let to = response.head.header("location").unwrap();
    let (page, payment) = to.split_once("?payment=").unwrap_or((to, "pay_"));
    assert!(checkout.path.ends_with(&format!("/{page}")) && payment.starts_with("pay_"), "{to}");
}
