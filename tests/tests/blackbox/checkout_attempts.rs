//! Repeated attempts on a checkout page: declined cards, too many attempts, and customers who are deleted.

use farthing_tests::client::{Body, Connection, Request};
use farthing_tests::merchant::Merchant;
use farthing_tests::recurring::{Means, PAYS, Page};
use farthing_tests::run;
use farthing_tests::wait::{eventually, within};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use farthing_tests::checkout_page::{
    ACCEPTED, Checkout, DECLINED, PERSON, card, form, hidden, money, went_through,
};

use super::payments::{RETRY_LIMIT, answers_again, does_not_answer};

#[test]
fn after_a_declined_card_another_one_pays_once() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let declined = checkout.post(&money("25.50", DECLINED)).await;
        assert_eq!(declined.status, 422);
        let html = declined.text();
        assert!(
            html.contains("Your card was declined.") && html.contains("id=\"card_number-error\""),
            "{html}"
        );
        assert!(html.contains("value=\"25.50\""), "{html}");
        assert_eq!(checkout.shown().await["completed_at"], Value::Null);

        let fields = money("25.50", ACCEPTED);
        let (one, two) = tokio::join!(checkout.post_to(0, &fields), checkout.post_to(1, &fields));
        went_through(&one, &checkout);
        went_through(&two, &checkout);
        let html = eventually("the page shows that it is paid", async || {
            let page = checkout.get().await;
            Some(page.text()).filter(|html| html.contains("checkout_success"))
        })
        .await;
        assert!(html.contains("Payment complete"), "{html}");
        assert_eq!(checkout.of_kind("payment.succeeded").await.len(), 1);
        assert_eq!(checkout.of_kind("customer.created").await.len(), 1);
        let kept = checkout.of_kind("payment_method.added").await;
        assert_eq!(
            (kept.len(), &kept[0]["card"]["last4"]),
            (1, &json!("4242")),
            "the declined card is not stored"
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
            "the program's output contains a card"
        );
        assert!(!output.contains(DECLINED), "the program's output contains a card");
    });
}

#[test]
fn a_payment_without_an_outcome_is_shown_as_pending_and_made_once() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let broken = does_not_answer(&checkout.merchant, "17.77").await;
        let fields = money("17.77", ACCEPTED);
        for gateway in 0..2 {
            went_through(&checkout.post_to(gateway, &fields).await, &checkout);
            let page = checkout.get().await;
            assert_eq!(page.status, 200, "{}", page.text());
            assert!(page.text().contains("Processing your payment"), "{}", page.text());
        }
        answers_again(&checkout.merchant, &broken).await;
        within(RETRY_LIMIT, "the payment succeeds", async || {
            (!checkout.of_kind("payment.succeeded").await.is_empty()).then_some(())
        })
        .await;
        assert!(checkout.get().await.text().contains("checkout_success"));
        for kind in ["payment.requested", "payment.succeeded", "wallet.credited"] {
            assert_eq!(checkout.of_kind(kind).await.len(), 1, "{kind}");
        }
    });
}

#[test]
fn the_form_after_a_pending_payment_says_that_it_was_declined() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let broken = does_not_answer(&checkout.merchant, "17.83").await;
        let fields = money("17.83", ACCEPTED);
        let sent = checkout.post(&fields).await;
        went_through(&sent, &checkout);
        let pages = checkout.merchant.hosted_pages();
        // The page of another session, whose payment is declined before anyone views it.
        let unseen = Page::of(&checkout.merchant, &json!({"checkout_mode": "topup"})).await;
        let unseen = unseen.post(pages, &fields).await;
        assert_eq!(unseen.status, 303, "{}", unseen.text());
        let unseen = format!("/embed/checkout/{}", unseen.head.header("location").unwrap());
        let (_, unseen_id) = unseen.split_once("?payment=").expect("the redirect names the payment");
        let pending = checkout.get().await.text();
        let requested = checkout.of_kind("payment.requested").await;
        let payment_id = requested[0]["payment_id"].as_str().unwrap();
        let query = format!("?payment={payment_id}");
        let reload = format!("<meta http-equiv=\"refresh\" content=\"2;url={query}\">");
        assert!(pending.contains(&reload), "{pending}");
        let redirect = format!("{}{query}", checkout.path.rsplit('/').next().unwrap());
        assert_eq!(sent.head.header("location"), Some(redirect.as_str()));
        let twice = checkout.post(&fields).await;
        assert_eq!(twice.head.header("location"), Some(redirect.as_str()), "{}", twice.text());
        let declined = "INSERT INTO test_processor.charge (payment_id, token, amount, declined)
            VALUES ($1, 'by hand', 17.83, 'insufficient_funds')";
        for payment_id in [payment_id, unseen_id] {
            checkout.merchant.log.sql.execute(declined, &[&payment_id]).await.unwrap();
        }
        answers_again(&checkout.merchant, &broken).await;
        within(RETRY_LIMIT, "the payments are declined", async || {
            (checkout.of_kind("payment.declined").await.len() == 2).then_some(())
        })
        .await;
        let view = async |path: String| Request::new("GET", path).send(pages).await.unwrap();
        let told = view(format!("{}{query}", checkout.path)).await;
        let html = told.text();
        assert_eq!(told.status, 200, "{html}");
        assert!(html.contains("Your card has insufficient funds. You were not charged."), "{html}");
        assert!(html.contains("id=\"card_number-error\"") && html.contains("role=\"alert\""), "{html}");
        assert!(!html.contains("http-equiv"), "{html}");
        let first_view = view(unseen).await;
        let html = first_view.text();
        assert_eq!(first_view.status, 200, "{html}");
        assert!(html.contains("Your card has insufficient funds. You were not charged."), "{html}");
        // No other page tells of it, and no other query is an error.
        let path = checkout.path.clone();
        for query in [
            "",
            "?payment=",
            "?payment=pay_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "?payment=%22%3E%3Cscript%3E",
            "?payment=%00",
            "?%FF&=&&payment",
        ] {
            let shown = view(format!("{path}{query}")).await;
            assert_eq!(shown.status, 200, "{query}");
            assert!(!shown.text().contains("role=\"alert\""), "{query}: {}", shown.text());
        }
        let second = Checkout::of(checkout.merchant, json!({"checkout_mode": "topup"})).await;
        let foreign = view(format!("{}{query}", second.path)).await;
        assert_eq!(foreign.status, 200);
        assert!(!foreign.text().contains("role=\"alert\""), "{}", foreign.text());
        // The form that tells of the decline takes another card.
        let told = format!("{path}{query}");
        let sent = form(&told, &money("17", ACCEPTED)).send(pages).await.unwrap();
        assert_eq!(sent.status, 303, "{}", sent.text());
        let done = view(told).await.text();
        assert!(done.contains("checkout_success") && !done.contains("insufficient"), "{done}");
    });
}

#[test]
fn a_form_of_a_customer_who_is_made_elsewhere_meanwhile_has_no_effect() {
    run(async {
        let body = json!({"checkout_mode": "topup", "reference_id": "ada"});
        let checkout = Checkout::of(Merchant::new().await, body).await;
        let sent = form(&checkout.path, &money("25", ACCEPTED)).header("Expect", "100-continue");
        let Body::Whole(answers) = sent.body.clone() else { panic!("a form has one body") };
        // The form's session is read, without a customer; then the form waits for its body.
        let mut sender = Connection::open(checkout.merchant.hosted_pages()).await.unwrap();
        sender.send_head(&sent).await.unwrap();
        let proceed = sender.read.head().await.unwrap().unwrap();
        assert!(proceed.first_line.starts_with("HTTP/1.1 100"), "{}", proceed.first_line);
        let customer = checkout.merchant.customer_called("ada", "0").await;
        sender.write.write_all(&answers).await.unwrap();
        let refused = sender.response("POST").await.unwrap();
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.text().contains("The offer has changed"), "{}", refused.text());
        for (kind, number) in [("payment.requested", 0), ("customer.created", 1), ("customer.updated", 0)] {
            assert_eq!(checkout.of_kind(kind).await.len(), number, "{kind}");
        }
        // Nothing reached the processor.
        let sql = &checkout.merchant.log.sql;
        let attempts = "SELECT attempts FROM ledger.checkout_attempt WHERE checkout_session_id = $1";
        let counted = sql.query(attempts, &[&checkout.id]).await.unwrap();
        assert!(counted.is_empty(), "{counted:?}");
        // The page knows the customer now.
        let page = checkout.get().await.text();
        assert!(!page.contains("name=\"email\""), "{page}");
        went_through(&checkout.post(&money("25", ACCEPTED)).await, &checkout);
        assert_eq!(checkout.merchant.balance(&customer).await, "25.0000000000");
        let counted = sql.query(attempts, &[&checkout.id]).await.unwrap();
        assert_eq!(counted.len(), 1);
        assert_eq!(counted[0].get::<_, i32>(0), 1);
    });
}

#[test]
fn a_page_says_that_another_upgrade_is_being_paid() {
    run(async {
        let merchant = Merchant::new().await;
        let pages = merchant.hosted_pages();
        let customer = merchant.customer("0").await;
        let plan = async |price: &str| {
            merchant.post("/v1/plans", &json!({"name": "Plan", "period_amount": price})).await.expect(201)
        };
        let (small, big, bigger) = (plan("10").await, plan("18.18").await, plan("19.19").await);
        merchant.subscribe(&customer, &small, Means::Card(PAYS)).await;
        let upgrade = async |plan: &Value| {
            let asked = json!({
                "checkout_mode": "subscription", "plan_id": plan["plan_id"], "customer_id": customer.id,
            });
            let page = Page::of(&merchant, &asked).await;
            page.send(pages, plan["period_amount"].as_str().unwrap(), Means::Known).await
        };
        let broken = does_not_answer(&merchant, "18.18").await;
        let first = upgrade(&big).await;
        assert_eq!(first.status, 303, "{}", first.text());
        let second = upgrade(&bigger).await;
        assert_eq!(second.status, 422, "{}", second.text());
        assert!(second.text().contains("Another payment is in progress"), "{}", second.text());
        answers_again(&merchant, &broken).await;
        within(RETRY_LIMIT, "the first upgrade is paid", async || {
            (!merchant.of_kind("subscription.upgraded").await.is_empty()).then_some(())
        })
        .await;
        assert_eq!(merchant.subscription_of(&customer).await["plan_id"], big["plan_id"]);
        assert_eq!(merchant.of_kind("payment.requested").await.len(), 2);
    });
}

#[test]
fn a_page_is_closed_after_ten_attempts() {
    run(async {
        let checkout = Checkout::new("topup").await;
        for attempt in 0..10 {
            let number = if attempt % 2 == 0 { DECLINED } else { "4242424242424241" };
            let refused = checkout.post_to(attempt % 2, &money("25", number)).await;
            assert_eq!(refused.status, 422, "{attempt}: {}", refused.text());
        }
        let requested = checkout.of_kind("payment.requested").await.len();
        assert_eq!(requested, 5);
        for closed in [checkout.post(&money("25", ACCEPTED)).await, checkout.get().await] {
            assert_eq!(closed.status, 403, "{}", closed.text());
            assert!(closed.text().contains("Too many attempts"), "{}", closed.text());
        }
        assert_eq!(checkout.of_kind("payment.requested").await.len(), requested);
        assert_eq!(checkout.shown().await["completed_at"], Value::Null);
    });
}

#[test]
fn concurrent_attempts_are_limited_to_ten_too() {
    run(async {
        let checkout = Checkout::new("onboarding").await;
        let fields = [&PERSON[..], &card("4242424242424241")].concat();
        let mut sent = tokio::task::JoinSet::new();
        for number in 0..30 {
            let request = form(&checkout.path, &fields);
            let pages = checkout.merchant.instance.hosted_pages(number % 2);
            sent.spawn(async move { request.send(pages).await.unwrap().status });
        }
        let statuses = sent.join_all().await;
        assert_eq!(statuses.iter().filter(|status| **status == 422).count(), 10, "{statuses:?}");
        assert_eq!(checkout.get().await.status, 403);
    });
}

#[test]
fn a_declined_card_does_not_become_the_payment_method_of_the_wallet() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let body = json!({"checkout_mode": "topup", "customer_id": customer.id});
        let first = Checkout::of(merchant, body.clone()).await;
        let html = first.post(&money("25", DECLINED)).await.text();
        assert!(!html.contains("ending in"), "a declined card is offered: {html}");
        assert_eq!(first.of_kind("payment_method.added").await.len(), 0);
        went_through(&first.post(&money("25", ACCEPTED)).await, &first);

        let second = Checkout::of(first.merchant, body.clone()).await;
        let html = second.post(&[&money("10", DECLINED)[..], &[("pay", "card")]].concat()).await.text();
        assert!(html.contains("Your card was declined.") && html.contains("Visa ending in 4242"), "{html}");
        assert_eq!(second.of_kind("payment_method.added").await.len(), 1);
        let saved = ("payment_method_id", hidden(&html, "payment_method_id"));
        went_through(&second.post(&[("amount", "10"), ("pay", "known"), saved]).await, &second);
        assert_eq!(second.merchant.balance(&customer).await, "35.0000000000");
    });
}

#[test]
fn a_customer_who_is_deleted_between_two_attempts_cannot_pay() {
    run(async {
        let checkout = Checkout::new("topup").await;
        assert_eq!(checkout.post(&money("25", DECLINED)).await.status, 422);
        let created = checkout.of_kind("customer.created").await;
        let customer_id = created[0]["customer_id"].as_str().unwrap();
        checkout.merchant.delete(&format!("/v1/customers/{customer_id}")).await.expect(200);
        for gateway in 0..2 {
            let gone = checkout.post_to(gateway, &money("25", ACCEPTED)).await;
            assert_eq!(gone.status, 410, "{}", gone.text());
            assert!(gone.text().contains("No longer available"), "{}", gone.text());
        }
        assert_eq!(checkout.get().await.status, 410);
        assert_eq!(checkout.of_kind("payment.requested").await.len(), 1);
        assert_eq!(checkout.of_kind("customer.created").await.len(), 1);
    });
}

#[test]
fn the_next_attempt_finds_the_customer_that_an_interrupted_one_created_unless_it_was_deleted() {
    run(async {
        // The leader's term ends when an append is rejected, so the instance is the test's own.
        let merchant = Merchant::alone(2).await;
        let other = Merchant::of(merchant.instance).await;
        let (one, other) = (
            Checkout::of(merchant, json!({"checkout_mode": "topup"})).await,
            Checkout::of(other, json!({"checkout_mode": "topup"})).await,
        );
        for checkout in [&one, &other] {
            // Postgres rejects payment requests of this merchant: the attempt ends between the customer and the payment.
            let name = checkout.merchant.id.to_lowercase();
            let refuse = format!(
                "CREATE FUNCTION public.refuse_{name}() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE EXCEPTION 'refused by a test' USING ERRCODE = '23514'; END $$;
                CREATE TRIGGER refuse_{name} BEFORE INSERT ON ledger.batches FOR EACH ROW
                    WHEN (convert_from(NEW.events, 'UTF8') ~ '\"payment.requested\".*\"{}\"')
                    EXECUTE FUNCTION public.refuse_{name}();
                ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER refuse_{name}",
                checkout.merchant.id
            );
            checkout.merchant.log.sql.batch_execute(&refuse).await.unwrap();
            let broken_off = checkout.post(&money("25", ACCEPTED)).await;
            let accept =
                format!("DROP TRIGGER refuse_{name} ON ledger.batches; DROP FUNCTION public.refuse_{name}()");
            checkout.merchant.log.sql.batch_execute(&accept).await.unwrap();
            assert_eq!(broken_off.status, 500, "{}", broken_off.text());
            assert_eq!(checkout.of_kind("customer.created").await.len(), 1);
            assert_eq!(checkout.of_kind("payment.requested").await.len(), 0);
        }
        // An existing customer pays and is not created again.
        went_through(&one.post(&money("25", ACCEPTED)).await, &one);
        assert_eq!(one.of_kind("payment.succeeded").await.len(), 1);
        assert_eq!(one.of_kind("customer.created").await.len(), 1);
        // A deleted customer does not pay.
        let created = other.of_kind("customer.created").await;
        let customer = format!("/v1/customers/{}", created[0]["customer_id"].as_str().unwrap());
        other.merchant.delete(&customer).await.expect(200);
        for gone in [other.post(&money("25", ACCEPTED)).await, other.get().await] {
            assert_eq!(gone.status, 410, "{}", gone.text());
        }
        assert_eq!(other.of_kind("payment.requested").await.len(), 0);
    });
}

#[test]
fn a_form_sent_twice_shows_the_completion_even_if_it_is_read_while_the_session_completes() {
    run(async {
        // All merchants of the instance wait for the counters of attempts.
        let merchant = Merchant::alone(2).await;
        let customer = merchant.customer("0").await;
        let plan = json!({"name": "Free", "period_amount": "0", "billing_interval": "month"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let asked = json!({
            "checkout_mode": "subscription", "plan_id": plan["plan_id"], "customer_id": customer.id,
        });
        let checkout = Checkout::of(merchant, asked).await;
        let shown = checkout.get().await.text();
        let fields = ["price", "credit"].map(|name| (name, hidden(&shown, name)));
        let first = form(&checkout.path, &fields).header("Expect", "100-continue");
        let Body::Whole(answers) = first.body.clone() else { panic!("a form has one body") };

        // The first form's session is read; then it waits for its body.
        let mut sender = Connection::open(checkout.merchant.instance.hosted_pages(0)).await.unwrap();
        sender.send_head(&first).await.unwrap();
        let proceed = sender.read.head().await.unwrap().unwrap();
        assert!(proceed.first_line.starts_with("HTTP/1.1 100"), "{}", proceed.first_line);
        // The second form reads the open session, and then waits for the lock of the counters of attempts.
        let sql = &checkout.merchant.log.sql;
        sql.batch_execute("BEGIN; LOCK TABLE ledger.checkout_attempt IN ACCESS EXCLUSIVE MODE")
            .await
            .unwrap();
        let (second, pages) = (form(&checkout.path, &fields), checkout.merchant.instance.hosted_pages(1));
        let second = tokio::spawn(async move { second.send(pages).await });
        eventually("the second form waits", async || {
            let waits = "SELECT 1 FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
                WHERE datname = current_database() AND relation = 'ledger.checkout_attempt'::regclass AND NOT granted";
            (!sql.query(waits, &[]).await.unwrap().is_empty()).then_some(())
        })
        .await;
        // The first form completes the session, which the second one has read as open.
        sender.write.write_all(&answers).await.unwrap();
        let first = sender.response("POST").await.unwrap();
        sql.batch_execute("ROLLBACK").await.unwrap();
        went_through(&first, &checkout);
        went_through(&second.await.unwrap().unwrap(), &checkout);
        assert_eq!(checkout.of_kind("subscription.started").await.len(), 1);
        assert!(checkout.get().await.text().contains("checkout_success"));
    });
}
