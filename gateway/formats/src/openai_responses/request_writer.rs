//! OpenAI's Responses: writes a provider's request.

use crate::conversation::{
    Conversation, Delivery, Given, Image, OutputFormat, Part, Role, Shown, Tool, ToolChoice, Turn,
};
use crate::error::RequestError;
use crate::json::{Json, ObjectBuilder, object};
use crate::openai_chat;

/// The name of a schema whose client's format has no names.
const SCHEMA_NAME: &str = "output";

/// Writes a request.
pub(crate) fn write_request(conversation: Conversation) -> Result<Json, RequestError> {
    refuse_settings(&conversation)?;
    let effort = openai_chat::verbatim_effort(&conversation);
    let mut items = Vec::new();
    for turn in conversation.turns {
        write_turn(turn, &mut items)?;
    }
    let mut body = ObjectBuilder::default().with("model", conversation.model).with("input", items);
    if !conversation.tools.is_empty() {
        let tools: Vec<Json> = conversation.tools.into_iter().map(write_tool).collect();
        body.set("tools", tools);
    }
    let format = conversation.output.map(|output| text_format(output.value));
    let verbosity = conversation.verbosity.map(|verbosity| verbosity.value);
    let text = ObjectBuilder::default().with_some("format", format).with_some("verbosity", verbosity);
    let summary = (conversation.reasoning_shown == Some(Shown::Yes)).then_some("auto");
    let reasoning = ObjectBuilder::default().with_some("effort", effort).with_some("summary", summary);
    let sampling = conversation.sampling;
    body = body
        .with_some("tool_choice", conversation.tool_choice.map(|choice| write_tool_choice(choice.value)))
        .with_some("parallel_tool_calls", conversation.parallel_calls.map(|calls| calls.value))
        .with_some("temperature", sampling.temperature.map(|given| given.value))
        .with_some("top_p", sampling.top_p.map(|given| given.value))
        .with_some("max_output_tokens", conversation.max_output_tokens)
        .with_some("text", Some(text).filter(|text| !text.is_empty()));
    if !reasoning.is_empty() {
        body.set("reasoning", reasoning);
        if effort.is_some_and(|effort| effort != "none") {
            // For the client to send back: nothing is stored.
            body.set("include", vec![Json::from("reasoning.encrypted_content")]);
        }
    }
    body = body.with_some("user", conversation.user).with("store", false);
    if conversation.delivery == Delivery::Stream {
        body.set("stream", true);
    }
    Ok(body.into())
}

/// Refuses settings that Responses does not have, unless their value has no effect.
fn refuse_settings(conversation: &Conversation) -> Result<(), RequestError> {
    let why = "OpenAI's Responses does not have it";
    let sampling = &conversation.sampling;
    for setting in [&sampling.frequency_penalty, &sampling.presence_penalty].into_iter().flatten() {
        if setting.value.as_f64() != Some(0.0) {
            return Err(setting.unsupported(why));
        }
    }
    if let Some(setting) = sampling.top_k.as_ref().or(sampling.seed.as_ref()) {
        return Err(setting.unsupported(why));
    }
    match conversation.stop.as_ref().filter(|stop| !stop.value.is_empty()) {
        Some(stop) => Err(stop.unsupported(why)),
        None => Ok(()),
    }
}

/// A turn is a message for what is between calls, results and reasoning, which are items of their own.
fn write_turn(turn: Turn, items: &mut Vec<Json>) -> Result<(), RequestError> {
    let mut content = Vec::new();
    for Given { field, value } in turn.parts {
        let item = match value {
            Part::Text(_) | Part::Refusal(_) | Part::Image(_) => {
                content.push(write_content(field, value, turn.role)?);
                continue;
            }
            // Reasoning that the provider cannot read again is left out.
            Part::Reasoning { signature: None, .. } => continue,
            Part::Reasoning { text, signature: Some(signature) } => {
                let summary = object! { "type": "summary_text", "text": text.as_str() };
                let summary = if text.is_empty() { Vec::new() } else { vec![summary] };
                object! { "type": "reasoning", "summary": summary, "encrypted_content": signature }
            }
            Part::RedactedReasoning(_) => {
                let why = "it is of another provider".to_owned();
                return Err(RequestError::Unsupported { field, why });
            }
            Part::ToolCall(call) => object! {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            },
            Part::ToolResult(result) => {
                let call_id = result.call_id.clone();
                let mut parts = result.plain_content()?;
                let output: Json = if let [Given { value: Part::Text(text), .. }] = &mut parts[..] {
                    std::mem::take(text).into()
                } else {
                    let parts =
                        parts.into_iter().map(|part| write_content(part.field, part.value, Role::User));
                    Json::List(parts.collect::<Result<_, _>>()?)
                };
                object! { "type": "function_call_output", "call_id": call_id, "output": output }
            }
        };
        end_message(turn.role, &mut content, items);
        items.push(item);
    }
    end_message(turn.role, &mut content, items);
    Ok(())
}

fn end_message(role: Role, content: &mut Vec<Json>, items: &mut Vec<Json>) {
    if content.is_empty() {
        return;
    }
    let role = match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let content = std::mem::take(content);
    items.push(object! { "type": "message", "role": role, "content": content });
}

fn write_content(field: String, part: Part, role: Role) -> Result<Json, RequestError> {
    Ok(match part {
        Part::Text(text) => {
            let kind = if role == Role::Assistant { "output_text" } else { "input_text" };
            object! { "type": kind, "text": text }
        }
        Part::Refusal(refusal) => object! { "type": "refusal", "refusal": refusal },
        Part::Image(Image { source, detail }) => ObjectBuilder::default()
            .with("type", "input_image")
            .with("image_url", source.into_url())
            .with("detail", detail.unwrap_or_else(|| "auto".to_owned()))
            .into(),
        Part::Reasoning { .. } | Part::RedactedReasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => {
            let why = "only text and images can be there".to_owned();
            return Err(RequestError::Unsupported { field, why });
        }
    })
}

/// Writes a tool. Without `strict`, Responses would hold calls to the schema.
fn write_tool(tool: Tool) -> Json {
    ObjectBuilder::default()
        .with("type", "function")
        .with("name", tool.name)
        .with_some("description", tool.description)
        .with("parameters", tool.parameters)
        .with("strict", tool.strict.unwrap_or(false))
        .into()
}

fn write_tool_choice(choice: ToolChoice) -> Json {
    let function = |name: String| object! { "type": "function", "name": name };
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Named(name) => function(name),
        ToolChoice::RequiredAmong(names) => {
            let tools: Vec<Json> = names.into_iter().map(function).collect();
            object! { "type": "allowed_tools", "mode": "required", "tools": tools }
        }
    }
}

fn text_format(format: OutputFormat) -> Json {
    match format {
        OutputFormat::Json => object! { "type": "json_object" },
        OutputFormat::Schema { name, description, schema, strictness } => {
            let strict = openai_chat::schema_strictness(strictness, &schema);
            ObjectBuilder::default()
                .with("type", "json_schema")
                .with("name", name.unwrap_or_else(|| SCHEMA_NAME.to_owned()))
                .with_some("description", description)
                .with("schema", schema)
                // Without it, Responses would hold the answer to the schema.
                .with("strict", strict.unwrap_or(false))
                .into()
        }
    }
}
