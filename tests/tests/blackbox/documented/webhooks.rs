//! Webhooks and their deliveries.

use farthing_tests::provider::json as answer_json;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use super::scene::Scene;
use super::{Case, cases};

const URL: &str = "https://receiver.example/hooks";

/// Webhooks that a merchant may have.
const MOST: usize = 3;

pub(super) fn cases() -> Vec<Case> {
    cases! { scene, at;
        "list_webhooks" "200" => {
            webhook(scene).await;
            scene.call(at)
        };
        "create_webhook" "201" => {
            clear(scene).await;
            scene.posts(at, &json!({"url": URL}))
        };
        "create_webhook" "webhook_limit_reached" => {
            clear(scene).await;
            for _ in 0..MOST {
                webhook(scene).await;
            }
            scene.posts(at, &json!({"url": URL}))
        };
        "get_webhook" "200" => scene.named(at, &webhook(scene).await);
        "update_webhook" "200" => scene.named(at, &webhook(scene).await).json(&json!({"enabled": false}));
        "delete_webhook" "200" => scene.named(at, &webhook(scene).await);
        "list_webhook_deliveries" "200" => {
            let (webhook, _) = delivered(scene).await;
            scene.named(at, &webhook)
        };
        "list_webhook_deliveries" "cursor_invalid" => {
            scene.named(at, &webhook(scene).await).query("cursor=nobody")
        };
        "resend_webhook_delivery" "200" => {
            let (webhook, event) = delivered(scene).await;
            scene.call_of(at, at.target(|before| if before == "webhooks" { webhook.clone() } else { event.clone() }))
        };
        "resend_webhook_delivery" "webhook_event_not_found" => {
            let (webhook, event) = (webhook(scene).await, "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV");
            let name = |before: &str| if before == "webhooks" { webhook.clone() } else { event.to_owned() };
            scene.call_of(at, at.target(name))
        };
    }
}

/// A new webhook's id. At the limit of three, all are deleted first.
async fn webhook(scene: &Scene) -> String {
    if listed(scene).await.len() >= MOST {
        clear(scene).await;
    }
    scene.id("/v1/webhooks", "webhook_id", &json!({"url": URL, "events": ["spend_key.rotated"]})).await
}

async fn listed(scene: &Scene) -> Vec<Value> {
    scene.merchant.get("/v1/webhooks").await.expect(200)["data"].as_array().unwrap().clone()
}

async fn clear(scene: &Scene) {
    for webhook in listed(scene).await {
        let path = format!("/v1/webhooks/{}", webhook["webhook_id"].as_str().unwrap());
        scene.merchant.delete(&path).await.expect(200);
    }
}

/// A webhook with a delivery: its id and the event's.
async fn delivered(scene: &Scene) -> (String, String) {
    clear(scene).await;
    let receiver = scene.merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
    let body = json!({"url": receiver.url, "events": ["customer.created"]});
    let webhook = scene.id("/v1/webhooks", "webhook_id", &body).await;
    scene.customer().await;
    let deliveries = format!("/v1/webhooks/{webhook}/deliveries");
    let delivery = eventually("the webhook is delivered", async || {
        let delivery = scene.merchant.get(&deliveries).await.expect(200)["data"][0].clone();
        (delivery["status"] == "delivered").then_some(delivery)
    })
    .await;
    (webhook, delivery["webhook_event_id"].as_str().unwrap().to_owned())
}
