//! Anthropic's Messages: reads the messages of a client's request.

use crate::conversation::{
    Conversation, Given, Image, ImageSource, Outcome, Part, Role, ToolCall, ToolResult,
};
use crate::error::RequestError;
use crate::fields::{Field, Fields, unknown};
use crate::ignored::Place;

/// Reads a message.
pub(super) fn read_message(field: Field, conversation: &mut Conversation) -> Result<(), RequestError> {
    let path = field.path();
    let mut fields = field.object()?;
    let role = fields.require("role")?;
    let role_path = role.path();
    let role = match role.text()?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        role => return unknown(&role_path, role),
    };
    let parts = content(fields.require("content")?)?;
    fields.end()?;
    conversation.add(role, &path, parts);
    Ok(())
}

/// Reads content: a text, or blocks.
pub(super) fn content(field: Field) -> Result<Vec<Given<Part>>, RequestError> {
    if field.value().as_text().is_some() {
        return Ok(vec![field.given(|field| field.text().map(Part::Text))?]);
    }
    field.list()?.into_iter().map(|field| field.given(block)).collect()
}

fn block(field: Field) -> Result<Part, RequestError> {
    let mut fields = field.object()?;
    fields.ignore(Place::AnthropicBlock);
    let kind = fields.require("type")?;
    let part = match kind.value().as_text() {
        Some("text") => {
            fields.ignore(Place::AnthropicText);
            Part::Text(fields.require("text")?.text()?)
        }
        Some("image") => {
            let source = image_source(fields.require("source")?.object()?)?;
            Part::Image(Image { source, detail: None })
        }
        Some("thinking") => Part::Reasoning {
            text: fields.require("thinking")?.text()?,
            signature: fields.text("signature")?.filter(|signature| !signature.is_empty()),
        },
        Some("redacted_thinking") => Part::RedactedReasoning(fields.require("data")?.text()?),
        Some("tool_use") => tool_use(&mut fields)?,
        Some("tool_result") => {
            let call_id = fields.require("tool_use_id")?.text()?;
            let is_error = fields.boolean("is_error")?.unwrap_or(false);
            let content = fields.take("content").map_or(Ok(Vec::new()), content)?;
            let outcome = if is_error { Outcome::Failed } else { Outcome::Worked };
            for part in &content {
                if !matches!(part.value, Part::Text(_) | Part::Image(_)) {
                    return Err(part.unsupported("a result of a tool is text or images"));
                }
            }
            Part::ToolResult(ToolResult { call_id, content, outcome })
        }
        _ => return Err(kind.unsupported("only text, images, thinking and tools are converted")),
    };
    fields.end()?;
    Ok(part)
}

fn image_source(mut source: Fields) -> Result<ImageSource, RequestError> {
    let kind = source.require("type")?;
    let read = match kind.value().as_text() {
        Some("url") => ImageSource::read_url(source.require("url")?)?,
        Some("base64") => ImageSource::Base64 {
            media_type: source.require("media_type")?.text()?,
            data: source.require("data")?.text()?,
        },
        _ => return Err(kind.unsupported("only URLs and base64 are converted")),
    };
    source.end()?;
    Ok(read)
}

fn tool_use(fields: &mut Fields) -> Result<Part, RequestError> {
    fields.ignore(Place::AnthropicCall);
    let input = fields.require("input")?;
    if !input.value().is_object() {
        return Err(input.invalid("must be an object"));
    }
    Ok(Part::ToolCall(ToolCall {
        id: fields.require("id")?.text()?,
        name: fields.require("name")?.text()?,
        arguments: input.json().to_text(),
    }))
}
