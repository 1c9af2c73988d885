//! Google's `generateContent`: reads the contents of a client's request.

use crate::conversation::{
    Conversation, Given, Image, ImageSource, Outcome, Part, Role, ToolCall, ToolResult,
};
use crate::error::RequestError;
use crate::fields::{Field, Fields, unknown};
use crate::ignored::Place;
use crate::json::Json;

use super::signature;

/// The most calls of a conversation that have no result yet, which bounds the search for the one that a result is of.
const MAX_UNANSWERED_CALLS: usize = 1000;

/// Calls of the conversation so far, for results and calls without an id.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The ids and names of calls that have no result yet.
    unanswered: Vec<(String, String)>,
    /// How many ids were made.
    made_count: usize,
}

/// Reads a content of the conversation.
pub(super) fn read_content(
    field: Field,
    calls: &mut Calls,
    conversation: &mut Conversation,
) -> Result<(), RequestError> {
    let path = field.path();
    let mut fields = field.object()?.camel_case()?;
    let role = match fields.text("role")?.as_deref() {
        None | Some("user" | "function") => Role::User,
        Some("model") => Role::Assistant,
        Some(role) => return unknown(&format!("{path}.role"), role),
    };
    let mut parts = Vec::new();
    for field in fields.list("parts")? {
        read_part(field, calls, &mut parts)?;
    }
    fields.end()?;
    conversation.add(role, &path, parts);
    Ok(())
}

/// Reads the system instruction: its role says nothing.
pub(super) fn read_system(field: Field, conversation: &mut Conversation) -> Result<(), RequestError> {
    let path = field.path();
    let mut parts = Vec::new();
    if field.value().as_text().is_some() {
        parts.push(field.given(|field| field.text().map(Part::Text))?);
    } else {
        let mut fields = field.object()?;
        fields.ignore(Place::GoogleSystem);
        for field in fields.list("parts")? {
            read_part(field, &mut Calls::default(), &mut parts)?;
        }
        fields.end()?;
    }
    conversation.add(Role::System, &path, parts);
    Ok(())
}

fn read_part(field: Field, calls: &mut Calls, parts: &mut Vec<Given<Part>>) -> Result<(), RequestError> {
    let path = field.path();
    let mut fields = field.object()?.camel_case()?;
    let is_thought = fields.boolean("thought")?.unwrap_or(false);
    if let Some(field) = fields.take("thoughtSignature") {
        read_signature(field, parts)?;
    }
    let mut part = None;
    if let Some(text) = fields.text("text")? {
        part = Some(if is_thought { Part::Reasoning { text, signature: None } } else { Part::Text(text) });
    }
    if let Some(data) = fields.object("inlineData")? {
        only(&mut part, read_inline(data.camel_case()?)?, &path)?;
    }
    if let Some(data) = fields.object("fileData")? {
        only(&mut part, read_file(data.camel_case()?)?, &path)?;
    }
    if let Some(call) = fields.object("functionCall")? {
        only(&mut part, read_call(call, calls)?, &path)?;
    }
    if let Some(result) = fields.object("functionResponse")? {
        only(&mut part, read_result(result.camel_case()?, calls)?, &path)?;
    }
    fields.end()?;
    let Some(value) = part else {
        return Err(RequestError::Invalid { field: path, message: "has no content".to_owned() });
    };
    // A text of nothing only carries a signature.
    let carries_signature = value == Part::Text(String::new())
        && parts.last().is_some_and(|last| {
            last.field == format!("{path}.thoughtSignature") || matches!(last.value, Part::Reasoning { .. })
        });
    if !carries_signature {
        parts.push(Given { field: path, value });
    }
    Ok(())
}

/// A part is one thing.
fn only(part: &mut Option<Part>, value: Part, path: &str) -> Result<(), RequestError> {
    match part.replace(value) {
        None => Ok(()),
        Some(_) => Err(RequestError::Invalid {
            field: path.to_owned(),
            message: "has more than one kind of content".to_owned(),
        }),
    }
}

/// Reads a signature. It belongs to the reasoning just before it, or stands alone.
fn read_signature(field: Field, parts: &mut Vec<Given<Part>>) -> Result<(), RequestError> {
    let path = field.path();
    let unsupported = |why: &str| RequestError::Unsupported { field: path.clone(), why: why.to_owned() };
    let read = signature::decode(&field.text()?).map_err(unsupported)?;
    let Some(read) = read else { return Ok(()) };
    if let (Part::Reasoning { signature, .. }, Some(last)) = (&read, parts.last_mut())
        && let Part::Reasoning { signature: unsigned @ None, .. } = &mut last.value
    {
        unsigned.clone_from(signature);
        return Ok(());
    }
    parts.push(Given { field: path, value: read });
    Ok(())
}

fn read_inline(mut data: Fields) -> Result<Part, RequestError> {
    data.ignore(Place::GoogleData);
    let media_type = image_type(data.require("mimeType")?)?;
    // Python's clients write the alphabet of URLs, which the others do not take.
    let bytes = data.require("data")?.text()?.replace('-', "+").replace('_', "/");
    data.end()?;
    Ok(Part::Image(Image { source: ImageSource::Base64 { media_type, data: bytes }, detail: None }))
}

fn read_file(mut data: Fields) -> Result<Part, RequestError> {
    data.ignore(Place::GoogleData);
    data.take("mimeType").map(image_type).transpose()?;
    let source = ImageSource::read_address(data.require("fileUri")?)?;
    data.end()?;
    Ok(Part::Image(Image { source, detail: None }))
}

fn image_type(field: Field) -> Result<String, RequestError> {
    if !field.value().as_text().is_some_and(|text| text.starts_with("image/")) {
        return Err(field.unsupported("only images are converted"));
    }
    field.text()
}

fn read_call(mut call: Fields, calls: &mut Calls) -> Result<Part, RequestError> {
    let name = call.require("name")?.text()?;
    let id = call.text("id")?.filter(|id| !id.is_empty()).unwrap_or_else(|| {
        calls.made_count += 1;
        format!("call_{}", calls.made_count - 1)
    });
    let arguments = call.take("args");
    if let Some(field) = arguments.as_ref().filter(|field| !field.value().is_object()) {
        return Err(field.invalid("must be an object"));
    }
    let arguments = arguments.map_or_else(|| "{}".to_owned(), |field| field.json().to_text());
    if calls.unanswered.len() >= MAX_UNANSWERED_CALLS {
        return Err(RequestError::Invalid {
            field: call.path(),
            message: format!("follows {MAX_UNANSWERED_CALLS} calls without a result"),
        });
    }
    call.end()?;
    calls.unanswered.push((id.clone(), name.clone()));
    Ok(Part::ToolCall(ToolCall { id, name, arguments }))
}

/// Reads a result. One without an id is that of the first call of the function that has none yet.
fn read_result(mut result: Fields, calls: &mut Calls) -> Result<Part, RequestError> {
    result.ignore(Place::GoogleResult);
    let path = result.path();
    let id = result.text("id")?.filter(|id| !id.is_empty());
    let name = result.require("name")?.text()?;
    let at = calls.unanswered.iter().position(|(call_id, call_name)| match &id {
        Some(id) => call_id == id,
        None => *call_name == name,
    });
    let Some(at) = at else {
        let message = "answers no call of the conversation".to_owned();
        return Err(RequestError::Invalid { field: path, message });
    };
    let (call_id, _) = calls.unanswered.remove(at);
    let response = result.require("response")?;
    let field = response.path();
    let (text, outcome) = match response.json() {
        Json::Object(mut members) => match &mut members[..] {
            [(name, Json::Text(text))] if name == "output" => (std::mem::take(text), Outcome::Worked),
            [(name, Json::Text(text))] if name == "error" => (std::mem::take(text), Outcome::Failed),
            _ => (Json::Object(members).to_text(), Outcome::Worked),
        },
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) => {
            return Err(RequestError::Invalid { field, message: "must be an object".to_owned() });
        }
    };
    result.end()?;
    let content = vec![Given { field, value: Part::Text(text) }];
    Ok(Part::ToolResult(ToolResult { call_id, content, outcome }))
}
