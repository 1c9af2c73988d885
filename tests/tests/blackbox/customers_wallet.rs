//! A customer's wallet over REST: its money, and what it can be paid with.

use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::recurring::PAYS;
use farthing_tests::run;
use serde_json::{Value, json};

/// The wallet, which is the same wherever it is shown.
async fn wallet(merchant: &Merchant, customer: &Customer) -> Value {
    let shown = merchant.get(&format!("/v1/customers/{}/wallet", customer.id)).await.expect(200);
    let reference = farthing_tests::merchant::encoded(&customer.reference_id);
    let older = merchant.get(&format!("/v1/connections/{reference}/wallet")).await.expect(200);
    assert_eq!(shown, older);
    let connection = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
    for name in ["wallet_id", "balance", "autopay_enabled"] {
        assert_eq!(connection["wallet"][name], shown[name], "{name}");
    }
    shown
}

#[test]
fn a_customers_cards_are_listed_with_the_customer_and_never_among_the_merchants_own() {
    run(async {
        let merchant = Merchant::new().await;
        let own = json!({"card": {"number": PAYS, "exp_month": 12, "exp_year": 2040, "cvc": "123"}});
        let own = merchant.post("/v1/payment_methods", &own).await.expect(201);
        let (customer, other) =
            (merchant.customer_called("one", "0").await, merchant.customer_called("other", "0").await);
        merchant.leave_card(&customer, PAYS).await;
        merchant.leave_card(&customer, "5555555555554444").await;
        let mut listed = Vec::new();
        for path in [format!("/v1/customers/{}", customer.id), "/v1/connections/one".to_owned()] {
            listed.push(merchant.get(&format!("{path}/payment_methods")).await.expect(200));
        }
        assert_eq!(listed[0], listed[1]);
        let shown: Vec<_> = listed[0]["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|method| (method["card"]["last4"].clone(), method["is_default"].clone()))
            .collect();
        assert_eq!(shown, [(json!("4444"), json!(true)), (json!("4242"), json!(false))], "newest first");
        let card = json!({"brand": "mastercard", "last4": "4444", "exp_month": 4, "exp_year": 2039});
        assert_eq!(listed[0]["data"][0]["card"], card, "and no more of it");
        let mine = merchant.get("/v1/payment_methods").await.expect(200);
        assert_eq!(mine["data"], json!([own]));
        let none = merchant.get(&format!("/v1/customers/{}/payment_methods", other.id)).await.expect(200);
        assert_eq!(none["data"], json!([]));
        merchant.credit(&other, "1.25").await;
        let money = wallet(&merchant, &other).await;
        let wanted = json!({
            "wallet_id": money["wallet_id"], "balance": "1.2500000000", "autopay_enabled": false,
            "autopay_threshold": null, "autopay_amount": null,
        });
        assert_eq!(money, wanted);
        for (folder, code) in [("customers", "customer_not_found"), ("connections", "connection_not_found")] {
            for name in ["nobody", "con_01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
                for what in ["wallet", "payment_methods"] {
                    merchant.get(&format!("/v1/{folder}/{name}/{what}")).await.refused(404, code);
                }
            }
        }
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        let gone = merchant.get(&format!("/v1/customers/{}/payment_methods", customer.id)).await;
        gone.refused(404, "customer_not_found");
    });
}
