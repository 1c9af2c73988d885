//! Cohere's own chat and embeddings, version 2.

use serde_json::{Value, json};

use super::answer::{
    Answer, Asked, Content, Ending, Last, Thinking, Tool, ToolCall, count_words, is_true, list, model_of,
    text_at,
};
use super::embeddings;
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_member, with_usage};

/// The response to `POST /v2/chat`.
pub(super) fn chat(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("messages").is_some_and(Value::is_array)) else {
        let message = "the body must be a JSON object with a list of messages";
        return Api::Cohere.error(http::StatusCode::BAD_REQUEST, message);
    };
    let asked = asked(&body);
    let answer = Answer::to(&asked, call);
    let usage = usage_of(call, || counted(asked.input_tokens, answer.output_tokens));
    let chat = Chat { id: format!("mock-{}", call.id), answer };
    if is_true(&body, "/stream") { chat.streamed(usage.as_deref()) } else { chat.whole(usage) }
}

/// The response to `POST /v2/embed`.
pub(super) fn embed(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("texts").is_some_and(Value::is_array)) else {
        let message = "the body must be a JSON object with a list of texts";
        return Api::Cohere.error(http::StatusCode::BAD_REQUEST, message);
    };
    let texts = list(&body, "texts");
    let vector = embeddings::vector(body.get("output_dimension").and_then(Value::as_u64));
    let object = json!({
        "id": format!("mock-{}", call.id), "response_type": "embeddings_by_type", "texts": texts,
        "embeddings": {"float": vec![vector; texts.len()]},
    });
    let tokens: usize = texts.iter().map(count_words).sum();
    let version = r#"{"version":"2"}"#;
    let usage = usage_of(call, || {
        format!(r#"{{"api_version":{version},"billed_units":{{"input_tokens":{tokens}}}}}"#)
    });
    MockResponse::json(with_member(&object, "meta", usage.as_deref()), usage)
}

fn asked(body: &Value) -> Asked {
    let messages = list(body, "messages");
    let texts = messages.iter().filter_map(|message| message.get("content"));
    let tools = list(body, "tools").iter().filter_map(|tool| {
        let function = tool.get("function")?;
        let schema = function.get("parameters").cloned().unwrap_or_default();
        Some(Tool { name: text_at(function, "/name").to_owned(), schema })
    });
    let is_result = messages.last().is_some_and(|message| text_at(message, "/role") == "tool");
    let schema =
        body.pointer("/response_format/json_schema").or_else(|| body.pointer("/response_format/schema"));
    let is_object = text_at(body, "/response_format/type") == "json_object";
    Asked {
        model: model_of(body),
        input_tokens: texts.map(count_words).sum(),
        limit: body.get("max_tokens").and_then(Value::as_u64),
        tools: if text_at(body, "/tool_choice") == "NONE" { Vec::new() } else { tools.collect() },
        last: if is_result { Last::ToolResult } else { Last::Speaker },
        schema: is_object.then(|| schema.cloned().unwrap_or_else(|| json!({"const": {"mock": true}}))),
        thinking: if text_at(body, "/thinking/type") == "enabled" { Thinking::On } else { Thinking::Off },
    }
}

/// The usage: what is billed, and the tokens, which Cohere's own instructions to the model are a part of.
fn counted(input: usize, output: usize) -> String {
    let tokens = input + INSTRUCTIONS;
    format!(
        r#"{{"billed_units":{{"input_tokens":{input},"output_tokens":{output}}},"tokens":{{"input_tokens":{tokens},"output_tokens":{output}}}}}"#
    )
}

/// The tokens of the instructions, which are not billed.
const INSTRUCTIONS: usize = 60;

struct Chat {
    id: String,
    answer: Answer,
}

impl Chat {
    const fn finish_reason(&self) -> &'static str {
        match self.answer.ending {
            Ending::Stop => "COMPLETE",
            Ending::Length => "MAX_TOKENS",
            Ending::Calls => "TOOL_CALL",
        }
    }

    /// A tool call with these arguments so far.
    fn tool_call(&self, call: &ToolCall, arguments: &str) -> Value {
        let function = json!({"name": call.name, "arguments": arguments});
        json!({"id": format!("{}_{}", self.id, call.index), "type": "function", "function": function})
    }

    fn whole(&self, usage: Option<String>) -> MockResponse {
        let mut content = Vec::new();
        if !self.answer.thoughts.is_empty() {
            content.push(json!({"type": "thinking", "thinking": self.answer.thoughts.concat()}));
        }
        let mut message = json!({"role": "assistant"});
        match &self.answer.content {
            Content::Text(pieces) => content.push(json!({"type": "text", "text": pieces.concat()})),
            Content::Calls(calls) => {
                let calls = calls.iter().map(|call| self.tool_call(call, &call.arguments.to_string()));
                message["tool_calls"] = calls.collect();
            }
        }
        if !content.is_empty() {
            message["content"] = json!(content);
        }
        let object = json!({"id": self.id, "message": message, "finish_reason": self.finish_reason()});
        MockResponse::json(with_usage(&object, usage.as_deref()), usage)
    }

    /// The events. The last one reports the usage.
    fn streamed(&self, usage: Option<&str>) -> MockResponse {
        let mut stream = Stream::default();
        let mut event = |name: &str, mut event: Value| {
            event["type"] = json!(name);
            stream.event(name, &event.to_string());
        };
        let message = |message: Value| json!({"message": message});
        let begun =
            json!({"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []});
        event("message-start", json!({"id": self.id, "delta": message(begun)}));
        let texts = match &self.answer.content {
            Content::Text(pieces) => pieces.as_slice(),
            Content::Calls(_) => &[],
        };
        let contents = [("thinking", self.answer.thoughts.as_slice()), ("text", texts)];
        for (index, (kind, pieces)) in
            contents.into_iter().filter(|(_, pieces)| !pieces.is_empty()).enumerate()
        {
            let mut content = json!({"type": kind});
            content[kind] = json!("");
            event("content-start", json!({"index": index, "delta": message(json!({"content": content}))}));
            for piece in pieces {
                let delta = message(
                    json!({"content": Value::Object([(kind.to_owned(), json!(piece))].into_iter().collect())}),
                );
                event("content-delta", json!({"index": index, "delta": delta}));
            }
            event("content-end", json!({"index": index}));
        }
        if let Content::Calls(calls) = &self.answer.content {
            for call in calls {
                let begun = message(json!({"tool_calls": self.tool_call(call, "")}));
                event("tool-call-start", json!({"index": call.index, "delta": begun}));
                for piece in call.pieces() {
                    let delta = message(json!({"tool_calls": {"function": {"arguments": piece}}}));
                    event("tool-call-delta", json!({"index": call.index, "delta": delta}));
                }
                event("tool-call-end", json!({"index": call.index}));
            }
        }
        let delta = with_usage(&json!({"finish_reason": self.finish_reason()}), usage);
        stream
            .event("message-end", &format!(r#"{{"type":"message-end","id":"{}","delta":{delta}}}"#, self.id));
        stream.reports(usage);
        stream.events()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::{events, post};

    #[test]
    fn a_chat_bills_less_than_its_tokens_and_a_stream_reports_at_its_end() {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "one two"}]});
        let (text, _) = post("/v2/chat", &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["usage"]["billed_units"], json!({"input_tokens": 2, "output_tokens": 10}));
        assert_eq!(answer["usage"]["tokens"], json!({"input_tokens": 62, "output_tokens": 10}));
        assert_eq!(answer["finish_reason"], "COMPLETE");
        let mut body = body;
        body["stream"] = json!(true);
        let (text, response) = post("/v2/chat", &body.to_string());
        let events = events(&text);
        let names: Vec<&str> = events.iter().map(|event| text_at(event, "/type")).collect();
        assert_eq!((names[0], names[1], names[12]), ("message-start", "content-start", "content-end"));
        let end = events.last().unwrap();
        assert_eq!(end["delta"]["usage"]["billed_units"]["output_tokens"], 10);
        assert_eq!((response.reports.len(), response.usage.is_some()), (1, true));
    }

    #[test]
    fn arguments_are_streamed_in_parts_and_thoughts_come_first() {
        let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}},
        }}});
        let body = json!({
            "stream": true, "messages": [{"role": "user", "content": "x"}], "tools": [tool],
            "thinking": {"type": "enabled"},
        });
        let events = events(&post("/v2/chat", &body.to_string()).0);
        let parts = events.iter().filter(|event| event["type"] == "tool-call-delta");
        let arguments: String =
            parts.map(|event| text_at(event, "/delta/message/tool_calls/function/arguments")).collect();
        assert_eq!(arguments, r#"{"city":"mock"}"#);
        assert_eq!(events[1]["delta"]["message"]["content"]["type"], "thinking");
        assert_eq!(events.last().unwrap()["delta"]["finish_reason"], "TOOL_CALL");
    }

    #[test]
    fn each_text_has_a_vector() {
        let body = json!({"model": "m", "texts": ["one two", "three"], "input_type": "search_query"});
        let (text, _) = post("/v2/embed", &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["embeddings"]["float"].as_array().map(Vec::len), Some(2));
        assert_eq!(answer["meta"]["billed_units"]["input_tokens"], 3);
    }
}
