//! The merchant's wallet, its payment methods and its clock, and checkout sessions.

use serde_json::json;

use super::scene::card;
use super::{Case, cases};

pub(super) fn cases() -> Vec<Case> {
    cases! { scene, at;
        "find_wallet" "200" => scene.call(at);
        "update_wallet" "200" => scene.call(at).json(&json!({"autopay_enabled": false}));
        "fund_wallet" "200" => {
            scene.card("4242424242424242").await;
            scene.posts(at, &json!({"amount": "10"}))
        };
        "fund_wallet" "payment_declined" => {
            scene.card("4000000000000002").await;
            scene.posts(at, &json!({"amount": "10"}))
        };
        "fund_wallet" "payment_method_not_found" => {
            scene.posts(at, &json!({"amount": "10", "payment_method_id": "pm_01ARZ3NDEKTSV4RRFFQ69G5FAV"}))
        };
        "fund_wallet" "payments_unavailable" => {
            scene.posts(at, &json!({"amount": "10"})).on_real_money().await
        };
        "create_payment_method" "payments_unavailable" => {
            scene.posts(at, &card("4242424242424242")).on_real_money().await
        };
        "update_wallet" "payments_unavailable" => {
            scene.call(at).json(&json!({"autopay_enabled": true})).on_real_money().await
        };
        "create_checkout_session" "payments_unavailable" => {
            let session = json!({"checkout_mode": "topup", "origin_url": "https://app.example"});
            scene.posts(at, &session).on_real_money().await
        };
        "list_ledger_entries" "200" => scene.call(at).query(&format!("wallet_id={}", scene.merchant.wallet_id));
        "list_ledger_entries" "wallet_not_found" => {
            scene.call(at).query("wallet_id=wal_01ARZ3NDEKTSV4RRFFQ69G5FAV")
        };
        "get_ledger_statement" "200" => {
            scene.call(at).query(&format!("wallet_id={}&start=2026-01-01T00:00:00Z", scene.merchant.wallet_id))
        };
        "get_ledger_statement" "wallet_not_found" => {
            scene.call(at).query("wallet_id=wal_01ARZ3NDEKTSV4RRFFQ69G5FAV&start=2026-01-01T00:00:00Z")
        };
        "list_ledger_events" "200" => scene.call(at);
        "get_ledger_trial_balance" "200" => scene.call(at);
        "get_ledger_proof" "200" => scene.call(at);
        "list_payment_methods" "200" => {
            scene.card("4242424242424242").await;
            scene.call(at)
        };
        "create_payment_method" "201" => scene.posts(at, &card("5555555555554444"));
        "advance_test_clock" "200" => scene.posts(at, &json!({"advance_seconds": 1}));
        // In live mode clocks cannot be advanced.
        "advance_test_clock" "route_not_found" => {
            scene.posts(at, &json!({"advance_seconds": 1})).on_real_money().await
        };

        "list_checkout_sessions" "200" => {
            let session = json!({"checkout_mode": "topup", "origin_url": "https://app.example"});
            scene.made("/v1/checkout_sessions", &session).await;
            scene.call(at)
        };
        "create_checkout_session" "201" => {
            scene.posts(at, &json!({"checkout_mode": "onboarding", "origin_url": "https://app.example"}))
        };
        "create_checkout_session" "customer_not_found" => scene.posts(at, &json!({
            "checkout_mode": "topup", "origin_url": "https://app.example", "customer_id": "nobody",
        }));
        "create_checkout_session" "plan_not_found" => scene.posts(at, &json!({
            "checkout_mode": "subscription", "origin_url": "https://app.example",
            "plan_id": "sc_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        }));
        "create_checkout_session" "credit_bundle_not_found" => {
            let customer = scene.customer().await;
            scene.posts(at, &json!({
                "checkout_mode": "credit_bundle", "origin_url": "https://app.example", "customer_id": customer,
                "credit_bundle_id": "cb_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            }))
        };
    }
}
