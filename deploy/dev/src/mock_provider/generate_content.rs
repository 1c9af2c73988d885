//! Google's `generateContent` and `streamGenerateContent`: server-sent events with `alt=sse`, else a JSON array.

use serde_json::{Value, json};

use super::answer::{
    Answer, Asked, Choice, Content, Ending, Last, Thinking, Tool, answers_of, count_words, is_true, list,
    text_at,
};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_member};

/// The name of the member that reports the usage.
const USAGE: &str = "usageMetadata";

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Whole.
    Whole,
    /// In parts.
    Streamed,
}

/// The response to `POST …/models/{model}:generateContent` or `:streamGenerateContent`.
pub(super) fn respond(call: &Call<'_>, model: &str, delivery: Delivery) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("contents").is_some_and(Value::is_array)) else {
        let message = "the body must be a JSON object with a list of contents";
        return Api::Google.error(http::StatusCode::BAD_REQUEST, message);
    };
    let asked = asked(&body, model);
    let answer = Answer::to(&asked, call);
    let config = either(&body, "generationConfig", "generation_config").unwrap_or(&Value::Null);
    let answers = answers_of(config, "candidateCount").max(answers_of(config, "candidate_count"));
    let made = Candidate { id: format!("mock-{}", call.id), asked, answer, answers };
    match delivery {
        Delivery::Whole => made.whole(call),
        Delivery::Streamed => made.streamed(call),
    }
}

fn asked(body: &Value, model: &str) -> Asked {
    let contents = list(body, "contents");
    let system = either(body, "systemInstruction", "system_instruction");
    let config = either(body, "generationConfig", "generation_config").cloned().unwrap_or_default();
    let declarations = list(body, "tools").iter().filter_map(|tool| {
        either(tool, "functionDeclarations", "function_declarations").and_then(Value::as_array)
    });
    let tools = declarations.flatten().map(|function| {
        let schema = ["parametersJsonSchema", "parameters_json_schema", "parameters"];
        let schema = schema.iter().find_map(|name| function.get(*name)).cloned().unwrap_or_default();
        Tool { name: text_at(function, "/name").to_owned(), schema }
    });
    let calling = either(body, "toolConfig", "tool_config").cloned().unwrap_or_default();
    let calling =
        either(&calling, "functionCallingConfig", "function_calling_config").cloned().unwrap_or_default();
    let only = either(&calling, "allowedFunctionNames", "allowed_function_names");
    let only = only.map(|names| text_at(names, "/0")).unwrap_or_default();
    let choice = match (text_at(&calling, "/mode"), only) {
        ("NONE", _) => Choice::Off,
        (_, "") => Choice::Any,
        (_, name) => Choice::Only(name),
    };
    let is_json = either(&config, "responseMimeType", "response_mime_type")
        .is_some_and(|kind| kind == "application/json");
    let schema = ["responseJsonSchema", "response_json_schema", "responseSchema", "response_schema"];
    let schema = schema.iter().find_map(|name| config.get(*name)).cloned();
    let last = contents.last().map(|content| list(content, "parts")).unwrap_or_default();
    let is_result = last.iter().any(|part| either(part, "functionResponse", "function_response").is_some());
    let thinking = either(&config, "thinkingConfig", "thinking_config").cloned().unwrap_or_default();
    // Google's Python package writes one name in either way.
    let thinks = is_true(&thinking, "/includeThoughts") || is_true(&thinking, "/include_thoughts");
    Asked {
        model: model.to_owned(),
        input_tokens: contents.iter().chain(system).map(count_words).sum(),
        limit: either(&config, "maxOutputTokens", "max_output_tokens").and_then(Value::as_u64),
        tools: choice.of(tools),
        last: if is_result { Last::ToolResult } else { Last::Speaker },
        schema: schema.or_else(|| is_json.then(|| json!({"const": {"mock": true}}))),
        thinking: if thinks { Thinking::On } else { Thinking::Off },
    }
}

/// The member under either of its names.
fn either<'a>(value: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
    value.get(camel).or_else(|| value.get(snake))
}

struct Candidate {
    id: String,
    asked: Asked,
    answer: Answer,
    /// How often the answer is given.
    answers: usize,
}

impl Candidate {
    const fn finish_reason(&self) -> &'static str {
        match self.answer.ending {
            Ending::Stop | Ending::Calls => "STOP",
            Ending::Length => "MAX_TOKENS",
        }
    }

    /// The parts of the answer, one per part of a stream, each with its output tokens. A function call is whole.
    fn parts(&self) -> Vec<(Value, usize)> {
        let thoughts = self.answer.thoughts.iter().map(|text| (json!({"text": text, "thought": true}), 1));
        let mut parts: Vec<_> = thoughts.collect();
        match &self.answer.content {
            Content::Text(pieces) => parts.extend(pieces.iter().map(|text| (json!({"text": text}), 1))),
            Content::Calls(calls) => parts.extend(calls.iter().map(|call| {
                let function = json!({"name": call.name, "args": call.arguments});
                (json!({"functionCall": function}), call.pieces().len())
            })),
        }
        parts
    }

    /// The usage once this many output tokens were sent. Thoughts come first in each candidate, and are counted beside.
    fn usage(&self, sent: usize) -> String {
        let prompt = self.asked.input_tokens;
        let (whole, of_next) =
            (sent / self.answer.output_tokens.max(1), sent % self.answer.output_tokens.max(1));
        let thoughts = self.answer.thoughts.len() * whole + self.answer.thoughts.len().min(of_next);
        let mut usage = json!({
            "promptTokenCount": prompt, "candidatesTokenCount": sent - thoughts, "totalTokenCount": prompt + sent,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        });
        if thoughts > 0 {
            usage["thoughtsTokenCount"] = json!(thoughts);
        }
        usage.to_string()
    }

    /// A candidate, or what a part of a stream has of it.
    fn candidate(index: usize, parts: &[Value], finish_reason: Option<&str>) -> Value {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": index});
        if let Some(reason) = finish_reason {
            candidate["finishReason"] = json!(reason);
        }
        candidate
    }

    /// A response without its usage.
    fn object(&self, candidates: &[Value]) -> Value {
        json!({"candidates": candidates, "modelVersion": self.asked.model, "responseId": self.id})
    }

    fn whole(&self, call: &Call<'_>) -> MockResponse {
        let usage = usage_of(call, || self.usage(self.answer.output_tokens * self.answers));
        let (thoughts, said): (Vec<_>, Vec<_>) =
            self.parts().into_iter().map(|(part, _)| part).partition(|part| part.get("thought").is_some());
        let joined =
            |parts: &[Value]| -> String { parts.iter().map(|part| text_at(part, "/text")).collect() };
        let mut parts = Vec::new();
        if !thoughts.is_empty() {
            parts.push(json!({"text": joined(&thoughts), "thought": true}));
        }
        match &self.answer.content {
            Content::Text(_) => parts.push(json!({"text": joined(&said)})),
            Content::Calls(_) => parts.extend(said),
        }
        let candidate = |index| Self::candidate(index, &parts, Some(self.finish_reason()));
        let object = self.object(&(0..self.answers).map(candidate).collect::<Vec<_>>());
        MockResponse::json(with_member(&object, USAGE, usage.as_deref()), usage)
    }

    /// The parts, each with the usage so far. The control `usage` is reported by the last alone.
    fn streamed(&self, call: &Call<'_>) -> MockResponse {
        let framing = match call.controls.text("alt").as_deref() {
            Some("sse") => Framing::Events,
            _ => Framing::Array,
        };
        let mut stream = Stream::default();
        let parts = self.parts();
        let (count, mut sent) = (parts.len() * self.answers, 0);
        for (at, (part, tokens)) in parts.iter().cycle().take(count).enumerate() {
            sent += tokens;
            let is_last = at + 1 == count;
            let ends = (at + 1) % parts.len() == 0;
            let usage = match call.controls.text("usage") {
                Some(_) if !is_last => None,
                _ => usage_of(call, || self.usage(sent)),
            };
            let (index, part) = (at / parts.len(), std::slice::from_ref(part));
            let object = self.object(&[Self::candidate(index, part, ends.then(|| self.finish_reason()))]);
            let text = with_member(&object, USAGE, usage.as_deref());
            match framing {
                Framing::Events => stream.piece(format!("data: {text}\r\n\r\n")),
                Framing::Array if at == 0 => stream.piece(format!("[{text}\n")),
                Framing::Array => stream.piece(format!(",\r\n{text}\n")),
            }
            stream.reports(usage.as_deref());
        }
        match framing {
            Framing::Events => stream.events(),
            Framing::Array => {
                stream.piece(if count == 0 { "[]".to_owned() } else { "]".to_owned() });
                stream.response("application/json; charset=UTF-8")
            }
        }
    }
}

/// How the parts of a stream are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Events,
    Array,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::{events, post};

    const BODY: &str = r#"{"contents":[{"role":"user","parts":[{"text":"one two"}]}]}"#;

    #[test]
    fn an_answer_names_its_model_and_its_usage() {
        let (text, _) = post("/v1beta/models/gemini-mock:generateContent", BODY);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["modelVersion"], "gemini-mock");
        assert_eq!(answer["candidates"][0]["finishReason"], "STOP");
        let usage = &answer["usageMetadata"];
        assert_eq!((&usage["promptTokenCount"], &usage["candidatesTokenCount"]), (&json!(2), &json!(10)));
    }

    #[test]
    fn a_stream_is_events_or_an_array_of_the_same_parts() {
        let path = "/v1beta/models/m:streamGenerateContent";
        let (text, response) = post(&format!("{path}?alt=sse"), BODY);
        let parts = events(&text);
        assert_eq!((response.content_type, parts.len()), ("text/event-stream", 10));
        assert_eq!(parts[0]["usageMetadata"]["candidatesTokenCount"], 1);
        let (text, response) = post(path, BODY);
        let array: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(array, parts);
        assert_eq!(response.reports.last().map(|report| &report.usage), response.usage.as_ref());
    }

    #[test]
    fn as_many_candidates_as_are_asked_for_are_given_and_counted() {
        let mut body: Value = serde_json::from_str(BODY).unwrap();
        let thinking = json!({"includeThoughts": true});
        body["generationConfig"] =
            json!({"candidateCount": 2, "maxOutputTokens": 3, "thinkingConfig": thinking});
        let (text, _) = post("/v1beta/models/m:generateContent", &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        let candidates = list(&answer, "candidates");
        assert_eq!(candidates.iter().map(|candidate| &candidate["index"]).collect::<Vec<_>>(), [0, 1]);
        assert!(candidates.iter().all(|candidate| candidate["content"]["parts"][1]["text"] == "This is the"));
        let usage = &answer["usageMetadata"];
        assert_eq!((&usage["candidatesTokenCount"], &usage["thoughtsTokenCount"]), (&json!(6), &json!(8)));
        let (text, _) = post("/v1beta/models/m:streamGenerateContent?alt=sse", &body.to_string());
        let parts = events(&text);
        assert_eq!(parts.len(), 14);
        assert_eq!(&parts[13]["usageMetadata"], usage);
        let ends = parts.iter().filter(|part| part["candidates"][0]["finishReason"] == "MAX_TOKENS");
        assert_eq!(ends.map(|part| &part["candidates"][0]["index"]).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn functions_are_called_with_arguments_of_their_schema_and_a_schema_makes_an_object() {
        let schema = json!({"type": "OBJECT", "properties": {"city": {"type": "STRING"}}});
        let mut body: Value = serde_json::from_str(BODY).unwrap();
        body["tools"] = json!([{"functionDeclarations": [{"name": "weather", "parameters": schema}]}]);
        let (text, _) = post("/v1beta/models/m:generateContent", &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        let called = json!({"name": "weather", "args": {"city": "mock"}});
        assert_eq!(answer["candidates"][0]["content"]["parts"][0]["functionCall"], called);
        let mut body: Value = serde_json::from_str(BODY).unwrap();
        body["generationConfig"] = json!({"responseMimeType": "application/json", "responseSchema": schema});
        let (text, _) = post("/v1beta/models/m:generateContent", &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text_at(&answer, "/candidates/0/content/parts/0/text"), r#"{"city":"mock"}"#);
    }
}
