//! A checkout page that is tried more than once: with cards that are declined, too often, and by customers who go.

use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::checkout_page::{ACCEPTED, Checkout, DECLINED, PERSON, card, form, money, went_through};

#[test]
fn a_declined_card_takes_nothing_and_another_one_pays_once() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let declined = checkout.post(&money("25.50", DECLINED)).await;
        assert_eq!(declined.status, 422);
        let html = declined.text();
        assert!(
            html.contains("The card was declined.") && html.contains("id=\"card_number-error\""),
            "{html}"
        );
        assert!(html.contains("value=\"25.50\""), "{html}");
        assert_eq!(checkout.shown().await["completed_at"], Value::Null);

        let fields = money("25.50", ACCEPTED);
        let (one, two) = tokio::join!(checkout.post_to(0, &fields), checkout.post_to(1, &fields));
        went_through(&one, &checkout);
        went_through(&two, &checkout);
        let html = eventually("the page tells that it is paid", async || {
            let page = checkout.get().await;
            Some(page.text()).filter(|html| html.contains("checkout_success"))
        })
        .await;
        assert!(html.contains("All done"), "{html}");
        assert_eq!(checkout.told("payment.succeeded").await.len(), 1);
        assert_eq!(checkout.told("customer.created").await.len(), 1);
        let kept = checkout.told("payment_method.added").await;
        assert_eq!(
            (kept.len(), &kept[0]["card"]["last4"]),
            (1, &json!("4242")),
            "the declined one is not kept"
        );
        let session = checkout.shown().await;
        let connection = format!("/v1/connections/{}", session["connection_id"].as_str().unwrap());
        let connection = checkout.merchant.get(&connection).await.expect(200);
        assert_eq!(connection["wallet"]["balance"], "25.5000000000");

        for event in checkout.merchant.events().await {
            assert!(!event.text.contains("424242424242"), "{}", event.text);
        }
        let output = checkout.merchant.instance.output();
        assert!(
            !output.contains("4242424242424242") && !output.contains(ACCEPTED),
            "a card in the program's output"
        );
        assert!(!output.contains(DECLINED), "a card in the program's output");
    });
}

#[test]
fn a_page_that_was_tried_ten_times_is_closed_for_good() {
    run(async {
        let checkout = Checkout::new("topup").await;
        for attempt in 0..10 {
            let number = if attempt % 2 == 0 { DECLINED } else { "4242424242424241" };
            let refused = checkout.post_to(attempt % 2, &money("25", number)).await;
            assert_eq!(refused.status, 422, "{attempt}: {}", refused.text());
        }
        let requested = checkout.told("payment.requested").await.len();
        assert_eq!(requested, 5);
        for closed in [checkout.post(&money("25", ACCEPTED)).await, checkout.get().await] {
            assert_eq!(closed.status, 403, "{}", closed.text());
            assert!(closed.text().contains("Too many attempts"), "{}", closed.text());
        }
        assert_eq!(checkout.told("payment.requested").await.len(), requested);
        assert_eq!(checkout.shown().await["completed_at"], Value::Null);
    });
}

#[test]
fn no_more_than_ten_attempts_go_through_at_once() {
    run(async {
        let checkout = Checkout::new("onboarding").await;
        let fields = [&PERSON[..], &card("4242424242424241")].concat();
        let mut sent = tokio::task::JoinSet::new();
        for number in 0..30 {
            let request = form(&checkout.path, &fields);
            let gateway = checkout.merchant.instance.gateway(number % 2);
            sent.spawn(async move { request.send(gateway).await.unwrap().status });
        }
        let statuses = sent.join_all().await;
        assert_eq!(statuses.iter().filter(|status| **status == 422).count(), 10, "{statuses:?}");
        assert_eq!(checkout.get().await.status, 403);
    });
}

#[test]
fn a_card_that_is_declined_does_not_become_what_the_wallet_pays_with() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let body = json!({"checkout_mode": "topup", "customer_id": customer.id});
        let first = Checkout::of(merchant, body.clone()).await;
        let html = first.post(&money("25", DECLINED)).await.text();
        assert!(!html.contains("ending in"), "a declined card is offered: {html}");
        assert_eq!(first.told("payment_method.added").await.len(), 0);
        went_through(&first.post(&money("25", ACCEPTED)).await, &first);

        let second = Checkout::of(first.merchant, body.clone()).await;
        let html = second.post(&[&money("10", DECLINED)[..], &[("pay", "card")]].concat()).await.text();
        assert!(html.contains("The card was declined.") && html.contains("Visa ending in 4242"), "{html}");
        assert_eq!(second.told("payment_method.added").await.len(), 1);
        went_through(&second.post(&[("amount", "10"), ("pay", "known")]).await, &second);
        assert_eq!(second.merchant.balance(&customer).await, "35.0000000000");
    });
}

#[test]
fn a_customer_who_is_deleted_between_two_tries_cannot_pay_any_more() {
    run(async {
        let checkout = Checkout::new("topup").await;
        assert_eq!(checkout.post(&money("25", DECLINED)).await.status, 422);
        let created = checkout.told("customer.created").await;
        let customer_id = created[0]["customer_id"].as_str().unwrap();
        checkout.merchant.delete(&format!("/v1/customers/{customer_id}")).await.expect(200);
        for gateway in 0..2 {
            let gone = checkout.post_to(gateway, &money("25", ACCEPTED)).await;
            assert_eq!(gone.status, 410, "{}", gone.text());
            assert!(gone.text().contains("Not on offer any more"), "{}", gone.text());
        }
        assert_eq!(checkout.get().await.status, 410);
        assert_eq!(checkout.told("payment.requested").await.len(), 1);
        assert_eq!(checkout.told("customer.created").await.len(), 1);
    });
}

#[test]
fn a_try_that_broke_off_made_a_customer_who_is_found_again_and_gone_when_deleted() {
    run(async {
        let (one, other) = (Checkout::new("topup").await, Checkout::new("topup").await);
        for checkout in [&one, &other] {
            // Postgres takes no request to pay of this merchant: the try ends between the customer and the payment.
            let name = checkout.merchant.id.to_lowercase();
            let refuse = format!(
                "CREATE FUNCTION public.refuse_{name}() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE EXCEPTION 'refused by a test' USING ERRCODE = '23514'; END $$;
                CREATE TRIGGER refuse_{name} BEFORE INSERT ON ledger.events FOR EACH ROW
                    WHEN (NEW.kind = 'payment.requested' AND NEW.merchant_id = '{}')
                    EXECUTE FUNCTION public.refuse_{name}();
                ALTER TABLE ledger.events ENABLE ALWAYS TRIGGER refuse_{name}",
                checkout.merchant.id
            );
            checkout.merchant.log.sql.batch_execute(&refuse).await.unwrap();
            let broken_off = checkout.post(&money("25", ACCEPTED)).await;
            let accept =
                format!("DROP TRIGGER refuse_{name} ON ledger.events; DROP FUNCTION public.refuse_{name}()");
            checkout.merchant.log.sql.batch_execute(&accept).await.unwrap();
            assert_eq!(broken_off.status, 503, "{}", broken_off.text());
            assert_eq!(checkout.told("customer.created").await.len(), 1);
            assert_eq!(checkout.told("payment.requested").await.len(), 0);
        }
        // Who is there pays, and is not made again.
        went_through(&one.post(&money("25", ACCEPTED)).await, &one);
        assert_eq!(one.told("payment.succeeded").await.len(), 1);
        assert_eq!(one.told("customer.created").await.len(), 1);
        // Who is there no more does not.
        let created = other.told("customer.created").await;
        let customer = format!("/v1/customers/{}", created[0]["customer_id"].as_str().unwrap());
        other.merchant.delete(&customer).await.expect(200);
        for gone in [other.post(&money("25", ACCEPTED)).await, other.get().await] {
            assert_eq!(gone.status, 410, "{}", gone.text());
        }
        assert_eq!(other.told("payment.requested").await.len(), 0);
    });
}
