//! Anthropic's messages, plain or streamed.

use serde_json::{Value, json};

use super::answer::{
    Answer, Asked, Choice, Content, Ending, Last, Thinking, Tool, ToolCall, count_words, is_true, list,
    model_of, text_at,
};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_usage};

/// The signature of the canned thoughts.
const SIGNATURE: &str = "bW9jaw==";

/// The response to `POST /v1/messages`.
pub(super) fn respond(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("messages").is_some_and(Value::is_array)) else {
        let message = "the body must be a JSON object with a list of messages";
        return Api::Anthropic.error(http::StatusCode::BAD_REQUEST, message);
    };
    let asked = asked(&body);
    let answer = Answer::to(&asked, call);
    let (input, output) = (asked.input_tokens, answer.output_tokens);
    let counted = |output: usize| format!(r#"{{"input_tokens":{input},"output_tokens":{output}}}"#);
    let message = Message {
        id: format!("msg_mock_{}", call.id),
        tool_id: format!("toolu_mock_{}", call.id),
        model: asked.model,
        answer,
    };
    let usage = usage_of(call, || counted(output));
    if is_true(&body, "/stream") {
        message.streamed(usage_of(call, || counted(1)).as_deref(), usage.as_deref())
    } else {
        message.whole(usage)
    }
}

fn asked(body: &Value) -> Asked {
    let messages = list(body, "messages");
    let texts = messages.iter().filter_map(|message| message.get("content")).chain(body.get("system"));
    // Tools that the provider runs itself have no schema, and are not called.
    let tools = list(body, "tools").iter().filter_map(|tool| {
        let schema = tool.get("input_schema")?.clone();
        Some(Tool { name: text_at(tool, "/name").to_owned(), schema })
    });
    let choice = match text_at(body, "/tool_choice/type") {
        "none" => Choice::Off,
        "tool" => Choice::Only(text_at(body, "/tool_choice/name")),
        _ => Choice::Any,
    };
    let format = body.pointer("/output_config/format").or_else(|| body.get("output_format"));
    let schema = format.and_then(|format| format.get("schema")).cloned();
    let last = messages.last().map(|message| list(message, "content")).unwrap_or_default();
    let is_result = last.iter().any(|part| text_at(part, "/type") == "tool_result");
    Asked {
        model: model_of(body),
        input_tokens: texts.map(count_words).sum(),
        limit: body.get("max_tokens").and_then(Value::as_u64),
        tools: choice.of(tools),
        last: if is_result { Last::ToolResult } else { Last::Speaker },
        schema,
        thinking: match text_at(body, "/thinking/type") {
            "enabled" | "adaptive" => Thinking::On,
            _ => Thinking::Off,
        },
    }
}

struct Message {
    id: String,
    tool_id: String,
    model: String,
    answer: Answer,
}

impl Message {
    const fn stop_reason(&self) -> &'static str {
        match self.answer.ending {
            Ending::Stop => "end_turn",
            Ending::Length => "max_tokens",
            Ending::Calls => "tool_use",
        }
    }

    fn tool_use(&self, call: &ToolCall, input: &Value) -> Value {
        let id = format!("{}_{}", self.tool_id, call.index);
        json!({"type": "tool_use", "id": id, "name": call.name, "input": input})
    }

    /// The message without its usage.
    fn object(&self, content: &[Value], stop_reason: Option<&str>) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop_reason, "stop_sequence": null,
        })
    }

    fn whole(&self, usage: Option<String>) -> MockResponse {
        let mut content = Vec::new();
        if !self.answer.thoughts.is_empty() {
            let thinking = self.answer.thoughts.concat();
            content.push(json!({"type": "thinking", "thinking": thinking, "signature": SIGNATURE}));
        }
        match &self.answer.content {
            Content::Text(pieces) => content.push(json!({"type": "text", "text": pieces.concat()})),
            Content::Calls(calls) => {
                content.extend(calls.iter().map(|call| self.tool_use(call, &call.arguments)));
            }
        }
        let object = self.object(&content, Some(self.stop_reason()));
        MockResponse::json(with_usage(&object, usage.as_deref()), usage)
    }

    /// The events. The first reports the usage so far, the one before the last the whole.
    fn streamed(&self, first_usage: Option<&str>, usage: Option<&str>) -> MockResponse {
        let mut events = Events::default();
        let begun = with_usage(&self.object(&[], None), first_usage);
        events.stream.event("message_start", &format!(r#"{{"type":"message_start","message":{begun}}}"#));
        events.stream.reports(first_usage);
        if !self.answer.thoughts.is_empty() {
            let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
            let thoughts = self.answer.thoughts.iter();
            let deltas = thoughts.map(|text| json!({"type": "thinking_delta", "thinking": text}));
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            events.block(&block, deltas.chain([signature]));
        }
        match &self.answer.content {
            Content::Text(pieces) => {
                let deltas = pieces.iter().map(|text| json!({"type": "text_delta", "text": text}));
                events.block(&json!({"type": "text", "text": ""}), deltas);
            }
            Content::Calls(calls) => {
                for call in calls {
                    let pieces = [String::new()].into_iter().chain(call.pieces());
                    let deltas =
                        pieces.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
                    events.block(&self.tool_use(call, &json!({})), deltas);
                }
            }
        }
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        let ending = json!({"type": "message_delta", "delta": delta});
        events.stream.event("message_delta", &with_usage(&ending, usage));
        events.stream.reports(usage);
        events.stream.event("message_stop", r#"{"type":"message_stop"}"#);
        events.stream.events()
    }
}

#[derive(Default)]
struct Events {
    stream: Stream,
    blocks: usize,
}

impl Events {
    /// A content block with its deltas. A ping follows the start of the first block.
    fn block(&mut self, block: &Value, deltas: impl Iterator<Item = Value>) {
        let index = self.blocks;
        let begun = json!({"type": "content_block_start", "index": index, "content_block": block});
        self.stream.event("content_block_start", &begun.to_string());
        if index == 0 {
            self.stream.event("ping", r#"{"type":"ping"}"#);
        }
        for delta in deltas {
            let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
            self.stream.event("content_block_delta", &delta.to_string());
        }
        let ended = json!({"type": "content_block_stop", "index": index});
        self.stream.event("content_block_stop", &ended.to_string());
        self.blocks += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::{events, post};

    #[test]
    fn a_streamed_message_reports_usage_at_both_ends() {
        let body = r#"{"stream":true,"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#;
        let (text, response) = post("/v1/messages", body);
        assert!(text.starts_with("event: message_start\n"));
        assert!(text.contains(r#""usage":{"input_tokens":3,"output_tokens":1}"#));
        assert!(text.contains(r#""usage":{"input_tokens":3,"output_tokens":10}"#));
        assert_eq!(response.usage.as_deref(), Some(r#"{"input_tokens":3,"output_tokens":10}"#));
        assert_eq!(response.reports.len(), 2);
    }

    #[test]
    fn thoughts_come_first_and_the_input_of_tools_in_parts() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let body = json!({
            "stream": true, "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [{"role": "user", "content": "hello"}],
            "tools": [{"name": "weather", "input_schema": schema}],
        });
        let (text, _) = post("/v1/messages", &body.to_string());
        let events = events(&text);
        let kinds: Vec<&str> = events.iter().map(|event| text_at(event, "/type")).collect();
        assert_eq!(kinds[..4], ["message_start", "content_block_start", "ping", "content_block_delta"]);
        assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
        assert_eq!(text_at(&events[1], "/content_block/type"), "thinking");
        let input: String = events.iter().map(|event| text_at(event, "/delta/partial_json")).collect();
        assert_eq!(input, r#"{"city":"mock"}"#);
        assert!(text.contains(r#""stop_reason":"tool_use""#) && text.contains("signature_delta"));
    }
}
