//! The mock's endpoints.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::generate_content::Delivery;
use super::provider_error::{self, Api};
use super::response::{Call, MockResponse, Stream, usage_of, with_usage, word_count, words};
use super::{
    chat_completions, cohere, converse, embeddings, generate_content, media, messages, responses,
    text_completions,
};

/// The largest padding of `/usage`.
const MAX_PADDING_BYTES: usize = 64 << 20;

/// The standard usage object (interface.md, item 7), unless the control `usage` replaces it.
const STANDARD_USAGE: &str = r#"{"input_tokens":10,"output_tokens":5}"#;

/// The response to `call`.
pub(super) fn respond(call: &Call<'_>) -> MockResponse {
    let path = call.head.uri.path();
    match path {
        "/echo" => return echo(call),
        "/usage" => return usage(call),
        _ => {}
    }
    if let Some(error) = provider_error::asked_for(call) {
        return error;
    }
    match (&call.head.method, &*without_deployment(path)) {
        (&Method::POST, "/v1/chat/completions") => chat_completions::respond(call),
        (&Method::POST, "/v1/completions") => text_completions::respond(call),
        (&Method::POST, "/v1/responses") => responses::respond(call),
        (&Method::POST, "/v1/messages") => messages::respond(call),
        (&Method::POST, "/v1/embeddings") => embeddings::openais(call),
        (&Method::POST, "/v1/images/generations") => media::image(call),
        (&Method::POST, "/v1/audio/speech") => media::speech(call),
        (&Method::POST, "/v1/audio/transcriptions") => media::transcription(call),
        (&Method::POST, "/v2/chat") => cohere::chat(call),
        (&Method::POST, "/v2/embed") => cohere::embed(call),
        (&Method::GET, "/v1/models" | "/v1beta/models") => models(Api::of(call)),
        (&Method::POST, path) if path.starts_with("/model/") => match bedrocks(path) {
            Some((model, "converse")) => converse::respond(call, model, converse::Delivery::Whole),
            Some((model, "converse-stream")) => converse::respond(call, model, converse::Delivery::Streamed),
            _ => not_found(call),
        },
        (&Method::POST, path) => match model_and_method(path) {
            Some((model, "generateContent")) => generate_content::respond(call, model, Delivery::Whole),
            Some((model, "streamGenerateContent")) => {
                generate_content::respond(call, model, Delivery::Streamed)
            }
            Some((_, "embedContent")) => embeddings::googles(call),
            Some((_, "batchEmbedContents")) => embeddings::googles_batch(call),
            _ => not_found(call),
        },
        _ => not_found(call),
    }
}

/// A path of Azure's, `/openai/deployments/{name}/…` or `/openai/v1/…`, as OpenAI has it. Others stay.
fn without_deployment(path: &str) -> Cow<'_, str> {
    let Some(of_azure) = path.strip_prefix("/openai") else { return Cow::Borrowed(path) };
    let deployment = of_azure.strip_prefix("/deployments/").and_then(|rest| rest.split_once('/'));
    match deployment {
        Some((_, rest)) => Cow::Owned(format!("/v1/{rest}")),
        None if of_azure.starts_with("/v1/") => Cow::Borrowed(of_azure),
        None => Cow::Borrowed(path),
    }
}

/// The parts of a path of Google's: `/v1beta/models/{model}:{method}`.
fn model_and_method(path: &str) -> Option<(&str, &str)> {
    let (version, last) = path.strip_prefix('/')?.split_once("/models/")?;
    if !matches!(version, "v1" | "v1beta" | "v1alpha") {
        return None;
    }
    last.rsplit_once(':')
}

/// The parts of a path of Bedrock's: `/model/{model}/{operation}`.
fn bedrocks(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/model/")?.split_once('/')
}

fn not_found(call: &Call<'_>) -> MockResponse {
    Api::of(call).error(StatusCode::NOT_FOUND, "the mock provider has no such endpoint")
}

fn usage(call: &Call<'_>) -> MockResponse {
    let usage = usage_of(call, || STANDARD_USAGE.to_owned());
    if call.controls.is_on("stream") {
        let mut stream = Stream::default();
        for word in words(word_count(call)) {
            stream.data(&json!({"delta": word}).to_string());
        }
        stream.data(&with_usage(&json!({"id": format!("mock-{}", call.id)}), usage.as_deref()));
        stream.reports(usage.as_deref());
        stream.data("[DONE]");
        return stream.events();
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

fn models(api: Api) -> MockResponse {
    let ids = ["mock-1", "mock-2"];
    let list = match api {
        // The lists of the last two are elsewhere.
        Api::OpenAi | Api::Cohere | Api::Bedrock => {
            let model =
                |id| json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "mock"});
            json!({"object": "list", "data": ids.map(model)})
        }
        Api::Anthropic => {
            let created = "2023-11-14T22:13:20Z";
            let model = |id| json!({"type": "model", "id": id, "display_name": id, "created_at": created});
            json!({"data": ids.map(model), "has_more": false, "first_id": ids[0], "last_id": ids[1]})
        }
        Api::Google => {
            let methods = ["generateContent", "streamGenerateContent", "embedContent"];
            let model = |id| {
                let name = format!("models/{id}");
                json!({"name": name, "displayName": id, "supportedGenerationMethods": methods})
            };
            json!({"models": ids.map(model)})
        }
    };
    MockResponse::json(list.to_string(), None)
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::mock_provider::controls::Controls;

    /// The body of the response to a POST, and the response itself.
    pub(in crate::mock_provider) fn post(target: &str, body: &str) -> (String, MockResponse) {
        let (bytes, response) = post_bytes(target, body);
        (String::from_utf8(bytes).unwrap(), response)
    }

    pub(in crate::mock_provider) fn post_bytes(target: &str, body: &str) -> (Vec<u8>, MockResponse) {
        let (head, ()) = http::Request::post(target).body(()).unwrap().into_parts();
        let body = Bytes::copy_from_slice(body.as_bytes());
        let controls = Controls::new(head.uri.query(), &head.headers).with_text(&body);
        let response = respond(&Call { head: &head, body: &body, controls: &controls, id: "1" });
        (response.pieces.concat(), response)
    }

    /// The data of the server-sent events in `text`, apart from the closing `[DONE]`.
    pub(in crate::mock_provider) fn events(text: &str) -> Vec<Value> {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    #[test]
    fn an_unknown_path_is_not_found_in_the_shape_of_its_provider() {
        for (path, name) in [("/v1/nothing", "type"), ("/v1beta/models/m:count", "status")] {
            let (text, response) = post(path, "{}");
            let json: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(response.status, StatusCode::NOT_FOUND);
            assert!(json["error"][name].is_string(), "{path}: {text}");
        }
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
    fn an_azure_path_is_that_of_openai() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;
        for path in
            ["/openai/deployments/d/chat/completions?api-version=2024-10-21", "/openai/v1/chat/completions"]
        {
            let (text, response) = post(path, body);
            assert_eq!(response.status, StatusCode::OK, "{path}: {text}");
        }
        for path in ["/openai/chat/completions", "/openai/deployments/d", "/openaiv1/chat/completions"] {
            assert_eq!(post(path, body).1.status, StatusCode::NOT_FOUND, "{path}");
        }
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
