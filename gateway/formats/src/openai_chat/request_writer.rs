//! Chat Completions: writes a provider's request.

use crate::conversation::{
    Conversation, Delivery, Given, Image, OutputFormat, Part, Role, Tool, ToolChoice, Turn,
};
use crate::conversion::ChatLimitMember;
use crate::error::RequestError;
use crate::json::{Json, ObjectBuilder, object};

use super::schema_strictness;

/// The name of a schema whose client's format has no names.
pub(crate) const SCHEMA_NAME: &str = "output";

/// Writes a request.
pub(crate) fn write_request(
    conversation: Conversation,
    limit: ChatLimitMember,
) -> Result<Json, RequestError> {
    if let Some(top_k) = &conversation.sampling.top_k {
        return Err(top_k.unsupported("OpenAI does not have it"));
    }
    let effort = super::verbatim_effort(&conversation);
    let mut messages = Vec::new();
    for turn in conversation.turns {
        write_turn(turn, &mut messages)?;
    }
    let mut body = ObjectBuilder::default().with("model", conversation.model).with("messages", messages);
    if !conversation.tools.is_empty() {
        let tools: Vec<Json> = conversation.tools.into_iter().map(write_tool).collect();
        body.set("tools", tools);
    }
    let sampling = conversation.sampling;
    body = body
        .with_some("tool_choice", conversation.tool_choice.map(|choice| write_tool_choice(choice.value)))
        .with_some("parallel_tool_calls", conversation.parallel_calls.map(|calls| calls.value))
        .with_some("stop", conversation.stop.map(|stop| texts(stop.value)))
        .with_some("temperature", sampling.temperature.map(|given| given.value))
        .with_some("top_p", sampling.top_p.map(|given| given.value))
        .with_some("frequency_penalty", sampling.frequency_penalty.map(|given| given.value))
        .with_some("presence_penalty", sampling.presence_penalty.map(|given| given.value))
        .with_some("seed", sampling.seed.map(|given| given.value))
        .with_some(limit.name(), conversation.max_output_tokens)
        .with_some("response_format", conversation.output.map(|output| response_format(output.value)))
        .with_some("verbosity", conversation.verbosity.map(|verbosity| verbosity.value))
        .with_some("reasoning_effort", effort)
        .with_some("user", conversation.user);
    if conversation.delivery == Delivery::Stream {
        // Every client's format but this one reports usage in each stream.
        body = body.with("stream", true).with("stream_options", object! { "include_usage": true });
    }
    Ok(body.into())
}

fn texts(texts: Vec<String>) -> Vec<Json> {
    texts.into_iter().map(Json::from).collect()
}

fn write_turn(turn: Turn, messages: &mut Vec<Json>) -> Result<(), RequestError> {
    match turn.role {
        Role::System => {
            messages.push(object! { "role": "system", "content": write_content(turn.parts)? });
        }
        Role::User => write_user(turn.parts, messages)?,
        Role::Assistant => messages.push(write_assistant(turn.parts)?),
    }
    Ok(())
}

/// A user's turn is a message for each result of a tool, and one for what is between results.
fn write_user(parts: Vec<Given<Part>>, messages: &mut Vec<Json>) -> Result<(), RequestError> {
    let is_empty = parts.is_empty();
    let mut content = Vec::new();
    for part in parts {
        match part.value {
            Part::ToolResult(result) => {
                if !content.is_empty() {
                    let content = write_content(std::mem::take(&mut content))?;
                    messages.push(object! { "role": "user", "content": content });
                }
                let call_id = result.call_id.clone();
                let text = result.plain_content()?;
                for part in &text {
                    if !matches!(part.value, Part::Text(_)) {
                        return Err(part.unsupported("a result of a tool can only be text there"));
                    }
                }
                let content = write_content(text)?;
                messages.push(object! { "role": "tool", "tool_call_id": call_id, "content": content });
            }
            value => content.push(Given { field: part.field, value }),
        }
    }
    if !content.is_empty() || is_empty {
        messages.push(object! { "role": "user", "content": write_content(content)? });
    }
    Ok(())
}

/// Reasoning of earlier turns is left out: Chat Completions does not take it.
fn write_assistant(parts: Vec<Given<Part>>) -> Result<Json, RequestError> {
    let mut content = Vec::new();
    let mut calls: Vec<Json> = Vec::new();
    for part in parts {
        match part.value {
            Part::ToolCall(call) => calls.push(object! {
                "id": call.id,
                "type": "function",
                "function": object! { "name": call.name, "arguments": call.arguments },
            }),
            Part::Reasoning { .. } | Part::RedactedReasoning(_) => {}
            value @ (Part::Text(_) | Part::Refusal(_)) => content.push(Given { field: part.field, value }),
            Part::Image(_) | Part::ToolResult(_) => {
                return Err(RequestError::Unsupported {
                    field: part.field,
                    why: "an assistant's message has text and calls only".to_owned(),
                });
            }
        }
    }
    let mut message = ObjectBuilder::default().with("role", "assistant");
    if content.is_empty() && !calls.is_empty() {
        message.set("content", Json::Null);
    } else {
        message.set("content", write_content(content)?);
    }
    if !calls.is_empty() {
        message.set("tool_calls", calls);
    }
    Ok(message.into())
}

/// Parts as content: a text alone as a string.
fn write_content(mut parts: Vec<Given<Part>>) -> Result<Json, RequestError> {
    if parts.is_empty() {
        return Ok("".into());
    }
    if let [Given { value: Part::Text(text), .. }] = &mut parts[..] {
        return Ok(std::mem::take(text).into());
    }
    let parts = parts.into_iter().map(|part| match part.value {
        Part::Text(text) => Ok(object! { "type": "text", "text": text }),
        Part::Refusal(refusal) => Ok(object! { "type": "refusal", "refusal": refusal }),
        Part::Image(Image { source, detail }) => {
            let image = ObjectBuilder::default().with("url", source.into_url()).with_some("detail", detail);
            Ok(object! { "type": "image_url", "image_url": image })
        }
        Part::Reasoning { .. } | Part::RedactedReasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => {
            Err(RequestError::Unsupported {
                field: part.field,
                why: "a message of this role has text and images only".to_owned(),
            })
        }
    });
    Ok(Json::List(parts.collect::<Result<_, _>>()?))
}

fn write_tool(tool: Tool) -> Json {
    let function = ObjectBuilder::default()
        .with("name", tool.name)
        .with_some("description", tool.description)
        .with_some("parameters", tool.parameters)
        .with_some("strict", tool.strict);
    object! { "type": "function", "function": function }
}

fn write_tool_choice(choice: ToolChoice) -> Json {
    let function = |name: String| object! { "type": "function", "function": object! { "name": name } };
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Named(name) => function(name),
        ToolChoice::RequiredAmong(names) => {
            let tools: Vec<Json> = names.into_iter().map(function).collect();
            let allowed = object! { "mode": "required", "tools": tools };
            object! { "type": "allowed_tools", "allowed_tools": allowed }
        }
    }
}

fn response_format(format: OutputFormat) -> Json {
    match format {
        OutputFormat::Json => object! { "type": "json_object" },
        OutputFormat::Schema { name, description, schema, strictness } => {
            let strict = schema_strictness(strictness, &schema);
            let schema = ObjectBuilder::default()
                .with("name", name.unwrap_or_else(|| SCHEMA_NAME.to_owned()))
                .with_some("description", description)
                .with("schema", schema)
                .with_some("strict", strict);
            object! { "type": "json_schema", "json_schema": schema }
        }
    }
}
