//! OpenAI's images, speech and transcriptions, in small: one pixel, one frame of silence, and the canned text.

use bytes::Bytes;
use chrono::Utc;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::answer::{count_words, text_at};
use super::provider_error::Api;
use super::response::{Call, MockResponse, usage_of, with_usage, word_count, words};

/// A PNG of one transparent pixel, in base64.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// The tokens of the pixel.
const IMAGE_TOKENS: usize = 272;

/// The length that a transcription reports, in seconds.
const SECONDS: usize = 3;

/// The header of an MPEG frame.
const FRAME: [u8; 4] = [0xff, 0xfb, 0x90, 0xc4];

/// The length of that frame, in bytes.
const FRAME_BYTES: usize = 417;

/// The response to `POST /v1/images/generations`.
pub(super) fn image(call: &Call<'_>) -> MockResponse {
    let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
    let Some(prompt) = body.get("prompt") else {
        return Api::OpenAi.error(StatusCode::BAD_REQUEST, "the body must be a JSON object with a prompt");
    };
    let input = count_words(prompt);
    let usage = usage_of(call, || {
        let details = json!({"text_tokens": input, "image_tokens": 0});
        let usage = json!({
            "input_tokens": input, "output_tokens": IMAGE_TOKENS, "total_tokens": input + IMAGE_TOKENS,
            "input_tokens_details": details,
        });
        usage.to_string()
    });
    let object = json!({"created": Utc::now().timestamp(), "data": [{"b64_json": PIXEL}]});
    MockResponse::json(with_usage(&object, usage.as_deref()), usage)
}

/// The response to `POST /v1/audio/speech`, which reports no usage.
pub(super) fn speech(call: &Call<'_>) -> MockResponse {
    let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
    if text_at(&body, "/input").is_empty() {
        return Api::OpenAi.error(StatusCode::BAD_REQUEST, "the body must be a JSON object with an input");
    }
    let mut frame = FRAME.to_vec();
    frame.resize(FRAME_BYTES, 0);
    MockResponse::whole("audio/mpeg", Bytes::from(frame), None)
}

/// The response to `POST /v1/audio/transcriptions`.
pub(super) fn transcription(call: &Call<'_>) -> MockResponse {
    let content_type = call.head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !content_type.is_some_and(|kind| kind.starts_with("multipart/form-data")) {
        return Api::OpenAi.error(StatusCode::BAD_REQUEST, "the body must be a form with a file");
    }
    let usage = usage_of(call, || format!(r#"{{"type":"duration","seconds":{SECONDS}}}"#));
    let object = json!({"text": words(word_count(call)).collect::<String>()});
    MockResponse::json(with_usage(&object, usage.as_deref()), usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::post;

    #[test]
    fn an_image_reports_its_tokens_and_speech_reports_nothing() {
        let (text, _) = post("/v1/images/generations", r#"{"model":"m","prompt":"a cat"}"#);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&answer["data"][0]["b64_json"], &answer["usage"]["total_tokens"]),
            (&json!(PIXEL), &json!(274))
        );
        let body = r#"{"model":"m","voice":"v","input":"hello"}"#;
        let (head, ()) = http::Request::post("/v1/audio/speech").body(()).unwrap().into_parts();
        let controls = super::super::controls::Controls::new(None, &head.headers);
        let body = Bytes::from_static(body.as_bytes());
        let response = speech(&Call { head: &head, body: &body, controls: &controls, id: "1" });
        assert_eq!((response.content_type, response.pieces[0].len()), ("audio/mpeg", FRAME_BYTES));
        assert_eq!(response.usage, None);
    }

    #[test]
    fn a_transcription_needs_a_form() {
        let (text, response) = post("/v1/audio/transcriptions", "{}");
        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{text}");
        let request = http::Request::post("/v1/audio/transcriptions");
        let (head, ()) =
            request.header("content-type", "multipart/form-data; boundary=x").body(()).unwrap().into_parts();
        let controls = super::super::controls::Controls::new(None, &head.headers);
        let response =
            transcription(&Call { head: &head, body: &Bytes::new(), controls: &controls, id: "1" });
        assert_eq!(response.usage.as_deref(), Some(r#"{"type":"duration","seconds":3}"#));
    }
}
