//! Forms of one checkout page that are sent at once, over both gateways.

use farthing_tests::checkout_page::{ACCEPTED, Checkout, DECLINED, form, money};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::Value;
use tokio::task::JoinSet;

/// Attempts at the payment processor that a session has.
const ATTEMPTS: usize = 10;

/// Sends the same form so often at once, in turn to both gateways; returns the statuses.
async fn at_once(checkout: &Checkout, fields: &[(&str, &str)], count: usize) -> Vec<u16> {
    let mut sent = JoinSet::new();
    for number in 0..count {
        let request = form(&checkout.path, fields);
        let pages = checkout.merchant.instance.hosted_pages(number % 2);
        sent.spawn(async move { request.send(pages).await.unwrap().status });
    }
    sent.join_all().await
}

/// A browser sends one form 30 times at once: there is one payment, one charge of the card, one customer and one credit.
#[test]
fn thirty_submissions_of_one_form_at_once_pay_once() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let statuses = at_once(&checkout, &money("25", ACCEPTED), 30).await;
        // A form that finds the attempts used up while the payment is made is told so.
        assert!(statuses.iter().all(|status| [303, 403].contains(status)), "{statuses:?}");
        assert!(statuses.contains(&303), "{statuses:?}");
        for kind in [
            "payment.requested",
            "payment.succeeded",
            "wallet.credited",
            "customer.created",
            "payment_method.added",
            "checkout_session.completed",
        ] {
            assert_eq!(checkout.of_kind(kind).await.len(), 1, "{kind}");
        }
        let charges = checkout.merchant.charges().await;
        assert_eq!(charges, [(Decimal::from(25), None)]);
        let connection = checkout.shown().await["connection_id"].clone();
        let connection = format!("/v1/connections/{}", connection.as_str().unwrap());
        let connection = checkout.merchant.get(&connection).await.expect(200);
        assert_eq!(connection["wallet"]["balance"], "25.0000000000");
        eventually("the page shows that it is paid", async || {
            checkout.get().await.text().contains("checkout_success").then_some(())
        })
        .await;
    });
}

/// Somebody tries a declined card 40 times at once, as one who tests stolen cards does: at most ten attempts reach the payment
/// processor, and then the page takes no card any more.
#[test]
fn forty_declined_cards_at_once_are_at_most_ten_charges_and_then_the_page_is_closed() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let statuses = at_once(&checkout, &money("25", DECLINED), 40).await;
        assert!(statuses.iter().all(|status| [303, 403, 422].contains(status)), "{statuses:?}");
        assert!(statuses.contains(&422), "a form is told that the card was declined: {statuses:?}");
        // Forms that came while a payment was made were no attempts: these take the rest of them.
        for _ in 0..ATTEMPTS {
            checkout.post(&money("25", DECLINED)).await;
        }
        let charges = checkout.merchant.charges().await;
        assert!((1..=ATTEMPTS).contains(&charges.len()), "{charges:?}");
        assert!(charges.iter().all(|(_, declined)| declined.is_some()), "{charges:?}");
        for closed in [checkout.post(&money("25", ACCEPTED)).await, checkout.get().await] {
            assert_eq!(closed.status, 403, "{}", closed.text());
        }
        assert_eq!(checkout.merchant.charges().await.len(), charges.len());
        assert_eq!(checkout.of_kind("payment.succeeded").await, [Value::Null; 0]);
        assert_eq!(checkout.shown().await["completed_at"], Value::Null);
    });
}
