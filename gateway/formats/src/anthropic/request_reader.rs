//! Anthropic's Messages: reads a client's request.

use crate::conversation::{
    Conversation, Delivery, Effort, Given, OutputFormat, Role, Sampling, Shown, Strictness, Thinking, Tool,
    ToolChoice,
};
use crate::conversion::RequestFacts;
use crate::error::RequestError;
use crate::fields::{Field, Fields, unknown};
use crate::ignored::Place;

use super::message::{content, read_message};

/// Reads a request.
pub(crate) fn read_request(
    mut fields: Fields,
    facts: &RequestFacts<'_>,
) -> Result<Conversation, RequestError> {
    fields.ignore(Place::AnthropicRequest);
    let body_model = fields.require("model")?.text()?;
    let mut conversation = Conversation {
        model: facts.model.map_or(body_model, str::to_owned),
        delivery: Delivery::streamed(fields.boolean("stream")?.unwrap_or(false)),
        stop: fields.take("stop_sequences").map(|field| field.given(Field::texts)).transpose()?,
        sampling: Sampling {
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            top_k: fields.number("top_k")?,
            ..Sampling::default()
        },
        max_output_tokens: Some(fields.require("max_tokens")?.unsigned()?),
        ..Conversation::default()
    };
    if let Some(mut metadata) = fields.object("metadata")? {
        conversation.user = metadata.text("user_id")?;
        metadata.end()?;
    }
    if let Some(field) = fields.take("thinking") {
        thinking(field, &mut conversation)?;
    }
    if let Some(config) = fields.object("output_config")? {
        output_config(config, &mut conversation)?;
    }
    for field in fields.list("tools")? {
        conversation.tools.push(tool(field)?);
    }
    if let Some(field) = fields.take("tool_choice") {
        tool_choice(field, &mut conversation)?;
    }
    if let Some(field) = fields.take("system") {
        let path = field.path();
        let parts = content(field)?;
        if !parts.is_empty() {
            conversation.add(Role::System, &path, parts);
        }
    }
    for field in fields.require("messages")?.list()? {
        read_message(field, &mut conversation)?;
    }
    fields.end()?;
    Ok(conversation)
}

fn thinking(field: Field, conversation: &mut Conversation) -> Result<(), RequestError> {
    let path = field.path();
    let mut fields = field.object()?;
    let kind = fields.require("type")?;
    let value = match kind.value().as_text() {
        Some("enabled") => Thinking::Budget(fields.require("budget_tokens")?.unsigned()?),
        Some("adaptive") => Thinking::Adaptive,
        Some("disabled") => Thinking::Off,
        _ => return Err(kind.unsupported("it is not known")),
    };
    let display = fields.take("display");
    let shown = match display.as_ref().map(|display| display.value().as_text()) {
        None | Some(Some("summarized")) => Shown::Yes,
        Some(Some("omitted")) => Shown::No,
        Some(_) => return display.map_or(Ok(()), |field| Err(field.unsupported("it is not known"))),
    };
    fields.end()?;
    if value != Thinking::Off {
        conversation.reasoning_shown = Some(shown);
    }
    conversation.thinking = Some(Given { field: path, value });
    Ok(())
}

fn output_config(mut config: Fields, conversation: &mut Conversation) -> Result<(), RequestError> {
    if let Some(field) = config.take("effort") {
        let read = |field: Field| match field.value().as_text() {
            Some("low") => Ok(Effort::Low),
            Some("medium") => Ok(Effort::Medium),
            Some("high") => Ok(Effort::High),
            Some("xhigh") => Ok(Effort::ExtraHigh),
            Some("max") => Ok(Effort::Max),
            _ => Err(field.unsupported("it is not known")),
        };
        conversation.effort = Some(field.given(read)?);
    }
    if let Some(field) = config.take("format") {
        let read = |field: Field| {
            let mut format = field.object()?;
            let kind = format.require("type")?;
            if kind.value().as_text() != Some("json_schema") {
                return Err(kind.unsupported("it is not known"));
            }
            let schema = format.require("schema")?.json();
            format.end()?;
            let (name, description) = (None, None);
            Ok(OutputFormat::Schema { name, description, schema, strictness: Strictness::Always })
        };
        conversation.output = Some(field.given(read)?);
    }
    config.end()
}

fn tool(field: Field) -> Result<Tool, RequestError> {
    let path = field.path();
    let mut fields = field.object()?;
    fields.ignore(Place::AnthropicTool);
    if let Some(kind) = fields.take("type").filter(|kind| kind.value().as_text() != Some("custom")) {
        return Err(kind.unsupported("only tools of the client are converted"));
    }
    let tool = Tool {
        field: path,
        name: fields.require("name")?.text()?,
        description: fields.text("description")?,
        parameters: Some(fields.require("input_schema")?.json()),
        strict: fields.boolean("strict")?,
    };
    fields.end()?;
    Ok(tool)
}

fn tool_choice(field: Field, conversation: &mut Conversation) -> Result<(), RequestError> {
    let path = field.path();
    let mut fields = field.object()?;
    let kind = fields.require("type")?.text()?;
    let value = match kind.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(fields.require("name")?.text()?),
        _ => return unknown(&format!("{path}.type"), &kind),
    };
    if let Some(field) = fields.take("disable_parallel_tool_use") {
        conversation.parallel_calls = Some(field.given(|field| field.boolean().map(|disable| !disable))?);
    }
    fields.end()?;
    conversation.tool_choice = Some(Given { field: path, value });
    Ok(())
}
