//! OpenAI's images, speech and transcriptions, in small: one pixel, one frame of silence, and the canned text. Speech and
//! transcriptions also come as server-sent events, which report their tokens in the last one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::Utc;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::answer::{count_words, text_at};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_usage, word_count, words};

/// A PNG of one transparent pixel, in base64.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// The tokens of the pixel.
const IMAGE_TOKENS: usize = 272;

/// The length that a transcription reports, in seconds.
const SECONDS: usize = 3;

/// The tokens of a second of sound.
const TOKENS_OF_SECOND: usize = 10;

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

/// The response to `POST /v1/audio/speech`, which reports its usage only as a stream of events (`stream_format`).
pub(super) fn speech(call: &Call<'_>) -> MockResponse {
    let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
    if text_at(&body, "/input").is_empty() {
        return Api::OpenAi.error(StatusCode::BAD_REQUEST, "the body must be a JSON object with an input");
    }
    let mut frame = FRAME.to_vec();
    frame.resize(FRAME_BYTES, 0);
    if text_at(&body, "/stream_format") == "sse" {
        let usage = usage_of(call, || {
            let (input, output) = (count_words(&body["input"]), SECONDS * TOKENS_OF_SECOND);
            let usage =
                json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
            usage.to_string()
        });
        let mut stream = Stream::default();
        for half in frame.chunks(FRAME_BYTES.div_ceil(2)) {
            stream.data(&json!({"type": "speech.audio.delta", "audio": STANDARD.encode(half)}).to_string());
        }
        stream.data(&with_usage(&json!({"type": "speech.audio.done"}), usage.as_deref()));
        stream.reports(usage.as_deref());
        return stream.events();
    }
    MockResponse::whole("audio/mpeg", Bytes::from(frame), None)
}

/// The response to `POST /v1/audio/transcriptions`.
pub(super) fn transcription(call: &Call<'_>) -> MockResponse {
    let content_type = call.head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !content_type.is_some_and(|kind| kind.starts_with("multipart/form-data")) {
        return Api::OpenAi.error(StatusCode::BAD_REQUEST, "the body must be a form with a file");
    }
    if has_field(call.body, "stream", "true") {
        return streamed_transcription(call);
    }
    let usage = usage_of(call, || format!(r#"{{"type":"duration","seconds":{SECONDS}}}"#));
    let object = json!({"text": words(word_count(call)).collect::<String>()});
    MockResponse::json(with_usage(&object, usage.as_deref()), usage)
}

/// The transcription as events, by a model that is billed by tokens.
fn streamed_transcription(call: &Call<'_>) -> MockResponse {
    let count = word_count(call);
    let usage = usage_of(call, || {
        let input = SECONDS * TOKENS_OF_SECOND;
        let details = json!({"text_tokens": 0, "audio_tokens": input});
        let usage = json!({
            "type": "tokens", "input_tokens": input, "input_token_details": details, "output_tokens": count,
            "total_tokens": input + count,
        });
        usage.to_string()
    });
    let mut stream = Stream::default();
    for word in words(count) {
        stream.data(&json!({"type": "transcript.text.delta", "delta": word}).to_string());
    }
    let done = json!({"type": "transcript.text.done", "text": words(count).collect::<String>()});
    stream.data(&with_usage(&done, usage.as_deref()));
    stream.reports(usage.as_deref());
    stream.events()
}

/// Whether a form has a field with this value, as client libraries write it.
fn has_field(form: &[u8], name: &str, value: &str) -> bool {
    let form = String::from_utf8_lossy(form);
    let name = format!("name=\"{name}\"");
    let mut fields = form.split(&name).skip(1);
    fields.any(|field| field.split_once("\r\n\r\n").is_some_and(|(_, rest)| rest.starts_with(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::{events, post};

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
    fn speech_as_events_reports_its_tokens_in_the_last_one() {
        let body = r#"{"model":"m","voice":"v","input":"hello there","stream_format":"sse"}"#;
        let (text, response) = post("/v1/audio/speech", body);
        let events = events(&text);
        let sound: Vec<u8> = events
            .iter()
            .filter_map(|event| event["audio"].as_str())
            .flat_map(|audio| STANDARD.decode(audio).unwrap())
            .collect();
        assert_eq!((sound.len(), &sound[..4]), (FRAME_BYTES, &FRAME[..]));
        let done = events.last().unwrap();
        assert_eq!(
            (&done["type"], &done["usage"]["input_tokens"], &done["usage"]["output_tokens"]),
            (&json!("speech.audio.done"), &json!(2), &json!(30))
        );
        assert!(response.usage.is_some());
    }

    #[test]
    fn a_transcription_as_events_reports_its_tokens_in_the_last_one() {
        let form = "--x\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--x--\r\n";
        let request = http::Request::post("/v1/audio/transcriptions");
        let request = request.header("content-type", "multipart/form-data; boundary=x");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let controls = super::super::controls::Controls::new(None, &head.headers);
        let body = Bytes::from_static(form.as_bytes());
        let response = transcription(&Call { head: &head, body: &body, controls: &controls, id: "1" });
        let text = String::from_utf8(response.pieces.concat()).unwrap();
        let events = events(&text);
        let said: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        let done = events.last().unwrap();
        assert_eq!((&done["type"], &done["text"]), (&json!("transcript.text.done"), &json!(said)));
        assert_eq!(done["usage"]["output_tokens"], 10, "{text}");
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
