//! Recurring billing from outside: hosted pages submitted over HTTP, the merchant's clock, and the events and charges of a
//! subscription.

use std::net::SocketAddr;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::checkout_page::hidden;
use crate::client::{Body, Request, Response};
use crate::log::Logged;
use crate::merchant::{Customer, Merchant, encoded};
use crate::wait::eventually;

/// The test number of a card that is accepted.
pub const PAYS: &str = "4242424242424242";

/// The test number of a card that can be stored and is declined at every charge.
pub const IS_DECLINED: &str = "4000000000000341";

const CHARGES: &str = "\
SELECT payment_id, amount::text, declined, asked FROM test_processor.charge WHERE payment_id = ANY($1) ORDER BY payment_id";

/// The means of payment on a hosted page.
#[derive(Debug, Clone, Copy)]
pub enum Means<'a> {
    /// None: there is nothing to pay.
    None,
    /// The stored card of the wallet.
    Known,
    /// A new card with this number.
    Card(&'a str),
}

/// The hosted page of a checkout session.
#[derive(Debug, Clone)]
pub struct Page {
    /// `cs_…`
    pub session_id: String,
    path: String,
}

fn card(number: &str) -> [(&str, &str); 3] {
    [("card_number", number), ("card_expiry", "04/39"), ("card_cvc", "123")]
}

impl Page {
    /// Creates a session with the body `asked`, and returns its page.
    pub async fn of(merchant: &Merchant, asked: &Value) -> Self {
        let mut body = json!({"origin_url": "https://app.example"});
        body.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
        let made = merchant.post("/v1/checkout_sessions", &body).await.expect(201);
        let url = made["url"].as_str().unwrap();
        let (_, rest) = url.split_once("/embed/").unwrap();
        let session_id = made["checkout_session_id"].as_str().unwrap().to_owned();
        Self { session_id, path: format!("/embed/{rest}") }
    }

    /// Submits the form at `price`.
    pub async fn send(&self, to: SocketAddr, price: &str, means: Means<'_>) -> Response {
        let page = self.shown(to).await.text();
        let mut fields = vec![("price", price)];
        let shown = ["credit", "auto_top_up", "starts", "payment_method_id"];
        fields.extend(shown.map(|name| (name, hidden(&page, name))));
        match means {
            Means::None => {}
            Means::Known => fields.push(("pay", "known")),
            Means::Card(number) => {
                fields.push(("pay", "card"));
                fields.extend(card(number));
            }
        }
        self.post(to, &fields).await
    }

    /// Submits these fields.
    pub async fn post(&self, to: SocketAddr, fields: &[(&str, &str)]) -> Response {
        let pairs: Vec<_> =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let form = Request::new("POST", self.path.clone())
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(Body::Whole(pairs.join("&").into_bytes()));
        form.send(to).await.unwrap()
    }

    /// Reads the page.
    pub async fn shown(&self, at: SocketAddr) -> Response {
        Request::new("GET", self.path.clone()).send(at).await.unwrap()
    }
}

impl Merchant {
    /// Completes the page of a new session for `customer`, and returns the session.
    pub async fn check_out(
        &self,
        customer: &Customer,
        asked: &Value,
        price: &str,
        means: Means<'_>,
    ) -> Value {
        let mut asked = asked.clone();
        asked["customer_id"] = json!(customer.id);
        let page = Page::of(self, &asked).await;
        let sent = page.send(self.hosted_pages(), price, means).await;
        assert_eq!(sent.status, 303, "{}", sent.text());
        let session = self.get(&format!("/v1/checkout_sessions/{}", page.session_id)).await.expect(200);
        assert!(session["completed_at"].is_string(), "{session}");
        assert_eq!(session["customer_id"], customer.id.as_str());
        session
    }

    /// Subscribes `customer` to the plan on a hosted page, and returns the subscription.
    pub async fn subscribe(&self, customer: &Customer, plan: &Value, means: Means<'_>) -> Value {
        let asked = json!({"checkout_mode": "subscription", "plan_id": plan["plan_id"]});
        self.check_out(customer, &asked, plan["period_amount"].as_str().unwrap(), means).await;
        self.subscription_of(customer).await
    }

    /// Buys the bundle for `customer` on a hosted page.
    pub async fn buy(&self, customer: &Customer, bundle: &Value, means: Means<'_>) {
        let asked = json!({"checkout_mode": "credit_bundle", "credit_bundle_id": bundle["credit_bundle_id"]});
        self.check_out(customer, &asked, bundle["cost"].as_str().unwrap(), means).await;
    }

    /// Stores a card of `customer` on a hosted page as the payment method.
    pub async fn leave_card(&self, customer: &Customer, number: &str) {
        let asked = json!({"checkout_mode": "onboarding", "customer_id": customer.id});
        let page = Page::of(self, &asked).await;
        let person = [("price", ""), ("name", "Ada Lovelace"), ("email", "ada@example.com")];
        let sent = page.post(self.hosted_pages(), &[&person[..], &card(number)].concat()).await;
        assert_eq!(sent.status, 303, "{}", sent.text());
    }

    /// The subscription of `customer` as the API shows it; `null` if there is none.
    pub async fn subscription_of(&self, customer: &Customer) -> Value {
        let shown = self.get(&format!("/v1/customers/{}/subscription", customer.id)).await.expect(200);
        let older = self.get(&format!("/v1/connections/{}/subscription", customer.id)).await.expect(200);
        assert_eq!(shown, older);
        shown["subscription"].clone()
    }

    /// Advances the merchant's clock to the first whole second at or after `at`, and returns its time.
    pub async fn clock_to(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        let now = self.clock_by(1).await;
        let missing = at - now;
        assert!(missing.num_milliseconds() > 0, "the clock is at {now}, past {at}");
        self.clock_by(missing.num_seconds() + 1).await
    }

    /// Advances the merchant's clock by so many seconds, and returns its time.
    pub async fn clock_by(&self, seconds: i64) -> DateTime<Utc> {
        let body = json!({"advance_seconds": seconds});
        instant(&self.post("/v1/test_clock", &body).await.expect(200)["now"])
    }

    /// The merchant's events of this kind, in order.
    pub async fn of_kind(&self, kind: &str) -> Vec<Logged> {
        let mut events = self.events().await;
        events.retain(|event| event.kind == kind);
        events
    }

    /// The events of this kind of a subscription, in order.
    pub async fn of_subscription(&self, id: &str, kind: &str) -> Vec<Logged> {
        let mut events = self.of_kind(kind).await;
        events.retain(|event| event.text("subscription_id") == id);
        events
    }

    /// Waits until a subscription has exactly `count` events of this kind.
    pub async fn comes_to(&self, id: &str, kind: &str, count: usize) -> Vec<Logged> {
        let events = eventually(&format!("{id} has {count} of {kind}"), async || {
            let events = self.of_subscription(id, kind).await;
            (events.len() >= count).then_some(events)
        })
        .await;
        assert_eq!(events.len(), count, "{id}: {kind}");
        events
    }

    /// All charges of this merchant at the payment processor, in order of request: the amount and the reason of a decline.
    pub async fn charges(&self) -> Vec<(Decimal, Option<String>)> {
        let requested = self.of_kind("payment.requested").await;
        let ids: Vec<_> = requested.iter().map(|event| event.text("payment_id").to_owned()).collect();
        let rows = self.log.sql.query(CHARGES, &[&ids]).await.unwrap();
        let charge_of = |id: &str| {
            let row = rows.iter().find(|row| row.get::<_, &str>(0) == id);
            let row = row.unwrap_or_else(|| panic!("{id} was never charged"));
            (row.get::<_, &str>(1).parse().unwrap(), row.get(2))
        };
        ids.iter().map(|id| charge_of(id)).collect()
    }
}

/// Parses a time.
pub fn instant(value: &Value) -> DateTime<Utc> {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} is not a time"))
}
