//! Meters, requests and usage.

use serde_json::json;

use super::{Case, cases};

/// A well-formed id that does not exist.
const NO_METER: &str = "prd_01ARZ3NDEKTSV4RRFFQ69G5FAV";

pub(super) fn cases() -> Vec<Case> {
    cases! { scene, at;
        "list_meters" "200" => {
            scene.meter("1").await;
            scene.call(at)
        };
        "create_meter" "201" => scene.posts(at, &json!({
            "name": "chat", "tier_type": "tokens_1m", "tiers": [{"start": 0, "rate": "5"}, {"start": 1_000_000, "rate": "3"}],
        }));
        "create_meter" "meter_slug_conflict" => {
            let meter = json!({
                "name": "m", "meter_slug": scene.fresh(), "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}],
            });
            scene.made("/v1/meters", &meter).await;
            scene.posts(at, &meter)
        };
        "get_meter" "200" => scene.named(at, &scene.meter("1").await);
        "update_meter" "200" => scene.named(at, &scene.meter("1").await).json(&json!({"name": "renamed"}));
        "delete_meter" "200" => scene.named(at, &scene.meter("1").await);

        "list_requests" "200" => {
            scene.made("/v1/requests", &json!({"request_id": scene.fresh(), "tokens": 3})).await;
            scene.call(at)
        };
        "report_request" "201" => {
            let (customer, meter) = (scene.customer().await, scene.meter("0.5").await);
            scene.posts(at, &json!({
                "request_id": scene.fresh(), "customer_id": customer, "meter_id": meter, "tokens": 3,
            }))
        };
        "report_request" "200" => {
            let known = json!({"request_id": scene.fresh(), "tokens": 3});
            scene.made("/v1/requests", &known).await;
            scene.posts(at, &known)
        };
        "report_request" "model_not_priced" => {
            let meter = json!({"name": "share", "rate_type": "percentage", "tiers": [{"start": 0, "rate": "10"}]});
            let meter = scene.id("/v1/meters", "meter_id", &meter).await;
            scene.posts(at, &json!({
                "request_id": scene.fresh(), "provider": "openai", "model": "nobody's", "meter_id": meter, "tokens": 3,
            }))
        };
        "report_request" "customer_not_found" => {
            scene.posts(at, &json!({"request_id": scene.fresh(), "customer_id": "nobody"}))
        };
        "report_request" "meter_not_found" => {
            scene.posts(at, &json!({"request_id": scene.fresh(), "meter_id": NO_METER}))
        };
        "get_request" "200" => {
            let reported = json!({"request_id": scene.fresh(), "tokens": 3});
            scene.named(at, &scene.id("/v1/requests", "request_id", &reported).await)
        };
        "get_usage" "200" => scene.call(at).query("start=2026-11-01T00:00:00Z&end=2026-11-08T00:00:00Z");
    }
}
