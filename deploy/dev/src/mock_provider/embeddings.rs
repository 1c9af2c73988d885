//! Embeddings of OpenAI and Google. The vectors are canned: they say nothing about the input.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{count_words, list, model_of, text_at};
use super::provider_error::Api;
use super::response::{Call, MockResponse, usage_of, with_member, with_usage};

/// The numbers of a vector, repeated as often as needed.
const NUMBERS: [f32; 4] = [0.5, -0.5, 0.25, -0.25];

/// The length of a vector, unless the request sets one.
const DIMENSIONS: u64 = 8;

/// The greatest length of a vector.
const MAX_DIMENSIONS: u64 = 4_096;

/// The response to `POST /v1/embeddings`.
pub(super) fn openais(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some((body, input)) = body.and_then(|body| Some((body.clone(), body.get("input")?.clone()))) else {
        return Api::OpenAi.error(StatusCode::BAD_REQUEST, "the body must be a JSON object with an input");
    };
    let inputs = match input {
        // A list of numbers is one input, in tokens.
        Value::Array(items) if items.iter().any(|item| !item.is_number()) => items,
        one => vec![one],
    };
    let tokens: usize = inputs.iter().map(tokens).sum();
    let vector = vector(body.get("dimensions").and_then(Value::as_u64));
    let vector = match text_at(&body, "/encoding_format") {
        "base64" => {
            json!(STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>()))
        }
        _ => json!(vector),
    };
    let item = |index| json!({"object": "embedding", "index": index, "embedding": vector});
    let data: Vec<_> = (0..inputs.len()).map(item).collect();
    let usage = usage_of(call, || format!(r#"{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}"#));
    let object = json!({"object": "list", "data": data, "model": model_of(&body)});
    MockResponse::json(with_usage(&object, usage.as_deref()), usage)
}

/// The response to `POST …/models/{model}:embedContent`.
pub(super) fn googles(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("content").is_some()) else {
        return Api::Google.error(StatusCode::BAD_REQUEST, "the body must be a JSON object with a content");
    };
    let object = json!({"embedding": values(&body)});
    let tokens = count_words(&body["content"]);
    let usage = usage_of(call, || format!(r#"{{"promptTokenCount":{tokens},"totalTokenCount":{tokens}}}"#));
    MockResponse::json(with_member(&object, "usageMetadata", usage.as_deref()), usage)
}

/// The response to `POST …/models/{model}:batchEmbedContents`.
pub(super) fn googles_batch(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("requests").is_some_and(Value::is_array)) else {
        return Api::Google.error(StatusCode::BAD_REQUEST, "the body must be a JSON object with requests");
    };
    let requests = list(&body, "requests");
    let object = json!({"embeddings": requests.iter().map(values).collect::<Vec<_>>()});
    let tokens: usize = requests.iter().map(count_words).sum();
    let usage = usage_of(call, || format!(r#"{{"promptTokenCount":{tokens},"totalTokenCount":{tokens}}}"#));
    MockResponse::json(with_member(&object, "usageMetadata", usage.as_deref()), usage)
}

fn values(request: &Value) -> Value {
    let length = request.get("outputDimensionality").or_else(|| request.get("output_dimensionality"));
    json!({"values": vector(length.and_then(Value::as_u64))})
}

/// A vector of this length, or of the usual one.
pub(super) fn vector(length: Option<u64>) -> Vec<f32> {
    let length = usize::try_from(length.unwrap_or(DIMENSIONS).min(MAX_DIMENSIONS)).unwrap_or_default();
    NUMBERS.into_iter().cycle().take(length).collect()
}

/// The tokens of an input: the words of a text, or the numbers of a list.
fn tokens(input: &Value) -> usize {
    match input {
        Value::Array(numbers) => numbers.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            count_words(input)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::post;

    #[test]
    fn every_input_has_a_vector_in_the_encoding_that_was_asked_for() {
        let (text, _) = post("/v1/embeddings", r#"{"model":"m","input":["one two","three"],"dimensions":4}"#);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["data"][1]["embedding"], json!([0.5, -0.5, 0.25, -0.25]));
        assert_eq!(answer["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
        let (text, _) =
            post("/v1/embeddings", r#"{"input":[1,2],"dimensions":1,"encoding_format":"base64"}"#);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&answer["data"][0]["embedding"], &answer["usage"]["total_tokens"]),
            (&json!("AAAAPw=="), &json!(2))
        );
    }

    #[test]
    fn googles_vectors_are_single_or_in_a_batch() {
        let content = json!({"parts": [{"text": "one two"}]});
        let (text, _) = post("/v1beta/models/m:embedContent", &json!({"content": content}).to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["embedding"]["values"].as_array().map(Vec::len), Some(8));
        let body =
            json!({"requests": [{"content": content, "outputDimensionality": 2}, {"content": content}]});
        let (text, _) = post("/v1beta/models/m:batchEmbedContents", &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["embeddings"][0]["values"], json!([0.5, -0.5]));
        assert_eq!(answer["usageMetadata"]["promptTokenCount"], 4);
    }
}
