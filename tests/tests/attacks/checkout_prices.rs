//! Checkout pages whose fields of prices were changed in the browser, or whose offer has changed: nothing is charged or begun.

use farthing_tests::checkout_page::{ACCEPTED, Checkout, PERSON, card, hidden, went_through};
use farthing_tests::merchant::Merchant;
use farthing_tests::recurring::{Means, PAYS, Page};
use farthing_tests::run;
use serde_json::{Value, json};

const SHOWN: [(&str, &str); 2] = [("price", "20.0000000000"), ("credit", "20.0000000000")];

#[test]
fn a_changed_price_charges_nothing() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = json!({"name": "Plan", "period_amount": "20", "included_credit": "20"});
        let plan_id = merchant.post("/v1/plans", &plan).await.expect(201)["plan_id"].clone();
        let body = json!({"checkout_mode": "onboarding", "plan_id": plan_id});
        let checkout = Checkout::of(merchant, body).await;
        let own = [&PERSON[..], &card(ACCEPTED)].concat();
        for fields in [
            vec![("price", "0.0000000001"), SHOWN[1]],
            vec![("price", "0"), SHOWN[1]],
            vec![("price", "-20"), SHOWN[1]],
            vec![("price", ""), SHOWN[1]],
            vec![SHOWN[0], ("credit", "2000")],
            vec![("credit", "2000")],
            vec![],
        ] {
            let refused = checkout.post(&[&own[..], &fields].concat()).await;
            assert!((400..500).contains(&refused.status), "{fields:?}: {}", refused.status);
        }
        for kind in ["payment.requested", "payment.succeeded", "subscription.started"] {
            assert!(checkout.of_kind(kind).await.is_empty(), "{kind}");
        }
        went_through(&checkout.post(&[&own[..], &SHOWN].concat()).await, &checkout);
        assert_eq!(checkout.of_kind("payment.succeeded").await.len(), 1);
    });
}

/// A plan of this price with as much credit.
async fn plan(merchant: &Merchant, price: &str, credit: &str) -> Value {
    let plan = json!({"name": "Plan", "period_amount": price, "included_credit": credit});
    merchant.post("/v1/plans", &plan).await.expect(201)
}

/// The fields that say what a page offers.
fn offer(html: &str) -> [(&'static str, &str); 5] {
    ["price", "credit", "auto_top_up", "starts", "payment_method_id"].map(|name| (name, hidden(html, name)))
}

#[test]
fn a_changed_credit_is_noticed_also_if_nothing_is_paid_now() {
    run(async {
        let merchant = Merchant::new().await;
        let pages = merchant.hosted_pages();
        let (free, cheap) = (plan(&merchant, "0", "5").await, plan(&merchant, "10", "10").await);
        let dear = plan(&merchant, "20", "20").await;
        let newcomer = merchant.customer_called("newcomer", "0").await;
        let subscriber = merchant.customer_called("subscriber", "0").await;
        merchant.subscribe(&subscriber, &dear, Means::Card(PAYS)).await;
        for (customer, plan) in [(&newcomer, &free), (&subscriber, &cheap)] {
            let plan_id = plan["plan_id"].as_str().unwrap();
            let asked =
                json!({"checkout_mode": "subscription", "plan_id": plan_id, "customer_id": customer.id});
            let page = Page::of(&merchant, &asked).await;
            let seen = page.shown(pages).await.text();
            let changed = json!({"included_credit": "0"});
            merchant.patch(&format!("/v1/plans/{plan_id}"), &changed).await.expect(200);
            let before = merchant.events().await.len();
            for fields in [&offer(&seen)[..], &[]] {
                let refused = page.post(pages, fields).await;
                assert_eq!(refused.status, 422, "{}", refused.text());
                assert!(refused.text().contains("The offer has changed"), "{}", refused.text());
            }
            assert_eq!(merchant.events().await.len(), before, "nothing was recorded");
            let seen = page.shown(pages).await.text();
            let accepted = page.post(pages, &offer(&seen)).await;
            assert_eq!(accepted.status, 303, "{}", accepted.text());
        }
        assert_eq!(merchant.subscription_of(&newcomer).await["plan_id"], free["plan_id"]);
        let pending = merchant.subscription_of(&subscriber).await["pending_change"].clone();
        assert_eq!(pending["plan_id"], cheap["plan_id"]);
    });
}

#[test]
fn a_plan_that_would_start_later_is_another_offer() {
    run(async {
        let merchant = Merchant::new().await;
        let pages = merchant.hosted_pages();
        let (small, big) = (plan(&merchant, "10", "10").await, plan(&merchant, "20", "20").await);
        let biggest = plan(&merchant, "30", "30").await;
        let customer = merchant.customer("0").await;
        merchant.subscribe(&customer, &small, Means::Card(PAYS)).await;
        let asked =
            json!({"checkout_mode": "subscription", "plan_id": big["plan_id"], "customer_id": customer.id});
        let page = Page::of(&merchant, &asked).await;
        let seen = page.shown(pages).await.text();
        // It was an upgrade, and is a downgrade now.
        merchant.subscribe(&customer, &biggest, Means::Known).await;
        let refused = page.post(pages, &[&offer(&seen)[..], &[("pay", "known")]].concat()).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.text().contains("The offer has changed"), "{}", refused.text());
        assert_eq!(merchant.subscription_of(&customer).await["pending_change"], Value::Null);
    });
}

#[test]
fn a_changed_automatic_purchase_is_noticed() {
    run(async {
        let merchant = Merchant::new().await;
        let pages = merchant.hosted_pages();
        let plan = json!({
            "name": "Plan", "period_amount": "20", "included_credit": "20",
            "credit_bundles": [{"name": "More", "cost": "5", "credit_amount": "6"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let path = format!("/v1/plans/{}", plan["plan_id"].as_str().unwrap());
        let bundle = &plan["credit_bundles"][0]["credit_bundle_id"];
        let bought = json!({"default_auto_top_up_bundle_id": bundle});
        let customer = merchant.customer("0").await;
        let asked =
            json!({"checkout_mode": "subscription", "plan_id": plan["plan_id"], "customer_id": customer.id});
        let page = Page::of(&merchant, &asked).await;
        let mut seen = page.shown(pages).await.text();
        assert!(!seen.contains("bought automatically"), "{seen}");
        let own = [&card(ACCEPTED)[..], &[("pay", "card")]].concat();
        for (change, sentence) in [
            (bought.clone(), "$6.00 more is bought automatically for $5.00."),
            (
                json!({"credit_bundles": [{"credit_bundle_id": bundle, "cost": "7.5"}]}),
                "$6.00 more is bought automatically for $7.50.",
            ),
            (
                json!({"credit_bundles": [{"credit_bundle_id": bundle, "credit_amount": "1"}]}),
                "$1.00 more is bought automatically for $7.50.",
            ),
            (json!({"default_auto_top_up_bundle_id": null}), ""),
        ] {
            merchant.patch(&path, &change).await.expect(200);
            let refused = page.post(pages, &[&own[..], &offer(&seen)].concat()).await;
            assert_eq!(refused.status, 422, "{}", refused.text());
            assert!(refused.text().contains("The offer has changed"), "{}", refused.text());
            seen = page.shown(pages).await.text();
            assert!(seen.contains(sentence), "{seen}");
            assert_eq!(seen.contains("bought automatically"), !sentence.is_empty(), "{seen}");
        }
        assert_eq!(merchant.of_kind("payment.requested").await.len(), 0);
        merchant.patch(&path, &bought).await.expect(200);
        let seen = page.shown(pages).await.text();
        let accepted = page.post(pages, &[&own[..], &offer(&seen)].concat()).await;
        assert_eq!(accepted.status, 303, "{}", accepted.text());
        assert_eq!(merchant.subscription_of(&customer).await["auto_top_up_bundle_id"], *bundle);
    });
}
