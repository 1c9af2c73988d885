//! The mock's endpoints.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::chat;
use super::response::{Call, MockResponse, usage_of, with_usage, word_count, words};

/// The largest padding of `/usage`.
const MAX_PADDING_BYTES: usize = 64 << 20;

/// The standard usage object (interface.md, item 7), unless the control `usage` replaces it.
const STANDARD_USAGE: &str = r#"{"input_tokens":10,"output_tokens":5}"#;

/// The response to `call`.
pub(super) fn respond(call: &Call<'_>) -> MockResponse {
    match (&call.head.method, call.head.uri.path()) {
        (&Method::POST, "/v1/chat/completions") => chat::completion(call),
        (&Method::POST, "/v1/messages") => chat::message(call),
        (&Method::GET, "/v1/models") => models(),
        (_, "/echo") => echo(call),
        (_, "/usage") => usage(call),
        _ => MockResponse::error(StatusCode::NOT_FOUND, "the mock provider has no such endpoint"),
    }
}

fn usage(call: &Call<'_>) -> MockResponse {
    let usage = usage_of(call, || STANDARD_USAGE.to_owned());
    if call.controls.is_on("stream") {
        let count = word_count(call);
        let mut events: Vec<_> =
            words(count).map(|word| format!("data: {}\n\n", json!({"delta": word}))).collect();
        events.push(format!(
            "data: {}\n\n",
            with_usage(&json!({"id": format!("mock-{}", call.id)}), usage.as_deref())
        ));
        events.push("data: [DONE]\n\n".to_owned());
        return MockResponse::events(events, usage);
    }
    let mut object = json!({"id": format!("mock-{}", call.id), "object": "mock.answer", "model": "mock-1"});
    if let Some(bytes) = call.controls.number("bytes") {
        object["padding"] = Value::String("x".repeat(bytes.min(MAX_PADDING_BYTES)));
    }
    MockResponse::json(with_usage(&object, usage.as_deref()), usage)
}

fn echo(call: &Call<'_>) -> MockResponse {
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())])
    };
    let headers: Vec<_> = call.head.headers.iter().map(pair).collect();
    let object = json!({
        "id": format!("mock-{}", call.id),
        "object": "mock.echo",
        "method": call.head.method.as_str(),
        "path": call.head.uri.path(),
        "query": call.head.uri.query(),
        "headers": headers,
        "body": std::str::from_utf8(call.body).ok(),
        "body_base64": STANDARD.encode(call.body),
        "body_bytes": call.body.len(),
    });
    let usage = usage_of(call, || STANDARD_USAGE.to_owned());
    MockResponse::json(with_usage(&object, usage.as_deref()), usage)
}

fn models() -> MockResponse {
    let model = |id: &str| json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "mock"});
    let list = json!({"object": "list", "data": [model("mock-1"), model("mock-2")]});
    MockResponse::json(list.to_string(), None)
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::mock_provider::controls::Controls;

    /// The body of the response to a POST, and the response itself.
    pub(in crate::mock_provider) fn post(target: &str, body: &str) -> (String, MockResponse) {
        let (head, ()) = http::Request::post(target).body(()).unwrap().into_parts();
        let controls = Controls::new(head.uri.query(), &head.headers);
        let body = Bytes::copy_from_slice(body.as_bytes());
        let response = respond(&Call { head: &head, body: &body, controls: &controls, id: "1" });
        (String::from_utf8(response.pieces.concat()).unwrap(), response)
    }

    #[test]
    fn the_usage_control_is_reported_verbatim_even_if_it_is_not_json() {
        let (text, _) = post("/usage?usage=NaN", "");
        assert!(text.ends_with(r#","usage":NaN}"#), "{text}");
        let (text, _) = post("/usage?usage=none", "");
        assert!(!text.contains("\"usage\":"), "{text}");
        let (text, _) = post("/v1/messages?usage=%7B%22input_tokens%22%3A-1%7D", r#"{"messages":[]}"#);
        assert!(text.ends_with(r#","usage":{"input_tokens":-1}}"#), "{text}");
    }

    #[test]
    fn an_echo_describes_the_request() {
        let (text, _) = post("/echo?b=2&a=1", "body");
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&json["method"], &json["query"], &json["body"]),
            (&json!("POST"), &json!("b=2&a=1"), &json!("body"))
        );
    }
}
