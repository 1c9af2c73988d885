//! Google's `generateContent`: writes a provider's request.

use std::collections::HashMap;

use crate::conversation::{
    Conversation, Given, Image, ImageSource, Outcome, Part, Role, Shown, Thinking, Tool, ToolChoice,
    ToolResult,
};
use crate::conversion::Format;
use crate::error::RequestError;
use crate::fields::MAX_NAME_BYTES;
use crate::json::{Json, ObjectBuilder, ValuesLeft, object};

/// Writes a request. Its model and whether it streams go into its URL.
pub(crate) fn write_request(mut conversation: Conversation, client: Format) -> Result<Json, RequestError> {
    refuse_settings(&conversation)?;
    let called = conversation.called_tools();
    let mut body = ObjectBuilder::default();
    let system = conversation.take_system("Google")?;
    if !system.is_empty() {
        let mut parts = Vec::new();
        for part in system {
            let Part::Text(text) = &part.value else {
                return Err(part.unsupported("Google has only text in system messages"));
            };
            parts.push(object! { "text": text.as_str() });
        }
        body.set("systemInstruction", object! { "parts": parts });
    }
    let generation_config = generation_config(&mut conversation)?;
    let tool_config = tool_config(&conversation);
    let tools: Vec<Json> = std::mem::take(&mut conversation.tools).into_iter().map(write_tool).collect();
    let (mut contents, left) = (Vec::new(), ValuesLeft::default());
    for turn in conversation.joined_turns() {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "model",
            Role::System => unreachable!("system turns were taken out"),
        };
        let parts = if client == Format::OpenaiChat { signatures_at_calls(turn.parts) } else { turn.parts };
        let parts = write_parts(parts, &called, &left)?;
        if !parts.is_empty() {
            contents.push(object! { "role": role, "parts": parts });
        }
    }
    body.set("contents", contents);
    if !tools.is_empty() {
        body.set("tools", vec![object! { "functionDeclarations": tools }]);
    }
    body = body.with_some("toolConfig", tool_config).with_some("generationConfig", generation_config);
    Ok(body.into())
}

/// Refuses settings that Google does not have, unless their value has no effect.
fn refuse_settings(conversation: &Conversation) -> Result<(), RequestError> {
    if let Some(calls) = conversation.parallel_calls.as_ref().filter(|calls| !calls.value) {
        return Err(calls.unsupported("Google cannot forbid parallel calls"));
    }
    if let Some(verbosity) = conversation.verbosity.as_ref().filter(|given| given.value != "medium") {
        return Err(verbosity.unsupported("Google does not have it"));
    }
    Ok(())
}

fn generation_config(conversation: &mut Conversation) -> Result<Option<Json>, RequestError> {
    let sampling = std::mem::take(&mut conversation.sampling);
    let stop = conversation.stop.take().map(|stop| stop.value).filter(|stop| !stop.is_empty());
    let stop: Option<Vec<Json>> = stop.map(|stop| stop.into_iter().map(Json::from).collect());
    let mut config = ObjectBuilder::default()
        .with_some("temperature", sampling.temperature.map(|given| given.value))
        .with_some("topP", sampling.top_p.map(|given| given.value))
        .with_some("topK", sampling.top_k.map(|given| given.value))
        .with_some("frequencyPenalty", sampling.frequency_penalty.map(|given| given.value))
        .with_some("presencePenalty", sampling.presence_penalty.map(|given| given.value))
        .with_some("seed", sampling.seed.map(|given| given.value))
        .with_some("maxOutputTokens", conversation.max_output_tokens)
        .with_some("stopSequences", stop)
        .with_some("thinkingConfig", thinking_config(conversation));
    if let Some(output) = conversation.output.take() {
        config.set("responseMimeType", "application/json");
        if let Some(schema) = output.described_schema()? {
            config.set("responseJsonSchema", schema);
        }
    }
    Ok((!config.is_empty()).then(|| config.into()))
}

fn thinking_config(conversation: &Conversation) -> Option<Json> {
    let thinking = conversation.thinking.as_ref().map(|thinking| thinking.value);
    let of_effort = conversation.effort.as_ref().map(|effort| effort.value.budget());
    let budget: Option<Json> = match thinking {
        Some(Thinking::Off) => Some(0_u64.into()),
        Some(Thinking::Budget(tokens)) => Some(tokens.into()),
        Some(Thinking::Adaptive) | None => match of_effort {
            Some(tokens) => Some(tokens.into()),
            None => thinking.map(|_| Json::Number((-1).into())),
        },
    };
    let shown = conversation.reasoning_shown.map(|shown| shown == Shown::Yes);
    let config =
        ObjectBuilder::default().with_some("thinkingBudget", budget).with_some("includeThoughts", shown);
    (!config.is_empty()).then(|| config.into())
}

fn tool_config(conversation: &Conversation) -> Option<Json> {
    let is_strict = conversation.tools.iter().any(|tool| tool.strict == Some(true));
    let names = |names: &[String]| -> Vec<Json> { names.iter().map(|name| name.as_str().into()).collect() };
    let config = match conversation.tool_choice.as_ref().map(|choice| &choice.value) {
        // Google's other modes keep to the schemas anyway.
        None | Some(ToolChoice::Auto) if is_strict => object! { "mode": "VALIDATED" },
        None => return None,
        Some(ToolChoice::Auto) => object! { "mode": "AUTO" },
        Some(ToolChoice::None) => object! { "mode": "NONE" },
        Some(ToolChoice::Required) => object! { "mode": "ANY" },
        Some(ToolChoice::Named(name)) => {
            object! { "mode": "ANY", "allowedFunctionNames": names(std::slice::from_ref(name)) }
        }
        Some(ToolChoice::RequiredAmong(among)) => {
            object! { "mode": "ANY", "allowedFunctionNames": names(among) }
        }
    };
    Some(object! { "functionCallingConfig": config })
}

fn write_tool(tool: Tool) -> Json {
    ObjectBuilder::default()
        .with("name", tool.name)
        .with_some("description", tool.description)
        .with_some("parametersJsonSchema", tool.parameters)
        .into()
}

/// Moves signatures without reasoning to the first call of a turn of Chat Completions, which does not know where they stood:
/// where a turn has calls, Google signs the first of them.
fn signatures_at_calls(parts: Vec<Given<Part>>) -> Vec<Given<Part>> {
    let is_call = |part: &Given<Part>| matches!(part.value, Part::ToolCall(_));
    if !parts.iter().any(is_call) {
        return parts;
    }
    let is_signature = |part: &Given<Part>| matches!(&part.value, Part::Reasoning { text, signature: Some(_) } if text.is_empty());
    let (signatures, mut rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_signature);
    let call = rest.iter().position(is_call).unwrap_or(rest.len());
    rest.splice(call..call, signatures);
    rest
}

/// Writes the parts of a turn. A signature goes to the part after its reasoning.
fn write_parts(
    parts: Vec<Given<Part>>,
    called: &HashMap<String, String>,
    left: &ValuesLeft,
) -> Result<Vec<Json>, RequestError> {
    let mut written = Vec::new();
    let mut signature: Option<String> = None;
    for Given { field, value } in parts {
        let part = match value {
            Part::Reasoning { text, signature: of_it } => {
                if !text.is_empty() {
                    written.push(object! { "text": text, "thought": true });
                }
                if let Some(before) = signature.take() {
                    written.push(object! { "text": "", "thoughtSignature": before });
                }
                signature = of_it;
                continue;
            }
            Part::RedactedReasoning(_) => {
                let why = "it is of another provider".to_owned();
                return Err(RequestError::Unsupported { field, why });
            }
            Part::Text(text) | Part::Refusal(text) => ObjectBuilder::default().with("text", text),
            Part::Image(image) => write_image(field, image)?,
            Part::ToolCall(call) => {
                let args = call.arguments_object(left).map_err(|message| RequestError::Invalid {
                    field,
                    message: format!("the arguments must be a JSON object: {message}"),
                })?;
                let call = object! { "id": call.id, "name": call.name, "args": args };
                ObjectBuilder::default().with("functionCall", call)
            }
            Part::ToolResult(result) => write_result(field, result, called)?,
        };
        written.push(part.with_some("thoughtSignature", signature.take()).into());
    }
    if let Some(signature) = signature {
        written.push(object! { "text": "", "thoughtSignature": signature });
    }
    Ok(written)
}

fn write_image(field: String, image: Image) -> Result<ObjectBuilder, RequestError> {
    if image.detail.is_some() {
        let why = "Google does not have the detail of an image".to_owned();
        return Err(RequestError::Unsupported { field, why });
    }
    Ok(match image.source {
        ImageSource::Base64 { media_type, data } => {
            ObjectBuilder::default().with("inlineData", object! { "mimeType": media_type, "data": data })
        }
        ImageSource::Url(url) => {
            let media_type = media_type_of(&url);
            let file = ObjectBuilder::default().with_some("mimeType", media_type).with("fileUri", url);
            ObjectBuilder::default().with("fileData", file)
        }
    })
}

/// The media type that the ending of a URL's path stands for. Google takes a URL without one, too.
fn media_type_of(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let (_, ending) = path.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "webp" => Some("image/webp"),
        "heic" => Some("image/heic"),
        "heif" => Some("image/heif"),
        _ => None,
    }
}

fn write_result(
    field: String,
    result: ToolResult,
    called: &HashMap<String, String>,
) -> Result<ObjectBuilder, RequestError> {
    let Some(name) = called.get(&result.call_id) else {
        let message = "answers no call of the conversation".to_owned();
        return Err(RequestError::Invalid { field, message });
    };
    // It is written again with each result.
    if name.len() > MAX_NAME_BYTES {
        let message = format!("the name of its function must have at most {MAX_NAME_BYTES} bytes");
        return Err(RequestError::Invalid { field, message });
    }
    let text = result.text()?;
    let response = match result.outcome {
        Outcome::Worked => object! { "output": text },
        Outcome::Failed => object! { "error": text },
    };
    let result = object! { "id": result.call_id, "name": name.as_str(), "response": response };
    Ok(ObjectBuilder::default().with("functionResponse", result))
}
