//! The hosted page of a checkout session over plain HTTP: what it shows, and that each form takes effect once.

use farthing_tests::checkout_page::{ACCEPTED, Checkout, PERSON, card, form, hidden, money, went_through};
use farthing_tests::client::Request;
use farthing_tests::merchant::Merchant;
use farthing_tests::recurring::{Means, PAYS};
use farthing_tests::run;
use serde_json::{Value, json};

#[test]
fn the_page_loads_nothing_from_other_origins_and_only_the_merchants_app_may_frame_it() {
    run(async {
        let checkout = Checkout::new("onboarding").await;
        let page = checkout.get().await;
        assert_eq!(page.status, 200, "{}", page.text());
        let header = |name: &str| page.head.header(name);
        assert_eq!(
            header("content-security-policy"),
            Some(
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; \
                 form-action 'self'; frame-ancestors https://app.example:8443"
            )
        );
        assert_eq!(header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(header("referrer-policy"), Some("no-referrer"));
        assert_eq!(header("cache-control"), Some("no-store"));
        assert_eq!(header("x-content-type-options"), Some("nosniff"));
        assert_eq!((header("x-frame-options"), header("set-cookie")), (None, None));
        let html = page.text();
        assert!(!html.contains("<style") && !html.contains("style=") && !html.contains("http://"), "{html}");
        assert!(html.contains("data-origin=\"https://app.example:8443\""), "{html}");
        for asset in ["checkout.css", "checkout.js"] {
            assert!(html.contains(&format!("\"../assets/{asset}\"")), "{html}");
            let path = format!("/embed/assets/{asset}");
            let got = Request::new("GET", path).send(checkout.merchant.hosted_pages()).await.unwrap();
            assert_eq!(got.status, 200, "{asset}");
            assert_eq!(got.head.header("x-content-type-options"), Some("nosniff"));
        }
        let document = checkout.merchant.get("/v1/openapi.json").await.expect(200);
        assert!(
            !document["paths"].to_string().contains("/embed/"),
            "the page is not part of the API document"
        );
    });
}

#[test]
fn repeated_onboarding_creates_one_customer() {
    run(async {
        let body = json!({"checkout_mode": "onboarding", "reference_id": "ada"});
        let checkout = Checkout::of(Merchant::new().await, body).await;
        let post = |gateway| checkout.post_to(gateway, &PERSON);
        let (one, two, three) = tokio::join!(post(0), post(1), post(0));
        for response in [one, two, three] {
            went_through(&response, &checkout);
        }
        went_through(&checkout.post(&PERSON).await, &checkout);
        assert_eq!(checkout.of_kind("customer.created").await.len(), 1);
        assert_eq!(checkout.of_kind("checkout_session.completed").await.len(), 1);

        let session = checkout.shown().await;
        assert!(session["completed_at"].is_string(), "{session}");
        let customer = checkout.merchant.get("/v1/customers/ada").await.expect(200);
        assert_eq!(customer["customer_id"], session["customer_id"]);
        let contact = json!({
            "first_name": "Ada", "last_name": "King Lovelace", "email": "ada@example.com", "phone": "+4930123456",
        });
        assert_eq!(customer["contact"], contact);
        for event in checkout.merchant.events().await {
            assert!(
                !event.text.contains("Lovelace") && !event.text.contains("ada@example"),
                "{}",
                event.text
            );
        }
        let done = checkout.get().await;
        assert_eq!(done.status, 200);
        let customer_id = format!("data-customer-id=\"{}\"", session["customer_id"].as_str().unwrap());
        let html = done.text();
        assert!(
            html.contains("data-message-type=\"checkout_success\"") && html.contains(&customer_id),
            "{html}"
        );
    });
}

#[test]
fn onboarding_updates_the_contact_of_an_existing_customer_and_stores_a_card() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let body = json!({"checkout_mode": "onboarding", "customer_id": customer.id});
        let checkout = Checkout::of(merchant, body).await;
        went_through(&checkout.post(&[&PERSON[..], &card(ACCEPTED)].concat()).await, &checkout);
        let shown = checkout.merchant.get(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        assert_eq!(shown["contact"]["email"], "ada@example.com");
        let added = checkout.of_kind("payment_method.added").await;
        assert_eq!((added.len(), &added[0]["card"]["last4"]), (1, &json!("4242")));
        assert_eq!(checkout.of_kind("payment.requested").await.len(), 0);

        // The card is now stored.
        let body = json!({"checkout_mode": "topup", "customer_id": customer.id});
        let again = Checkout::of(checkout.merchant, body).await;
        let html = again.get().await.text();
        assert!(html.contains("Visa ending in 4242") && !html.contains("name=\"email\""), "{html}");
        let saved = ("payment_method_id", hidden(&html, "payment_method_id"));
        went_through(&again.post(&[("amount", "25"), ("pay", "known"), saved]).await, &again);
        assert_eq!(again.merchant.balance(&customer).await, "25.0000000000");
    });
}

#[test]
fn errors_are_shown_beside_their_fields_and_only_the_card_must_be_typed_again() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let hostile = "\"><script>alert('x')</script>&amp;";
        let fields = [("name", hostile), ("email", "nobody"), ("amount", "9.99"), ("card_number", ACCEPTED)];
        let wrong = checkout.post(&fields).await;
        assert_eq!(wrong.status, 422);
        let html = wrong.text();
        assert!(!html.contains("<script>alert") && !html.contains("&amp;amp;\"x"), "{html}");
        assert!(
            html.contains("value=\"&#34;&#62;&#60;script&#62;alert(&#39;x&#39;)&#60;/script&#62;&#38;amp;\""),
            "{html}"
        );
        assert!(html.contains("value=\"nobody\"") && html.contains("value=\"9.99\""), "{html}");
        assert!(!html.contains("4242"), "the card data is not sent back: {html}");
        assert!(html.contains("role=\"alert\""), "{html}");
        for field in ["email", "amount", "card_expiry", "card_cvc"] {
            assert!(html.contains(&format!("<p class=\"error\" id=\"{field}-error\">")), "{field}: {html}");
            assert!(html.contains(&format!("aria-describedby=\"{field}-error")), "{field}: {html}");
            assert!(html.contains(&format!("<a href=\"#{field}\">")), "{field}: {html}");
        }
        assert_eq!(html.matches(" autofocus").count(), 1, "{html}");
        assert_eq!(html.matches("aria-invalid=\"true\"").count(), 4, "{html}");
        assert_eq!(checkout.of_kind("customer.created").await.len(), 0);

        let no_card = checkout.post(&money("25", "4242424242424241")).await;
        assert_eq!(no_card.status, 422);
        assert!(no_card.text().contains("Card number is not a valid card number."), "{}", no_card.text());
        assert_eq!(checkout.of_kind("customer.created").await.len(), 0);
    });
}

/// A plan of this price with as much credit.
async fn plan(merchant: &Merchant, price: &str) -> Value {
    let body = json!({"name": "Plan", "period_amount": price, "included_credit": price});
    merchant.post("/v1/plans", &body).await.expect(201)
}

#[test]
fn a_customer_who_was_made_after_the_session_is_found_by_reference_id() {
    run(async {
        let merchant = Merchant::new().await;
        let (small, big) = (plan(&merchant, "10").await, plan(&merchant, "20").await);
        let asked =
            json!({"checkout_mode": "subscription", "plan_id": big["plan_id"], "reference_id": "late"});
        let checkout = Checkout::of(merchant, asked).await;
        let early = checkout.get().await.text();
        assert!(early.contains("<h1>Subscribe</h1>") && early.contains("name=\"email\""), "{early}");
        let customer = checkout.merchant.customer_called("late", "0").await;
        checkout.merchant.subscribe(&customer, &small, Means::Card(PAYS)).await;
        // The page was that of a new subscription, and it is a change now.
        let seen = ["price", "credit", "starts"].map(|name| (name, hidden(&early, name)));
        let refused = checkout.post(&[&PERSON[..], &card(ACCEPTED), &seen].concat()).await;
        let html = refused.text();
        assert_eq!(refused.status, 422, "{html}");
        assert!(html.contains("The offer has changed"), "{html}");
        assert!(html.contains("<h1>Change your plan</h1>") && !html.contains("name=\"email\""), "{html}");
        assert_eq!(checkout.of_kind("payment.succeeded").await.len(), 1, "that of the small plan");
        let now = checkout.get().await.text();
        assert!(now.contains("Visa ending in 4242"), "{now}");
        let seen = ["price", "credit", "starts", "payment_method_id"].map(|name| (name, hidden(&now, name)));
        went_through(&checkout.post(&[&seen[..], &[("pay", "known")]].concat()).await, &checkout);
        assert_eq!(checkout.merchant.subscription_of(&customer).await["plan_id"], big["plan_id"]);
        assert_eq!(checkout.shown().await["customer_id"], customer.id.as_str());
        for (kind, number) in [("customer.created", 1), ("customer.updated", 0), ("subscription.upgraded", 1)]
        {
            assert_eq!(checkout.of_kind(kind).await.len(), number, "{kind}");
        }
    });
}

#[test]
fn the_plan_that_a_customer_got_after_the_session_is_not_sold_again() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = plan(&merchant, "10").await;
        let asked =
            json!({"checkout_mode": "subscription", "plan_id": plan["plan_id"], "reference_id": "late"});
        let checkout = Checkout::of(merchant, asked).await;
        assert!(checkout.get().await.text().contains("<h1>Subscribe</h1>"));
        let customer = checkout.merchant.customer_called("late", "0").await;
        checkout.merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        let shown = checkout.get().await;
        assert_eq!(shown.status, 200);
        assert!(shown.text().contains("You already have this plan"), "{}", shown.text());
    });
}

#[test]
fn a_top_up_is_for_the_customer_who_was_made_after_the_session_and_leaves_the_contact() {
    run(async {
        let body = json!({"checkout_mode": "topup", "reference_id": "ada"});
        let checkout = Checkout::of(Merchant::new().await, body).await;
        assert!(checkout.get().await.text().contains("name=\"email\""));
        let customer = checkout.merchant.customer_called("ada", "0").await;
        went_through(&checkout.post(&money("25", ACCEPTED)).await, &checkout);
        assert_eq!(checkout.merchant.balance(&customer).await, "25.0000000000");
        let shown = checkout.merchant.get(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        assert_eq!(shown["contact"]["email"], Value::Null);
        for (kind, number) in [("customer.created", 1), ("customer.updated", 0)] {
            assert_eq!(checkout.of_kind(kind).await.len(), number, "{kind}");
        }
    });
}

#[test]
fn a_session_expires_after_a_day() {
    run(async {
        let checkout = Checkout::new("onboarding").await;
        let day = json!({"advance_seconds": 86_399});
        checkout.merchant.post("/v1/test_clock", &day).await.expect(200);
        assert_eq!(checkout.get().await.status, 200);
        checkout.merchant.post("/v1/test_clock", &json!({"advance_seconds": 60})).await.expect(200);
        for gone in [checkout.get().await, checkout.post(&PERSON).await] {
            assert_eq!(gone.status, 410, "{}", gone.text());
            assert!(gone.text().contains("This link has expired"), "{}", gone.text());
        }
        assert_eq!(checkout.of_kind("customer.created").await.len(), 0);
    });
}

#[test]
fn a_forged_session_secret_is_refused() {
    run(async {
        let checkout = Checkout::new("onboarding").await;
        let mut other = checkout.path.clone();
        let last = other.pop().unwrap();
        other.push(if last == 'A' { 'B' } else { 'A' });
        for path in [other, format!("/embed/checkout/{}", checkout.id), "/embed/checkout/%00".to_owned()] {
            let got = Request::new("GET", path.clone()).send(checkout.merchant.hosted_pages()).await.unwrap();
            assert_eq!(got.status, 404, "{path}");
            let policy = got.head.header("content-security-policy").unwrap();
            assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");
            let sent = form(&path, &PERSON).send(checkout.merchant.hosted_pages()).await.unwrap();
            assert_eq!(sent.status, 404, "{path}");
        }
        let json = Request::new("POST", checkout.path.clone()).json(&json!({"name": "Ada"}));
        assert_eq!(json.send(checkout.merchant.hosted_pages()).await.unwrap().status, 415);
        let long = "x".repeat(20_000);
        assert_eq!(checkout.post(&[("name", &long)]).await.status, 413);
        assert_eq!(checkout.of_kind("customer.created").await.len(), 0);
    });
}

#[test]
fn the_page_says_when_the_customer_of_the_session_was_deleted() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let body = json!({"checkout_mode": "topup", "customer_id": customer.id});
        let checkout = Checkout::of(merchant, body).await;
        checkout.merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        for gone in [checkout.get().await, checkout.post(&money("25", ACCEPTED)).await] {
            assert_eq!(gone.status, 410, "{}", gone.text());
        }
        assert_eq!(checkout.of_kind("payment.requested").await.len(), 0);
    });
}

#[test]
fn onboarding_subscribes_to_the_plan_of_the_session() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let make = async |price: &str| {
            let body = json!({"name": "Plan", "period_amount": price, "included_credit": price});
            merchant.post("/v1/plans", &body).await.expect(201)["plan_id"].clone()
        };
        let (free, paid) = (make("0").await, make("20").await);
        let subscribed = format!("/v1/customers/{}", customer.id);
        let onboarding = |plan_id: &Value| json!({"checkout_mode": "onboarding", "plan_id": plan_id, "customer_id": customer.id});
        let first = Checkout::of(merchant, onboarding(&free)).await;
        let html = first.get().await.text();
        let offer = ["price", "credit"].map(|name| (name, hidden(&html, name)));
        went_through(&first.post(&[&PERSON[..], &offer].concat()).await, &first);
        let shown = first.merchant.get(&subscribed).await.expect(200);
        assert_eq!(
            (&shown["subscription"]["plan_id"], &shown["contact"]["first_name"]),
            (&free, &json!("Ada"))
        );

        // A second form has nothing to subscribe to; it updates the contact.
        let again = Checkout::of(first.merchant, onboarding(&free)).await;
        went_through(&again.post(&[("name", "Grace Hopper"), ("email", "grace@example.com")]).await, &again);
        let shown = again.merchant.get(&subscribed).await.expect(200);
        assert_eq!(
            (&shown["subscription"]["plan_id"], &shown["contact"]["first_name"]),
            (&free, &json!("Grace"))
        );

        // A paid plan is charged, and the contact is written in the same append.
        let last = Checkout::of(again.merchant, onboarding(&paid)).await;
        let shown = [("price", "20.0000000000"), ("credit", "20.0000000000"), ("starts", "replacing")];
        let fields = [&PERSON[..], &card(ACCEPTED), &shown].concat();
        assert_eq!(last.post(&[&PERSON[..], &shown].concat()).await.status, 422);
        went_through(&last.post(&fields).await, &last);
        let shown = last.merchant.get(&subscribed).await.expect(200);
        assert_eq!(
            (&shown["subscription"]["plan_id"], &shown["contact"]["first_name"]),
            (&paid, &json!("Ada"))
        );
        assert_eq!(last.of_kind("payment.succeeded").await.len(), 1);
        assert_eq!(last.of_kind("subscription.upgraded").await.len(), 1);
    });
}
