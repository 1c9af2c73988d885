//! OpenAI's Responses, plain or with the events of a stream.

use chrono::Utc;
use serde_json::{Value, json};

use super::answer::{
    Answer, Asked, Choice, Content, Ending, Last, Thinking, Tool, ToolCall, count_words, is_true, list,
    model_of, text_at,
};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_member, with_usage};

/// The response to `POST /v1/responses`.
pub(super) fn respond(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("input").is_some()) else {
        return Api::OpenAi
            .error(http::StatusCode::BAD_REQUEST, "the body must be a JSON object with an input");
    };
    let asked = asked(&body);
    let answer = Answer::to(&asked, call);
    let usage = usage_of(call, || counted(&asked, &answer));
    let made = Response {
        id: call.id.to_owned(),
        created: Utc::now().timestamp(),
        format: body.pointer("/text/format").cloned().unwrap_or_else(|| json!({"type": "text"})),
        tools: list(&body, "tools").to_vec(),
        model: asked.model,
        answer,
    };
    if is_true(&body, "/stream") { made.streamed(usage.as_deref()) } else { made.whole(usage) }
}

fn asked(body: &Value) -> Asked {
    let texts = ["instructions", "input"].iter().filter_map(|name| body.get(*name));
    let tools = list(body, "tools").iter().filter(|tool| text_at(tool, "/type") == "function").map(|tool| {
        let schema = tool.get("parameters").cloned().unwrap_or_default();
        Tool { name: text_at(tool, "/name").to_owned(), schema }
    });
    let choice = match body.get("tool_choice") {
        Some(Value::String(choice)) if choice == "none" => Choice::Off,
        Some(Value::Object(_)) => Choice::Only(text_at(body, "/tool_choice/name")),
        _ => Choice::Any,
    };
    let schema = match text_at(body, "/text/format/type") {
        "json_schema" => body.pointer("/text/format/schema").cloned(),
        "json_object" => Some(json!({"const": {"mock": true}})),
        _ => None,
    };
    let is_result = list(body, "input").last();
    let is_result = is_result.is_some_and(|item| text_at(item, "/type") == "function_call_output");
    let effort = text_at(body, "/reasoning/effort");
    Asked {
        model: model_of(body),
        input_tokens: texts.map(count_words).sum(),
        limit: body.get("max_output_tokens").and_then(Value::as_u64),
        tools: choice.of(tools),
        last: if is_result { Last::ToolResult } else { Last::Speaker },
        schema,
        thinking: if matches!(effort, "" | "none") { Thinking::Off } else { Thinking::On },
    }
}

fn counted(asked: &Asked, answer: &Answer) -> String {
    let (input, output, reasoning) = (asked.input_tokens, answer.output_tokens, answer.thoughts.len());
    let usage = json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input + output,
    });
    usage.to_string()
}

struct Response {
    /// The call's id in the journal.
    id: String,
    created: i64,
    /// The format of the text, as it was asked for.
    format: Value,
    tools: Vec<Value>,
    model: String,
    answer: Answer,
}

/// How far an item has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Begun,
    Done,
}

impl Progress {
    const fn status(self) -> &'static str {
        match self {
            Self::Begun => "in_progress",
            Self::Done => "completed",
        }
    }
}

impl Response {
    /// The response without its usage.
    fn object(&self, progress: Progress, output: &[Value]) -> Value {
        let is_cut = self.answer.ending == Ending::Length && progress == Progress::Done;
        let status = if is_cut { "incomplete" } else { progress.status() };
        let incomplete = if is_cut { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        json!({
            "id": format!("resp_mock_{}", self.id), "object": "response", "created_at": self.created,
            "status": status, "error": null, "incomplete_details": incomplete, "instructions": null,
            "max_output_tokens": null, "metadata": {}, "model": self.model, "output": output,
            "parallel_tool_calls": true, "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null}, "store": true, "temperature": 1, "top_p": 1,
            "text": {"format": self.format}, "tool_choice": "auto", "tools": self.tools,
            "truncation": "disabled",
        })
    }

    fn reasoning(&self, progress: Progress) -> Value {
        let text = self.answer.thoughts.concat();
        let summary = match progress {
            Progress::Begun => json!([]),
            Progress::Done => json!([{"type": "summary_text", "text": text}]),
        };
        json!({"type": "reasoning", "id": format!("rs_mock_{}", self.id), "summary": summary})
    }

    fn message(&self, progress: Progress, parts: &[Value]) -> Value {
        let id = format!("msg_mock_{}", self.id);
        let status = progress.status();
        json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": parts})
    }

    fn function_call(&self, progress: Progress, call: &ToolCall, arguments: &str) -> Value {
        json!({
            "type": "function_call", "id": format!("fc_mock_{}_{}", self.id, call.index),
            "call_id": format!("call_mock_{}_{}", self.id, call.index), "name": call.name,
            "arguments": arguments, "status": progress.status(),
        })
    }

    /// The finished items.
    fn output(&self) -> Vec<Value> {
        let mut output = Vec::new();
        if !self.answer.thoughts.is_empty() {
            output.push(self.reasoning(Progress::Done));
        }
        match &self.answer.content {
            Content::Text(pieces) => {
                output.push(self.message(Progress::Done, &[text_part(&pieces.concat())]));
            }
            Content::Calls(calls) => output.extend(
                calls
                    .iter()
                    .map(|call| self.function_call(Progress::Done, call, &call.arguments.to_string())),
            ),
        }
        output
    }

    fn whole(&self, usage: Option<String>) -> MockResponse {
        MockResponse::json(with_usage(&self.object(Progress::Done, &self.output()), usage.as_deref()), usage)
    }

    fn streamed(&self, usage: Option<&str>) -> MockResponse {
        let mut events = Events::default();
        for name in ["response.created", "response.in_progress"] {
            let begun = with_usage(&self.object(Progress::Begun, &[]), Some("null"));
            events.with_response(name, &begun);
        }
        let mut index = 0;
        if !self.answer.thoughts.is_empty() {
            self.stream_reasoning(&mut events, index);
            index += 1;
        }
        match &self.answer.content {
            Content::Text(pieces) => self.stream_text(&mut events, index, pieces),
            Content::Calls(calls) => {
                for call in calls {
                    self.stream_call(&mut events, index + call.index, call);
                }
            }
        }
        let name = match self.answer.ending {
            Ending::Length => "response.incomplete",
            Ending::Stop | Ending::Calls => "response.completed",
        };
        events.with_response(name, &with_usage(&self.object(Progress::Done, &self.output()), usage));
        events.stream.reports(usage);
        events.stream.events()
    }

    fn stream_reasoning(&self, events: &mut Events, index: usize) {
        let done = self.reasoning(Progress::Done);
        let (id, text) = (text_at(&done, "/id"), text_at(&done, "/summary/0/text"));
        let place = || json!({"item_id": id, "output_index": index, "summary_index": 0});
        events.item("response.output_item.added", index, &self.reasoning(Progress::Begun));
        let empty = json!({"type": "summary_text", "text": ""});
        events.put("response.reasoning_summary_part.added", place(), &[("part", empty)]);
        for delta in &self.answer.thoughts {
            events.put("response.reasoning_summary_text.delta", place(), &[("delta", json!(delta))]);
        }
        events.put("response.reasoning_summary_text.done", place(), &[("text", json!(text))]);
        let part = json!({"type": "summary_text", "text": text});
        events.put("response.reasoning_summary_part.done", place(), &[("part", part)]);
        events.item("response.output_item.done", index, &done);
    }

    fn stream_text(&self, events: &mut Events, index: usize, pieces: &[String]) {
        let part = text_part(&pieces.concat());
        let done = self.message(Progress::Done, std::slice::from_ref(&part));
        let place = || json!({"item_id": text_at(&done, "/id"), "output_index": index, "content_index": 0});
        let logprobs = || ("logprobs", json!([]));
        events.item("response.output_item.added", index, &self.message(Progress::Begun, &[]));
        events.put("response.content_part.added", place(), &[("part", text_part(""))]);
        for delta in pieces {
            events.put("response.output_text.delta", place(), &[("delta", json!(delta)), logprobs()]);
        }
        let text = json!(pieces.concat());
        events.put("response.output_text.done", place(), &[("text", text), logprobs()]);
        events.put("response.content_part.done", place(), &[("part", part)]);
        events.item("response.output_item.done", index, &done);
    }

    fn stream_call(&self, events: &mut Events, index: usize, call: &ToolCall) {
        let arguments = call.arguments.to_string();
        let done = self.function_call(Progress::Done, call, &arguments);
        let place = || json!({"item_id": text_at(&done, "/id"), "output_index": index});
        events.item("response.output_item.added", index, &self.function_call(Progress::Begun, call, ""));
        for delta in call.pieces() {
            events.put("response.function_call_arguments.delta", place(), &[("delta", json!(delta))]);
        }
        let members = [("arguments", json!(arguments)), ("name", json!(call.name))];
        events.put("response.function_call_arguments.done", place(), &members);
        events.item("response.output_item.done", index, &done);
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// The numbered events.
#[derive(Default)]
struct Events {
    stream: Stream,
    sequence_number: u64,
}

impl Events {
    fn send(&mut self, name: &str, mut event: Value, response: Option<&str>) {
        event["type"] = json!(name);
        event["sequence_number"] = json!(self.sequence_number);
        self.sequence_number += 1;
        self.stream.event(name, &with_member(&event, "response", response));
    }

    /// An event with these members beside its place.
    fn put(&mut self, name: &str, mut place: Value, members: &[(&str, Value)]) {
        for (member, value) in members {
            place[*member] = value.clone();
        }
        self.send(name, place, None);
    }

    fn item(&mut self, name: &str, index: usize, item: &Value) {
        self.send(name, json!({"output_index": index, "item": item}), None);
    }

    fn with_response(&mut self, name: &str, response: &str) {
        self.send(name, json!({}), Some(response));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::{events, post};

    #[test]
    fn the_events_of_a_text_come_in_their_order_with_numbers() {
        let (text, _) = post("/v1/responses", r#"{"input":"hello","stream":true}"#);
        let events = events(&text);
        let kinds: Vec<&str> = events.iter().map(|event| text_at(event, "/type")).collect();
        let first = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
        ];
        let last = [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ];
        assert_eq!((&kinds[..5], &kinds[kinds.len() - 4..]), (&first[..], &last[..]));
        for (number, event) in (0_u64..).zip(&events) {
            assert_eq!(event["sequence_number"], number);
        }
        let ended = &events[events.len() - 1]["response"];
        assert_eq!(
            (&ended["usage"]["input_tokens"], &ended["usage"]["output_tokens"]),
            (&json!(1), &json!(10))
        );
        assert_eq!(events[0]["response"]["usage"], Value::Null);
    }

    #[test]
    fn a_function_is_called_and_its_output_answered() {
        let tools = json!([{"type": "function", "name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "string"}}}}]);
        let (text, _) = post("/v1/responses", &json!({"input": "hello", "tools": tools}).to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text_at(&answer, "/output/0/arguments"), r#"{"a":"mock"}"#);
        let input = json!([{"type": "function_call_output", "call_id": "c", "output": "it rains"}]);
        let (text, _) = post("/v1/responses", &json!({"input": input, "tools": tools}).to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text_at(&answer, "/output/0/type"), "message");
        assert_eq!(answer["usage"]["input_tokens"], 2);
    }
}
