//! Responses that all operations share: credentials, request limits, unknown resources, idempotency keys.

use std::sync::LazyLock;

use farthing_tests::client::{Connection, Request};
use farthing_tests::document::Operation;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use serde_json::json;
use tokio::sync::Mutex;

use super::forward::to_url;
use super::scene::{Call, Scene};
use super::{Case, Provoke, documented, kind, own_cases, provoker as any_provoker};

/// Calls that one key may make in a minute.
const LIMIT: usize = 1000;

/// Connections that use up a key's calls.
const CONNECTIONS: usize = 10;

/// The cases of responses for which an operation has no case of its own.
pub(super) fn provoker(answer: &str) -> Option<Provoke> {
    let provoke: Provoke = match answer {
        "auth_header_missing" => |scene, at| {
            Box::pin(async move {
                let mut call = somewhere(scene, at);
                call.request.headers.clear();
                call
            })
        },
        "auth_header_invalid" => |scene, at| {
            Box::pin(async move {
                let mut call = somewhere(scene, at);
                call.request.headers.clear();
                call.header("Authorization", "Basic eDp5")
            })
        },
        "secret_key_invalid" => {
            |scene, at| Box::pin(async move { somewhere(scene, at).bearer("aks_test_nobody") })
        }
        "rate_limit_exceeded" => {
            |scene, at| Box::pin(async move { somewhere(scene, at).bearer(&used_up().await) })
        }
        "uri_too_long" => |scene, at| {
            Box::pin(async move { somewhere(scene, at).query(&format!("x={}", "x".repeat(40_000))) })
        },
        "headers_too_large" => |scene, at| {
            Box::pin(
                async move { (0..1_000).fold(somewhere(scene, at), |call, _| call.header("X-Again", "a")) },
            )
        },
        "route_not_found" => |scene, at| {
            Box::pin(async move { with_a_body(at, scene.call_of(at, at.target(|_| "%ff".to_owned()))) })
        },
        "validation_error" => |scene, at| Box::pin(async move { unreadable(scene, at) }),
        "cursor_invalid" => |scene, at| Box::pin(async move { somewhere(scene, at).query("cursor=nobody") }),
        "body_too_large" => |scene, at| {
            Box::pin(
                async move { somewhere(scene, at).body("application/json", &vec![b' '; 1024 * 1024 + 1]) },
            )
        },
        "content_type_unsupported" => {
            |scene, at| Box::pin(async move { somewhere(scene, at).body("text/plain", b"{}") })
        }
        "idempotency_key_reused" => |scene, at| Box::pin(reused(scene, at)),
        _ => return None,
    };
    Some(provoke)
}

/// A call of the operation with any ids.
fn somewhere(scene: &Scene, at: &Operation) -> Call {
    let call = scene.named(at, "nobody");
    if at.query.iter().any(|name| name == "wallet_id") {
        return call.query(&format!("start=2026-01-01T00:00:00Z&wallet_id={}", scene.merchant.wallet_id));
    }
    match kind(at) {
        "forward" => to_url(scene, at, &scene.endpoint().url),
        "rewrite" => scene.call_of(at, "/v1/rewrite/openai/https://provider.example/messages".to_owned()),
        _ => call,
    }
}

fn with_a_body(at: &Operation, call: Call) -> Call {
    if at.body.is_some() { call.json(&json!({})) } else { call }
}

/// An invalid call: its body, its limit, a missing member, or its idempotency key.
fn unreadable(scene: &Scene, at: &Operation) -> Call {
    let call = somewhere(scene, at);
    if at.body.is_some() {
        call.body("application/json", b"[]")
    } else if at.method == "POST" {
        call.header("Idempotency-Key", "")
    } else if at.query.iter().any(|name| name == "limit") {
        call.query("limit=0")
    } else if at.query.iter().any(|name| name == "position") {
        call.query("position=x")
    } else {
        call
    }
}

/// A call under a key that an earlier, decided call has used with another body.
async fn reused(scene: &Scene, at: &Operation) -> Call {
    let success = documented(at).into_iter().find(|answer| answer.starts_with('2')).unwrap();
    let good = any_provoker(&own_cases(), at, &success).unwrap()(scene, at).await;
    let key = scene.fresh();
    let first = good.clone().header("Idempotency-Key", key.as_str());
    let first = first.request.send(first.to).await.unwrap();
    assert!(first.status < 300, "{}: {}", at.name(), first.text());
    let mut other = good;
    other.request.headers.retain(|(name, _)| name != "Content-Type");
    other.json(&json!({"another": "body"})).header("Idempotency-Key", key)
}

/// A key whose calls of this minute are used up.
async fn used_up() -> String {
    static MERCHANT: LazyLock<Mutex<Option<Merchant>>> = LazyLock::new(Mutex::default);
    let mut merchant = MERCHANT.lock().await;
    if merchant.is_none() {
        *merchant = Some(Merchant::new().await);
    }
    let key = merchant.as_ref().unwrap().secret_key.clone();
    let request = Request::new("GET", "/v1/spend_keys/nobody").bearer(&key);
    let gateway = Instance::shared().await.gateway(0);
    while request.send(gateway).await.unwrap().status != 429 {
        let calls = (0..CONNECTIONS).map(|_| calls(&request, LIMIT / CONNECTIONS));
        futures_util::future::join_all(calls).await;
    }
    key
}

async fn calls(request: &Request, count: usize) {
    let mut connection = Connection::open(Instance::shared().await.gateway(0)).await.unwrap();
    for _ in 0..count {
        connection.send(request).await.unwrap();
        connection.response(&request.method).await.unwrap();
    }
}

/// Operations on a resource that does not exist.
pub(super) fn not_found() -> Vec<Case> {
    [
        ("get_checkout_session", "checkout_session_not_found"),
        ("get_connection", "connection_not_found"),
        ("get_connection_subscription", "connection_not_found"),
        ("delete_connection", "connection_not_found"),
        ("get_customer", "customer_not_found"),
        ("get_customer_subscription", "customer_not_found"),
        ("update_customer", "customer_not_found"),
        ("delete_customer", "customer_not_found"),
        ("get_connection_wallet", "connection_not_found"),
        ("list_connection_payment_methods", "connection_not_found"),
        ("get_customer_wallet", "customer_not_found"),
        ("list_customer_payment_methods", "customer_not_found"),
        ("update_connection_wallet", "connection_not_found"),
        ("update_customer_wallet", "customer_not_found"),
        ("get_spend_key", "spend_key_not_found"),
        ("update_spend_key", "spend_key_not_found"),
        ("delete_spend_key", "spend_key_not_found"),
        ("rotate_spend_key", "spend_key_not_found"),
        ("delete_secret_key", "secret_key_not_found"),
        ("get_meter", "meter_not_found"),
        ("update_meter", "meter_not_found"),
        ("delete_meter", "meter_not_found"),
        ("get_request", "request_not_found"),
        ("get_credit_bundle", "credit_bundle_not_found"),
        ("get_plan", "plan_not_found"),
        ("update_plan", "plan_not_found"),
        ("delete_plan", "plan_not_found"),
        ("get_subscription", "subscription_not_found"),
        ("update_subscription", "subscription_not_found"),
        ("cancel_subscription", "subscription_not_found"),
        ("get_webhook", "webhook_not_found"),
        ("update_webhook", "webhook_not_found"),
        ("delete_webhook", "webhook_not_found"),
        ("list_webhook_deliveries", "webhook_not_found"),
        ("resend_webhook_delivery", "webhook_not_found"),
    ]
    .map(|(operation, answer)| Case {
        operation,
        answer,
        provoke: |scene, at| Box::pin(async move { with_a_body(at, scene.named(at, "nobody")) }),
    })
    .to_vec()
}
