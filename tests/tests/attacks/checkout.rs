//! Attacks on hosted pages: altered links and forms, cards and plans of others, two browsers at once, and pages that are
//! opened again and again.

use std::collections::BTreeMap;

use farthing_tests::client::{Body, Connection, Request, Response};
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::recurring::{IS_DECLINED, Means, PAYS, Page};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use farthing_tests::checkout_page::{
    ACCEPTED, Checkout, DECLINED, PERSON, card, form, hidden, money, went_through,
};

/// What the attacks on a session must not cause.
const EFFECTS: [&str; 5] = [
    "payment.requested",
    "payment_method.added",
    "customer.created",
    "customer.updated",
    "checkout_session.completed",
];

async fn nothing_happened(checkout: &Checkout) {
    let events = checkout.merchant.events().await;
    let effects: Vec<_> = events.iter().filter(|event| EFFECTS.contains(&event.kind.as_str())).collect();
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!(checkout.shown().await["completed_at"], Value::Null);
}

#[test]
fn an_altered_link_opens_nothing() {
    run(async {
        let (one, other) = (Checkout::new("topup").await, Checkout::new("onboarding").await);
        let secret = |checkout: &Checkout| checkout.path.rsplit('/').next().unwrap().to_owned();
        let (own, foreign) = (secret(&one), secret(&other));
        let (id, mac) = own.split_once('.').unwrap();
        let (_, foreign_mac) = foreign.split_once('.').unwrap();
        let connection = one.merchant.customer("0").await;
        let connection = one.merchant.get(&format!("/v1/connections/{}", connection.id)).await.expect(200);
        let mut links = vec![
            format!("{id}.{foreign_mac}"),
            id.to_owned(),
            format!("{id}."),
            format!("{own}x"),
            format!("{own}%00"),
            format!("{own}/"),
            format!("{own}%2F"),
            own.to_lowercase(),
            own.to_uppercase(),
            own.replacen("css", "CSS", 1),
            format!("%20{own}"),
            "%FF%FE".to_owned(),
            "%".to_owned(),
            "x".repeat(20_000),
            one.id.clone(),
            connection["connection_secret"].as_str().unwrap().to_owned(),
            one.merchant.secret_key.clone(),
        ];
        for at in 0..own.len() {
            let mut altered = own.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            links.push(String::from_utf8(altered).unwrap());
        }
        assert!(mac.len() > 20, "{own}");
        let mut answers: BTreeMap<(u16, Vec<u8>), Vec<String>> = BTreeMap::new();
        for link in links {
            let path = format!("/embed/checkout/{link}");
            for request in [Request::new("GET", path.as_str()), form(&path, &money("25", ACCEPTED))] {
                let answer = request.send(one.merchant.hosted_pages()).await.unwrap();
                assert!((400..500).contains(&answer.status), "{} {link}", answer.status);
                assert!(!answer.text().contains(&one.merchant.id), "{}", answer.text());
                if answer.status == 404
                    && answer.head.header("content-type") == Some("text/html; charset=utf-8")
                {
                    answers.entry((answer.status, answer.body)).or_default().push(link.clone());
                }
            }
        }
        assert_eq!(answers.len(), 1, "wrong links are answered differently: {:?}", answers.values());
        assert_eq!(one.of_kind("payment.requested").await, [Value::Null; 0]);
        assert_eq!(one.get().await.status, 200);
        assert!(!one.merchant.instance.output().contains(&own), "the program's output has a link");
    });
}

#[test]
fn a_link_is_an_origin_of_a_web_page_and_nothing_else() {
    run(async {
        let merchant = Merchant::new().await;
        for origin in [
            "javascript:alert(1)",
            "javascript://app.example/%0aalert(1)",
            "data:text/html,<script>alert(1)</script>",
            "//app.example",
            "app.example",
            "https://",
            "https://app.example@evil.example",
            "https://app.example;script-src *",
            "https://app.example 'unsafe-inline'",
            "https://app.example\r\nX-Injected: 1",
            "https://app.example\u{0}",
            "https://*.example",
            "https://*",
            "*",
            "'none'",
            "null",
            "file:///etc/passwd",
            "https://app.example:99999",
            "https://app.example:",
            "https://ex\u{e4}mple.example",
            "https://\u{ff41}pp.example",
            "https://[::1]",
            "https://app_example",
            "https://-app.example",
        ] {
            let body = json!({"checkout_mode": "topup", "origin_url": origin});
            let error = merchant.post("/v1/checkout_sessions", &body).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["origin_url"]), "{origin}");
        }
        // Only the origin of a URL is used: nothing else of it reaches the page or its policy.
        let body = json!({
            "checkout_mode": "topup",
            "origin_url": "HTTPS://App.Example:443/a?b=';script-src *;\"<script>",
        });
        match merchant.post("/v1/checkout_sessions", &body).await {
            refused if refused.status == 400 => {}
            made => {
                let url = made.expect(201)["url"].as_str().unwrap().to_owned();
                let path = format!("/embed/{}", url.split_once("/embed/").unwrap().1);
                let page = Request::new("GET", path).send(merchant.hosted_pages()).await.unwrap();
                let policy = page.head.header("content-security-policy").unwrap().to_owned();
                assert!(policy.ends_with("frame-ancestors https://app.example"), "{policy}");
                assert!(!page.text().contains("b="), "{}", page.text());
            }
        }
    });
}

#[test]
fn no_other_amount_than_whole_cents_within_the_bounds_is_charged() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let long = "9".repeat(250);
        for amount in [
            "NaN",
            "Infinity",
            "-Infinity",
            "-25",
            "-0",
            "0",
            "1e2",
            "2.5e1",
            "0x19",
            "25,00",
            "25 000",
            "25.001",
            "10000.01",
            "9.99",
            "25\u{0}",
            "25\r\n26",
            "\u{662}\u{665}",
            "\u{ff12}\u{ff15}",
            "\u{2212}25",
            "25\u{202e}",
            "$-25",
            "25;26",
            "[25]",
            "null",
            long.as_str(),
        ] {
            let refused = checkout.post(&money(amount, ACCEPTED)).await;
            assert_eq!(refused.status, 422, "{amount:?}: {}", refused.text());
            assert!(refused.text().contains("id=\"amount-error\""), "{amount:?}");
        }
        nothing_happened(&checkout).await;
        // The first of repeated fields counts, as the page shows it again.
        let twice = [&money("11", ACCEPTED)[..], &[("amount", "9000")]].concat();
        went_through(&checkout.post(&twice).await, &checkout);
        assert_eq!(checkout.of_kind("payment.requested").await[0]["amount"], "11.0000000000");
    });
}

/// A form of these raw bytes.
async fn raw(checkout: &Checkout, content_type: &str, bytes: Vec<u8>) -> Response {
    let request = Request::new("POST", checkout.path.as_str());
    let request = request.header("Content-Type", content_type).body(Body::Whole(bytes));
    request.send(checkout.merchant.hosted_pages()).await.unwrap()
}

#[test]
fn a_form_that_no_page_sends_has_no_effect() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let form_type = "application/x-www-form-urlencoded";
        let good = "name=Ada&email=a%40b.example&amount=25&card_number=4242424242424242&card_expiry=04%2F39&card_cvc=123";
        for (content_type, status) in [
            ("text/plain", 415),
            ("multipart/form-data; boundary=x", 415),
            ("application/json", 415),
            ("", 415),
            ("application/x-www-form-urlencodedx", 415),
        ] {
            let answer = raw(&checkout, content_type, good.as_bytes().to_vec()).await;
            assert_eq!(answer.status, status, "{content_type}: {}", answer.text());
        }
        let large = raw(&checkout, form_type, format!("{good}&x={}", "x".repeat(20_000)).into_bytes()).await;
        assert_eq!(large.status, 413, "{}", large.text());
        let many = raw(&checkout, form_type, [b"a&".repeat(7_000), good.as_bytes().to_vec()].concat()).await;
        assert_eq!(many.status, 303, "seven thousand empty fields are none: {}", many.text());
        // From here on the session is complete; another one for what is refused.
        let checkout = Checkout::new("topup").await;
        let person = |name: &str, value: &str| {
            let fields = money("25", ACCEPTED).into_iter().map(|(known, with)| {
                format!("{known}={}", if known == name { value.to_owned() } else { encoded(with) })
            });
            fields.collect::<Vec<_>>().join("&").into_bytes()
        };
        for (name, value) in [
            ("name", "a%00b"),
            ("name", &"x".repeat(256)),
            ("email", "a%40b%0d%0aBcc%3A+c%40d"),
            ("email", "a%40b%00"),
            ("email", "a%40b%40c"),
            ("email", "%40"),
            ("phone", "%D9%A2%D9%A5%D9%A2%D9%A5"),
            ("phone", "%2B49%00123456"),
            ("card_number", "4242424242424242%00"),
            ("card_number", "%EF%BC%94242424242424242"),
            ("card_expiry", "%D9%A0%D9%A4%2F39"),
            ("card_expiry", "00%2F39"),
            ("card_expiry", "13%2F39"),
            ("card_expiry", "04%2F0039"),
            ("card_expiry", "04%2F9999"),
            ("card_cvc", "%D9%A1%D9%A2%D9%A3"),
            ("card_cvc", "12345"),
        ] {
            let answer = raw(&checkout, form_type, person(name, value)).await;
            assert_eq!(answer.status, 422, "{name}={value}: {}", answer.text());
        }
        nothing_happened(&checkout).await;
    });
}

#[test]
fn what_people_and_merchants_write_is_text_on_the_page() {
    run(async {
        let script = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'{{7*7}}";
        let merchant = Merchant::new().await;
        let plan = json!({"name": script, "period_amount": "20"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let body = json!({"checkout_mode": "subscription", "plan_id": plan["plan_id"]});
        let checkout = Checkout::of(merchant, body).await;
        let answers = [
            ("name", script),
            ("email", "\"<script>alert(2)</script>\"@b"),
            ("phone", script),
            ("price", script),
            ("credit", script),
            ("pay", script),
            (script, script),
        ];
        for page in [checkout.get().await, checkout.post(&answers).await] {
            let html = page.text();
            assert!(!html.contains("<script>alert") && !html.contains("<img"), "{html}");
            assert!(html.contains("&lt;script&gt;") || html.contains("&#60;script&#62;"), "{html}");
        }
        nothing_happened(&checkout).await;
    });
}

#[test]
fn a_form_names_neither_its_price_nor_its_plan_nor_its_customer() {
    run(async {
        let merchant = Merchant::new().await;
        let other = merchant.customer("0").await;
        merchant.leave_card(&other, PAYS).await;
        let cheap = merchant.post("/v1/plans", &json!({"name": "1", "period_amount": "1"})).await.expect(201);
        let dear =
            merchant.post("/v1/plans", &json!({"name": "99", "period_amount": "99"})).await.expect(201);
        let body = json!({"checkout_mode": "subscription", "plan_id": dear["plan_id"]});
        let page = Checkout::of(merchant, body).await;
        let before = page.merchant.events().await.len();
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        let (cheap, other) = (id(&cheap["plan_id"]), other.id);
        let paid = |price: &'static str, credit: &'static str| {
            [&PERSON[..], &card(ACCEPTED), &[("price", price), ("credit", credit)]].concat()
        };
        for fields in [
            paid("1.0000000000", "1.0000000000"),
            paid("", ""),
            paid("0", "0"),
            paid("99.0000000000", "9900.0000000000"),
            paid("-99.0000000000", "99.0000000000"),
        ] {
            let refused = page.post(&fields).await;
            assert_eq!(refused.status, 422, "{}", refused.text());
            assert!(refused.text().contains("The offer has changed"), "{}", refused.text());
        }
        // A card that this session's customer does not have is not there to pay with.
        let known =
            [&PERSON[..], &[("pay", "known"), ("price", "99.0000000000"), ("credit", "99.0000000000")]];
        assert_eq!(page.post(&known.concat()).await.status, 422);
        assert_eq!(page.merchant.events().await.len(), before, "nothing was recorded");
        // What the form does not have is not read.
        let extra = [
            ("plan_id", cheap.as_str()),
            ("subscription_config_id", &cheap),
            ("customer_id", &other),
            ("connection_id", &other),
            ("amount", "10"),
            ("period_amount", "1"),
            ("included_credit", "1000"),
            ("checkout_mode", "topup"),
            ("origin_url", "https://evil.example"),
            ("payment_method_id", "pm_01KAM5F7Z8Q9X0Y1V2W3E4R5T6"),
        ];
        let fields = [&paid("99.0000000000", "99.0000000000")[..], &extra].concat();
        went_through(&page.post(&fields).await, &page);
        let requested = page.of_kind("payment.requested").await;
        assert_eq!((requested.len(), &requested[0]["amount"]), (1, &json!("99.0000000000")));
        assert_ne!(requested[0]["customer_id"], other.as_str());
        assert_eq!(requested[0]["purpose"]["plan_id"], dear["plan_id"]);
    });
}

#[test]
fn two_browsers_with_different_cards_and_amounts_pay_once() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let mut browsers = JoinSet::new();
        let amounts = ["11", "12", "13", "14", "15", "16"];
        for (number, amount) in amounts.into_iter().enumerate() {
            let cards = [ACCEPTED, DECLINED, "5555555555554444"];
            let request = form(&checkout.path, &money(amount, cards[number % 3]));
            let pages = checkout.merchant.instance.hosted_pages(number % 2);
            browsers.spawn(async move { request.send(pages).await.unwrap().status });
        }
        let statuses = browsers.join_all().await;
        assert!(statuses.iter().all(|status| [303, 422].contains(status)), "{statuses:?}");
        // A declined form may have been first; then the session is still open.
        if checkout.of_kind("payment.succeeded").await.is_empty() {
            went_through(&checkout.post(&money("17", ACCEPTED)).await, &checkout);
        }
        let succeeded = checkout.of_kind("payment.succeeded").await;
        assert_eq!(succeeded.len(), 1, "{succeeded:?}");
        assert_eq!(checkout.of_kind("customer.created").await.len(), 1);
        assert_eq!(checkout.of_kind("wallet.credited").await[0]["amount"], succeeded[0]["amount"]);
        // The form again, from either browser, after its success.
        for gateway in 0..2 {
            went_through(&checkout.post_to(gateway, &money("18", ACCEPTED)).await, &checkout);
        }
        assert_eq!(checkout.of_kind("payment.requested").await.len(), {
            let declined = checkout.of_kind("payment.declined").await.len();
            declined + 1
        });
    });
}

#[test]
fn a_link_that_has_expired_takes_nothing() {
    run(async {
        let checkout = Checkout::new("topup").await;
        checkout.merchant.clock_by(24 * 60 * 60 + 1).await;
        for gateway in 0..2 {
            let late = checkout.post_to(gateway, &money("25", ACCEPTED)).await;
            assert_eq!(late.status, 410, "{}", late.text());
        }
        assert_eq!(checkout.get().await.status, 410);
        nothing_happened(&checkout).await;
    });
}

#[test]
fn a_session_has_no_plan_bundle_or_customer_of_another_merchant() {
    run(async {
        let (own, other) = (Merchant::new().await, Merchant::new().await);
        let plan = json!({
            "name": "p", "period_amount": "5",
            "credit_bundles": [{"name": "b", "cost": "5", "credit_amount": "5"}],
        });
        let plan = other.post("/v1/plans", &plan).await.expect(201);
        let bundle = &plan["credit_bundles"][0]["credit_bundle_id"];
        let (mine, theirs) = (own.customer("0").await, other.customer("0").await);
        let session = async |body: Value, code: &str| {
            let mut body = body;
            body["origin_url"] = json!("https://app.example");
            own.post("/v1/checkout_sessions", &body).await.refused(404, code);
        };
        session(json!({"checkout_mode": "subscription", "plan_id": plan["plan_id"]}), "plan_not_found").await;
        session(json!({"checkout_mode": "onboarding", "plan_id": plan["plan_id"]}), "plan_not_found").await;
        let sold = json!({
            "checkout_mode": "credit_bundle", "credit_bundle_id": bundle, "customer_id": mine.id,
        });
        session(sold, "credit_bundle_not_found").await;
        for name in ["customer_id", "connection_id"] {
            session(json!({"checkout_mode": "topup", name: theirs.id}), "customer_not_found").await;
            session(json!({"checkout_mode": "topup", name: theirs.reference_id}), "customer_not_found").await;
        }
        assert_eq!(own.of_kind("checkout_session.created").await.len(), 0);
    });
}

#[test]
fn the_saved_card_of_a_customer_pays_for_nobody_else() {
    run(async {
        let merchant = Merchant::new().await;
        let owner = merchant.customer_called("owner", "0").await;
        merchant.leave_card(&owner, PAYS).await;
        let thief = merchant.customer_called("thief", "0").await;
        let requested = merchant.of_kind("payment.requested").await.len();
        let asked = json!({"checkout_mode": "topup", "customer_id": thief.id});
        let page = Page::of(&merchant, &asked).await;
        assert!(!page.shown(merchant.hosted_pages()).await.text().contains("ending in"));
        for fields in [
            vec![("amount", "10"), ("pay", "known")],
            vec![("amount", "10"), ("pay", "known"), ("customer_id", owner.id.as_str())],
        ] {
            assert_eq!(page.post(merchant.hosted_pages(), &fields).await.status, 422);
        }
        assert_eq!(merchant.of_kind("payment.requested").await.len(), requested);
        // A declined card of the thief does not fall back to another one.
        let declined = page.send(merchant.hosted_pages(), "", Means::Card(IS_DECLINED)).await;
        assert_eq!(declined.status, 422);
        assert_eq!(merchant.of_kind("payment.succeeded").await.len(), 0);
    });
}

#[test]
fn a_page_charges_no_other_saved_card_than_the_one_that_it_showed() {
    run(async {
        let merchant = Merchant::new().await;
        let pages = merchant.hosted_pages();
        let customer = merchant.customer("0").await;
        merchant.leave_card(&customer, PAYS).await;
        let asked = json!({"checkout_mode": "topup", "customer_id": customer.id});
        let (page, other) = (Page::of(&merchant, &asked).await, Page::of(&merchant, &asked).await);
        let html = page.shown(pages).await.text();
        assert!(html.contains("Visa ending in 4242"), "{html}");
        let shown = hidden(&html, "payment_method_id");
        // The customer pays at another page with another card, which becomes the saved one.
        let new = [&card("5555555555554444")[..], &[("amount", "20"), ("pay", "card")]].concat();
        let paid = other.post(pages, &new).await;
        assert_eq!(paid.status, 303, "{}", paid.text());
        for saved in [shown, "", "pm_01KAM5F7Z8Q9X0Y1V2W3E4R5T6"] {
            let fields = [("amount", "77"), ("pay", "known"), ("payment_method_id", saved)];
            let refused = page.post(pages, &fields).await;
            let html = refused.text();
            assert_eq!(refused.status, 422, "{html}");
            assert!(html.contains("The offer has changed"), "{html}");
            assert!(html.contains("Mastercard ending in 4444"), "{html}");
        }
        assert_eq!(merchant.charges().await, [(Decimal::from(20), None)]);
        // It charges the card that it shows now.
        let html = page.shown(pages).await.text();
        let saved = ("payment_method_id", hidden(&html, "payment_method_id"));
        let paid = page.post(pages, &[("amount", "77"), ("pay", "known"), saved]).await;
        assert_eq!(paid.status, 303, "{}", paid.text());
        let requested = merchant.of_kind("payment.requested").await;
        assert_eq!((requested.len(), &requested[1].body["payment_method_id"]), (2, &json!(saved.1)));
    });
}

#[test]
fn a_form_that_never_comes_to_its_end_keeps_nobody_waiting() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let gateway = SideGateway::start(checkout.merchant.instance, &["--body-timeout-seconds=3"]).await;
        let mut slow = JoinSet::new();
        for _ in 0..50 {
            let form = Request::new("POST", checkout.path.as_str())
                .header("Content-Type", "application/x-www-form-urlencoded")
                .header("Content-Length", "16000");
            let pages = gateway.pages;
            slow.spawn(async move {
                let mut connection = Connection::open(pages).await.unwrap();
                connection.send_head(&form).await.unwrap();
                connection.write.write_all(b"amount=25&name=").await.unwrap();
                connection.response("POST").await.unwrap().status
            });
        }
        let page = Request::new("GET", checkout.path.as_str()).send(gateway.pages).await.unwrap();
        assert_eq!(page.status, 200, "{}", page.text());
        went_through(
            &form(&checkout.path, &money("25", ACCEPTED)).send(gateway.pages).await.unwrap(),
            &checkout,
        );
        for status in slow.join_all().await {
            // One that began after the payment is told so at once.
            assert!((400..500).contains(&status) || status == 303, "{status}");
        }
        assert_eq!(checkout.of_kind("payment.requested").await.len(), 1);
    });
}

#[test]
fn a_page_that_is_opened_again_and_again_is_refused_for_a_while_and_no_other_page() {
    run(async {
        let merchant = Merchant::new().await;
        let (flooded, other) = {
            let asked = json!({"checkout_mode": "topup"});
            (Page::of(&merchant, &asked).await, Page::of(&merchant, &asked).await)
        };
        let pages = merchant.hosted_pages();
        let refused = eventually("a page is refused", async || {
            let shown = flooded.shown(pages).await;
            (shown.status != 200).then_some(shown)
        })
        .await;
        assert_eq!(refused.status, 429, "{}", refused.text());
        assert!(refused.text().contains("Too many"), "{}", refused.text());
        let wait: u64 = refused.head.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        // The payment may be pending: the page reloads.
        let refresh = format!("<meta http-equiv=\"refresh\" content=\"{wait}\">");
        assert!(refused.text().contains(&refresh), "{}", refused.text());
        // A form counts like a view, and costs nothing while it is refused.
        let refused = eventually("a form is refused", async || {
            let sent = flooded.send(pages, "", Means::Card(PAYS)).await;
            (sent.status == 429).then_some(sent)
        })
        .await;
        assert!(refused.text().contains("had no effect"), "{}", refused.text());
        assert!(!refused.text().contains("http-equiv=\"refresh\""), "{}", refused.text());
        assert_eq!(other.shown(pages).await.status, 200, "the limit is that of one link");
        // After a while the link works again.
        eventually("the page is shown again", async || {
            (flooded.shown(pages).await.status == 200).then_some(())
        })
        .await;
    });
}
