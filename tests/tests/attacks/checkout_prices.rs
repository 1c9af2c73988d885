//! A checkout page whose fields of prices were changed in the browser charges nothing.

use farthing_tests::checkout_page::{ACCEPTED, Checkout, PERSON, card, went_through};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use serde_json::json;

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
