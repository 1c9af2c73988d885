//! Customers, connections, spend keys, secret keys and models.

use farthing_tests::merchant::token;
use serde_json::json;

use super::{Case, cases};

pub(super) fn cases() -> Vec<Case> {
    cases! { scene, at;
        "list_customers" "200" => {
            scene.customer().await;
            scene.call(at)
        };
        "create_customer" "201" => scene.posts(at, &json!({"name": "Ada Lovelace", "email": "ada@example.com"}));
        "create_customer" "200" => {
            let known = json!({"reference_id": scene.fresh()});
            scene.made("/v1/customers", &known).await;
            scene.posts(at, &known)
        };
        "get_customer" "200" => scene.named(at, &scene.customer().await);
        "get_customer_subscription" "200" => {
            let (subscription, _) = scene.subscription().await;
            scene.named(at, subscription["customer_id"].as_str().unwrap())
        };
        "get_customer_wallet" "200" => scene.named(at, &scene.customer().await);
        "list_customer_payment_methods" "200" => scene.named(at, &scene.customer().await);
        "update_customer_wallet" "payments_unavailable" => {
            scene.named(at, "anybody").json(&json!({"autopay_enabled": true})).on_real_money().await
        };
        "update_customer_wallet" "200" => scene.named(at, &scene.customer().await).json(&json!({"autopay_enabled": false}));
        "update_customer" "200" => scene.named(at, &scene.customer().await).json(&json!({"name": "Ada"}));
        "update_customer" "reference_id_conflict" => {
            let taken = json!({"reference_id": scene.fresh()});
            scene.made("/v1/customers", &taken).await;
            scene.named(at, &scene.customer().await).json(&taken)
        };
        "delete_customer" "200" => scene.named(at, &scene.customer().await);

        "list_connections" "200" => {
            scene.customer().await;
            scene.call(at)
        };
        "get_connection" "200" => scene.named(at, &scene.customer().await);
        "get_connection_subscription" "200" => scene.named(at, &scene.customer().await);
        "get_connection_wallet" "200" => scene.named(at, &scene.customer().await);
        "list_connection_payment_methods" "200" => scene.named(at, &scene.customer().await);
        "update_connection_wallet" "payments_unavailable" => {
            scene.named(at, "anybody").json(&json!({"autopay_enabled": true})).on_real_money().await
        };
        "update_connection_wallet" "200" => scene.named(at, &scene.customer().await).json(&json!({"autopay_enabled": false}));
        "delete_connection" "200" => scene.named(at, &scene.customer().await);

        "list_spend_keys" "200" => {
            scene.spend_key(&json!({"rate_limit": {"rpm": 1}})).await;
            scene.call(at)
        };
        "create_spend_key" "201" => scene.posts(at, &json!({"name": "laptop"}));
        "create_spend_key" "customer_not_found" => scene.posts(at, &json!({"name": "x", "customer_id": "nobody"}));
        "get_spend_key" "200" => scene.named(at, &scene.spend_key(&json!({})).await.0);
        "update_spend_key" "200" => scene.named(at, &scene.spend_key(&json!({})).await.0).json(&json!({"name": "x"}));
        "delete_spend_key" "200" => scene.named(at, &scene.spend_key(&json!({})).await.0);
        "rotate_spend_key" "200" => scene.named(at, &scene.spend_key(&json!({})).await.0);

        "list_secret_keys" "200" => scene.call(at);
        "create_secret_key" "secret_key_issuance_paused" => scene.call(at);
        "delete_secret_key" "200" => {
            let merchant = &scene.merchant;
            let issued = merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id]).await;
            scene.named(at, issued["secret_key_id"].as_str().unwrap())
        };
        "delete_secret_key" "secret_key_last_remaining" => {
            let listed = scene.merchant.get("/v1/secret_keys").await.expect(200);
            assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
            scene.named(at, listed["data"][0]["secret_key_id"].as_str().unwrap())
        };

        "list_models" "200" => scene.call(at);
        "list_models" "forward_token_json_invalid" => scene.call(at).bearer(&token(&json!({})));
        "list_models" "connection_secret_invalid" => {
            let key = &scene.merchant.secret_key;
            scene.call(at).bearer(&token(&json!({"secret_key": key, "connection_secret": "cons_nobody"})))
        };
        "list_models" "product_secret_invalid" => {
            let key = &scene.merchant.secret_key;
            scene.call(at).bearer(&token(&json!({"secret_key": key, "product_secret": "prds_nobody"})))
        };
        "list_models" "spend_key_invalid" => scene.call(at).bearer("spk_nobody");
        "list_models" "spend_key_expired" => scene.call(at).bearer(&scene.expired_spend_key().await);
        "list_models" "spend_key_paused" => scene.call(at).bearer(&scene.paused_spend_key().await);

        "get_checkout_session" "200" => {
            let session = json!({"checkout_mode": "onboarding", "origin_url": "https://app.example"});
            let id = scene.id("/v1/checkout_sessions", "checkout_session_id", &session).await;
            scene.named(at, &id)
        };
        "get_openapi" "200" => scene.call(at);
    }
}
