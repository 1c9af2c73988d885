//! Google's `generateContent`: writes a client's response.

use crate::answer::{About, Answer, Finish, Usage};
use crate::conversation::{Part, ToolCall};
use crate::error::ResponseError;
use crate::json::{Json, ObjectBuilder, ValuesLeft, object};
use crate::provider_error::ProviderError;

use super::signature;

/// Writes a response.
pub(crate) fn write_response(answer: Answer) -> Result<Json, ResponseError> {
    let (mut signature, left) = (None, ValuesLeft::default());
    let mut parts = Vec::new();
    for part in answer.parts {
        write_part(part, &mut signature, &mut parts, &left)?;
    }
    parts.extend(signature.map(signature_alone));
    // A client reads usage from every response.
    let usage = Some(answer.usage.unwrap_or_default());
    Ok(response(&answer.about, parts, Some(&answer.finish), usage))
}

/// A response, or a chunk of one.
pub(super) fn response(
    about: &About,
    parts: Vec<Json>,
    finish: Option<&Finish>,
    used: Option<Usage>,
) -> Json {
    let content = object! { "parts": parts, "role": "model" };
    let candidate = ObjectBuilder::default()
        .with("content", content)
        .with_some("finishReason", finish.map(finish_reason))
        .with("index", 0_u64);
    ObjectBuilder::default()
        .with("candidates", vec![candidate.into()])
        .with_some("usageMetadata", used.map(usage))
        .with("modelVersion", about.model.as_str())
        .with("responseId", about.id_with(""))
        .into()
}

/// Adds a part. A signature waits for the part after it.
pub(super) fn write_part(
    part: Part,
    signature: &mut Option<String>,
    parts: &mut Vec<Json>,
    left: &ValuesLeft,
) -> Result<(), ResponseError> {
    let next = match part {
        Part::Reasoning { text, signature: of_it } => {
            parts.extend(signature.take().map(signature_alone));
            if !text.is_empty() {
                parts.push(object! { "text": text, "thought": true });
            }
            *signature = of_it.map(|signature| signature::encode(&signature));
            return Ok(());
        }
        Part::RedactedReasoning(data) => {
            parts.extend(signature.take().map(signature_alone));
            *signature = Some(signature::encode_redacted(&data));
            return Ok(());
        }
        Part::Text(text) | Part::Refusal(text) => ObjectBuilder::default().with("text", text),
        Part::ToolCall(call) => write_call(call, left)?,
        Part::Image(_) | Part::ToolResult(_) => unreachable!("no answer has them"),
    };
    parts.push(next.with_some("thoughtSignature", signature.take()).into());
    Ok(())
}

/// A part that only carries a signature.
pub(super) fn signature_alone(signature: String) -> Json {
    object! { "text": "", "thoughtSignature": signature }
}

fn write_call(call: ToolCall, left: &ValuesLeft) -> Result<ObjectBuilder, ResponseError> {
    let args = call.arguments_object(left).map_err(|message| ResponseError::Invalid {
        field: format!("arguments of {}", call.name),
        message,
    })?;
    let call = object! { "id": call.id, "name": call.name, "args": args };
    Ok(ObjectBuilder::default().with("functionCall", call))
}

fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopSequence(_) | Finish::ToolCalls => "STOP",
        Finish::Length => "MAX_TOKENS",
        Finish::Filtered | Finish::Refusal => "SAFETY",
    }
}

fn usage(usage: Usage) -> Json {
    let reasoning = usage.reasoning.unwrap_or(0);
    ObjectBuilder::default()
        .with("promptTokenCount", usage.input)
        .with("cachedContentTokenCount", usage.cached)
        .with("candidatesTokenCount", usage.output.saturating_sub(reasoning))
        .with_some("thoughtsTokenCount", usage.reasoning)
        .with("totalTokenCount", usage.total())
        .into()
}

/// Writes an error.
pub(crate) fn write_error(status: u16, error: &ProviderError) -> Json {
    object! {
        "error": object! {
            "code": u64::from(status),
            "message": error.message.as_str(),
            "status": error.kind.google_status(),
        },
    }
}
