//! What the mock says: canned texts in the shapes of well-known providers, with token counts that are word counts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::Utc;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::controls::Controls;

/// Said again and again, to the number of words wanted.
const TEXT: [&str; 10] =
    ["This", "is", "the", "mock", "provider", "speaking;", "no", "model", "has", "answered."];

/// The most words of an answer.
const MAX_WORDS: usize = 100_000;

/// The most padding of `/usage`.
const MAX_PADDING_BYTES: usize = 64 << 20;

/// The standard usage object (interface.md, item 7) where the caller names none.
const STANDARD_USAGE: &str = r#"{"input_tokens":10,"output_tokens":5}"#;

/// A call as the answer needs it.
pub(super) struct Call<'a> {
    /// Method, target, headers.
    pub(super) head: &'a Parts,
    /// The whole body.
    pub(super) body: &'a Bytes,
    /// What the caller asks of the mock.
    pub(super) controls: &'a Controls<'a>,
    /// The call's id in the journal.
    pub(super) id: &'a str,
}

/// An answer, before the controls bend its delivery.
pub(super) struct Answer {
    /// The status.
    pub(super) status: StatusCode,
    /// The body's type.
    pub(super) content_type: &'static str,
    /// The body: one piece, or one per event of a stream.
    pub(super) pieces: Vec<Bytes>,
    /// The usage in it, as it stands there.
    pub(super) usage: Option<String>,
}

/// The answer to `call`.
pub(super) fn answer(call: &Call<'_>) -> Answer {
    match (&call.head.method, call.head.uri.path()) {
        (&Method::POST, "/v1/chat/completions") => chat_completion(call),
        (&Method::POST, "/v1/messages") => message(call),
        (&Method::GET, "/v1/models") => models(),
        (_, "/echo") => echo(call),
        (_, "/usage") => usage(call),
        _ => Answer::error(StatusCode::NOT_FOUND, "the mock provider has no such endpoint"),
    }
}

impl Answer {
    /// An error in OpenAI's shape.
    pub(super) fn error(status: StatusCode, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": "mock_error", "code": status.as_u16()}});
        Self { status, ..Self::json(body.to_string(), None) }
    }

    fn json(body: String, usage: Option<String>) -> Self {
        let pieces = vec![Bytes::from(body)];
        Self { status: StatusCode::OK, content_type: "application/json", pieces, usage }
    }

    fn events(events: Vec<String>, usage: Option<String>) -> Self {
        let pieces = events.into_iter().map(Bytes::from).collect();
        Self { status: StatusCode::OK, content_type: "text/event-stream", pieces, usage }
    }
}

/// The usage to report: as the caller wants it, verbatim, or else `counted`; none when it wants none.
fn usage_of(call: &Call<'_>, counted: impl FnOnce() -> String) -> Option<String> {
    match call.controls.text("usage") {
        Some(wanted) if wanted == "none" => None,
        Some(wanted) => Some(wanted),
        None => Some(counted()),
    }
}

/// The JSON object with one more member, `usage`, whose text need not be valid JSON.
fn with_usage(object: &Value, usage: Option<&str>) -> String {
    let mut text = object.to_string();
    if let Some(usage) = usage {
        text.pop();
        text.push_str(",\"usage\":");
        text.push_str(usage);
        text.push('}');
    }
    text
}

fn usage(call: &Call<'_>) -> Answer {
    let usage = usage_of(call, || STANDARD_USAGE.to_owned());
    if call.controls.is_on("stream") {
        let count = call.controls.number("words").unwrap_or(TEXT.len()).min(MAX_WORDS);
        let mut events: Vec<_> =
            redacted(count).map(|word| format!("data: {}\n\n", json!({"delta": word}))).collect();
        events.push(format!(
            "data: {}\n\n",
            with_usage(&json!({"id": format!("mock-{}", call.id)}), usage.as_deref())
        ));
        events.push("data: [DONE]\n\n".to_owned());
        return Answer::events(events, usage);
    }
    let mut object = json!({"id": format!("mock-{}", call.id), "object": "mock.answer", "model": "mock-1"});
    if let Some(bytes) = call.controls.number("bytes") {
        object["padding"] = Value::String("x".repeat(bytes.min(MAX_PADDING_BYTES)));
    }
    Answer::json(with_usage(&object, usage.as_deref()), usage)
}

fn echo(call: &Call<'_>) -> Answer {
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
    Answer::json(with_usage(&object, usage.as_deref()), usage)
}

fn models() -> Answer {
    let model = |id: &str| json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "mock"});
    let list = json!({"object": "list", "data": [model("mock-1"), model("mock-2")]});
    Answer::json(list.to_string(), None)
}

fn redacted(count: usize) -> impl Iterator<Item = String> {
    let cycle = TEXT.iter().cycle().take(count).enumerate();
    cycle.map(|(at, word)| if at == 0 { (*word).to_owned() } else { format!(" {word}") })
}

/// What a conversation asks for, in either shape.
struct Conversation {
    model: String,
    stream: bool,
    include_usage: bool,
    input_words: usize,
    output_words: usize,
    cut_short: bool,
}

impl Conversation {
    fn read(call: &Call<'_>) -> Option<Self> {
        let body: Value = serde_json::from_slice(call.body).ok()?;
        let messages = body.get("messages")?.as_array()?;
        let texts = messages.iter().filter_map(|message| message.get("content")).chain(body.get("system"));
        let limit = ["max_completion_tokens", "max_tokens"].iter().find_map(|name| body.get(name)?.as_u64());
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_WORDS);
        let wanted = call.controls.number("words").unwrap_or(TEXT.len()).min(MAX_WORDS);
        Some(Self {
            model: body.get("model").and_then(Value::as_str).unwrap_or("mock-1").to_owned(),
            stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
            include_usage: body
                .pointer("/stream_options/include_usage")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            input_words: texts.map(count_words).sum(),
            output_words: wanted.min(limit),
            cut_short: limit < wanted,
        })
    }

    fn text(&self) -> String {
        redacted(self.output_words).collect()
    }
}

fn count_words(content: &Value) -> usize {
    match content {
        Value::String(text) => text.split_whitespace().count(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")).map(count_words).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => 0,
    }
}

fn not_a_conversation() -> Answer {
    Answer::error(StatusCode::BAD_REQUEST, "the body must be a JSON object with a list of messages")
}

fn chat_completion(call: &Call<'_>) -> Answer {
    let Some(asked) = Conversation::read(call) else { return not_a_conversation() };
    let (prompt, completion) = (asked.input_words, asked.output_words);
    let usage = usage_of(call, || {
        let total = prompt + completion;
        format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}}}"#)
    });
    let id = format!("chatcmpl-mock-{}", call.id);
    let created = Utc::now().timestamp();
    let reason = if asked.cut_short { "length" } else { "stop" };
    if !asked.stream {
        let message = json!({"role": "assistant", "content": asked.text()});
        let choices = json!([{"index": 0, "message": message, "finish_reason": reason}]);
        let object = json!({"id": id, "object": "chat.completion", "created": created, "model": asked.model, "choices": choices});
        return Answer::json(with_usage(&object, usage.as_deref()), usage);
    }
    let chunk = |choices: Value| json!({"id": id, "object": "chat.completion.chunk", "created": created, "model": asked.model, "choices": choices});
    let step = |delta: Value, reason: Option<&str>| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
        format!("data: {}\n\n", chunk(choices))
    };
    let mut events = vec![step(json!({"role": "assistant", "content": ""}), None)];
    events.extend(redacted(completion).map(|word| step(json!({"content": word}), None)));
    events.push(step(json!({}), Some(reason)));
    let usage = usage.filter(|_| asked.include_usage);
    if usage.is_some() {
        events.push(format!("data: {}\n\n", with_usage(&chunk(json!([])), usage.as_deref())));
    }
    events.push("data: [DONE]\n\n".to_owned());
    Answer::events(events, usage)
}

fn message(call: &Call<'_>) -> Answer {
    let Some(asked) = Conversation::read(call) else { return not_a_conversation() };
    let (input, output) = (asked.input_words, asked.output_words);
    let counted = |output: usize| format!(r#"{{"input_tokens":{input},"output_tokens":{output}}}"#);
    let usage = usage_of(call, || counted(output));
    let id = format!("msg_mock_{}", call.id);
    let reason = if asked.cut_short { "max_tokens" } else { "end_turn" };
    if !asked.stream {
        let content = json!([{"type": "text", "text": asked.text()}]);
        let object = json!({
            "id": id, "type": "message", "role": "assistant", "model": asked.model, "content": content,
            "stop_reason": reason, "stop_sequence": null,
        });
        return Answer::json(with_usage(&object, usage.as_deref()), usage);
    }
    let event = |name: &str, data: &str| format!("event: {name}\ndata: {data}\n\n");
    let begun = json!({
        "id": id, "type": "message", "role": "assistant", "model": asked.model, "content": [],
        "stop_reason": null, "stop_sequence": null,
    });
    let at_first = usage_of(call, || counted(1));
    let begun = with_usage(&begun, at_first.as_deref());
    let mut events = vec![
        event("message_start", &format!(r#"{{"type":"message_start","message":{begun}}}"#)),
        event(
            "content_block_start",
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}).to_string(),
        ),
    ];
    events.extend(redacted(output).map(|word| {
        let delta = json!({"type": "text_delta", "text": word});
        event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": 0, "delta": delta}).to_string(),
        )
    }));
    events.push(event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#));
    let ending = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}});
    events.push(event("message_delta", &with_usage(&ending, usage.as_deref())));
    events.push(event("message_stop", r#"{"type":"message_stop"}"#));
    Answer::events(events, usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str, body: &str) -> (String, Answer) {
        let (head, ()) = http::Request::post(target).body(()).unwrap().into_parts();
        let controls = Controls::new(head.uri.query(), &head.headers);
        let body = Bytes::copy_from_slice(body.as_bytes());
        let answer = answer(&Call { head: &head, body: &body, controls: &controls, id: "1" });
        (String::from_utf8(answer.pieces.concat()).unwrap(), answer)
    }

    #[test]
    fn a_completion_counts_words_and_keeps_to_the_limit() {
        let (text, _) = ask(
            "/v1/chat/completions",
            r#"{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"one two"}]}"#,
        );
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["usage"], json!({"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}));
        assert_eq!(json["choices"][0]["message"]["content"], "This is the");
        assert_eq!(json["choices"][0]["finish_reason"], "length");
    }

    #[test]
    fn a_stream_tells_its_usage_only_when_asked() {
        let body = r#"{"stream":true,"messages":[]}"#;
        let (text, answer) = ask("/v1/chat/completions", body);
        assert!(!text.contains("usage") && answer.usage.is_none());
        assert!(text.ends_with("data: [DONE]\n\n"));
        let body = r#"{"stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
        let (text, answer) = ask("/v1/chat/completions", body);
        assert!(text.contains(r#""usage":{"prompt_tokens":0,"#) && answer.usage.is_some());
    }

    #[test]
    fn usage_is_passed_on_verbatim_even_if_it_is_no_json() {
        let (text, _) = ask("/usage?usage=NaN", "");
        assert!(text.ends_with(r#","usage":NaN}"#), "{text}");
        let (text, _) = ask("/usage?usage=none", "");
        assert!(!text.contains("\"usage\":"), "{text}");
        let (text, _) = ask("/v1/messages?usage=%7B%22input_tokens%22%3A-1%7D", r#"{"messages":[]}"#);
        assert!(text.ends_with(r#","usage":{"input_tokens":-1}}"#), "{text}");
    }

    #[test]
    fn a_streamed_message_reports_usage_at_both_ends() {
        let body = r#"{"stream":true,"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#;
        let (text, _) = ask("/v1/messages", body);
        assert!(text.starts_with("event: message_start\n"));
        assert!(text.contains(r#""usage":{"input_tokens":3,"output_tokens":1}"#));
        assert!(text.contains(r#""usage":{"input_tokens":3,"output_tokens":10}"#));
    }

    #[test]
    fn an_echo_says_what_arrived() {
        let (text, _) = ask("/echo?b=2&a=1", "body");
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&json["method"], &json["query"], &json["body"]),
            (&json!("POST"), &json!("b=2&a=1"), &json!("body"))
        );
    }
}
