//! Bundles of extra credit: bought on a hosted page or automatically by a subscription, and their fate when the cycle ends or
//! the card is declined.

use farthing_tests::client::Response;
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::{Endpoint, json as answer_json};
use farthing_tests::recurring::{IS_DECLINED, Means, PAYS, Page, instant};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// A customer on a plan with 2 of credit for 10 a month and a bundle of 4 for 5, whose calls cost 1 each.
struct Buyer {
    merchant: Merchant,
    customer: Customer,
    began: Value,
    bundle: Value,
    credential: String,
    endpoint: Endpoint,
}

impl Buyer {
    async fn new(bundle_rollover: &str) -> Self {
        let merchant = Merchant::funded("5").await;
        let plan = json!({
            "name": "Two", "period_amount": "10", "included_credit": "2", "rollover_type": "none",
            "bundle_rollover_type": bundle_rollover,
            "credit_bundles": [{"name": "Four", "cost": "5", "credit_amount": "4"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("1").await);
        let began = merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        Self { bundle: plan["credit_bundles"][0].clone(), merchant, customer, began, credential, endpoint }
    }

    async fn call(&self) -> Response {
        self.merchant.fetch(&self.credential, &self.endpoint.url).await
    }

    fn id(&self) -> &str {
        self.began["subscription_id"].as_str().unwrap()
    }

    /// The remaining credit of the plan and of bundles.
    async fn left(&self) -> (String, String) {
        let shown = self.merchant.subscription_of(&self.customer).await;
        let credits = &shown["credits"];
        let plain = |name: &str| {
            let amount: Decimal = credits[name].as_str().unwrap().parse().unwrap();
            amount.normalize().to_string()
        };
        (plain("cycle_remaining"), plain("bundle_remaining"))
    }

    async fn has_left(&self, plan: &str, bundles: &str) {
        assert_eq!(self.left().await, (plan.to_owned(), bundles.to_owned()));
    }

    async fn charged(&self, amounts: &[(&str, bool)]) {
        let wanted: Vec<_> = amounts
            .iter()
            .map(|(amount, accepted)| {
                let why = (!accepted).then(|| "card_declined".to_owned());
                (amount.parse::<Decimal>().unwrap(), why)
            })
            .collect();
        assert_eq!(self.merchant.charges().await, wanted);
    }

    /// Asserts the number of bundles bought.
    async fn bought(&self, count: usize) {
        let purchases = eventually("a bundle is bought", async || {
            let purchases = self.merchant.of_kind("bundle.purchased").await;
            (purchases.len() >= count).then_some(purchases)
        })
        .await;
        assert_eq!(purchases.len(), count);
        assert!(purchases.iter().all(|bought| bought.text("customer_id") == self.customer.id));
    }
}

#[test]
fn a_bundle_is_bought_on_its_page_and_expires_with_the_cycle_if_the_plan_says_so() {
    run(async {
        let buyer = Buyer::new("none").await;
        let merchant = &buyer.merchant;
        merchant.buy(&buyer.customer, &buyer.bundle, Means::Known).await;
        merchant.buy(&buyer.customer, &buyer.bundle, Means::Card(PAYS)).await;
        buyer.has_left("2", "8").await;
        // The plan's credit first, then the older bundle, then the other.
        for (plan, bundles) in
            [("1", "8"), ("0", "8"), ("0", "7"), ("0", "6"), ("0", "5"), ("0", "4"), ("0", "3")]
        {
            buyer.call().await.expect(200);
            buyer.has_left(plan, bundles).await;
        }
        let purchases = merchant.of_kind("bundle.purchased").await;
        let debits = merchant.of_kind("wallet.debited").await;
        let of: Vec<_> = debits
            .iter()
            .filter(|debit| debit.text("customer_id") == buyer.customer.id)
            .map(|debit| debit.body["sources"][0]["source"].clone())
            .collect();
        let by = |number: usize| json!({"bundle_credit": purchases[number].text("payment_id")});
        assert_eq!(of[2..], [by(0), by(0), by(0), by(0), by(1)]);
        for name in ["subscriptions", "connections", "plans"] {
            let report = merchant.instance.operate(&["projections", "verify", name]).await;
            assert_eq!(report["differences"], 0, "{name}: {report}");
        }

        merchant.clock_to(instant(&buyer.began["cycle_end_at"])).await;
        merchant.comes_to(buyer.id(), "subscription.renewed", 1).await;
        buyer.has_left("2", "0").await;
        buyer.charged(&[("10", true), ("5", true), ("5", true), ("10", true)]).await;

        // A bundle is sold to subscribers of its plan only.
        let other = merchant.customer_called("other", "0").await;
        let asked = json!({
            "checkout_mode": "credit_bundle", "customer_id": other.id,
            "credit_bundle_id": buyer.bundle["credit_bundle_id"],
        });
        let page = Page::of(merchant, &asked).await;
        let refused = page.send(merchant.hosted_pages(), "5.0000000000", Means::Card(PAYS)).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        buyer.charged(&[("10", true), ("5", true), ("5", true), ("10", true)]).await;
    });
}

#[test]
fn a_subscription_buys_its_bundle_automatically_when_its_credit_is_used_up() {
    run(async {
        let buyer = Buyer::new("full").await;
        let merchant = &buyer.merchant;
        let path = format!("/v1/subscriptions/{}", buyer.id());
        let chosen = json!({"auto_top_up_bundle_id": buyer.bundle["credit_bundle_id"]});
        let shown = merchant.patch(&path, &chosen).await.expect(200);
        assert_eq!(shown["auto_top_up_bundle_id"], buyer.bundle["credit_bundle_id"]);
        // The remaining credit covers one more call: nothing is bought.
        buyer.call().await.expect(200);
        buyer.has_left("1", "0").await;
        assert_eq!(merchant.of_kind("payment.requested").await.len(), 1);
        buyer.call().await.expect(200);
        buyer.bought(1).await;
        buyer.has_left("0", "4").await;
        buyer.charged(&[("10", true), ("5", true)]).await;

        // A declined card: calls succeed while the credit lasts, and the purchase is not retried for a day.
        merchant.leave_card(&buyer.customer, IS_DECLINED).await;
        for _ in 0..4 {
            buyer.call().await.expect(200);
        }
        let declined = eventually("the card is declined", async || {
            let declined = merchant.of_kind("payment.declined").await;
            (!declined.is_empty()).then_some(declined)
        })
        .await;
        let again = instant(&declined[0].body["not_again_before"]);
        for _ in 0..3 {
            buyer.call().await.refused(402, "insufficient_balance");
        }
        assert_eq!(merchant.of_kind("payment.requested").await.len(), 3);
        merchant.clock_to(again).await;
        buyer.call().await.refused(402, "insufficient_balance");
        eventually("it is retried", async || {
            (merchant.of_kind("payment.declined").await.len() == 2).then_some(())
        })
        .await;
        buyer.charged(&[("10", true), ("5", true), ("5", false), ("5", false)]).await;

        // A new card is charged at the next call that is not covered.
        merchant.leave_card(&buyer.customer, PAYS).await;
        buyer.call().await.refused(402, "insufficient_balance");
        buyer.bought(2).await;
        buyer.has_left("0", "4").await;
        buyer.call().await.expect(200);
        buyer.has_left("0", "3").await;
        // The bundle rolls over beside the next cycle's credit.
        merchant.clock_to(instant(&buyer.began["cycle_end_at"])).await;
        merchant.comes_to(buyer.id(), "subscription.renewed", 1).await;
        buyer.has_left("2", "3").await;
        let cleared = merchant.patch(&path, &json!({"auto_top_up_bundle_id": null})).await.expect(200);
        assert_eq!(cleared["auto_top_up_bundle_id"], Value::Null);
        for _ in 0..5 {
            buyer.call().await.expect(200);
        }
        buyer.call().await.refused(402, "insufficient_balance");
        let all = [("10", true), ("5", true), ("5", false), ("5", false), ("5", true), ("10", true)];
        buyer.charged(&all).await;
        merchant.nothing_is_held().await;
    });
}
