//! Signatures of webhook deliveries, verified with the published library of Standard Webhooks: each part of a delivery
//! belongs to its signature, and a repeated delivery keeps its id.

use std::sync::atomic::{AtomicUsize, Ordering};

use farthing_tests::client::Request;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{Call, Endpoint, Step, json as answer_json};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use http::HeaderMap;
use serde_json::json;
use standardwebhooks::Webhook;

use super::webhooks::receiver;

/// A webhook with a receiver.
struct Hook {
    id: String,
    secret: String,
    receiver: Endpoint,
}

impl Hook {
    /// A webhook of `merchant` for new customers whose receiver responds with `respond`.
    async fn new(merchant: &Merchant, respond: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let receiver = receiver(merchant, respond);
        let body = json!({"url": receiver.url, "events": ["customer.created"]});
        let made = merchant.post("/v1/webhooks", &body).await.expect(201);
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Self { id: text("webhook_id"), secret: text("webhook_secret"), receiver }
    }

    /// The `number`th delivery, once it has arrived.
    async fn delivery(&self, number: usize) -> Delivery {
        let arrived = async || self.receiver.calls().get(number).cloned();
        Delivery::of(&*eventually("the delivery arrives", arrived).await)
    }

    fn verifies(&self, delivery: &Delivery) -> bool {
        delivery.verifies_with(&self.secret)
    }
}

/// What a receiver verifies.
#[derive(Debug, Clone)]
struct Delivery {
    id: String,
    timestamp: String,
    signature: String,
    body: Vec<u8>,
}

impl Delivery {
    fn of(call: &Call) -> Self {
        let header = |name: &str| call.head.header(name).unwrap_or_else(|| panic!("no {name}")).to_owned();
        Self {
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            body: call.body.clone(),
        }
    }

    fn verifies_with(&self, secret: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", self.id.parse().unwrap());
        headers.insert("webhook-timestamp", self.timestamp.parse().unwrap());
        headers.insert("webhook-signature", self.signature.parse().unwrap());
        Webhook::new(secret).unwrap().verify(&self.body, &headers).is_ok()
    }

    /// The same with the time so many seconds later.
    fn later(&self, seconds: i64) -> Self {
        let timestamp = self.timestamp.parse::<i64>().unwrap() + seconds;
        Self { timestamp: timestamp.to_string(), ..self.clone() }
    }
}

fn ok(_: &Call) -> Vec<Step> {
    answer_json(200, &json!({}))
}

/// Somebody who saw a delivery sends it to the receiver with another id, time, body or signature, or signed for another
/// webhook: none of these verifies.
#[test]
fn the_id_the_time_the_body_and_the_secret_each_belong_to_a_signature() {
    run(async {
        let (merchant, other) = (Merchant::new().await, Merchant::new().await);
        let (one, two) = (Hook::new(&merchant, ok).await, Hook::new(&merchant, ok).await);
        let theirs = Hook::new(&other, ok).await;
        merchant.customer_called("first", "0").await;
        other.customer_called("first", "0").await;
        let (good, of_two) = (one.delivery(0).await, two.delivery(0).await);
        let of_others = theirs.delivery(0).await;
        merchant.customer_called("second", "0").await;
        let second = eventually("the second event arrives", async || {
            let calls = one.receiver.calls();
            calls.iter().map(|call| Delivery::of(call)).find(|delivery| delivery.id != good.id)
        })
        .await;
        assert!(one.verifies(&good) && one.verifies(&second));
        assert!(two.verifies(&of_two) && theirs.verifies(&of_others));
        assert!(good.signature.starts_with("v1,"), "{good:?}");

        let text = String::from_utf8(good.body.clone()).unwrap();
        let body = |body: String| Delivery { body: body.into_bytes(), ..good.clone() };
        let id = |id: &str| Delivery { id: id.to_owned(), ..good.clone() };
        let signature = |signature: String| Delivery { signature, ..good.clone() };
        let altered = [
            // Of the same length, longer and shorter. A time within the receiver's tolerance is refused for its signature.
            id(&second.id),
            id(&good.id.to_lowercase()),
            id(&format!("{}x", good.id)),
            id(&good.id[..good.id.len() - 1]),
            id(""),
            id(&format!("{}.{}", good.id, good.timestamp)),
            good.later(1),
            good.later(-1),
            good.later(60),
            good.later(-60),
            body(text.replacen("first", "fIrst", 1)),
            body(format!("{text} ")),
            body(format!(" {text}")),
            body(text[..text.len() - 1].to_owned()),
            body(String::new()),
            Delivery { body: second.body.clone(), ..good.clone() },
            signature(second.signature.clone()),
            signature(of_two.signature.clone()),
            signature(of_others.signature.clone()),
            signature(good.signature.replacen("v1,", "v2,", 1)),
            signature(good.signature.trim_start_matches("v1,").to_owned()),
            signature("v1,".to_owned()),
            signature(String::new()),
        ];
        for delivery in altered {
            assert!(!one.verifies(&delivery), "{delivery:?} of {good:?}");
        }
        assert!(!one.verifies(&of_two) && !two.verifies(&good), "secrets of one merchant");
        assert!(!one.verifies(&of_others) && !theirs.verifies(&good), "secrets of two merchants");
    });
}

/// A receiver refuses an event twice and is sent it again, also by hand: it can tell that all are one event by their id, and
/// each attempt is signed with its own time.
#[test]
fn a_delivery_that_is_repeated_keeps_its_id_and_is_signed_each_time() {
    const REFUSED: usize = 2;
    run(async {
        let merchant = Merchant::new().await;
        let attempts = AtomicUsize::new(0);
        let hook = Hook::new(&merchant, move |_| {
            let refuses = attempts.fetch_add(1, Ordering::SeqCst) < REFUSED;
            answer_json(if refuses { 503 } else { 200 }, &json!({}))
        })
        .await;
        merchant.customer("0").await;
        let first = hook.delivery(0).await;
        hook.delivery(REFUSED).await;
        let path = format!("/v1/webhooks/{}/deliveries", hook.id);
        let delivered = async || {
            let shown = merchant.get(&path).await.expect(200)["data"][0].clone();
            (shown["status"] == "delivered").then_some(shown)
        };
        let shown = eventually("it is delivered", delivered).await;
        assert_eq!(shown["webhook_event_id"], first.id.as_str());
        merchant.rest(Request::new("POST", format!("{path}/{}/resend", first.id))).await.expect(200);
        hook.delivery(REFUSED + 1).await;
        for call in hook.receiver.calls() {
            let delivery = Delivery::of(&call);
            assert_eq!(delivery.id, first.id, "{delivery:?}");
            assert!(hook.verifies(&delivery), "{delivery:?}");
            assert!(!hook.verifies(&delivery.later(1)), "{delivery:?}");
        }
    });
}
