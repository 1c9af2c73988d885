//! Plans, credit bundles and subscriptions.

use serde_json::json;

use super::{Case, cases};

/// Well-formed ids that do not exist.
const NO_BUNDLE: &str = "cb_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const NO_METER: &str = "prd_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const NO_PLAN: &str = "sc_01ARZ3NDEKTSV4RRFFQ69G5FAV";

pub(super) fn cases() -> Vec<Case> {
    cases! { scene, at;
        "list_plans" "200" => {
            scene.plan("10").await;
            scene.call(at)
        };
        "list_subscription_configs" "200" => {
            scene.plan("10").await;
            scene.call(at)
        };
        "list_credit_bundles" "200" => {
            scene.plan("10").await;
            scene.call(at)
        };
        "get_credit_bundle" "200" => {
            let plan = scene.plan("10").await;
            scene.named(at, plan["credit_bundles"][0]["credit_bundle_id"].as_str().unwrap())
        };
        "create_plan" "201" => scene.posts(at, &json!({"name": "Ten", "period_amount": "10"}));
        "create_plan" "meter_not_found" => {
            scene.posts(at, &json!({"name": "Ten", "period_amount": "10", "meter_ids": [NO_METER]}))
        };
        "create_plan" "credit_bundle_not_found" => scene.posts(at, &json!({
            "name": "Ten", "period_amount": "10", "default_auto_top_up_bundle_id": NO_BUNDLE,
        }));
        "get_plan" "200" => scene.named(at, scene.plan("10").await["plan_id"].as_str().unwrap());
        "update_plan" "200" => {
            scene.named(at, scene.plan("10").await["plan_id"].as_str().unwrap()).json(&json!({"name": "Renamed"}))
        };
        "update_plan" "meter_not_found" => {
            let plan = scene.plan("10").await;
            scene.named(at, plan["plan_id"].as_str().unwrap()).json(&json!({"meter_ids": [NO_METER]}))
        };
        "update_plan" "credit_bundle_not_found" => {
            let plan = scene.plan("10").await;
            let body = json!({"credit_bundles": [{"credit_bundle_id": NO_BUNDLE, "name": "x"}]});
            scene.named(at, plan["plan_id"].as_str().unwrap()).json(&body)
        };
        "delete_plan" "200" => scene.named(at, scene.plan("10").await["plan_id"].as_str().unwrap());

        "list_subscriptions" "200" => {
            scene.subscription().await;
            scene.call(at)
        };
        "list_active_subscriptions" "200" => {
            scene.subscription().await;
            scene.call(at)
        };
        "create_subscription" "201" => {
            let (customer, plan) = (scene.customer().await, scene.plan("0").await);
            scene.posts(at, &json!({"customer_id": customer, "plan_id": plan["plan_id"]}))
        };
        "create_subscription" "plan_not_free" => {
            let (customer, plan) = (scene.customer().await, scene.plan("10").await);
            scene.posts(at, &json!({"customer_id": customer, "plan_id": plan["plan_id"]}))
        };
        "create_subscription" "credit_bundle_plan_mismatch" => {
            let (customer, plan, other) = (scene.customer().await, scene.plan("0").await, scene.plan("0").await);
            scene.posts(at, &json!({
                "customer_id": customer, "plan_id": plan["plan_id"],
                "auto_top_up_bundle_id": other["credit_bundles"][0]["credit_bundle_id"],
            }))
        };
        "create_subscription" "customer_not_found" => {
            let plan = scene.plan("0").await;
            scene.posts(at, &json!({"customer_id": "nobody", "plan_id": plan["plan_id"]}))
        };
        "create_subscription" "plan_not_found" => {
            scene.posts(at, &json!({"customer_id": scene.customer().await, "plan_id": NO_PLAN}))
        };
        "create_subscription" "credit_bundle_not_found" => {
            let (customer, plan) = (scene.customer().await, scene.plan("0").await);
            scene.posts(at, &json!({
                "customer_id": customer, "plan_id": plan["plan_id"], "auto_top_up_bundle_id": NO_BUNDLE,
            }))
        };
        "create_subscription" "subscription_already_active" => {
            let (subscription, plan) = scene.subscription().await;
            scene.posts(at, &json!({"customer_id": subscription["customer_id"], "plan_id": plan["plan_id"]}))
        };
        "get_subscription" "200" => {
            scene.named(at, scene.subscription().await.0["subscription_id"].as_str().unwrap())
        };
        "update_subscription" "200" => {
            let (subscription, plan) = scene.subscription().await;
            let body = json!({"auto_top_up_bundle_id": plan["credit_bundles"][0]["credit_bundle_id"]});
            scene.named(at, subscription["subscription_id"].as_str().unwrap()).json(&body)
        };
        "update_subscription" "credit_bundle_plan_mismatch" => {
            let ((subscription, _), other) = (scene.subscription().await, scene.plan("0").await);
            let body = json!({"auto_top_up_bundle_id": other["credit_bundles"][0]["credit_bundle_id"]});
            scene.named(at, subscription["subscription_id"].as_str().unwrap()).json(&body)
        };
        "update_subscription" "credit_bundle_not_found" => {
            let (subscription, _) = scene.subscription().await;
            let body = json!({"auto_top_up_bundle_id": NO_BUNDLE});
            scene.named(at, subscription["subscription_id"].as_str().unwrap()).json(&body)
        };
        "cancel_subscription" "200" => {
            scene.named(at, scene.subscription().await.0["subscription_id"].as_str().unwrap())
        };
    }
}
