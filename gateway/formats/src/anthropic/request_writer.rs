//! Anthropic's Messages: writes a provider's request.

use serde_json::Number;

use crate::conversation::{
    Conversation, Delivery, Effort, Given, ImageSource, Outcome, Part, Role, Shown, Thinking, Tool,
    ToolChoice, ToolResult,
};
use crate::error::RequestError;
use crate::json::{Json, ObjectBuilder, ValuesLeft, object};

/// Writes a request with this output limit, in tokens.
pub(crate) fn write_request(mut conversation: Conversation, output_limit: u64) -> Result<Json, RequestError> {
    refuse_settings(&conversation)?;
    let system = conversation.take_system("Anthropic")?;
    let mut body =
        ObjectBuilder::default().with("model", conversation.model.as_str()).with("max_tokens", output_limit);
    if !system.is_empty() {
        let mut blocks = Vec::new();
        for part in system {
            let Part::Text(text) = &part.value else {
                return Err(part.unsupported("Anthropic has only text in system messages"));
            };
            blocks.push(object! { "type": "text", "text": text.as_str() });
        }
        body.set("system", blocks);
    }
    let tool_choice = tool_choice(&conversation)?;
    let (thinking, output_config) = (thinking(&conversation), output_config(&conversation)?);
    let tools: Vec<Json> = std::mem::take(&mut conversation.tools).into_iter().map(write_tool).collect();
    let sampling = std::mem::take(&mut conversation.sampling);
    let stop = conversation.stop.take().map(|stop| stop.value).filter(|stop| !stop.is_empty());
    let stop: Option<Vec<Json>> = stop.map(|stop| stop.into_iter().map(Json::from).collect());
    let user = conversation.user.take().map(|user| object! { "user_id": user });
    let is_stream = (conversation.delivery == Delivery::Stream).then_some(true);
    let (mut messages, left) = (Vec::new(), ValuesLeft::default());
    for turn in conversation.joined_turns() {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System => unreachable!("system turns were taken out"),
        };
        let blocks: Vec<Json> = turn
            .parts
            .into_iter()
            .filter_map(|part| write_block(part, &left).transpose())
            .collect::<Result<_, _>>()?;
        messages.push(object! { "role": role, "content": blocks });
    }
    body = body
        .with("messages", messages)
        .with_some("tools", Some(tools).filter(|tools| !tools.is_empty()))
        .with_some("tool_choice", tool_choice)
        .with_some("stop_sequences", stop)
        .with_some("temperature", sampling.temperature.map(|given| given.value))
        .with_some("top_p", sampling.top_p.map(|given| given.value))
        .with_some("top_k", sampling.top_k.map(|given| given.value))
        .with_some("thinking", thinking)
        .with_some("output_config", output_config)
        .with_some("metadata", user)
        .with_some("stream", is_stream);
    Ok(body.into())
}

/// Refuses settings that Anthropic does not have, unless their value has no effect.
fn refuse_settings(conversation: &Conversation) -> Result<(), RequestError> {
    let sampling = &conversation.sampling;
    for penalty in [&sampling.frequency_penalty, &sampling.presence_penalty].into_iter().flatten() {
        if penalty.value.as_f64() != Some(0.0) {
            return Err(penalty.unsupported("Anthropic does not have it"));
        }
    }
    if let Some(seed) = &sampling.seed {
        return Err(seed.unsupported("Anthropic does not have it"));
    }
    let is_hot = |number: &Number| number.as_f64().is_some_and(|number| number > 1.0);
    if let Some(temperature) = sampling.temperature.as_ref().filter(|given| is_hot(&given.value)) {
        return Err(temperature.unsupported("Anthropic takes a temperature from 0 to 1"));
    }
    if let Some(verbosity) = conversation.verbosity.as_ref().filter(|given| given.value != "medium") {
        return Err(verbosity.unsupported("Anthropic does not have it"));
    }
    Ok(())
}

fn tool_choice(conversation: &Conversation) -> Result<Option<Json>, RequestError> {
    let is_serial = conversation.parallel_calls.as_ref().is_some_and(|calls| !calls.value);
    let Some(choice) = &conversation.tool_choice else {
        let auto = object! { "type": "auto", "disable_parallel_tool_use": true };
        return Ok((is_serial && !conversation.tools.is_empty()).then_some(auto));
    };
    let written = match &choice.value {
        ToolChoice::Auto => ObjectBuilder::default().with("type", "auto"),
        ToolChoice::Required => ObjectBuilder::default().with("type", "any"),
        ToolChoice::Named(name) => ObjectBuilder::default().with("type", "tool").with("name", name.as_str()),
        ToolChoice::None => return Ok(Some(object! { "type": "none" })),
        ToolChoice::RequiredAmong(_) => {
            return Err(choice.unsupported("Anthropic requires one tool or any tool, not one of some"));
        }
    };
    Ok(Some(written.with_some("disable_parallel_tool_use", is_serial.then_some(true)).into()))
}

/// An effort alone asks for reasoning: Anthropic's models find out how much by themselves.
fn thinking(conversation: &Conversation) -> Option<Json> {
    let asked = conversation.thinking.as_ref().map(|thinking| thinking.value);
    let kind = asked.or(conversation.effort.as_ref().map(|_| Thinking::Adaptive))?;
    let display = conversation.reasoning_shown.map(|shown| match shown {
        Shown::Yes => "summarized",
        Shown::No => "omitted",
    });
    let thinking = match kind {
        Thinking::Off => return Some(object! { "type": "disabled" }),
        Thinking::Adaptive => ObjectBuilder::default().with("type", "adaptive"),
        Thinking::Budget(tokens) => {
            ObjectBuilder::default().with("type", "enabled").with("budget_tokens", tokens)
        }
    };
    Some(thinking.with_some("display", display).into())
}

fn output_config(conversation: &Conversation) -> Result<Option<Json>, RequestError> {
    let mut config = ObjectBuilder::default();
    if let Some(effort) = &conversation.effort {
        let effort = match effort.value {
            Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::ExtraHigh => "xhigh",
            Effort::Max => "max",
        };
        config.set("effort", effort);
    }
    if let Some(output) = &conversation.output {
        let Some(schema) = output.described_schema()? else {
            return Err(output.unsupported("Anthropic writes JSON by a schema only"));
        };
        config.set("format", object! { "type": "json_schema", "schema": schema });
    }
    Ok((!config.is_empty()).then(|| config.into()))
}

fn write_tool(tool: Tool) -> Json {
    let parameters = tool
        .parameters
        .unwrap_or_else(|| object! { "type": "object", "properties": Json::Object(Vec::new()) });
    ObjectBuilder::default()
        .with("name", tool.name)
        .with_some("description", tool.description)
        .with("input_schema", parameters)
        .with_some("strict", tool.strict.filter(|strict| *strict))
        .into()
}

/// Writes a block. Reasoning without a signature is left out: Anthropic takes back only its own.
fn write_block(part: Given<Part>, left: &ValuesLeft) -> Result<Option<Json>, RequestError> {
    let Given { field, value } = part;
    let block = match value {
        Part::Text(text) | Part::Refusal(text) => object! { "type": "text", "text": text },
        Part::Image(image) => {
            if image.detail.is_some() {
                let why = "Anthropic does not have the detail of an image".to_owned();
                return Err(RequestError::Unsupported { field, why });
            }
            object! { "type": "image", "source": write_source(image.source) }
        }
        Part::Reasoning { signature: None, .. } => return Ok(None),
        Part::Reasoning { text, signature: Some(signature) } => {
            object! { "type": "thinking", "thinking": text, "signature": signature }
        }
        Part::RedactedReasoning(data) => object! { "type": "redacted_thinking", "data": data },
        Part::ToolCall(call) => {
            let input = call.arguments_object(left).map_err(|message| RequestError::Invalid {
                field,
                message: format!("the arguments must be a JSON object: {message}"),
            })?;
            object! { "type": "tool_use", "id": call.id, "name": call.name, "input": input }
        }
        Part::ToolResult(result) => write_result(result, left)?,
    };
    Ok(Some(block))
}

fn write_source(source: ImageSource) -> Json {
    match source {
        ImageSource::Url(url) => object! { "type": "url", "url": url },
        ImageSource::Base64 { media_type, data } => {
            object! { "type": "base64", "media_type": media_type, "data": data }
        }
    }
}

fn write_result(mut result: ToolResult, left: &ValuesLeft) -> Result<Json, RequestError> {
    let content: Json = if let [Given { value: Part::Text(text), .. }] = &mut result.content[..] {
        std::mem::take(text).into()
    } else {
        let blocks = result.content.into_iter().filter_map(|part| write_block(part, left).transpose());
        Json::List(blocks.collect::<Result<_, _>>()?)
    };
    let is_error = (result.outcome == Outcome::Failed).then_some(true);
    let block = ObjectBuilder::default()
        .with("type", "tool_result")
        .with("tool_use_id", result.call_id)
        .with("content", content)
        .with_some("is_error", is_error);
    Ok(block.into())
}
