//! Connections: the older API form of customers, with their wallets and secrets.

use farthing_tests::merchant::{Customer, Merchant, deleted, forward, token};
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

#[test]
fn a_connection_follows_its_customer() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({"reference_id": "ada", "name": "Ada Lovelace", "email": "ada@example.com"});
        let made = merchant.post("/v1/customers", &body).await.expect(201);
        let id = made["customer_id"].as_str().unwrap().to_owned();
        let before = merchant.get("/v1/connections/ada").await.expect(200);
        assert_eq!((&before["connection_id"], &before["customer_id"]), (&json!(id), &json!(id)));
        assert_eq!(before, merchant.get(&format!("/v1/connections/{id}")).await.expect(200));

        let changes = json!({"reference_id": "grace", "name": "Grace Hopper", "phone": "+4930123456"});
        merchant.patch("/v1/customers/ada", &changes).await.expect(200);
        merchant.get("/v1/connections/ada").await.refused(404, "connection_not_found");
        let after = merchant.get("/v1/connections/grace").await.expect(200);
        let person = json!({
            "phone": "+4930123456", "email": "ada@example.com", "first_name": "Grace", "last_name": "Hopper",
        });
        assert_eq!(after["customer"], person);
        for (name, value) in person.as_object().unwrap() {
            assert_eq!(&after["wallet"][name], value, "{name}");
        }
        assert_eq!(after["reference_id"], "grace");
        for same in
            ["connection_id", "connection_secret", "created_at", "next_usage_reset", "has_credit_balance"]
        {
            assert_eq!(after[same], before[same], "{same}");
        }
        merchant.patch("/v1/customers/grace", &json!({"reference_id": null})).await.expect(200);
        let bare = merchant.get(&format!("/v1/connections/{id}")).await.expect(200);
        assert_eq!(bare.get("reference_id"), None);
        let none = merchant.get("/v1/connections?reference_id=grace").await.expect(200);
        assert_eq!(none["data"], json!([]));
    });
}

#[test]
fn a_deleted_connection_is_a_deleted_customer() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer_called("ada", "1").await;
        let kept = merchant.customer_called("eve", "1").await;
        let secret = merchant.get("/v1/connections/ada").await.expect(200)["connection_secret"].clone();
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let credential = token(&json!({"secret_key": merchant.secret_key, "connection_secret": secret}));
        merchant.fetch(&credential, &endpoint.url).await.expect(200);

        assert_eq!(merchant.delete("/v1/connections/ada").await.expect(200), deleted(&customer.id));

        for gateway in 0..2 {
            let call = forward("GET", &endpoint.url).bearer(&credential);
            let refused = call.send(merchant.instance.gateway(gateway)).await.unwrap();
            refused.refused(401, "connection_secret_invalid");
        }
        for name in ["ada", &customer.id] {
            merchant.get(&format!("/v1/connections/{name}")).await.refused(404, "connection_not_found");
            merchant.delete(&format!("/v1/connections/{name}")).await.refused(404, "connection_not_found");
            merchant.get(&format!("/v1/customers/{name}")).await.refused(404, "customer_not_found");
        }
        let left = merchant.get("/v1/connections").await.expect(200);
        assert_eq!(
            (left["data"].as_array().unwrap().len(), &left["data"][0]["reference_id"]),
            (1, &json!("eve"))
        );
        // A secret belongs to the connection, not to the reference id.
        let again = merchant.customer_called("ada", "1").await;
        let shown = merchant.get(&format!("/v1/connections/{}", again.id)).await.expect(200);
        assert_ne!(shown["connection_secret"], secret);
        merchant.fetch(&credential, &endpoint.url).await.refused(401, "connection_secret_invalid");
        merchant.get(&format!("/v1/connections/{}", kept.id)).await.expect(200);
    });
}

#[test]
fn connections_are_listed_newest_first_page_by_page() {
    run(async {
        let merchant = Merchant::new().await;
        let mut made: Vec<String> = Vec::new();
        for number in 0..7 {
            made.insert(0, merchant.customer_called(&format!("c{number}"), "0").await.id);
        }
        let ids = |items: &[Value]| -> Vec<String> {
            items.iter().map(|item| item["connection_id"].as_str().unwrap().to_owned()).collect()
        };
        for limit in [1, 3, 7, 100] {
            assert_eq!(ids(&merchant.pages("/v1/connections", limit).await), made, "limit {limit}");
        }
        let cursor = made[2].clone();
        merchant.delete(&format!("/v1/connections/{cursor}")).await.expect(200);
        let rest = merchant.get(&format!("/v1/connections?limit=100&cursor={cursor}")).await.expect(200);
        assert_eq!(
            ids(rest["data"].as_array().unwrap()),
            made[3..],
            "the cursor of a deleted one stays valid"
        );
        let theirs = Merchant::new().await.customer("0").await;
        for cursor in ["con_x", theirs.id.as_str()] {
            let refused = merchant.get(&format!("/v1/connections?cursor={cursor}")).await;
            refused.refused(400, "cursor_invalid");
        }
        let error = merchant.get("/v1/connections?limit=101").await.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["limit"]));
    });
}

#[test]
fn a_reference_id_is_accepted_wherever_a_customer_id_is() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer_called("ada/1 ?", "1").await;
        let meter = merchant.call_meter("0.1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let fields = json!({"secret_key": merchant.secret_key, "connection_id": "ada/1 ?", "product_secret": meter.secret});
        let answer = merchant.fetch(&token(&fields), &endpoint.url).await;
        answer.expect(200);
        let shown = merchant.shown(&answer.request_id(), "completed").await;
        assert_eq!(shown["customer_id"], customer.id);
        for name in ["connection_id", "customer_id"] {
            for value in ["ada%2F1%20%3F", customer.id.as_str()] {
                let listed = merchant.get(&format!("/v1/requests?{name}={value}")).await.expect(200);
                assert_eq!(listed["data"], json!([shown]), "{name}={value}");
            }
            let none = merchant.get(&format!("/v1/requests?{name}=nobody")).await.expect(200);
            assert_eq!(none["data"], json!([]));
            let key = json!({"name": "k", name: "ada/1 ?"});
            let key = merchant.post("/v1/spend_keys", &key).await.expect(201);
            assert_eq!(
                (&key["connection_id"], &key["customer_id"]),
                (&json!(customer.id), &json!(customer.id))
            );
        }
        let renamed = Customer { reference_id: "eve".to_owned(), ..customer.clone() };
        let path = format!("/v1/customers/{}", customer.id);
        merchant.patch(&path, &json!({"reference_id": "eve"})).await.expect(200);
        merchant.fetch(&token(&fields), &endpoint.url).await.refused(404, "customer_not_found");
        let listed = merchant.get("/v1/requests?connection_id=eve").await.expect(200);
        assert_eq!(listed["data"], json!([shown]), "the calls of before are found by the name of now");
        merchant.credit(&renamed, "1").await;
        eventually("the balance is shown", async || {
            let shown = merchant.get("/v1/connections/eve").await.expect(200);
            (shown["wallet"]["balance"] == "1.9000000000").then_some(())
        })
        .await;
    });
}
