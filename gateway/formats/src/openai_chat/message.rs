//! Chat Completions: reads the messages of a client's request.

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
    let role = role.text()?;
    match role.as_str() {
        "system" | "developer" => {
            let parts = content(fields.require("content")?)?;
            conversation.add(Role::System, &path, parts);
        }
        "user" => {
            let parts = content(fields.require("content")?)?;
            conversation.add(Role::User, &path, parts);
        }
        "assistant" => {
            let parts = assistant(&mut fields, &path)?;
            conversation.add(Role::Assistant, &path, parts);
        }
        "tool" => {
            let result = ToolResult {
                call_id: fields.require("tool_call_id")?.text()?,
                content: content(fields.require("content")?)?,
                outcome: Outcome::Worked,
            };
            let part = Given { field: path.clone(), value: Part::ToolResult(result) };
            conversation.add(Role::User, &path, vec![part]);
        }
        _ => return unknown(&role_path, &role),
    }
    fields.end()
}

/// Reads the parts of an assistant's message. Chat Completions has no order of text and calls: text comes first.
fn assistant(fields: &mut Fields, path: &str) -> Result<Vec<Given<Part>>, RequestError> {
    fields.ignore(Place::ChatAssistant);
    let mut moved = fields.object("provider_specific_fields")?;
    let mut parts = reasoning(fields, moved.as_mut(), path)?;
    if let Some(field) = fields.take("content") {
        let written = content(field)?;
        // OpenAI writes an empty text beside calls. It says nothing.
        parts.extend(written.into_iter().filter(|part| part.value != Part::Text(String::new())));
    }
    if let Some(field) = take_moved(fields, moved.as_mut(), "refusal") {
        parts.push(field.given(|field| field.text().map(Part::Refusal))?);
    }
    for call in fields.list("tool_calls")? {
        parts.push(call.given(|call| tool_call(call.object()?))?);
    }
    moved.map_or(Ok(()), Fields::end)?;
    Ok(parts)
}

/// Takes a field of a message that the client got. The client litellm moves the fields of an answer that it does not
/// know into `provider_specific_fields`, and sends them back there.
fn take_moved(fields: &mut Fields, moved: Option<&mut Fields>, name: &str) -> Option<Field> {
    fields.take(name).or_else(|| moved?.take(name))
}

/// Reads reasoning as [`super::response_writer`] writes it.
fn reasoning(
    fields: &mut Fields,
    moved: Option<&mut Fields>,
    path: &str,
) -> Result<Vec<Given<Part>>, RequestError> {
    let text = fields.text("reasoning_content")?;
    let details = take_moved(fields, moved, "reasoning_details").map_or(Ok(Vec::new()), Field::list)?;
    if details.is_empty() {
        let part = text.map(|text| Given {
            field: format!("{path}.reasoning_content"),
            value: Part::Reasoning { text, signature: None },
        });
        return Ok(part.into_iter().collect());
    }
    let read = |field: Field| {
        let mut detail = field.object()?;
        let kind = detail.require("type")?;
        let part = match kind.value().as_text() {
            Some("reasoning.text") => Part::Reasoning {
                text: detail.text("text")?.unwrap_or_default(),
                signature: detail.text("signature")?,
            },
            Some("reasoning.encrypted") => Part::RedactedReasoning(detail.require("data")?.text()?),
            _ => return Err(kind.unsupported("it is not known")),
        };
        detail.end()?;
        Ok(part)
    };
    details.into_iter().map(|field| field.given(read)).collect()
}

fn tool_call(mut fields: Fields) -> Result<Part, RequestError> {
    let kind = fields.take("type");
    if let Some(kind) = kind.filter(|kind| kind.value().as_text() != Some("function")) {
        return Err(kind.unsupported("only calls of functions are converted"));
    }
    fields.ignore(Place::ChatCall);
    let mut function = fields.require("function")?.object()?;
    let call = ToolCall {
        id: fields.require("id")?.text()?,
        name: function.require("name")?.text()?,
        arguments: function.require("arguments")?.text()?,
    };
    function.end()?;
    fields.end()?;
    Ok(Part::ToolCall(call))
}

/// Reads the content of a message: a text, or parts.
fn content(field: Field) -> Result<Vec<Given<Part>>, RequestError> {
    if field.value().as_text().is_some() {
        return Ok(vec![field.given(|field| field.text().map(Part::Text))?]);
    }
    field.list()?.into_iter().map(|field| field.given(content_part)).collect()
}

fn content_part(field: Field) -> Result<Part, RequestError> {
    let mut fields = field.object()?;
    let kind = fields.require("type")?;
    let part = match kind.value().as_text() {
        Some("text") => Part::Text(fields.require("text")?.text()?),
        Some("refusal") => Part::Refusal(fields.require("refusal")?.text()?),
        Some("image_url") => {
            let mut image = fields.require("image_url")?.object()?;
            let source = ImageSource::read_url(image.require("url")?)?;
            let detail = image.text("detail")?.filter(|detail| detail != "auto");
            image.end()?;
            Part::Image(Image { source, detail })
        }
        _ => return Err(kind.unsupported("only text and images are converted")),
    };
    fields.end()?;
    Ok(part)
}
