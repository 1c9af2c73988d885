//! OpenAI's Responses: reads a client's request.

use crate::conversation::{
    Conversation, Delivery, Given, OutputFormat, Part, Role, Sampling, Shown, Strictness, Tool, ToolChoice,
};
use crate::conversion::RequestFacts;
use crate::error::RequestError;
use crate::fields::{Field, Fields, unknown};
use crate::ignored::Place;
use crate::openai_chat;

/// Reads a request.
pub(crate) fn read_request(
    mut fields: Fields,
    facts: &RequestFacts<'_>,
) -> Result<Conversation, RequestError> {
    fields.ignore(Place::ResponsesRequest);
    if let Some(mut options) = fields.object("stream_options")? {
        options.ignore(Place::ResponsesStreamOptions);
        options.end()?;
    }
    let body_model = fields.require("model")?.text()?;
    let mut conversation = Conversation {
        model: facts.model.map_or(body_model, str::to_owned),
        delivery: Delivery::streamed(fields.boolean("stream")?.unwrap_or(false)),
        parallel_calls: fields
            .take("parallel_tool_calls")
            .map(|field| field.given(Field::boolean))
            .transpose()?,
        sampling: Sampling {
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            ..Sampling::default()
        },
        max_output_tokens: fields.unsigned("max_output_tokens")?,
        user: fields.text("user")?,
        ..Conversation::default()
    };
    for field in fields.list("include")? {
        // Reasoning comes with what the provider needs back of it, whether it is asked for or not.
        if field.value().as_text() != Some("reasoning.encrypted_content") {
            return Err(field.unsupported("the provider's format does not have it"));
        }
    }
    if let Some(reasoning) = fields.object("reasoning")? {
        read_reasoning(reasoning, &mut conversation)?;
    }
    if let Some(text) = fields.object("text")? {
        read_text(text, &mut conversation)?;
    }
    for field in fields.list("tools")? {
        conversation.tools.push(tool(field)?);
    }
    conversation.tool_choice =
        fields.take("tool_choice").map(|field| field.given(tool_choice)).transpose()?;
    if let Some(field) = fields.take("instructions") {
        let path = field.path();
        let part = field.given(|field| field.text().map(Part::Text))?;
        conversation.add(Role::System, &path, vec![part]);
    }
    super::input::read_input(fields.require("input")?, &mut conversation)?;
    fields.end()?;
    Ok(conversation)
}

fn read_reasoning(mut fields: Fields, conversation: &mut Conversation) -> Result<(), RequestError> {
    if let Some(field) = fields.take("effort") {
        openai_chat::effort(field, conversation)?;
    }
    for name in ["summary", "generate_summary"] {
        if fields.text(name)?.is_some() {
            conversation.reasoning_shown = Some(Shown::Yes);
        }
    }
    fields.end()
}

fn read_text(mut fields: Fields, conversation: &mut Conversation) -> Result<(), RequestError> {
    conversation.verbosity = fields.take("verbosity").map(|field| field.given(Field::text)).transpose()?;
    if let Some(field) = fields.take("format") {
        let path = field.path();
        let mut format = field.object()?;
        let kind = format.require("type")?.text()?;
        let value = match kind.as_str() {
            "text" => None,
            "json_object" => Some(OutputFormat::Json),
            "json_schema" => Some(OutputFormat::Schema {
                name: format.text("name")?,
                description: format.text("description")?,
                strictness: Strictness::Chosen(format.boolean("strict")?),
                schema: format.require("schema")?.json(),
            }),
            _ => return unknown(&format!("{path}.type"), &kind),
        };
        format.end()?;
        conversation.output = value.map(|value| Given { field: path, value });
    }
    fields.end()
}

fn tool(field: Field) -> Result<Tool, RequestError> {
    let path = field.path();
    let mut fields = field.object()?;
    let kind = fields.require("type")?;
    if kind.value().as_text() != Some("function") {
        return Err(kind.unsupported("only functions are converted"));
    }
    let tool = Tool {
        field: path,
        name: fields.require("name")?.text()?,
        description: fields.text("description")?,
        parameters: fields.take("parameters").map(Field::json),
        strict: fields.boolean("strict")?,
    };
    fields.end()?;
    Ok(tool)
}

fn tool_choice(field: Field) -> Result<ToolChoice, RequestError> {
    if let Some(text) = field.value().as_text() {
        return match text {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            _ => unknown(&field.path(), text),
        };
    }
    let mut fields = field.object()?;
    let kind = fields.require("type")?;
    let choice = match kind.value().as_text() {
        Some("function") => ToolChoice::Named(fields.require("name")?.text()?),
        Some("allowed_tools") => {
            let mode = fields.require("mode")?;
            if mode.value().as_text() != Some("required") {
                return Err(
                    mode.unsupported("other formats allow some of the tools only when one is required")
                );
            }
            let mut names = Vec::new();
            for tool in fields.require("tools")?.list()? {
                let mut tool = tool.object()?;
                let kind = tool.require("type")?;
                if kind.value().as_text() != Some("function") {
                    return Err(kind.unsupported("only functions are converted"));
                }
                names.push(tool.require("name")?.text()?);
                tool.end()?;
            }
            ToolChoice::RequiredAmong(names)
        }
        _ => return Err(kind.unsupported("only functions are converted")),
    };
    fields.end()?;
    Ok(choice)
}
