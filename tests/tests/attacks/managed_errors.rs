//! Errors of a provider that repeat the managed key that they were sent.

use farthing_tests::client::{Request, Response};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{Call, Endpoint, Step, chunk, event_stream, head, last_chunk, whole};
use farthing_tests::run;
use serde_json::{Value, json};

const KEY: &str = "sk-managed-openai";

/// As long as the key.
const MASK: &str = "*****************";

fn chat() -> Value {
    json!({"model": "gpt-4o", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})
}

/// The key that a call was sent.
fn sent(call: &Call) -> String {
    call.head.header("authorization").unwrap().strip_prefix("Bearer ").unwrap().to_owned()
}

fn error(key: &str) -> String {
    json!({"error": {"message": format!("Incorrect API key: {key}. It was \"{key}\", not sk-managed-"),
                     "type": "invalid_request_error", "code": "invalid_api_key"}})
    .to_string()
}

/// That nothing of the key is in a response with this body.
fn has_no_key(response: &Response, status: u16, body: &str) {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.text(), body);
    let head = format!("{:?}", response.head);
    assert!(!head.contains(KEY), "{head}");
}

/// Answers that repeat their key: whole and in chunks of every length, with the status in the path's last segment.
fn repeating(managed: &Managed, status: u16, piece: Option<usize>) -> Endpoint {
    managed.openai.endpoint_ending("/v1/chat/completions", move |call| {
        let (key, body) = (sent(call), error(&sent(call)));
        let repeated = format!("Bearer {key}");
        let headers = [("Content-Type", "application/json"), ("X-Repeated", repeated.as_str())];
        let Some(piece) = piece else { return whole(status, &headers, body.as_bytes()) };
        let mut steps = vec![head(status, &[headers[0], headers[1], ("Transfer-Encoding", "chunked")])];
        steps.extend(body.as_bytes().chunks(piece).map(chunk));
        steps.push(last_chunk());
        steps
    })
}

#[test]
fn an_error_that_repeats_the_managed_key_reaches_the_caller_masked() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        for status in [302, 400, 401, 403, 429, 500, 503] {
            let endpoint = repeating(&managed, status, None);
            let response = managed.send(key, forward("POST", &endpoint.url).json(&chat())).await;
            has_no_key(&response, status, &error(MASK));
            assert_eq!(response.head.header("x-repeated"), Some(format!("Bearer {MASK}").as_str()));
            assert_eq!(
                response.head.header("content-length"),
                Some(error(KEY).len().to_string().as_str()),
                "the mask is as long as the key"
            );
        }
        for piece in [1, 2, 7, 16, 30, 64] {
            let endpoint = repeating(&managed, 401, Some(piece));
            let response = managed.send(key, forward("POST", &endpoint.url).json(&chat())).await;
            has_no_key(&response, 401, &error(MASK));
        }
        // What is stored for a repetition is masked, too.
        let endpoint = repeating(&managed, 401, None);
        let call = forward("POST", &endpoint.url).json(&chat()).header("idempotency-key", "k");
        for _ in 0..2 {
            has_no_key(&managed.send(key, call.clone()).await, 401, &error(MASK));
        }
        endpoint.only_call();
        merchant.nothing_is_held().await;
        assert_eq!(merchant.own_balance().await, "100.0000000000");
    });
}

/// The status line and the names of headers and trailers are what a provider writes, too.
#[test]
fn an_error_with_the_managed_key_in_its_reason_phrase_and_in_names_of_headers_reaches_the_caller_without_them()
 {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", |call| {
            let key = sent(call);
            let (body, upper) = (error(&key), key.to_ascii_uppercase());
            let head = format!(
                "HTTP/1.1 401 Bad key {key}\r\nX-{key}: 1\r\nX-{upper}-Limit: 2\r\nX-Other: 3\r\n\
                 Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-{key}\r\n\r\n"
            );
            let trailers = format!("0\r\nX-{key}: 4\r\n\r\n");
            vec![Step::Bytes(head.into_bytes()), chunk(body), Step::Bytes(trailers.into_bytes())]
        });
        let call = forward("POST", &endpoint.url).json(&chat()).header("te", "trailers");
        let response = managed.send(&merchant.secret_key, call).await;
        has_no_key(&response, 401, &error(MASK));
        let head = format!("{:?}", response.head).to_ascii_lowercase();
        assert!(!head.contains(KEY), "{head}");
        assert_eq!(response.head.first_line, "HTTP/1.1 401 Unauthorized");
        assert_eq!(response.head.header("x-other"), Some("3"));

        // A reason phrase without the key passes.
        let endpoint = repeating(&managed, 401, None);
        let response = managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&chat())).await;
        assert_eq!(response.head.first_line, "HTTP/1.1 401 Because");
    });
}

#[test]
fn a_converted_error_has_no_managed_key() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        managed.openai.endpoint_at("/v1/chat/completions", |call| {
            whole(401, &[("Content-Type", "application/json")], error(&sent(call)).as_bytes())
        });
        let body =
            json!({"model": "gpt-4o", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]});
        let call = Request::new("POST", "/v1/messages").json(&body);
        let answered = managed.send(&merchant.secret_key, call).await.expect(401);
        let message = answered["error"]["message"].as_str().unwrap();
        assert!(message.contains(MASK) && !message.contains(KEY), "{message}");
    });
}

#[test]
fn an_error_that_breaks_off_within_the_key_shows_no_part_of_it() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", |call| {
            let key = sent(call);
            let first = format!("no: {}", &key[..key.len() - 1]);
            vec![head(401, &[("Transfer-Encoding", "chunked")]), chunk(first), Step::Close]
        });
        let request = forward("POST", &endpoint.url).json(&chat()).bearer(&merchant.secret_key);
        let response = request.send(managed.address()).await;
        let text = response.as_ref().map(Response::text).unwrap_or_default();
        assert!(!text.contains(&KEY[..5]), "{text}");
    });
}

#[test]
fn an_answer_that_is_no_error_and_an_error_about_the_callers_own_key_pass_as_they_are() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = repeating(&managed, 401, None);
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-of-the-caller"}));
        let response = managed.send(&own, forward("POST", &endpoint.url).json(&chat())).await;
        assert_eq!(response.text(), error("sk-of-the-caller"));
        let body = json!({"note": KEY, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).to_string();
        let sent = body.clone();
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |_| {
            whole(200, &[("Content-Type", "application/json")], sent.as_bytes())
        });
        let response = managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&chat())).await;
        assert_eq!(response.text(), body);
    });
}

/// Charges follow the status (completion.md section 5): a success without usage costs its call's fee, whatever its body says.
#[test]
fn an_error_within_a_success_costs_the_fee_of_a_call_and_neither_its_hold_nor_a_providers_cost() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("0.25").await;
        let billing = merchant.billing(&customer, &meter);
        let whole_error = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            whole(200, &[("Content-Type", "application/json")], error("x").as_bytes())
        });
        let streamed_error = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            vec![event_stream(), chunk(format!("event: error\ndata: {}\n\n", error("x"))), last_chunk()]
        });
        for (endpoint, is_stream) in [(&whole_error, false), (&streamed_error, true)] {
            let mut body = chat();
            body["stream"] = json!(is_stream);
            let response = managed.send(&billing, forward("POST", &endpoint.url).json(&body)).await;
            assert_eq!(response.status, 200);
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["marks"], json!(["usage_missing"]));
            assert_eq!(metered["fee"]["amount"], "0.2500000000");
            assert_eq!(metered["model_cost"]["total"], "0.0000000000");
        }
        merchant.nothing_is_held().await;
    });
}
