//! OpenAI's chat completions, plain or streamed.

use chrono::Utc;
use serde_json::{Value, json};

use super::answer::{
    Answer, Asked, Choice, Content, Ending, Last, Thinking, Tool, ToolCall, answers_of, count_words, is_true,
    list, model_of, text_at,
};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_usage};

/// The response to `POST /v1/chat/completions`.
pub(super) fn respond(call: &Call<'_>) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("messages").is_some_and(Value::is_array)) else {
        let message = "the body must be a JSON object with a list of messages";
        return Api::OpenAi.error(http::StatusCode::BAD_REQUEST, message);
    };
    let asked = asked(&body);
    let answer = Answer::to(&asked, call);
    let answers = answers_of(&body, "n");
    let usage = usage_of(call, || counted(&asked, &answer, answers));
    let completion = Completion {
        id: format!("chatcmpl-mock-{}", call.id),
        call_id: format!("call_mock_{}", call.id),
        created: Utc::now().timestamp(),
        model: asked.model,
        answer,
        answers,
    };
    if is_true(&body, "/stream") {
        let usage = usage.filter(|_| is_true(&body, "/stream_options/include_usage"));
        completion.streamed(usage.as_deref())
    } else {
        completion.whole(usage)
    }
}

fn asked(body: &Value) -> Asked {
    let messages = list(body, "messages");
    let texts = messages.iter().filter_map(|message| message.get("content"));
    let limit = ["max_completion_tokens", "max_tokens"].iter().find_map(|name| body.get(name)?.as_u64());
    let tools = list(body, "tools").iter().filter_map(|tool| {
        let function = tool.get("function")?;
        let schema = function.get("parameters").cloned().unwrap_or_default();
        Some(Tool { name: text_at(function, "/name").to_owned(), schema })
    });
    let choice = match body.get("tool_choice") {
        Some(Value::String(choice)) if choice == "none" => Choice::Off,
        Some(Value::Object(_)) => Choice::Only(text_at(body, "/tool_choice/function/name")),
        _ => Choice::Any,
    };
    let schema = match text_at(body, "/response_format/type") {
        "json_schema" => body.pointer("/response_format/json_schema/schema").cloned(),
        "json_object" => Some(json!({"const": {"mock": true}})),
        _ => None,
    };
    let effort = text_at(body, "/reasoning_effort");
    let is_result = messages.last().is_some_and(|message| text_at(message, "/role") == "tool");
    Asked {
        model: model_of(body),
        input_tokens: texts.map(count_words).sum(),
        limit,
        tools: choice.of(tools),
        last: if is_result { Last::ToolResult } else { Last::Speaker },
        schema,
        thinking: if matches!(effort, "" | "none") { Thinking::Off } else { Thinking::On },
    }
}

/// The usage of as many answers. Reasoning tokens are among the completion's.
fn counted(asked: &Asked, answer: &Answer, answers: usize) -> String {
    let (prompt, completion) = (asked.input_tokens, answer.output_tokens * answers);
    let total = prompt + completion;
    let details = match answer.thoughts.len() * answers {
        0 => String::new(),
        reasoning => format!(r#","completion_tokens_details":{{"reasoning_tokens":{reasoning}}}"#),
    };
    format!(
        r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}{details}}}"#
    )
}

struct Completion {
    id: String,
    call_id: String,
    created: i64,
    model: String,
    answer: Answer,
    /// How often the answer is given.
    answers: usize,
}

impl Completion {
    const fn finish_reason(&self) -> &'static str {
        match self.answer.ending {
            Ending::Stop => "stop",
            Ending::Length => "length",
            Ending::Calls => "tool_calls",
        }
    }

    /// A tool call with these arguments so far.
    fn tool_call(&self, call: &ToolCall, arguments: &str) -> Value {
        let function = json!({"name": call.name, "arguments": arguments});
        json!({"id": format!("{}_{}", self.call_id, call.index), "type": "function", "function": function})
    }

    fn whole(&self, usage: Option<String>) -> MockResponse {
        let mut message = json!({"role": "assistant", "content": self.answer.text(), "refusal": null});
        if let Content::Calls(calls) = &self.answer.content {
            message["tool_calls"] =
                calls.iter().map(|call| self.tool_call(call, &call.arguments.to_string())).collect();
        }
        let choice = |index: usize| {
            json!({
                "index": index, "message": message, "logprobs": null, "finish_reason": self.finish_reason(),
            })
        };
        let choices: Vec<Value> = (0..self.answers).map(choice).collect();
        let object = json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": choices,
        });
        MockResponse::json(with_usage(&object, usage.as_deref()), usage)
    }

    /// The chunks. With a usage, there is one more for it, and the others say that they have none.
    fn streamed(&self, usage: Option<&str>) -> MockResponse {
        let mut stream = Stream::default();
        let chunk = |choices: Value| {
            json!({
                "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
                "choices": choices,
            })
        };
        let none_yet = usage.map(|_| "null");
        for index in 0..self.answers {
            let mut step = |delta: Value, reason: Option<&str>| {
                let choice =
                    json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": reason});
                stream.data(&with_usage(&chunk(json!([choice])), none_yet));
            };
            match &self.answer.content {
                Content::Text(pieces) => {
                    step(json!({"role": "assistant", "content": "", "refusal": null}), None);
                    for piece in pieces {
                        step(json!({"content": piece}), None);
                    }
                }
                Content::Calls(calls) => {
                    step(json!({"role": "assistant", "content": null}), None);
                    for call in calls {
                        let mut begun = self.tool_call(call, "");
                        begun["index"] = json!(call.index);
                        step(json!({"tool_calls": [begun]}), None);
                        for piece in call.pieces() {
                            let part = json!({"index": call.index, "function": {"arguments": piece}});
                            step(json!({"tool_calls": [part]}), None);
                        }
                    }
                }
            }
            step(json!({}), Some(self.finish_reason()));
        }
        if usage.is_some() {
            stream.data(&with_usage(&chunk(json!([])), usage));
            stream.reports(usage);
        }
        stream.data("[DONE]");
        stream.events()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::{events, post};

    const PATH: &str = "/v1/chat/completions";

    #[test]
    fn a_completion_counts_words_and_stops_at_the_limit() {
        let body = r#"{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"one two"}]}"#;
        let (text, _) = post(PATH, body);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["usage"], json!({"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}));
        assert_eq!(json["choices"][0]["message"]["content"], "This is the");
        assert_eq!(json["choices"][0]["finish_reason"], "length");
    }

    #[test]
    fn a_stream_reports_its_usage_only_on_request() {
        let body = r#"{"stream":true,"messages":[]}"#;
        let (text, response) = post(PATH, body);
        assert!(!text.contains("usage") && response.usage.is_none());
        assert!(text.ends_with("data: [DONE]\n\n"));
        let body = r#"{"stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
        let (text, response) = post(PATH, body);
        assert!(text.contains(r#""usage":{"prompt_tokens":0,"#) && response.usage.is_some());
    }

    #[test]
    fn as_many_choices_as_are_asked_for_are_given_and_counted() {
        let asked = json!({"n": 3, "max_tokens": 2, "reasoning_effort": "low", "messages": []});
        let (text, _) = post(PATH, &asked.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        let choices = list(&answer, "choices");
        assert_eq!(choices.iter().map(|choice| &choice["index"]).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(choices.iter().all(|choice| choice["message"]["content"] == "This is"), "{text}");
        assert_eq!(answer["usage"]["completion_tokens"], 18);
        assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 12);
        let mut asked = asked;
        (asked["stream"], asked["stream_options"]) = (json!(true), json!({"include_usage": true}));
        let events = events(&post(PATH, &asked.to_string()).0);
        for index in 0..3 {
            let of =
                events.iter().map(|event| &event["choices"][0]).filter(|choice| choice["index"] == index);
            let said: String = of.filter_map(|choice| choice["delta"]["content"].as_str()).collect();
            assert_eq!(said, "This is");
        }
        assert_eq!(events.last().unwrap()["usage"], answer["usage"]);
    }

    #[test]
    fn parallel_tool_calls_are_streamed_in_parts_of_their_arguments() {
        let body = json!({
            "stream": true, "messages": [{"role": "user", "content": "mock:calls=2"}],
            "tools": [{"type": "function", "function": {"name": "weather", "parameters": {
                "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            }}}],
        });
        let (text, _) = post(PATH, &body.to_string());
        let mut arguments = [String::new(), String::new()];
        let mut parts = 0;
        for event in events(&text) {
            for call in list(&event["choices"][0]["delta"], "tool_calls") {
                let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
                arguments[index].push_str(text_at(call, "/function/arguments"));
                parts += 1;
            }
        }
        assert_eq!(arguments, [r#"{"city":"mock","days":1}"#; 2].map(str::to_owned));
        assert!(parts > 4 && text.contains(r#""finish_reason":"tool_calls""#), "{text}");
    }

    #[test]
    fn a_tool_result_is_answered_with_words_and_a_schema_with_an_object() {
        let tools = json!([{"type": "function", "function": {"name": "weather"}}]);
        let body = json!({"messages": [{"role": "tool", "content": "sunny"}], "tools": tools});
        let (text, _) = post(PATH, &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert!(text_at(&answer, "/choices/0/message/content").starts_with("This is"));
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
        let (text, _) = post(PATH, &json!({"messages": [], "response_format": format}).to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text_at(&answer, "/choices/0/message/content"), r#"{"name":"mock"}"#);
    }
}
