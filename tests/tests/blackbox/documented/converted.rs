//! The model endpoints and the rewrite endpoint.

use farthing_tests::client::{Body, Request};
use farthing_tests::document::Operation;
use farthing_tests::merchant::{encoded, token};
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use super::scene::{Beside, Call, Scene, a_cent};
use super::{Case, cases};

/// The operations of [`cases`], and the answers that each has not.
const OPERATIONS: [(&str, &[&str]); 5] = [
    ("create_chat_completion", &["forward_url_forbidden"]),
    ("create_response", &["forward_url_forbidden"]),
    ("create_embedding", &["forward_url_forbidden", "conversion_unsupported"]),
    ("create_message", &["forward_url_forbidden"]),
    ("rewrite", &["model_not_found"]),
];

/// The longest body of these endpoints, in bytes.
const MAX_BODY: usize = 32 * 1024 * 1024;

pub(super) fn cases() -> Vec<Case> {
    let cases = each_operations();
    let of = |(operation, without): (&'static str, &'static [&'static str])| {
        let cases = cases.iter().filter(move |case| !without.contains(&case.answer));
        cases.map(move |case| Case { operation, ..*case })
    };
    OPERATIONS.into_iter().flat_map(of).collect()
}

fn each_operations() -> Vec<Case> {
    cases! { scene, at;
        "each" "200" => priced(scene, at).await;
        "each" "validation_error" => priced(scene, at).await.body_again(b"[]");
        "each" "forward_token_json_invalid" => priced(scene, at).await.bearer("%%%");
        "each" "metadata_invalid" => priced(scene, at).await.header("x-service-metadata", "[]");
        "each" "model_not_priced" => {
            let provider = provider_of(at);
            let model = if at.path.starts_with("/rewrite") { "nobody's".to_owned() } else { format!("{provider}/nobody's") };
            called(scene, at, &model, &json!({})).await
        };
        "each" "provider_key_missing" => {
            if at.path.starts_with("/rewrite") {
                rewrite(scene, at, "https://api.groq.com/openai/v1/chat/completions", "m", &json!({})).await
            } else if at.path == "/embeddings" {
                called(scene, at, "mistral/mistral-embed", &json!({})).await
            } else {
                called(scene, at, "google/gemini-2.5-flash", &json!({})).await
            }
        };
        "each" "conversion_unsupported" => {
            let field = match at.path.as_str() {
                "/responses" => json!({"previous_response_id": "resp_1"}),
                "/messages" => json!({"top_k": 5}),
                _ => json!({"logit_bias": {"1": 5}}),
            };
            match at.path.as_str() {
                "/messages" => called(scene, at, a_cent("openai"), &field).await,
                "/chat/completions" | "/responses" => called(scene, at, a_cent("anthropic"), &field).await,
                _ => rewrite(scene, at, "https://api.anthropic.com/v1/messages", "m", &field).await,
            }
        };
        "each" "forward_url_invalid" => {
            if at.path.starts_with("/rewrite") {
                rewrite(scene, at, "https://api.openai.com/v1/models", "m", &json!({})).await
            } else {
                // The parameters of a call are those of the provider's URL, which may not have a secret of ours.
                priced(scene, at).await.query(&format!("x={}", scene.merchant.secret_key))
            }
        };
        "each" "forward_url_forbidden" => rewrite(scene, at, "http://10.0.0.1/messages", "m", &json!({})).await;
        "each" "connection_secret_invalid" => with(scene, at, &json!({"connection_secret": "cons_nobody"})).await;
        "each" "product_secret_invalid" => with(scene, at, &json!({"product_secret": "prds_nothing"})).await;
        "each" "customer_not_found" => with(scene, at, &json!({"customer_id": "nobody"})).await;
        "each" "meter_not_found" => with(scene, at, &json!({"meter_slug": "nothing"})).await;
        "each" "model_not_found" => called(scene, at, "nobody's", &json!({})).await;
        "each" "body_too_large" => priced(scene, at).await.body_again(&vec![b' '; MAX_BODY + 1]);
        "each" "insufficient_balance" => {
            let (customer, meter) = (scene.customer().await, scene.meter("1").await);
            with(scene, at, &json!({"customer_id": customer, "meter_id": meter})).await
        };
        "each" "spend_key_invalid" => priced(scene, at).await.bearer("spk_nobody");
        "each" "spend_key_expired" => {
            let now = scene.merchant.post("/v1/test_clock", &json!({"advance_seconds": 1})).await.expect(200);
            let now: chrono::DateTime<chrono::Utc> = now["now"].as_str().unwrap().parse().unwrap();
            let call = on_key(scene, at, json!({"expires_at": now + chrono::Duration::hours(1)})).await;
            scene.merchant.post("/v1/test_clock", &json!({"advance_seconds": 7200})).await.expect(200);
            call
        };
        "each" "spend_key_paused" => {
            let (id, key) = scene.spend_key(&shaped(at, json!({}))).await;
            let pause = Request::new("PUT", format!("/v1/spend_keys/{id}")).json(&json!({"status": "paused"}));
            scene.merchant.rest(pause).await.expect(200);
            priced(scene, at).await.bearer(&key)
        };
        "each" "spend_limit_exceeded" => {
            // A call costs a cent.
            on_key(scene, at, json!({"spend_limit": {"amount": "0.0099999999", "cycle": "total"}})).await
        };
        "each" "model_not_allowed" => on_key(scene, at, json!({"allowed_models": ["another"]})).await;
        "each" "provider_not_allowed" => on_key(scene, at, json!({"allowed_providers": ["another"]})).await;
        "each" "rate_limit_exceeded" => {
            used(on_key(scene, at, json!({"rate_limit": {"rpm": 1, "burst": 1}})).await).await
        };
        "each" "request_limit_exceeded" => {
            used(on_key(scene, at, json!({"request_limit": {"count": 1, "cycle": "total"}})).await).await
        };
        "each" "provider_unreachable" => {
            if at.path == "/embeddings" {
                // No provider without a listener offers embeddings: one that breaks off does.
                broken(scene, at).await
            } else if at.path.starts_with("/rewrite") {
                let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
                rewrite(scene, at, &format!("http://{free}/messages"), "m", &json!({})).await
            } else {
                called(scene, at, "xai/grok-4.5", &json!({})).await
            }
        };
        "each" "provider_timeout" => {
            // On the caller's own key: on a managed one, the hold is charged.
            let user = scene.waiting_user();
            let credential = token(&json!({"secret_key": scene.merchant.secret_key, "provider_key": "sk-own"}));
            priced_for(scene, at, &user).await.bearer(&credential).at(Beside::started().await.hurried.address)
        };
        "each" "idempotency_in_progress" => {
            let user = scene.waiting_user();
            let call = priced_for(scene, at, &user).await.header("Idempotency-Key", scene.fresh());
            let first = call.clone();
            let before = scene.merchant.events().await.len();
            tokio::spawn(async move { first.request.send(first.to).await });
            eventually("the call is open", async || (scene.merchant.events().await.len() > before).then_some(())).await;
            call
        };
        "each" "idempotency_completed" => {
            let call = priced_for(scene, at, "streamed").await.header("Idempotency-Key", scene.fresh());
            let first = call.request.send(call.to).await.unwrap();
            assert_eq!((first.status, first.complete), (200, true), "{}", first.text());
            call
        };
        "each" "idempotency_key_reused" => {
            let key = scene.fresh();
            let call = priced(scene, at).await.header("Idempotency-Key", key.clone());
            assert_eq!(call.request.send(call.to).await.unwrap().status, 200);
            priced_for(scene, at, "another").await.header("Idempotency-Key", key)
        };
    }
}

impl Call {
    /// The same with another body.
    fn body_again(mut self, bytes: &[u8]) -> Self {
        self.request.body = Body::Whole(bytes.to_vec());
        self
    }
}

/// The provider that speaks the format of the endpoint.
fn provider_of(at: &Operation) -> &'static str {
    if at.path == "/messages" { "anthropic" } else { "openai" }
}

/// A body in the format of the endpoint.
fn body(at: &Operation, model: &str, more: &Value) -> Value {
    let mut body = match at.path.as_str() {
        "/responses" | "/embeddings" => json!({"model": model, "input": "Hi"}),
        _ => json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}),
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A call of `model` with the merchant's key.
async fn called(scene: &Scene, at: &Operation, model: &str, more: &Value) -> Call {
    if at.path.starts_with("/rewrite") {
        let url = format!("http://{}/v1/chat/completions", scene.merchant.instance.openai.authority());
        return rewrite(scene, at, &url, model, more).await;
    }
    scene.call(at).json(&body(at, model, more)).at(Beside::started().await.managed.address)
}

/// A call of an OpenAI client at the provider's `url`.
async fn rewrite(scene: &Scene, at: &Operation, url: &str, model: &str, more: &Value) -> Call {
    let call = scene.call_of(at, format!("/v1/rewrite/openai/{}", encoded(url)));
    call.json(&body(at, model, more)).at(Beside::started().await.managed.address)
}

/// A call that costs a cent.
async fn priced(scene: &Scene, at: &Operation) -> Call {
    called(scene, at, a_cent(provider_of(at)), &json!({})).await
}

/// The same, for a user of the provider.
async fn priced_for(scene: &Scene, at: &Operation, user: &str) -> Call {
    let more =
        if at.path == "/messages" { json!({"metadata": {"user_id": user}}) } else { json!({"user": user}) };
    called(scene, at, a_cent(provider_of(at)), &more).await
}

/// The same, with `more` in the forward token.
async fn with(scene: &Scene, at: &Operation, more: &Value) -> Call {
    let mut fields = json!({"secret_key": scene.merchant.secret_key});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    priced(scene, at).await.bearer(&token(&fields))
}

fn shaped(at: &Operation, mut settings: Value) -> Value {
    settings["request_shape"] = json!(provider_of(at));
    settings
}

/// The same, with a spend key.
async fn on_key(scene: &Scene, at: &Operation, settings: Value) -> Call {
    let (_, key) = scene.spend_key(&shaped(at, settings)).await;
    priced(scene, at).await.bearer(&key)
}

/// The call, after it was made once.
async fn used(call: Call) -> Call {
    let first = call.request.send(call.to).await.unwrap();
    assert_eq!(first.status, 200, "{}", first.text());
    call
}

/// A call whose provider closes the connection.
async fn broken(scene: &Scene, at: &Operation) -> Call {
    called(scene, at, a_cent("openai"), &json!({"user": "broken"})).await
}
