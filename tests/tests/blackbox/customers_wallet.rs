//! A customer's wallet over REST: its balance, its payment methods, and autopay.

use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{IS_DECLINED, PAYS};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// The wallet; asserts that every endpoint shows the same.
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

async fn refused(merchant: &Merchant, customer: &Customer, body: &Value) {
    for folder in ["customers", "connections"] {
        let path = format!("/v1/{folder}/{}/wallet", customer.id);
        merchant.patch(&path, body).await.refused(400, "validation_error");
    }
}

fn charge(amount: &str, declined: bool) -> (Decimal, Option<String>) {
    (amount.parse().unwrap(), declined.then(|| "card_declined".to_owned()))
}

#[test]
fn autopay_recharges_a_customers_wallet_with_the_stored_card() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let (customer, meter) = (merchant.customer("1.5").await, merchant.call_meter("0.5").await);
        let path = format!("/v1/customers/{}/wallet", customer.id);
        let autopay = json!({"autopay_enabled": true, "autopay_threshold": "1", "autopay_amount": "20"});
        let off = wallet(&merchant, &customer).await;
        assert_eq!(off["balance"], "1.5000000000");
        assert_eq!((&off["autopay_enabled"], &off["autopay_threshold"]), (&json!(false), &Value::Null));
        // There is no payment method yet.
        refused(&merchant, &customer, &autopay).await;
        merchant.leave_card(&customer, PAYS).await;
        for wrong in [
            json!({"autopay_enabled": true}),
            json!({"autopay_enabled": true, "autopay_threshold": "0", "autopay_amount": "20"}),
            json!({"autopay_enabled": true, "autopay_threshold": "5", "autopay_amount": "9.99"}),
            json!({"autopay_enabled": "yes"}),
        ] {
            refused(&merchant, &customer, &wrong).await;
        }
        assert_eq!(wallet(&merchant, &customer).await, off);
        let on = merchant.patch(&path, &autopay).await.expect(200);
        assert_eq!(on["autopay_amount"], "20.0000000000");
        assert_eq!(wallet(&merchant, &customer).await, on);
        assert_eq!(
            merchant.get("/v1/wallet").await.expect(200)["autopay_enabled"],
            false,
            "the merchant's own"
        );

        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        // Balances 1.5 and 1 are not below the threshold. 0.5 is, and is recharged to 20.
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        assert_eq!(wallet(&merchant, &customer).await["balance"], "1.0000000000");
        assert_eq!(merchant.of_kind("payment.requested").await.len(), 0);
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        eventually("the wallet is recharged", async || {
            (merchant.get(&path).await.expect(200)["balance"] == "20.5000000000").then_some(())
        })
        .await;
        wallet(&merchant, &customer).await;
        assert_eq!(merchant.charges().await, [charge("20", false)]);

        // A declined card: one attempt, and no other within a day.
        merchant.leave_card(&customer, IS_DECLINED).await;
        let all = json!({"autopay_enabled": true, "autopay_threshold": "30", "autopay_amount": "10"});
        merchant.patch(&path, &all).await.expect(200);
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        eventually("the card is declined", async || {
            (merchant.of_kind("payment.declined").await.len() == 1).then_some(())
        })
        .await;
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        assert_eq!(merchant.charges().await, [charge("20", false), charge("10", true)]);
        assert_eq!(wallet(&merchant, &customer).await["balance"], "19.5000000000");
        let off = merchant.patch(&path, &json!({"autopay_enabled": false})).await.expect(200);
        assert_eq!((&off["autopay_enabled"], &off["autopay_amount"]), (&json!(false), &Value::Null));
        assert_eq!(wallet(&merchant, &customer).await, off);
        merchant.instance.operate(&["projections", "verify", "connections"]).await;
    });
}

#[test]
fn a_customers_cards_are_not_listed_among_the_merchants() {
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
        assert_eq!(listed[0]["data"][0]["card"], card, "and nothing else of the card");
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
                let path = format!("/v1/{folder}/{name}/wallet");
                merchant.patch(&path, &json!({"autopay_enabled": false})).await.refused(404, code);
            }
        }
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        let gone = merchant.get(&format!("/v1/customers/{}/payment_methods", customer.id)).await;
        gone.refused(404, "customer_not_found");
    });
}
