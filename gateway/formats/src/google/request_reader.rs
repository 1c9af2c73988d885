//! Google's `generateContent`: reads a client's request. Google takes names in camel case and in snake case.

use crate::conversation::{
    Conversation, Delivery, Effort, Given, OutputFormat, Sampling, Shown, Strictness, Thinking, Tool,
    ToolChoice,
};
use crate::conversion::RequestFacts;
use crate::error::RequestError;
use crate::fields::{Field, Fields, unknown};
use crate::ignored::Place;

use super::content::{Calls, read_content, read_system};
use super::schema::json_schema;

/// Reads a request. Its model and whether it streams are in its URL.
pub(crate) fn read_request(fields: Fields, facts: &RequestFacts<'_>) -> Result<Conversation, RequestError> {
    let mut fields = fields.camel_case()?;
    fields.ignore(Place::GoogleRequest);
    let body_model = fields.text("model")?;
    let model = facts.model.map(str::to_owned).or(body_model).ok_or_else(|| RequestError::Invalid {
        field: "model".to_owned(),
        message: "is missing in the URL".to_owned(),
    })?;
    let mut conversation = Conversation {
        model: model.strip_prefix("models/").unwrap_or(&model).to_owned(),
        delivery: Delivery::streamed(facts.stream),
        ..Conversation::default()
    };
    if let Some(config) = fields.object("generationConfig")? {
        read_generation_config(config.camel_case()?, &mut conversation)?;
    }
    for field in fields.list("tools")? {
        read_tools(field.object()?.camel_case()?, &mut conversation)?;
    }
    if let Some(config) = fields.object("toolConfig")? {
        read_tool_config(config.camel_case()?, &mut conversation)?;
    }
    if let Some(field) = fields.take("systemInstruction") {
        read_system(field, &mut conversation)?;
    }
    let mut calls = Calls::default();
    for field in fields.require("contents")?.list()? {
        read_content(field, &mut calls, &mut conversation)?;
    }
    fields.end()?;
    Ok(conversation)
}

fn read_generation_config(mut config: Fields, conversation: &mut Conversation) -> Result<(), RequestError> {
    config.ignore(Place::GoogleConfig);
    conversation.sampling = Sampling {
        temperature: config.number("temperature")?,
        top_p: config.number("topP")?,
        // Clients write a whole number as `40.0`, which not every format takes.
        top_k: config
            .take("topK")
            .map(|field| field.given(|field| field.unsigned().map(Into::into)))
            .transpose()?,
        frequency_penalty: config.number("frequencyPenalty")?,
        presence_penalty: config.number("presencePenalty")?,
        seed: config.number("seed")?,
    };
    conversation.max_output_tokens = config.unsigned("maxOutputTokens")?;
    conversation.stop = config.take("stopSequences").map(|field| field.given(Field::texts)).transpose()?;
    if let Some(thinking) = config.object("thinkingConfig")? {
        read_thinking(thinking.camel_case()?, conversation)?;
    }
    conversation.output = read_output(&mut config)?;
    config.end()
}

/// Reads the form of the answer: a media type, and a schema in one of two languages.
fn read_output(config: &mut Fields) -> Result<Option<Given<OutputFormat>>, RequestError> {
    let media_type = config.take("responseMimeType");
    let is_json = match media_type.as_ref().map(|field| field.value().as_text()) {
        None | Some(Some("text/plain")) => false,
        Some(Some("application/json")) => true,
        Some(_) => return media_type.map_or(Ok(None), |field| Err(field.unsupported("it is not converted"))),
    };
    let googles = config.take("responseSchema").map(|field| field.given(json_schema)).transpose()?;
    let plain = config.take("responseJsonSchema").map(|field| field.given(|field| Ok(field.json())));
    let schema = match (googles, plain.transpose()?) {
        (Some(schema), None) | (None, Some(schema)) => schema,
        (Some(schema), Some(_)) => {
            let message = "there is responseJsonSchema as well".to_owned();
            return Err(RequestError::Invalid { field: schema.field, message });
        }
        (None, None) => {
            let field = media_type.filter(|_| is_json).map(|field| field.path());
            return Ok(field.map(|field| Given { field, value: OutputFormat::Json }));
        }
    };
    if !is_json {
        let message = "needs the responseMimeType application/json".to_owned();
        return Err(RequestError::Invalid { field: schema.field, message });
    }
    let value = OutputFormat::Schema {
        name: None,
        description: None,
        schema: schema.value,
        strictness: Strictness::Always,
    };
    Ok(Some(Given { field: schema.field, value }))
}

fn read_thinking(mut config: Fields, conversation: &mut Conversation) -> Result<(), RequestError> {
    conversation.reasoning_shown =
        config.boolean("includeThoughts")?.map(|shown| if shown { Shown::Yes } else { Shown::No });
    if let Some(field) = config.take("thinkingBudget") {
        let read = |field: Field| match field.value().to_text().as_str() {
            "-1" => Ok(Thinking::Adaptive),
            "0" => Ok(Thinking::Off),
            _ => field.unsigned().map(Thinking::Budget),
        };
        conversation.thinking = Some(field.given(read)?);
    }
    if let Some(field) = config.take("thinkingLevel") {
        let read = |field: Field| match field.value().as_text().map(str::to_ascii_uppercase).as_deref() {
            Some("MINIMAL") => Ok(Effort::Minimal),
            Some("LOW") => Ok(Effort::Low),
            Some("MEDIUM") => Ok(Effort::Medium),
            Some("HIGH") => Ok(Effort::High),
            _ => Err(field.unsupported("it is not known")),
        };
        conversation.effort = Some(field.given(read)?);
    }
    config.end()
}

fn read_tools(mut fields: Fields, conversation: &mut Conversation) -> Result<(), RequestError> {
    for field in fields.list("functionDeclarations")? {
        let path = field.path();
        let mut declaration = field.object()?.camel_case()?;
        let googles = declaration.take("parameters");
        let plain = declaration.take("parametersJsonSchema");
        let parameters = match (googles, plain) {
            (Some(schema), None) => Some(json_schema(schema)?),
            (None, Some(schema)) => Some(schema.json()),
            (None, None) => None,
            (Some(schema), Some(_)) => {
                return Err(schema.invalid("there is parametersJsonSchema as well"));
            }
        };
        conversation.tools.push(Tool {
            field: path,
            name: declaration.require("name")?.text()?,
            description: declaration.text("description")?,
            parameters,
            strict: None,
        });
        declaration.end()?;
    }
    fields.end()
}

fn read_tool_config(mut fields: Fields, conversation: &mut Conversation) -> Result<(), RequestError> {
    let Some(config) = fields.take("functionCallingConfig") else { return fields.end() };
    let path = config.path();
    let mut config = config.object()?.camel_case()?;
    let names = config.take("allowedFunctionNames").map(Field::texts).transpose()?.unwrap_or_default();
    let mode = config.text("mode")?;
    config.end()?;
    fields.end()?;
    let value = match (mode.as_deref(), names.len()) {
        (None | Some("MODE_UNSPECIFIED" | "AUTO"), 0) => ToolChoice::Auto,
        (Some("VALIDATED"), 0) => {
            for tool in &mut conversation.tools {
                tool.strict = Some(true);
            }
            ToolChoice::Auto
        }
        (Some("NONE"), 0) => ToolChoice::None,
        (Some("ANY"), 0) => ToolChoice::Required,
        (Some("ANY"), 1) => ToolChoice::Named(names.into_iter().next().unwrap_or_default()),
        (Some("ANY"), _) => ToolChoice::RequiredAmong(names),
        (None | Some("MODE_UNSPECIFIED" | "AUTO" | "VALIDATED" | "NONE"), _) => {
            return Err(RequestError::Unsupported {
                field: format!("{path}.allowedFunctionNames"),
                why: "some of the functions are allowed only with the mode ANY".to_owned(),
            });
        }
        (Some(mode), _) => return unknown(&format!("{path}.mode"), mode),
    };
    conversation.tool_choice = Some(Given { field: path, value });
    Ok(())
}
