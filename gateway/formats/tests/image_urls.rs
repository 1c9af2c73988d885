//! A conversion takes images at public URLs alone: a provider reads others with the rights of the key it is called on.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

use farthing_formats::{Conversion, Format, RequestError, RequestFacts};
use serde_json::{Value, json};

const FORMATS: [Format; 4] = [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic, Format::Google];

/// Requests of a format with an image at this URL, each with the path of the URL. Results of tools can have images, too.
fn requests(client: Format, url: &str) -> Vec<(Value, &'static str)> {
    match client {
        Format::OpenaiChat => {
            let content = json!([{"type": "image_url", "image_url": {"url": url}}]);
            let messages = json!([{"role": "user", "content": content}]);
            vec![(json!({"model": "m", "messages": messages}), "messages[0].content[0].image_url.url")]
        }
        Format::OpenaiResponses => {
            let content = json!([{"type": "input_image", "image_url": url}]);
            let call = json!({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"});
            let result = json!({"type": "function_call_output", "call_id": "c", "output": content});
            let message = json!({"role": "user", "content": content});
            vec![
                (json!({"model": "m", "input": [message]}), "input[0].content[0].image_url"),
                (json!({"model": "m", "input": [call, result]}), "input[1].output[0].image_url"),
            ]
        }
        Format::Anthropic => {
            let content = json!([{"type": "image", "source": {"type": "url", "url": url}}]);
            let call = json!([{"type": "tool_use", "id": "c", "name": "n", "input": {}}]);
            let result = json!([{"type": "tool_result", "tool_use_id": "c", "content": content}]);
            let request = |messages: Value| json!({"model": "m", "max_tokens": 9, "messages": messages});
            vec![
                (request(json!([{"role": "user", "content": content}])), "messages[0].content[0].source.url"),
                (
                    request(json!([
                        {"role": "assistant", "content": call}, {"role": "user", "content": result},
                    ])),
                    "messages[1].content[0].content[0].source.url",
                ),
            ]
        }
        Format::Google => {
            let parts = json!([{"file_data": {"file_uri": url}}]);
            vec![(json!({"contents": [{"parts": parts}]}), "contents[0].parts[0].fileData.fileUri")]
        }
    }
}

fn converted(client: Format, provider: Format, request: &Value) -> Result<String, RequestError> {
    let facts = RequestFacts { model: Some("m"), max_output_tokens: Some(9), ..RequestFacts::default() };
    let conversion = Conversion::between(client, provider).unwrap();
    let converted = conversion.request(request.to_string().as_bytes(), &facts)?;
    Ok(String::from_utf8(converted.body).unwrap())
}

/// Calls `check` for each pair of formats.
fn each_pair(mut check: impl FnMut(Format, Format)) {
    for client in FORMATS {
        FORMATS
            .into_iter()
            .filter(|provider| *provider != client)
            .for_each(|provider| check(client, provider));
    }
}

#[test]
fn an_image_at_a_url_that_is_not_public_is_refused_by_the_path_of_the_url() {
    for url in [
        "gs://bucket/a.png",
        "file:///etc/passwd",
        "file-1",
        "https://generativelanguage.googleapis.com/v1beta/files/1",
        "https://GenerativeLanguage.googleapis.com./v1beta/files/1",
        "https://x@generativelanguage.googleapis.com/v1beta/files/1",
        "https://storage.cloud.google.com/bucket/a.png",
        "https://api.openai.com/v1/files/file-1/content",
    ] {
        each_pair(|client, provider| {
            for (request, path) in requests(client, url) {
                match converted(client, provider, &request) {
                    Err(RequestError::Unsupported { field, .. }) => assert_eq!(field, path, "{url}"),
                    other => panic!("{client:?} to {provider:?}, {request}: {other:?}"),
                }
            }
        });
    }
}

#[test]
fn an_image_at_a_public_url_or_in_a_data_url_is_converted() {
    for url in ["https://example.com/a.png", "http://192.0.2.1:8080/a.png", "data:image/png;base64,AA=="] {
        each_pair(|client, provider| {
            // Google has bytes elsewhere.
            if client != Format::Google || !url.starts_with("data:") {
                let (request, _) = requests(client, url).remove(0);
                let body = converted(client, provider, &request).unwrap();
                assert!(
                    body.contains(url) || body.contains("\"AA==\""),
                    "{client:?} to {provider:?}: {body}"
                );
            }
        });
    }
}
