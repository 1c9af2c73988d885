//! Amazon Bedrock's `Converse`, plain or as a binary event stream. Signatures are not verified.

use bytes::Bytes;
use flate2::Crc;
use serde_json::{Value, json};

use super::answer::{
    Answer, Asked, Content, Ending, Last, Thinking, Tool, ToolCall, count_words, list, text_at,
};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_usage};

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// As one object.
    Whole,
    /// As an event stream.
    Streamed,
}

/// The media type of an event stream.
const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// The type of a header's value that is a text.
const TEXT: u8 = 7;

/// The response to `POST /model/{model}/converse` or `…/converse-stream`.
pub(super) fn respond(call: &Call<'_>, model: &str, delivery: Delivery) -> MockResponse {
    let body: Option<Value> = serde_json::from_slice(call.body).ok();
    let Some(body) = body.filter(|body| body.get("messages").is_some_and(Value::is_array)) else {
        let message = "the body must be a JSON object with a list of messages";
        return Api::Bedrock.error(http::StatusCode::BAD_REQUEST, message);
    };
    let asked = asked(&body, model);
    let answer = Answer::to(&asked, call);
    let (input, output) = (asked.input_tokens, answer.output_tokens);
    let total = input + output;
    let usage = usage_of(call, || {
        format!(r#"{{"inputTokens":{input},"outputTokens":{output},"totalTokens":{total}}}"#)
    });
    let converse = Converse { tool_id: format!("tooluse_mock_{}", call.id), answer };
    match delivery {
        Delivery::Whole => converse.whole(usage),
        Delivery::Streamed => converse.streamed(usage.as_deref()),
    }
}

fn asked(body: &Value, model: &str) -> Asked {
    let messages = list(body, "messages");
    let system = list(body, "system").iter();
    let texts = messages.iter().filter_map(|message| message.get("content")).chain(system);
    let specifications = body.pointer("/toolConfig/tools").and_then(Value::as_array);
    let tools = specifications.into_iter().flatten().filter_map(|tool| {
        let tool = tool.get("toolSpec")?;
        let schema = tool.pointer("/inputSchema/json").cloned().unwrap_or_default();
        Some(Tool { name: text_at(tool, "/name").to_owned(), schema })
    });
    let chosen = body.pointer("/toolConfig/toolChoice/tool/name").and_then(Value::as_str);
    let tools = tools.filter(|tool| chosen.is_none_or(|name| tool.name == name)).collect();
    let last = messages.last().map(|message| list(message, "content")).unwrap_or_default();
    let is_result = last.iter().any(|part| part.get("toolResult").is_some());
    Asked {
        model: model.to_owned(),
        input_tokens: texts.map(count_words).sum(),
        limit: body.pointer("/inferenceConfig/maxTokens").and_then(Value::as_u64),
        tools,
        last: if is_result { Last::ToolResult } else { Last::Speaker },
        schema: None,
        thinking: match text_at(body, "/additionalModelRequestFields/thinking/type") {
            "enabled" => Thinking::On,
            _ => Thinking::Off,
        },
    }
}

struct Converse {
    tool_id: String,
    answer: Answer,
}

impl Converse {
    const fn stop_reason(&self) -> &'static str {
        match self.answer.ending {
            Ending::Stop => "end_turn",
            Ending::Length => "max_tokens",
            Ending::Calls => "tool_use",
        }
    }

    fn tool_use(&self, call: &ToolCall) -> Value {
        json!({"toolUseId": format!("{}_{}", self.tool_id, call.index), "name": call.name})
    }

    fn whole(&self, usage: Option<String>) -> MockResponse {
        let mut content = Vec::new();
        if !self.answer.thoughts.is_empty() {
            let text = json!({"text": self.answer.thoughts.concat(), "signature": "bW9jaw=="});
            content.push(json!({"reasoningContent": {"reasoningText": text}}));
        }
        match &self.answer.content {
            Content::Text(pieces) => content.push(json!({"text": pieces.concat()})),
            Content::Calls(calls) => content.extend(calls.iter().map(|call| {
                let mut tool_use = self.tool_use(call);
                tool_use["input"] = call.arguments.clone();
                json!({"toolUse": tool_use})
            })),
        }
        let object = json!({
            "output": {"message": {"role": "assistant", "content": content}}, "stopReason": self.stop_reason(),
            "metrics": {"latencyMs": 1},
        });
        MockResponse::json(with_usage(&object, usage.as_deref()), usage)
    }

    /// The messages of the stream. The last one reports the usage.
    fn streamed(&self, usage: Option<&str>) -> MockResponse {
        let mut stream = Stream::default();
        let mut blocks = 0;
        stream.bytes(message("messageStart", &json!({"role": "assistant"}).to_string()));
        let mut block = |start: Option<Value>, deltas: Vec<Value>| {
            if let Some(start) = start {
                let start = json!({"contentBlockIndex": blocks, "start": start});
                stream.bytes(message("contentBlockStart", &start.to_string()));
            }
            for delta in deltas {
                let delta = json!({"contentBlockIndex": blocks, "delta": delta});
                stream.bytes(message("contentBlockDelta", &delta.to_string()));
            }
            stream.bytes(message("contentBlockStop", &json!({"contentBlockIndex": blocks}).to_string()));
            blocks += 1;
        };
        if !self.answer.thoughts.is_empty() {
            let thoughts =
                self.answer.thoughts.iter().map(|text| json!({"reasoningContent": {"text": text}}));
            let signature = json!({"reasoningContent": {"signature": "bW9jaw=="}});
            block(None, thoughts.chain([signature]).collect());
        }
        match &self.answer.content {
            Content::Text(pieces) => block(None, pieces.iter().map(|text| json!({"text": text})).collect()),
            Content::Calls(calls) => {
                for call in calls {
                    let pieces = call.pieces().into_iter().map(|piece| json!({"toolUse": {"input": piece}}));
                    block(Some(json!({"toolUse": self.tool_use(call)})), pieces.collect());
                }
            }
        }
        stream.bytes(message("messageStop", &json!({"stopReason": self.stop_reason()}).to_string()));
        let end = with_usage(&json!({"metrics": {"latencyMs": 1}}), usage);
        stream.bytes(message("metadata", &end));
        stream.reports(usage);
        stream.response(EVENT_STREAM)
    }
}

/// A message of an event stream: its lengths and their checksum, headers, payload, and the checksum of all.
fn message(event: &str, payload: &str) -> Bytes {
    let mut headers = Vec::new();
    for (name, value) in
        [(":message-type", "event"), (":event-type", event), (":content-type", "application/json")]
    {
        headers.push(u8::try_from(name.len()).unwrap_or_default());
        headers.extend_from_slice(name.as_bytes());
        headers.push(TEXT);
        headers.extend_from_slice(&u16::try_from(value.len()).unwrap_or_default().to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or_default().to_be_bytes();
    let total = 16 + headers.len() + payload.len();
    let mut message = [length(total), length(headers.len())].concat();
    message.extend_from_slice(&checksum(&message));
    message.extend_from_slice(&headers);
    message.extend_from_slice(payload.as_bytes());
    message.extend_from_slice(&checksum(&message));
    message.into()
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::post_bytes;

    const BODY: &str =
        r#"{"messages":[{"role":"user","content":[{"text":"one two"}]}],"inferenceConfig":{"maxTokens":3}}"#;

    /// Event type and payload of each message.
    fn messages(mut bytes: &[u8]) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            let (total, headers) = (number(0) as usize, number(4) as usize);
            assert_eq!(checksum(&bytes[..8]), bytes[8..12]);
            assert_eq!(checksum(&bytes[..total - 4]), bytes[total - 4..total]);
            let named = String::from_utf8_lossy(&bytes[12..12 + headers]).into_owned();
            let payload = serde_json::from_slice(&bytes[12 + headers..total - 4]).unwrap();
            found.push((named, payload));
            bytes = &bytes[total..];
        }
        found
    }

    #[test]
    fn a_whole_answer_stops_at_the_limit() {
        let (bytes, _) = post_bytes("/model/m/converse", BODY);
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(answer["output"]["message"]["content"][0]["text"], "This is the");
        assert_eq!(answer["usage"], json!({"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}));
        assert_eq!(answer["stopReason"], "max_tokens");
    }

    #[test]
    fn a_stream_is_binary_and_reports_in_its_last_message() {
        let (bytes, response) = post_bytes("/model/m/converse-stream", BODY);
        assert_eq!(response.content_type, EVENT_STREAM);
        let messages = messages(&bytes);
        assert!(messages[0].0.contains("messageStart"));
        let text: String = messages.iter().map(|(_, payload)| text_at(payload, "/delta/text")).collect();
        assert_eq!(text, "This is the");
        let (name, end) = messages.last().unwrap();
        assert!(name.contains("metadata"));
        assert_eq!(end["usage"]["totalTokens"], 5);
        assert_eq!(response.reports.len(), 1);
    }
}
