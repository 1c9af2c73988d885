//! The model endpoints: the model's name chooses the provider, and the call is limited, metered and charged as a forwarded
//! call is (completion.md section 11).

use farthing_tests::client::{Body, Connection, Request, Response};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{
    Call, Endpoint, Gate, Step, chunk, event_stream, json, json_text, last_chunk,
};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const EMBEDDINGS: &str = "/v1/embeddings";
const MESSAGES: &str = "/v1/messages";

/// The list price of gpt-4o for 1,000 input tokens and 100 output tokens.
const COST: &str = "0.0035000000";

/// A completion in OpenAI's format, with spaces that no writer of JSON would make.
const COMPLETION: &str = r#"{"id":"chatcmpl-1", "object":"chat.completion","created":1700000000,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}"#;

/// A message in Anthropic's format.
const MESSAGE: &str = r#"{"id":"msg_1", "type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1000,"output_tokens":100}}"#;

/// An answer in Google's format.
const GENERATED: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello."}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":100,"totalTokenCount":1100},"modelVersion":"gemini-2.5-flash","responseId":"r-1"}"#;

fn completions(managed: &Managed) -> Endpoint {
    managed.openai.endpoint_at(CHAT, |_| json_text(200, COMPLETION))
}

fn anthropics(managed: &Managed) -> Endpoint {
    managed.anthropic.endpoint_at(MESSAGES, |_| json_text(200, MESSAGE))
}

/// A call with this body, without a credential.
fn post(path: &str, body: &str) -> Request {
    let request = Request::new("POST", path).header("Content-Type", "application/json");
    request.body(Body::Whole(body.as_bytes().to_vec()))
}

fn chat(model: &str) -> Request {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100});
    post(CHAT, &body.to_string())
}

fn message(model: &str) -> Request {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100});
    post(MESSAGES, &body.to_string())
}

async fn spend_key(merchant: &Merchant, settings: Value) -> String {
    let mut body = json!({"name": "a test's"});
    body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    merchant.post("/v1/spend_keys", &body).await.expect(201)["key"].as_str().unwrap().to_owned()
}

/// What a metered call has in common with the same call through forward.
fn terms(metered: &Value) -> Value {
    let names = ["usage", "total_merchant_cost", "total_wallet_cost", "total_request_cost", "marks", "model"];
    names.iter().map(|name| metered[*name].clone()).collect()
}

/// What a call held.
async fn hold(merchant: &Merchant, response: &Response) -> Value {
    let opened = merchant.of_kind("request.opened").await;
    let request_id = response.request_id();
    opened.iter().find(|event| event.body["request_id"] == request_id.as_str()).unwrap().body["hold"].clone()
}

async fn send(managed: &Managed, request: Request) -> Response {
    request.send(managed.address()).await.expect("the gateway answers")
}

#[test]
fn the_model_chooses_the_provider_and_the_charge_is_that_of_a_forwarded_call() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let (openai, anthropic) = (completions(&managed), anthropics(&managed));
        let plain =
            r#"{ "messages":[ {"role":"user","content":"Hi"}], "temperature": 1.50, "model" : "gpt-4o" }"#;
        let prefixed = plain.replace("gpt-4o", "openai/gpt-4o");
        let forwarded = forward("POST", &openai.url).header("Content-Type", "application/json");
        let forwarded = managed.send(key, forwarded.body(Body::Whole(plain.as_bytes().to_vec()))).await;
        let oracle = merchant.charged(&forwarded).await;
        assert_eq!(oracle["total_merchant_cost"], COST);
        let held = hold(&merchant, &forwarded).await;
        for body in [plain, &prefixed] {
            let response = managed.send(key, post(CHAT, body)).await;
            assert_eq!((response.status, response.text().as_str()), (200, COMPLETION));
            let call = openai.calls().pop().unwrap();
            assert_eq!(String::from_utf8_lossy(&call.body), plain, "all but the prefix is unchanged");
            assert_eq!(call.head.all("authorization"), ["Bearer sk-managed-openai"]);
            assert_eq!(terms(&merchant.charged(&response).await), terms(&oracle));
            assert_eq!(hold(&merchant, &response).await, held);
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["endpoint"], format!("POST {}", openai.url));
            assert_eq!(
                (&shown["provider"], &shown["provider_key_type"], &shown["model"]),
                (&json!("openai"), &json!("managed"), &json!("gpt-4o"))
            );
        }
        let response = managed.send(key, message("anthropic/claude-haiku-4-5")).await;
        assert_eq!((response.status, response.text().as_str()), (200, MESSAGE));
        let call = anthropic.only_call();
        assert_eq!(call.head.all("x-api-key"), ["sk-managed-anthropic"]);
        assert_eq!(call.head.all("anthropic-version"), ["2023-06-01"]);
        assert_eq!(serde_json::from_slice::<Value>(&call.body).unwrap()["model"], "claude-haiku-4-5");
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["usage"]["tokens"], json!({"input": 1000, "output": 100}));
        assert_eq!(metered["total_merchant_cost"], "0.0015000000");

        let embeddings = managed.openai.endpoint_at(EMBEDDINGS, |_| {
            json(200, &json!({"data": [], "model": "text-embedding-3-small", "usage": {"prompt_tokens": 1000, "total_tokens": 1000}}))
        });
        let body = r#"{"model":"text-embedding-3-small","input":["a","b"]}"#;
        let response = managed.send(key, post(EMBEDDINGS, body)).await;
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(embeddings.only_call().body, body.as_bytes());
        assert_eq!(merchant.charged(&response).await["total_merchant_cost"], "0.0000200000");

        let responses = managed.openai.endpoint_at(RESPONSES, |_| {
            json(200, &json!({"id": "resp_1", "model": "gpt-4o", "output": [], "usage": {"input_tokens": 1000, "output_tokens": 100}}))
        });
        let response = managed.send(key, post(RESPONSES, r#"{"model":"gpt-4o","input":"Hi"}"#)).await;
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(responses.calls().len(), 1);
        assert_eq!(terms(&merchant.charged(&response).await), terms(&oracle));
        merchant.nothing_is_held().await;
    });
}

#[test]
fn the_credential_travels_in_every_slot_and_no_key_reaches_another_provider() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let (openai, anthropic) = (completions(&managed), anthropics(&managed));
        let (key, foreign) = (merchant.secret_key.clone(), "sk-another-providers");
        let slots = [
            chat("gpt-4o").bearer(&key).header("x-api-key", foreign).header("api-key", foreign),
            chat("gpt-4o").header("x-api-key", &key).bearer(foreign),
            chat("gpt-4o").header("x-goog-api-key", &key),
            chat("gpt-4o").header("xi-api-key", &key),
            chat("gpt-4o").header("api-key", &key).bearer(foreign),
            Request { target: format!("{CHAT}?key={key}&metadata=%7B%22a%22:%22b%22%7D"), ..chat("gpt-4o") },
            Request { target: format!("{CHAT}?key={foreign}"), ..chat("gpt-4o").bearer(&key) },
            Request {
                target: format!("{CHAT}?api-key={foreign}&token={foreign}"),
                ..chat("gpt-4o").bearer(&key)
            },
            chat("gpt-4o")
                .bearer(&key)
                .header("ocp-apim-subscription-key", foreign)
                .header("cookie", foreign)
                .header("x-amz-security-token", foreign),
        ];
        for request in slots {
            let response = send(&managed, request.clone()).await;
            assert_eq!(response.status, 200, "{request:?}: {}", response.text());
            let call = openai.calls().pop().unwrap();
            assert_eq!(call.target(), CHAT, "nothing of the query passes");
            assert_eq!(call.head.all("authorization"), ["Bearer sk-managed-openai"]);
            let head = format!("{:?}", call.head);
            assert!(!head.contains(&key) && !head.contains(foreign), "{head}");
            merchant.charged(&response).await;
        }
        assert_eq!(openai.calls().len(), 9);

        // A provider's own key goes where that provider takes keys, whatever carried the credential.
        let own = token(&json!({"secret_key": key, "provider_key": "sk-own"}));
        for request in
            [message("claude-haiku-4-5").bearer(&own), message("claude-haiku-4-5").header("xi-api-key", &own)]
        {
            let response = send(&managed, request).await;
            assert_eq!(response.status, 200, "{}", response.text());
            let call = anthropic.calls().pop().unwrap();
            assert_eq!(call.head.all("x-api-key"), ["sk-own"]);
            assert!(call.head.all("authorization").is_empty() && call.head.all("xi-api-key").is_empty());
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["total_merchant_cost"], "0.0000000000", "the provider bills its owner");
        }
        // The key may be of a model that the catalogue does not have.
        let response = managed.send(&own, chat("openai/a-new-one")).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let call = openai.calls().pop().unwrap();
        assert_eq!(call.head.all("authorization"), ["Bearer sk-own"]);
        assert_eq!(serde_json::from_slice::<Value>(&call.body).unwrap()["model"], "a-new-one");
    });
}

#[test]
fn a_refused_call_changes_nothing_and_reaches_no_provider() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let openai = completions(&managed);
        let anthropic = anthropics(&managed);
        let secret = &merchant.secret_key;
        let events = merchant.events().await.len();
        for (request, status, code) in [
            (chat("nobodys-model"), 404, "model_not_found"),
            (chat("nobody/gpt-4o"), 404, "model_not_found"),
            (chat("other/gpt-4o"), 404, "model_not_found"),
            (post(EMBEDDINGS, r#"{"model":"claude-haiku-4-5","input":"x"}"#), 404, "model_not_found"),
            (chat("openai/a-new-one"), 400, "model_not_priced"),
            (chat("anthropic/gpt-4o"), 400, "model_not_priced"),
            (chat("groq/openai/gpt-oss-20b"), 400, "provider_key_missing"),
            (post(CHAT, "[]"), 400, "validation_error"),
            (post(CHAT, ""), 400, "validation_error"),
            (post(CHAT, "{\"model\":"), 400, "validation_error"),
            (post(CHAT, r#"{"messages":[]}"#), 400, "validation_error"),
            (post(CHAT, r#"{"model":7}"#), 400, "validation_error"),
            (post(CHAT, r#"{"model":"gpt-4o","model":"claude-haiku-4-5"}"#), 400, "validation_error"),
            (post(CHAT, r#"{"model":"gpt-4o","Model":"claude-haiku-4-5"}"#), 400, "validation_error"),
            (post(CHAT, r#"{"model":"gpt-4o","mod\u0065l":"gpt-4o-mini"}"#), 400, "validation_error"),
            (post(CHAT, r#"{"model":"gpt-4o","service_tier":"priority"}"#), 400, "validation_error"),
            (chat("gpt-4o").header("x-service-metadata", "[]"), 400, "metadata_invalid"),
            (chat("gpt-4o").header("x-hidden", secret), 400, "validation_error"),
            (
                Request { target: format!("{MESSAGES}?x={secret}"), ..message("claude-haiku-4-5") },
                400,
                "forward_url_invalid",
            ),
            (
                Request::new("POST", CHAT)
                    .header("Content-Type", "text/plain")
                    .body(Body::Whole(b"{}".to_vec())),
                415,
                "content_type_unsupported",
            ),
            (Request::new("POST", CHAT), 415, "content_type_unsupported"),
            (chat("gpt-4o").header("Sec-Fetch-Mode", "navigate"), 400, "validation_error"),
        ] {
            let refused = managed.send(secret, request.clone()).await;
            assert_eq!(refused.refused(status, code)["status"], status, "{request:?}");
        }
        for (token, code) in [
            (json!({"secret_key": secret, "provider_key": secret}), "forward_token_json_invalid"),
            (json!({"secret_key": secret, "provider_key": "a\u{e9}b"}), "forward_token_json_invalid"),
        ] {
            managed.send(&farthing_tests::merchant::token(&token), chat("gpt-4o")).await.refused(400, code);
        }
        send(&managed, chat("gpt-4o")).await.refused(401, "auth_header_missing");
        managed.send("aks_test_nobody", chat("gpt-4o")).await.refused(401, "secret_key_invalid");
        managed.send("spk_nobody", chat("gpt-4o")).await.refused(401, "spend_key_invalid");
        let got = managed.send(secret, Request::new("GET", CHAT)).await;
        got.refused(405, "method_not_allowed");
        assert_eq!(got.head.header("allow"), Some("POST"));

        // One byte too long, announced and not.
        let long = vec![b' '; 32 * 1024 * 1024 + 1];
        let announced = chat("gpt-4o").body(Body::Whole(long.clone()));
        managed.send(secret, announced).await.refused(413, "body_too_large");
        let chunks = long.chunks(1 << 20).map(<[u8]>::to_vec).collect();
        managed.send(secret, chat("gpt-4o").body(Body::Chunks(chunks))).await.refused(413, "body_too_large");

        assert!(openai.calls().is_empty() && anthropic.calls().is_empty(), "a provider was called");
        assert_eq!(merchant.events().await.len(), events, "something was recorded");
    });
}

#[test]
fn a_spend_key_calls_the_endpoints_of_its_shape_with_the_models_and_providers_of_its_lists() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let (openai, anthropic) = (completions(&managed), anthropics(&managed));
        let shaped = async |shape: &str| spend_key(&merchant, json!({"request_shape": shape})).await;
        let (of_openai, of_anthropic) = (shaped("openai").await, shaped("anthropic").await);
        let default = spend_key(&merchant, json!({})).await;
        for (key, request) in [
            (&of_openai, chat("gpt-4o")),
            (&default, chat("gpt-4o")),
            (&of_anthropic, message("claude-haiku-4-5")),
        ] {
            let response = managed.send(key, request).await;
            assert_eq!(response.status, 200, "{}", response.text());
            let metered = merchant.charged(&response).await;
            assert_eq!(
                metered["total_merchant_cost"], metered["total_request_cost"],
                "the merchant's wallet"
            );
        }
        let before = (openai.calls().len(), anthropic.calls().len());
        for (key, request) in [
            (&of_openai, message("claude-haiku-4-5")),
            (&of_anthropic, chat("gpt-4o")),
            (&of_anthropic, post(RESPONSES, r#"{"model":"gpt-4o","input":"x"}"#)),
            (&of_anthropic, post(EMBEDDINGS, r#"{"model":"text-embedding-3-small","input":"x"}"#)),
        ] {
            let error = managed.send(key, request).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["request_shape"]));
        }

        let models = spend_key(&merchant, json!({"allowed_models": ["gpt-4o"]})).await;
        let providers = spend_key(&merchant, json!({"allowed_providers": ["openai"]})).await;
        let nothing = spend_key(&merchant, json!({"allowed_providers": []})).await;
        for (key, model, code) in [
            (&models, "gpt-4o-mini", "model_not_allowed"),
            (&models, "openai/gpt-4o-mini", "model_not_allowed"),
            (&models, "openai/openai/gpt-4o", "model_not_allowed"),
            (&nothing, "gpt-4o", "provider_not_allowed"),
            (&nothing, "openai/gpt-4o", "provider_not_allowed"),
        ] {
            managed.send(key, chat(model)).await.refused(403, code);
        }
        assert_eq!((openai.calls().len(), anthropic.calls().len()), before);
        for (key, model) in [(&models, "gpt-4o"), (&models, "openai/gpt-4o"), (&providers, "gpt-4o-mini")] {
            assert_eq!(managed.send(key, chat(model)).await.status, 200, "{model}");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn concurrent_calls_on_one_spend_key_are_admitted_exactly_as_often_as_it_allows() {
    run(async {
        let managed: &'static Managed = Box::leak(Box::new(Managed::start(&[]).await));
        let merchant = Merchant::funded("100").await;
        let openai = completions(managed);
        let key = spend_key(&merchant, json!({"request_limit": {"count": 7, "cycle": "total"}})).await;
        let calls: Vec<_> = (0..30)
            .map(|_| {
                let request = chat("openai/gpt-4o").bearer(&key);
                tokio::spawn(async move { request.send(managed.address()).await.unwrap().status })
            })
            .collect();
        let mut statuses = Vec::new();
        for call in calls {
            statuses.push(call.await.unwrap());
        }
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 7, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
        assert_eq!(openai.calls().len(), 7);
        merchant.nothing_is_held().await;
    });
}

const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":100}}\n\n";

#[test]
fn a_stream_reports_its_usage_to_the_gateway_and_not_to_a_caller_who_did_not_ask() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = managed.openai.endpoint_at(CHAT, move |call: &Call| {
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(body["stream_options"]["include_usage"], json!(true));
            vec![
                event_stream(),
                chunk("data: {\"choices\":[1]}\n\n"),
                Step::Wait(waits.clone()),
                chunk(USAGE),
                chunk("data: [DONE]\n\n"),
                last_chunk(),
            ]
        });
        let body = r#"{"model":"openai/gpt-4o","stream":true,"messages":[]}"#;
        let mut connection = Connection::open(managed.address()).await.unwrap();
        connection.send(&post(CHAT, body).bearer(&merchant.secret_key)).await.unwrap();
        let head = connection.head("POST").await.unwrap();
        assert_eq!(
            connection.read.piece().await.unwrap().unwrap(),
            b"data: {\"choices\":[1]}\n\n",
            "as it comes"
        );
        gate.open();
        let (rest, end) = connection.read.rest().await;
        assert!(end.is_ok());
        assert_eq!(String::from_utf8_lossy(&rest), "data: [DONE]\n\n");
        let id = head.header("x-service-request-id").unwrap();
        let metered = merchant.log.event(&format!("{id}/metered")).await.expect("settled before the end");
        assert_eq!(metered.body["total_merchant_cost"], COST);
        assert_eq!(endpoint.calls().len(), 1);

        // A caller who leaves is charged what the provider reports.
        let gate = Gate::default();
        let waits = gate.clone();
        let leaving = managed.anthropic.endpoint_at(MESSAGES, move |_| {
            vec![
                event_stream(),
                chunk("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1000,\"output_tokens\":1}}}\n\n"),
                Step::Wait(waits.clone()),
                chunk("event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":100}}\n\n"),
                last_chunk(),
            ]
        });
        let mut caller = Connection::open(managed.address()).await.unwrap();
        let request = message("claude-haiku-4-5").bearer(&merchant.secret_key);
        caller.send(&request).await.unwrap();
        let head = caller.head("POST").await.unwrap();
        caller.read.piece().await.unwrap();
        drop(caller);
        gate.open();
        let key = format!("{}/metered", head.header("x-service-request-id").unwrap());
        let metered = eventually("it is read to its end", async || merchant.log.event(&key).await).await.body;
        assert_eq!(metered["total_merchant_cost"], "0.0015000000");
        assert_eq!(leaving.calls().len(), 1);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn an_idempotency_key_never_calls_the_provider_twice_and_belongs_to_its_endpoint() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let (openai, anthropic) = (completions(&managed), anthropics(&managed));
        let keyed = |request: Request| request.header("Idempotency-Key", "one");
        let first = managed.send(key, keyed(chat("gpt-4o"))).await;
        let again = managed.send(key, keyed(chat("gpt-4o"))).await;
        assert_eq!((again.status, &again.body), (200, &first.body));
        assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.request_id(), first.request_id());
        assert_eq!(openai.calls().len(), 1);
        managed.send(key, keyed(chat("openai/gpt-4o"))).await.refused(422, "idempotency_key_reused");
        // Another endpoint is another scope.
        let other = managed.send(key, keyed(message("claude-haiku-4-5"))).await;
        assert_eq!((other.status, other.text().as_str()), (200, MESSAGE));
        assert_eq!((openai.calls().len(), anthropic.calls().len()), (1, 1));
    });
}

#[test]
fn a_body_of_several_mebibytes_passes_whole() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let openai = completions(&managed);
        let image = format!("data:image/png;base64,{}", "A".repeat(8 << 20));
        let content = json!([{"type": "image_url", "image_url": {"url": image}}]);
        let body = json!({"model": "openai/gpt-4o", "max_tokens": 10, "messages": [{"role": "user", "content": content}]});
        let body = body.to_string();
        let pieces = body.as_bytes().chunks(1 << 20).map(<[u8]>::to_vec).collect();
        for body_as in [Body::Whole(body.clone().into_bytes()), Body::Chunks(pieces)] {
            let response = managed.send(&merchant.secret_key, post(CHAT, "").body(body_as)).await;
            assert_eq!(response.status, 200, "{}", response.text());
            assert_eq!(merchant.charged(&response).await["total_merchant_cost"], COST);
            let call = openai.calls().pop().unwrap();
            assert!(call.body == body.replace("openai/gpt-4o", "gpt-4o").into_bytes(), "the body is altered");
        }
    });
}

/// The text of an answer in the format of each endpoint.
fn text_of(path: &str, answer: &Value) -> Value {
    match path {
        CHAT => answer["choices"][0]["message"]["content"].clone(),
        MESSAGES => answer["content"][0]["text"].clone(),
        RESPONSES => {
            let messages =
                answer["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message");
            messages.map(|message| message["content"][0]["text"].clone()).next().unwrap_or_default()
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_model_of_another_format_is_called_through_a_conversion_and_charged_as_its_provider_reports() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let (openai, anthropic) = (completions(&managed), anthropics(&managed));
        let gemini = "/v1beta/models/gemini-2.5-flash:generateContent";
        let google = managed.google.endpoint_at(gemini, |_| json_text(200, GENERATED));
        let mistral = managed.mistral.endpoint_at(CHAT, |_| json_text(200, COMPLETION));
        let responses = |model: &str| post(RESPONSES, &json!({"model": model, "input": "Hi"}).to_string());
        for (request, endpoint, model, cost) in [
            (chat("claude-haiku-4-5"), &anthropic, "claude-haiku-4-5", "0.0015000000"),
            (responses("anthropic/claude-haiku-4-5"), &anthropic, "claude-haiku-4-5", "0.0015000000"),
            (chat("gemini-2.5-flash"), &google, "", "0.0005500000"),
            (message("google/gemini-2.5-flash"), &google, "", "0.0005500000"),
            (responses("gemini-2.5-flash"), &google, "", "0.0005500000"),
            (message("openai/gpt-4o"), &openai, "gpt-4o", COST),
            // On no key: the host is the operator's own.
            (responses("mistral/ministral-3b-2512"), &mistral, "ministral-3b-2512", "0.0000000000"),
        ] {
            let before = endpoint.calls().len();
            let response = managed.send(key, request.clone()).await;
            assert_eq!(response.status, 200, "{request:?}: {}", response.text());
            assert_eq!(text_of(&request.target, &response.json()), "Hello.", "{}", response.text());
            assert_eq!(response.head.header("content-type"), Some("application/json"));
            let call = endpoint.calls().pop().unwrap();
            assert_eq!(endpoint.calls().len(), before + 1);
            let sent: Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(sent["model"].as_str().unwrap_or_default(), model, "{sent}");
            assert_eq!(call.head.all("accept-encoding"), ["identity"]);
            assert_eq!(call.head.all("content-length"), [call.body.len().to_string()]);
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], json!({"input": 1000, "output": 100}));
            assert_eq!(metered["total_merchant_cost"], cost, "{request:?}");
        }
        let call = anthropic.calls().pop().unwrap();
        assert_eq!(call.head.all("anthropic-version"), ["2023-06-01"]);
        assert_eq!(call.head.all("x-api-key"), ["sk-managed-anthropic"]);
        let call = google.calls().pop().unwrap();
        assert_eq!(call.head.all("x-goog-api-key"), ["managed-google"]);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn what_cannot_be_converted_is_refused_before_anything_is_recorded() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let anthropic = anthropics(&managed);
        let events = merchant.events().await.len();
        let body = json!({
            "model": "claude-haiku-4-5", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5,
            "logit_bias": {"1": 5},
        });
        let refused = managed.send(&merchant.secret_key, post(CHAT, &body.to_string())).await;
        let error = refused.refused(400, "conversion_unsupported");
        assert_eq!(error["issues"][0]["path"], json!(["logit_bias"]));
        assert!(error["message"].as_str().unwrap().contains("logit_bias"), "{error}");
        let body = json!({"model": "claude-haiku-4-5", "messages": 7});
        let refused = managed.send(&merchant.secret_key, post(CHAT, &body.to_string())).await;
        assert_eq!(refused.refused(400, "validation_error")["issues"][0]["path"], json!(["messages"]));
        assert!(anthropic.calls().is_empty());
        assert_eq!(merchant.events().await.len(), events);
    });
}
