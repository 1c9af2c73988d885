//! Anthropic's Messages: writes a client's response.

use crate::answer::{Answer, Finish, Usage};
use crate::conversation::Part;
use crate::error::ResponseError;
use crate::json::{Json, ObjectBuilder, ValuesLeft, object};
use crate::provider_error::ProviderError;

use super::response_reader::ID_PREFIX;

/// Writes a response.
pub(crate) fn write_response(answer: Answer) -> Result<Json, ResponseError> {
    let (reason, sequence) = stop_reason(&answer.finish);
    let left = ValuesLeft::default();
    let content =
        answer.parts.into_iter().map(|part| write_block(part, &left)).collect::<Result<Vec<_>, _>>()?;
    let response = ObjectBuilder::default()
        .with("id", answer.about.id_with(ID_PREFIX))
        .with("type", "message")
        .with("role", "assistant")
        .with("model", answer.about.model)
        .with("content", content)
        .with("stop_reason", reason)
        .with("stop_sequence", sequence)
        // A client reads usage from every message.
        .with("usage", usage(answer.usage.unwrap_or_default()));
    Ok(response.into())
}

fn write_block(part: Part, left: &ValuesLeft) -> Result<Json, ResponseError> {
    Ok(match part {
        Part::Text(text) | Part::Refusal(text) => object! { "type": "text", "text": text },
        Part::Reasoning { text, signature } => {
            object! { "type": "thinking", "thinking": text, "signature": signature.unwrap_or_default() }
        }
        Part::RedactedReasoning(data) => object! { "type": "redacted_thinking", "data": data },
        Part::ToolCall(call) => {
            let input = call.arguments_object(left).map_err(|message| ResponseError::Invalid {
                field: format!("arguments of {}", call.name),
                message,
            })?;
            object! { "type": "tool_use", "id": call.id, "name": call.name, "input": input }
        }
        Part::Image(_) | Part::ToolResult(_) => unreachable!("no answer has them"),
    })
}

/// Why the answer ended. Anthropic's word for a filter is a refusal.
pub(super) fn stop_reason(finish: &Finish) -> (&'static str, Option<&str>) {
    match finish {
        Finish::Stop => ("end_turn", None),
        Finish::StopSequence(sequence) => ("stop_sequence", Some(sequence)),
        Finish::Length => ("max_tokens", None),
        Finish::ToolCalls => ("tool_use", None),
        Finish::Filtered | Finish::Refusal => ("refusal", None),
    }
}

/// Usage.
pub(super) fn usage(usage: Usage) -> Json {
    let reasoning = usage.reasoning.map(|tokens| object! { "thinking_tokens": tokens });
    ObjectBuilder::default()
        .with("input_tokens", usage.uncached())
        .with("cache_creation_input_tokens", usage.cache_written)
        .with("cache_read_input_tokens", usage.cached)
        .with("output_tokens", usage.output)
        .with_some("output_tokens_details", reasoning)
        .into()
}

/// Writes an error.
pub(crate) fn write_error(error: &ProviderError) -> Json {
    let object = object! { "type": error.kind.anthropic_type(), "message": error.message.as_str() };
    object! { "type": "error", "error": object }
}
