//! Chat Completions: writes a client's response.
//!
//! OpenAI shows no reasoning here. It is written as other providers of this format do: `reasoning_content` is the text,
//! and `reasoning_details` has it again with its signatures, for the client to send back.

use crate::answer::{About, Answer, Finish, Usage};
use crate::conversation::Part;
use crate::conversion::AnswerOptions;
use crate::json::{Json, ObjectBuilder, object};
use crate::provider_error::ProviderError;

use super::response_reader::ID_PREFIX;

/// Writes a response.
pub(crate) fn write_response(answer: Answer, options: AnswerOptions) -> Json {
    let has_refusal = answer.parts.iter().any(|part| matches!(part, Part::Refusal(_)));
    let finish = finish_reason(&answer.finish, has_refusal);
    let message = message(answer.parts);
    let choice =
        object! { "index": 0_u64, "message": message, "logprobs": Json::Null, "finish_reason": finish };
    head(&answer.about, "chat.completion", options)
        .with("choices", vec![choice])
        .with_some("usage", answer.usage.map(usage))
        .into()
}

/// The members that a response and a chunk begin with.
pub(super) fn head(about: &About, object: &str, options: AnswerOptions) -> ObjectBuilder {
    ObjectBuilder::default()
        .with("id", about.id_with(ID_PREFIX))
        .with("object", object)
        .with("created", about.created.unwrap_or(options.created))
        .with("model", about.model.as_str())
}

fn message(parts: Vec<Part>) -> Json {
    let (mut content, mut refusal, mut reasoning) = (None::<String>, None::<String>, None::<String>);
    let (mut details, mut calls) = (Vec::new(), Vec::<Json>::new());
    let mut has_signature = false;
    for part in parts {
        match part {
            Part::Text(text) => content.get_or_insert_default().push_str(&text),
            Part::Refusal(text) => refusal.get_or_insert_default().push_str(&text),
            Part::Reasoning { text, signature } => {
                if !text.is_empty() {
                    reasoning.get_or_insert_default().push_str(&text);
                }
                has_signature |= signature.is_some();
                details.push(reasoning_detail(text, signature));
            }
            Part::RedactedReasoning(data) => {
                has_signature = true;
                details.push(redacted_detail(data));
            }
            Part::ToolCall(call) => calls.push(object! {
                "id": call.id,
                "type": "function",
                "function": object! { "name": call.name, "arguments": call.arguments },
            }),
            Part::Image(_) | Part::ToolResult(_) => unreachable!("no answer has them"),
        }
    }
    let mut message =
        ObjectBuilder::default().with("role", "assistant").with("content", content).with("refusal", refusal);
    message = message.with_some("reasoning_content", reasoning);
    if has_signature {
        message.set("reasoning_details", details);
    }
    if !calls.is_empty() {
        message.set("tool_calls", calls);
    }
    message.into()
}

/// Reasoning with its signature.
pub(super) fn reasoning_detail(text: String, signature: Option<String>) -> Json {
    ObjectBuilder::default()
        .with("type", "reasoning.text")
        .with("text", text)
        .with_some("signature", signature)
        .into()
}

/// Reasoning that only the provider can read.
pub(super) fn redacted_detail(data: String) -> Json {
    object! { "type": "reasoning.encrypted", "data": data }
}

/// Why the answer ended. A refusal without words of its own is what OpenAI calls a filter.
pub(super) fn finish_reason(finish: &Finish, has_refusal: bool) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopSequence(_) => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Refusal if has_refusal => "stop",
        Finish::Filtered | Finish::Refusal => "content_filter",
    }
}

/// Usage.
pub(super) fn usage(usage: Usage) -> Json {
    let reasoning = usage.reasoning.map(|tokens| object! { "reasoning_tokens": tokens });
    let prompt = object! { "cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written };
    ObjectBuilder::default()
        .with("prompt_tokens", usage.input)
        .with("completion_tokens", usage.output)
        .with("total_tokens", usage.total())
        .with("prompt_tokens_details", prompt)
        .with_some("completion_tokens_details", reasoning)
        .into()
}

/// Writes an error, for both of OpenAI's formats.
pub(crate) fn write_error(error: &ProviderError) -> Json {
    object! {
        "error": object! {
            "message": error.message.as_str(),
            "type": error.kind.openai_type(),
            "param": Json::Null,
            "code": error.code.as_deref(),
        },
    }
}
