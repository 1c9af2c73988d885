//! OpenAI's Responses: reads the input of a client's request.

use crate::conversation::{
    Conversation, Given, Image, ImageSource, Outcome, Part, Role, ToolCall, ToolResult,
};
use crate::error::RequestError;
use crate::fields::{Field, Fields, unknown};
use crate::ignored::Place;

use super::REDACTED;

/// Reads the input: a text of the user, or items.
pub(super) fn read_input(field: Field, conversation: &mut Conversation) -> Result<(), RequestError> {
    if field.value().as_text().is_some() {
        let path = field.path();
        let part = field.given(|field| field.text().map(Part::Text))?;
        conversation.add(Role::User, &path, vec![part]);
        return Ok(());
    }
    for item in field.list()? {
        read_item(item, conversation)?;
    }
    Ok(())
}

fn read_item(field: Field, conversation: &mut Conversation) -> Result<(), RequestError> {
    let path = field.path();
    let mut fields = field.object()?;
    fields.ignore(Place::ResponsesItem);
    let kind = fields.take("type");
    let (role, value) = match kind.as_ref().map_or(Some("message"), |kind| kind.value().as_text()) {
        Some("message") => {
            let role = fields.require("role")?.text()?;
            let role = match role.as_str() {
                "user" => Role::User,
                "assistant" => Role::Assistant,
                "system" | "developer" => Role::System,
                _ => return unknown(&format!("{path}.role"), &role),
            };
            let parts = content(fields.require("content")?)?;
            fields.end()?;
            conversation.add(role, &path, parts);
            return Ok(());
        }
        Some("function_call") => {
            let call = ToolCall {
                id: fields.require("call_id")?.text()?,
                name: fields.require("name")?.text()?,
                arguments: fields.require("arguments")?.text()?,
            };
            (Role::Assistant, Part::ToolCall(call))
        }
        Some("function_call_output") => {
            let call_id = fields.require("call_id")?.text()?;
            let content = content(fields.require("output")?)?;
            (Role::User, Part::ToolResult(ToolResult { call_id, content, outcome: Outcome::Worked }))
        }
        Some("reasoning") => (Role::Assistant, read_reasoning(&mut fields, end_paragraph)?),
        _ => {
            let refused = "only messages, reasoning and functions are converted";
            return kind.map_or(Ok(()), |kind| Err(kind.unsupported(refused)));
        }
    };
    fields.end()?;
    conversation.add(role, &path, vec![Given { field: path.clone(), value }]);
    Ok(())
}

/// Refuses what is left of a paragraph of reasoning in a request.
fn end_paragraph(mut part: Fields) -> Result<(), RequestError> {
    part.ignore(Place::ResponsesParagraph);
    part.end()
}

/// Reads reasoning: its summary, and what only its provider can read. `end` gets what is left of each paragraph.
pub(super) fn read_reasoning(
    fields: &mut Fields,
    end: impl Fn(Fields) -> Result<(), RequestError>,
) -> Result<Part, RequestError> {
    let mut paragraphs = Vec::new();
    for name in ["summary", "content"] {
        for part in fields.list(name)? {
            let mut part = part.object()?;
            paragraphs.push(part.require("text")?.text()?);
            end(part)?;
        }
    }
    let signature = fields.text("encrypted_content")?;
    if let Some(data) = signature.as_deref().and_then(|signature| signature.strip_prefix(REDACTED)) {
        return Ok(Part::RedactedReasoning(data.to_owned()));
    }
    Ok(Part::Reasoning { text: paragraphs.join("\n\n"), signature })
}

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
        Some("input_text") => Part::Text(fields.require("text")?.text()?),
        Some("output_text") => {
            fields.ignore(Place::ResponsesText);
            Part::Text(fields.require("text")?.text()?)
        }
        Some("refusal") => Part::Refusal(fields.require("refusal")?.text()?),
        Some("input_image") => {
            let detail = fields.text("detail")?.filter(|detail| detail != "auto");
            let url = match fields.take("image_url") {
                Some(url) => url,
                None => fields.take("file_id").map_or_else(
                    || Err(kind.invalid("needs an image_url")),
                    |file| Err(file.unsupported("only URLs and base64 are converted")),
                )?,
            };
            Part::Image(Image { source: ImageSource::read_url(url)?, detail })
        }
        _ => return Err(kind.unsupported("only text and images are converted")),
    };
    fields.end()?;
    Ok(part)
}
