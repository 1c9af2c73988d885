//! Payments in the background: requested by auto-recharge, carried out by any gateway, delayed by a processor that does not
//! answer, and refunded if the customer was deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use farthing_tests::client::{Body, Request};
use farthing_tests::merchant::{Customer, Merchant, encoded, forward, token};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{Means, PAYS, Page};
use farthing_tests::run;
use farthing_tests::wait::{eventually, within};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The limit for delayed payments to be retried.
pub(crate) const RETRY_LIMIT: Duration = Duration::from_mins(3);

const CHARGES: &str = "\
SELECT payment_id, token, declined, refund FROM test_processor.charge WHERE amount = $1::text::numeric";

/// Makes the processor fail on charges of this amount, except on those that a test inserts.
pub(crate) async fn does_not_answer(merchant: &Merchant, amount: &str) -> String {
    let name = format!("no_answer_{}", amount.replace('.', "_"));
    let broken = format!(
        "CREATE FUNCTION test_processor.{name}() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no answer'; END $$;
         CREATE TRIGGER {name} BEFORE INSERT ON test_processor.charge FOR EACH ROW
         WHEN (NEW.amount = {amount} AND NEW.declined IS NULL AND NEW.token <> 'by hand')
         EXECUTE FUNCTION test_processor.{name}();"
    );
    merchant.log.sql.batch_execute(&broken).await.unwrap();
    name
}

/// Ends what [`does_not_answer`] began.
pub(crate) async fn answers_again(merchant: &Merchant, name: &str) {
    let drop = format!("DROP TRIGGER {name} ON test_processor.charge; DROP FUNCTION test_processor.{name}()");
    merchant.log.sql.batch_execute(&drop).await.unwrap();
}

async fn add_own_card(merchant: &Merchant) {
    let card =
        json!({"card": {"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"}});
    merchant.post("/v1/payment_methods", &card).await.expect(201);
}

/// Submits the form of a checkout page and returns the status.
async fn check_out(merchant: &Merchant, customer: &Customer, mode: &str, fields: &[(&str, &str)]) -> u16 {
    let asked =
        json!({"checkout_mode": mode, "customer_id": customer.id, "origin_url": "https://app.example"});
    let session = merchant.post("/v1/checkout_sessions", &asked).await.expect(201);
    let path = session["url"].as_str().unwrap().split_once("/embed/").unwrap().1.to_owned();
    let person = [("name", "Ada Lovelace"), ("email", "ada@example.com"), ("phone", "+4930123456")];
    let card = [("card_number", "4242424242424242"), ("card_expiry", "04/39"), ("card_cvc", "123")];
    let fields = [&person[..], &card, fields].concat();
    let pairs: Vec<_> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let form = Request::new("POST", format!("/embed/{path}"))
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(Body::Whole(pairs.join("&").into_bytes()));
    form.send(merchant.hosted_pages()).await.unwrap().status
}

/// The merchant's events of this kind.
async fn of_kind(merchant: &Merchant, kind: &str) -> Vec<Value> {
    let events = merchant.events().await.into_iter();
    events.filter(|event| event.kind == kind).map(|event| event.body).collect()
}

/// Makes a thousand calls, two hundred at a time, over both gateways. Returns how many had status 200 and 402.
async fn storm(merchant: &Merchant, credential: &str, url: &str) -> (usize, usize) {
    let mut callers = JoinSet::new();
    for caller in 0..200 {
        let gateway = merchant.instance.gateway(caller % 2);
        let (credential, url) = (credential.to_owned(), url.to_owned());
        callers.spawn(async move {
            let mut statuses = Vec::new();
            for _ in 0..5 {
                let answer = forward("GET", &url).bearer(&credential).send(gateway).await.unwrap();
                statuses.push(answer.status);
            }
            statuses
        });
    }
    let statuses = callers.join_all().await.concat();
    let count = |status: u16| statuses.iter().filter(|known| **known == status).count();
    assert_eq!(count(200) + count(402), 1_000, "{statuses:?}");
    (count(200), count(402))
}

#[test]
fn many_calls_below_the_threshold_recharge_the_merchants_wallet_once() {
    run(async {
        let merchant = Merchant::funded("3").await;
        add_own_card(&merchant).await;
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("0.01").await);
        let autopay = json!({"autopay_enabled": true, "autopay_threshold": "2", "autopay_amount": "1000"});
        merchant.patch("/v1/wallet", &autopay).await.expect(200);
        let credential = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "disable_billing": true,
        }));
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let (answered, _) = storm(&merchant, &credential, &endpoint.url).await;
        assert!(answered >= 98, "the first hundred cost 1 and bring it to the threshold");
        eventually("the wallet is recharged", async || {
            (!of_kind(&merchant, "payment.succeeded").await.is_empty()).then_some(())
        })
        .await;
        // At the next call the balance is above the threshold.
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        let requested = of_kind(&merchant, "payment.requested").await;
        assert_eq!(requested.len(), 1, "{requested:?}");
        assert_eq!(requested[0]["purpose"]["for"], "autopay");
        merchant.nothing_is_held().await;
        // A call costs 0.01 and a service charge of 0.00019.
        let cost = i64::try_from(answered + 1).unwrap() * 1_019;
        let left = 1_003 * 100_000 - cost;
        assert_eq!(merchant.own_balance().await, format!("{}.{:05}00000", left / 100_000, left % 100_000));
    });
}

#[test]
fn many_calls_that_use_up_a_plans_credit_buy_one_bundle() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("0.01").await);
        assert_eq!(check_out(&merchant, &customer, "onboarding", &[]).await, 303);
        let plan = json!({
            "name": "two", "period_amount": 0, "included_credit": "2",
            "credit_bundles": [{"name": "hundred", "cost": "90", "credit_amount": "100"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let bundle = &plan["credit_bundles"][0]["credit_bundle_id"];
        let subscribe =
            json!({"customer_id": customer.id, "plan_id": plan["plan_id"], "auto_top_up_bundle_id": bundle});
        let subscription =
            merchant.post("/v1/subscriptions", &subscribe).await.expect(201)["subscription"].clone();
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        let (answered, _) = storm(&merchant, &credential, &endpoint.url).await;
        assert!(answered >= 200, "the plan's credit covers 200 calls: {answered}");
        eventually("the bundle is credited", async || {
            (!of_kind(&merchant, "bundle.purchased").await.is_empty()).then_some(())
        })
        .await;
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        let requested = of_kind(&merchant, "payment.requested").await;
        assert_eq!(requested.len(), 1, "{requested:?}");
        assert_eq!(
            (&requested[0]["purpose"]["for"], &requested[0]["amount"]),
            (&json!("auto_top_up"), &json!("90.0000000000"))
        );
        merchant.nothing_is_held().await;
        let left = 10_200 - (answered + 1);
        let path = format!("/v1/subscriptions/{}", subscription["subscription_id"].as_str().unwrap());
        let shown = merchant.get(&path).await.expect(200);
        assert_eq!(
            shown["credits"]["total_remaining"],
            json!(format!("{}.{:02}00000000", left / 100, left % 100))
        );
    });
}

#[test]
fn failing_payments_do_not_delay_others_and_succeed_in_the_end() {
    run(async {
        let stuck = Merchant::funded("1").await;
        add_own_card(&stuck).await;
        let broken = does_not_answer(&stuck, "13.31").await;
        let funding = json!({"amount": "13.31"});
        for _ in 0..120 {
            stuck.post("/v1/wallet/fund", &funding).await.refused(409, "payment_in_progress");
        }
        // Another merchant's payment, which only the runner carries out.
        let merchant = Merchant::funded("3").await;
        add_own_card(&merchant).await;
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("0.01").await);
        let autopay = json!({"autopay_enabled": true, "autopay_threshold": "3", "autopay_amount": "10"});
        merchant.patch("/v1/wallet", &autopay).await.expect(200);
        let credential = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "disable_billing": true,
        }));
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        eventually("the other merchant's payment succeeds", async || {
            (!of_kind(&merchant, "payment.succeeded").await.is_empty()).then_some(())
        })
        .await;
        assert!(of_kind(&stuck, "payment.succeeded").await.is_empty());
        assert_eq!(stuck.own_balance().await, "1.0000000000");

        answers_again(&stuck, &broken).await;
        within(RETRY_LIMIT, "the delayed payments succeed", async || {
            (of_kind(&stuck, "payment.succeeded").await.len() == 120).then_some(())
        })
        .await;
        assert_eq!(stuck.own_balance().await, "1598.2000000000");
        let charges = stuck.log.sql.query(CHARGES, &[&"13.31"]).await.unwrap();
        assert_eq!(charges.len(), 120, "each is charged once");
    });
}

#[test]
fn an_upgrade_on_two_pages_is_charged_once() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let plan = async |name: &str, price: &str| {
            let body = json!({"name": name, "period_amount": price, "billing_interval": "month"});
            merchant.post("/v1/plans", &body).await.expect(201)
        };
        let (small, big) = (plan("Small", "10").await, plan("Big", "23.57").await);
        merchant.subscribe(&customer, &small, Means::Card(PAYS)).await;
        let asked = json!({
            "checkout_mode": "subscription", "plan_id": big["plan_id"], "customer_id": customer.id,
        });
        let pages = [Page::of(&merchant, &asked).await, Page::of(&merchant, &asked).await];
        let broken = does_not_answer(&merchant, "23.57").await;
        for page in &pages {
            page.send(merchant.hosted_pages(), "23.5700000000", Means::Known).await;
        }
        let requested = of_kind(&merchant, "payment.requested").await;
        assert_eq!(requested.len(), 2, "of the first plan and of one upgrade: {requested:?}");
        answers_again(&merchant, &broken).await;
        within(RETRY_LIMIT, "the upgrade is paid", async || {
            of_kind(&merchant, "subscription.upgraded").await.pop()
        })
        .await;
        let charges = merchant.log.sql.query(CHARGES, &[&"23.57"]).await.unwrap();
        assert_eq!(charges.len(), 1);
        assert_eq!(merchant.balance(&customer).await, "0.0000000000", "no payment became balance");
    });
}

#[test]
fn a_deleted_customer_is_not_charged_and_gets_a_refund() {
    run(async {
        for (amount, was_taken) in [("13.37", false), ("13.39", true)] {
            let merchant = Merchant::new().await;
            let customer = merchant.customer("0").await;
            let broken = does_not_answer(&merchant, amount).await;
            check_out(&merchant, &customer, "topup", &[("amount", amount)]).await;
            let requested = of_kind(&merchant, "payment.requested").await;
            assert_eq!(requested.len(), 1);
            let payment_id = requested[0]["payment_id"].as_str().unwrap();
            if was_taken {
                // The processor took the money, and its response was lost.
                let taken = "INSERT INTO test_processor.charge (payment_id, token, amount) VALUES ($1, 'by hand', $2::text::numeric)";
                merchant.log.sql.execute(taken, &[&payment_id, &amount]).await.unwrap();
            }
            merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
            let voided = within(RETRY_LIMIT, "the payment ends", async || {
                of_kind(&merchant, "payment.voided").await.pop()
            })
            .await;
            assert_eq!(
                (&voided["payment_id"], &voided["customer_id"]),
                (&json!(payment_id), &json!(customer.id))
            );
            assert_eq!(voided["amount"], json!(format!("{amount}00000000")));
            answers_again(&merchant, &broken).await;
            let charges = merchant.log.sql.query(CHARGES, &[&amount]).await.unwrap();
            let refund: Option<String> = charges[0].get(3);
            assert_eq!((charges.len(), refund.is_some()), (1, was_taken));
            assert_eq!(voided["refund"], json!(refund), "the log names the processor's refund");
            assert!(of_kind(&merchant, "payment.succeeded").await.is_empty());
            assert!(of_kind(&merchant, "wallet.credited").await.is_empty());
            assert!(merchant.log.state("payment", payment_id).await.is_none());
            // Received and given back, or never taken.
            let amount: Decimal = amount.parse().unwrap();
            let accounts = [("payments_received", amount), ("refunds", -amount)];
            let accounts = accounts.map(|(account, balance)| (account.to_owned(), balance));
            let expected = accounts.into_iter().filter(|_| was_taken).collect::<BTreeMap<_, _>>();
            assert_eq!(merchant.trial_balance().await, expected);
        }
    });
}
