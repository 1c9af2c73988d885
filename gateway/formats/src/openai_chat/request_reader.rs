//! Chat Completions: reads a client's request.

use crate::conversation::{
    Conversation, Delivery, Effort, Given, OutputFormat, Sampling, Strictness, Thinking, Tool, ToolChoice,
    UsageChunk,
};
use crate::conversion::RequestFacts;
use crate::error::RequestError;
use crate::fields::{Field, Fields, unknown};
use crate::ignored::Place;

/// Reads a request.
pub(crate) fn read_request(
    mut fields: Fields,
    facts: &RequestFacts<'_>,
) -> Result<Conversation, RequestError> {
    fields.ignore(Place::ChatRequest);
    let body_model = fields.require("model")?.text()?;
    let mut conversation = Conversation {
        model: facts.model.map_or(body_model, str::to_owned),
        delivery: Delivery::streamed(fields.boolean("stream")?.unwrap_or(false)),
        usage_chunk: usage_chunk(&mut fields)?,
        parallel_calls: fields
            .take("parallel_tool_calls")
            .map(|field| field.given(Field::boolean))
            .transpose()?,
        stop: fields.take("stop").map(|field| field.given(stop)).transpose()?,
        sampling: Sampling {
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            top_k: None,
            frequency_penalty: fields.number("frequency_penalty")?,
            presence_penalty: fields.number("presence_penalty")?,
            seed: fields.number("seed")?,
        },
        max_output_tokens: output_limit(&mut fields)?,
        verbosity: fields.take("verbosity").map(|field| field.given(Field::text)).transpose()?,
        user: fields.text("user")?,
        ..Conversation::default()
    };
    if let Some(field) = fields.take("reasoning_effort") {
        effort(field, &mut conversation)?;
    }
    if let Some(field) = fields.take("response_format") {
        let path = field.path();
        let format = response_format(field.object()?)?;
        conversation.output = format.map(|value| Given { field: path, value });
    }
    for field in fields.list("tools")? {
        conversation.tools.push(tool(field)?);
    }
    conversation.tool_choice =
        fields.take("tool_choice").map(|field| field.given(tool_choice)).transpose()?;
    for field in fields.require("messages")?.list()? {
        super::message::read_message(field, &mut conversation)?;
    }
    fields.end()?;
    Ok(conversation)
}

fn usage_chunk(fields: &mut Fields) -> Result<UsageChunk, RequestError> {
    let Some(mut options) = fields.object("stream_options")? else { return Ok(UsageChunk::Omitted) };
    let is_sent = options.boolean("include_usage")?.unwrap_or(false);
    options.ignore(Place::ChatStreamOptions);
    options.end()?;
    Ok(if is_sent { UsageChunk::Sent } else { UsageChunk::Omitted })
}

fn stop(field: Field) -> Result<Vec<String>, RequestError> {
    if field.value().as_text().is_some() { Ok(vec![field.text()?]) } else { field.texts() }
}

/// The output limit. Of two different ones neither is taken.
fn output_limit(fields: &mut Fields) -> Result<Option<u64>, RequestError> {
    let old = fields.unsigned("max_tokens")?;
    let new = fields.unsigned("max_completion_tokens")?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => Err(RequestError::Invalid {
            field: "max_tokens".to_owned(),
            message: "differs from max_completion_tokens".to_owned(),
        }),
        _ => Ok(new.or(old)),
    }
}

/// Reads an effort of reasoning.
pub(crate) fn effort(field: Field, conversation: &mut Conversation) -> Result<(), RequestError> {
    let path = field.path();
    let text = field.text()?;
    if text == "none" {
        conversation.thinking = Some(Given { field: path, value: Thinking::Off });
        return Ok(());
    }
    let value = match text.as_str() {
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" => Effort::High,
        "xhigh" => Effort::ExtraHigh,
        "max" => Effort::Max,
        _ => return unknown(&path, &text),
    };
    conversation.effort = Some(Given { field: path, value });
    Ok(())
}

/// The effort that OpenAI has for what the conversation asks for, if it asks for one.
pub(crate) fn verbatim_effort(conversation: &Conversation) -> Option<&'static str> {
    let thinking = conversation.thinking.as_ref().map(|thinking| thinking.value);
    if thinking == Some(Thinking::Off) {
        return Some("none");
    }
    let of_budget = match thinking {
        Some(Thinking::Budget(tokens)) => Some(Effort::of_budget(tokens)),
        Some(Thinking::Off | Thinking::Adaptive) | None => None,
    };
    let effort = conversation.effort.as_ref().map(|effort| effort.value).or(of_budget)?;
    Some(match effort {
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::ExtraHigh | Effort::Max => "xhigh",
    })
}

fn response_format(mut fields: Fields) -> Result<Option<OutputFormat>, RequestError> {
    let kind = fields.require("type")?;
    let path = kind.path();
    let kind = kind.text()?;
    let format = match kind.as_str() {
        "text" => None,
        "json_object" => Some(OutputFormat::Json),
        "json_schema" => {
            let mut schema = fields.require("json_schema")?.object()?;
            let format = OutputFormat::Schema {
                name: schema.text("name")?,
                description: schema.text("description")?,
                strictness: Strictness::Chosen(schema.boolean("strict")?),
                schema: schema.require("schema")?.json(),
            };
            schema.end()?;
            Some(format)
        }
        _ => return unknown(&path, &kind),
    };
    fields.end()?;
    Ok(format)
}

fn tool(field: Field) -> Result<Tool, RequestError> {
    let path = field.path();
    let mut fields = field.object()?;
    let kind = fields.require("type")?;
    if kind.value().as_text() != Some("function") {
        return Err(kind.unsupported("only functions are converted"));
    }
    let mut function = fields.require("function")?.object()?;
    let tool = Tool {
        field: path,
        name: function.require("name")?.text()?,
        description: function.text("description")?,
        parameters: function.take("parameters").map(Field::json),
        strict: function.boolean("strict")?,
    };
    function.end()?;
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
        Some("function") => ToolChoice::Named(function_name(&mut fields)?),
        Some("allowed_tools") => {
            let mut allowed = fields.require("allowed_tools")?.object()?;
            let mode = allowed.require("mode")?;
            if mode.value().as_text() != Some("required") {
                return Err(
                    mode.unsupported("other formats allow some of the tools only when one is required")
                );
            }
            let mut names = Vec::new();
            for tool in allowed.require("tools")?.list()? {
                let mut tool = tool.object()?;
                let kind = tool.require("type")?;
                if kind.value().as_text() != Some("function") {
                    return Err(kind.unsupported("only functions are converted"));
                }
                names.push(function_name(&mut tool)?);
                tool.end()?;
            }
            allowed.end()?;
            ToolChoice::RequiredAmong(names)
        }
        _ => return Err(kind.unsupported("only functions are converted")),
    };
    fields.end()?;
    Ok(choice)
}

/// The name in `{"function": {"name"}}`.
fn function_name(fields: &mut Fields) -> Result<String, RequestError> {
    let mut function = fields.require("function")?.object()?;
    let name = function.require("name")?.text()?;
    function.end()?;
    Ok(name)
}
