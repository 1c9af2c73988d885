//! The chat endpoints: OpenAI's chat completions and Anthropic's messages.

use chrono::Utc;
use http::StatusCode;
use serde_json::{Value, json};

use super::response::{Call, MAX_WORDS, MockResponse, usage_of, with_usage, word_count, words};

/// The parts of a request that shape its response, in either API.
struct Conversation {
    model: String,
    stream: bool,
    include_usage: bool,
    input_words: usize,
    output_words: usize,
    truncated: bool,
}

impl Conversation {
    fn read(call: &Call<'_>) -> Option<Self> {
        let body: Value = serde_json::from_slice(call.body).ok()?;
        let messages = body.get("messages")?.as_array()?;
        let texts = messages.iter().filter_map(|message| message.get("content")).chain(body.get("system"));
        let limit = ["max_completion_tokens", "max_tokens"].iter().find_map(|name| body.get(name)?.as_u64());
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_WORDS);
        let wanted = word_count(call);
        Some(Self {
            model: body.get("model").and_then(Value::as_str).unwrap_or("mock-1").to_owned(),
            stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
            include_usage: body
                .pointer("/stream_options/include_usage")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            input_words: texts.map(count_words).sum(),
            output_words: wanted.min(limit),
            truncated: limit < wanted,
        })
    }

    fn text(&self) -> String {
        words(self.output_words).collect()
    }
}

fn count_words(content: &Value) -> usize {
    match content {
        Value::String(text) => text.split_whitespace().count(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")).map(count_words).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => 0,
    }
}

fn invalid_body() -> MockResponse {
    MockResponse::error(StatusCode::BAD_REQUEST, "the body must be a JSON object with a list of messages")
}

/// OpenAI's chat completion, plain or streamed.
pub(super) fn completion(call: &Call<'_>) -> MockResponse {
    let Some(conversation) = Conversation::read(call) else { return invalid_body() };
    let (prompt, completion) = (conversation.input_words, conversation.output_words);
    let usage = usage_of(call, || {
        let total = prompt + completion;
        format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}}}"#)
    });
    let id = format!("chatcmpl-mock-{}", call.id);
    let created = Utc::now().timestamp();
    let reason = if conversation.truncated { "length" } else { "stop" };
    if !conversation.stream {
        let message = json!({"role": "assistant", "content": conversation.text()});
        let choices = json!([{"index": 0, "message": message, "finish_reason": reason}]);
        let object = json!({"id": id, "object": "chat.completion", "created": created, "model": conversation.model, "choices": choices});
        return MockResponse::json(with_usage(&object, usage.as_deref()), usage);
    }
    let chunk = |choices: Value| json!({"id": id, "object": "chat.completion.chunk", "created": created, "model": conversation.model, "choices": choices});
    let step = |delta: Value, reason: Option<&str>| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
        format!("data: {}\n\n", chunk(choices))
    };
    let mut events = vec![step(json!({"role": "assistant", "content": ""}), None)];
    events.extend(words(completion).map(|word| step(json!({"content": word}), None)));
    events.push(step(json!({}), Some(reason)));
    let usage = usage.filter(|_| conversation.include_usage);
    if usage.is_some() {
        events.push(format!("data: {}\n\n", with_usage(&chunk(json!([])), usage.as_deref())));
    }
    events.push("data: [DONE]\n\n".to_owned());
    MockResponse::events(events, usage)
}

/// Anthropic's message, plain or streamed.
pub(super) fn message(call: &Call<'_>) -> MockResponse {
    let Some(conversation) = Conversation::read(call) else { return invalid_body() };
    let (input, output) = (conversation.input_words, conversation.output_words);
    let counted = |output: usize| format!(r#"{{"input_tokens":{input},"output_tokens":{output}}}"#);
    let usage = usage_of(call, || counted(output));
    let id = format!("msg_mock_{}", call.id);
    let reason = if conversation.truncated { "max_tokens" } else { "end_turn" };
    if !conversation.stream {
        let content = json!([{"type": "text", "text": conversation.text()}]);
        let object = json!({
            "id": id, "type": "message", "role": "assistant", "model": conversation.model, "content": content,
            "stop_reason": reason, "stop_sequence": null,
        });
        return MockResponse::json(with_usage(&object, usage.as_deref()), usage);
    }
    let event = |name: &str, data: &str| format!("event: {name}\ndata: {data}\n\n");
    let begun = json!({
        "id": id, "type": "message", "role": "assistant", "model": conversation.model, "content": [],
        "stop_reason": null, "stop_sequence": null,
    });
    let first_usage = usage_of(call, || counted(1));
    let begun = with_usage(&begun, first_usage.as_deref());
    let mut events = vec![
        event("message_start", &format!(r#"{{"type":"message_start","message":{begun}}}"#)),
        event(
            "content_block_start",
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}).to_string(),
        ),
    ];
    events.extend(words(output).map(|word| {
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
    MockResponse::events(events, usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::post;

    #[test]
    fn a_completion_counts_words_and_stops_at_the_limit() {
        let (text, _) = post(
            "/v1/chat/completions",
            r#"{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"one two"}]}"#,
        );
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["usage"], json!({"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}));
        assert_eq!(json["choices"][0]["message"]["content"], "This is the");
        assert_eq!(json["choices"][0]["finish_reason"], "length");
    }

    #[test]
    fn a_stream_reports_its_usage_only_on_request() {
        let body = r#"{"stream":true,"messages":[]}"#;
        let (text, response) = post("/v1/chat/completions", body);
        assert!(!text.contains("usage") && response.usage.is_none());
        assert!(text.ends_with("data: [DONE]\n\n"));
        let body = r#"{"stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
        let (text, response) = post("/v1/chat/completions", body);
        assert!(text.contains(r#""usage":{"prompt_tokens":0,"#) && response.usage.is_some());
    }

    #[test]
    fn a_streamed_message_reports_usage_at_both_ends() {
        let body = r#"{"stream":true,"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#;
        let (text, _) = post("/v1/messages", body);
        assert!(text.starts_with("event: message_start\n"));
        assert!(text.contains(r#""usage":{"input_tokens":3,"output_tokens":1}"#));
        assert!(text.contains(r#""usage":{"input_tokens":3,"output_tokens":10}"#));
    }
}
