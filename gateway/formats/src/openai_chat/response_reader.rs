//! Chat Completions: reads a provider's response. Members that are not known are no part of the answer.

use crate::answer::{About, Answer, Finish, Usage, bare_id, made_call_id};
use crate::conversation::{Part, ToolCall};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};
use crate::json::Json;

/// The prefix of an id.
pub(super) const ID_PREFIX: &str = "chatcmpl-";

/// The arguments of a call without parameters.
pub(super) const NO_ARGUMENTS: &str = "{}";

/// Reads a response.
pub(crate) fn read_response(document: Field) -> Result<Answer, ResponseError> {
    let mut fields = document.object()?;
    let about = about(&mut fields)?;
    let usage = fields.take("usage").map(usage).transpose()?;
    let mut choices = fields.require("choices")?.list()?.into_iter();
    let (choice, other) = (choices.next(), choices.next());
    if let Some(other) = other {
        return Err(other.unsupported("only one choice was asked for").into());
    }
    let Some(choice) = choice else {
        return Err(ResponseError::Invalid {
            field: "choices".to_owned(),
            message: "must have a choice".to_owned(),
        });
    };
    let mut choice = choice.object()?;
    let mut parts = message(choice.require("message")?.object()?, &about)?;
    let has_calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    let has_refusal = parts.iter().any(|part| matches!(part, Part::Refusal(_)));
    let finish = finish(&choice.require("finish_reason")?)?.of_answer(has_calls, has_refusal);
    if finish != Finish::Length {
        complete_arguments(&mut parts);
    }
    Ok(Answer { about, parts, finish, usage })
}

/// Gives calls without parameters their arguments: some providers leave them empty. Not those that were cut off.
fn complete_arguments(parts: &mut [Part]) {
    for part in parts {
        if let Part::ToolCall(call) = part
            && call.arguments.trim().is_empty()
        {
            NO_ARGUMENTS.clone_into(&mut call.arguments);
        }
    }
}

/// Reads what identifies a response or a chunk.
pub(super) fn about(fields: &mut Fields) -> Result<About, ResponseError> {
    let id = fields.answer_id("id")?;
    Ok(About {
        id: bare_id(&id, ID_PREFIX),
        model: fields.answer_model("model")?,
        created: fields.take("created").and_then(|field| seconds(field.value())),
    })
}

/// The whole seconds of a time, which some providers give with a fraction, and Azure as 0 before an answer begins.
fn seconds(time: &Json) -> Option<u64> {
    let Json::Number(number) = time else { return None };
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let is_plain = fraction.bytes().all(|digit| digit.is_ascii_digit());
    whole.parse().ok().filter(|seconds| is_plain && *seconds > 0)
}

fn message(mut fields: Fields, about: &About) -> Result<Vec<Part>, ResponseError> {
    let mut parts = Vec::new();
    if let Some(text) = reasoning(&mut fields)? {
        parts.push(Part::Reasoning { text, signature: None });
    }
    for piece in fields.take("content").map_or(Ok(Vec::new()), content)? {
        match piece {
            Piece::Text(text) | Piece::Reasoning(text) if text.is_empty() => {}
            Piece::Text(text) => parts.push(Part::Text(text)),
            Piece::Reasoning(text) => parts.push(Part::Reasoning { text, signature: None }),
        }
    }
    if let Some(refusal) = fields.text("refusal")?.filter(|text| !text.is_empty()) {
        parts.push(Part::Refusal(refusal));
    }
    for name in ["audio", "function_call"] {
        if let Some(field) = fields.take(name) {
            return Err(field.unsupported("it was not asked for").into());
        }
    }
    for (number, call) in fields.list("tool_calls")?.into_iter().enumerate() {
        let mut call = call.object()?;
        let id = call.text("id")?.filter(|id| !id.is_empty());
        let mut function = call.require("function")?.object()?;
        parts.push(Part::ToolCall(ToolCall {
            id: id.unwrap_or_else(|| made_call_id(&about.id, number)),
            name: name(function.require("name")?)?,
            arguments: arguments(&mut function)?.unwrap_or_default(),
        }));
    }
    Ok(parts)
}

/// The name of a function that is called.
fn name(field: Field) -> Result<String, ResponseError> {
    let path = field.path();
    match field.text()? {
        name if name.is_empty() => {
            Err(ResponseError::Invalid { field: path, message: "must not be empty".to_owned() })
        }
        name => Ok(name),
    }
}

/// Takes the arguments of a call: a text, or the object itself.
pub(super) fn arguments(function: &mut Fields) -> Result<Option<String>, ResponseError> {
    let Some(field) = function.take("arguments") else { return Ok(None) };
    match field.value() {
        Json::Object(_) => Ok(Some(field.value().to_text())),
        _ => Ok(Some(field.text()?)),
    }
}

/// The arguments in a piece of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PieceOfArguments {
    /// None, or an empty text.
    Nothing,
    /// An empty object: all arguments of a call without parameters, or what stands for arguments that follow.
    EmptyObject,
    /// A text, or a whole object.
    Text(String),
}

/// Takes the arguments in a piece of a call.
pub(super) fn piece_of_arguments(function: &mut Fields) -> Result<PieceOfArguments, ResponseError> {
    let is_empty = function.is_empty_object("arguments");
    Ok(match arguments(function)? {
        Some(_) if is_empty => PieceOfArguments::EmptyObject,
        Some(text) if !text.is_empty() => PieceOfArguments::Text(text),
        Some(_) | None => PieceOfArguments::Nothing,
    })
}

/// A piece of the content of a message or a delta.
pub(super) enum Piece {
    Text(String),
    Reasoning(String),
}

/// The pieces of the content of a message or a delta: a text, or Mistral's list of texts and thinking.
pub(super) fn content(field: Field) -> Result<Vec<Piece>, ResponseError> {
    if !matches!(field.value(), Json::List(_)) {
        return Ok(vec![Piece::Text(field.text()?)]);
    }
    let mut pieces = Vec::new();
    for item in field.list()? {
        let mut item = item.object()?;
        let kind = item.require("type")?;
        match kind.value().as_text() {
            Some("text") => pieces.push(Piece::Text(item.require("text")?.text()?)),
            Some("thinking") => {
                let mut thinking = String::new();
                for part in item.require("thinking")?.list()? {
                    let mut part = part.object()?;
                    // A reference to a source is no text.
                    if part.text("type")?.is_none_or(|kind| kind == "text") {
                        thinking.push_str(&part.require("text")?.text()?);
                    }
                }
                pieces.push(Piece::Reasoning(thinking));
            }
            // It names a source of the text before it.
            Some("reference") => {}
            _ => return Err(kind.unsupported(format!("{} is not known", kind.value().to_text())).into()),
        }
    }
    Ok(pieces)
}

/// Takes the reasoning of a message or a delta. OpenAI shows none here; other providers have one of two names for it.
pub(super) fn reasoning(fields: &mut Fields) -> Result<Option<String>, ResponseError> {
    let text = match fields.text("reasoning_content")? {
        None => fields.text("reasoning")?,
        text => text,
    };
    Ok(text.filter(|text| !text.is_empty()))
}

/// Reads why an answer ended.
pub(super) fn finish(field: &Field) -> Result<Finish, ResponseError> {
    match field.value().as_text() {
        // Together's and xAI's.
        Some("stop" | "eos" | "end_turn") => Ok(Finish::Stop),
        // Mistral's and Z.ai's.
        Some("length" | "model_length" | "model_context_window_exceeded") => Ok(Finish::Length),
        Some("tool_calls" | "function_call") => Ok(Finish::ToolCalls),
        // Z.ai's, and Google's with a reason after it.
        Some("sensitive") => Ok(Finish::Filtered),
        Some(filtered) if filtered.starts_with("content_filter") => Ok(Finish::Filtered),
        _ => Err(field.unsupported(format!("{} is not known", field.value().to_text())).into()),
    }
}

/// Reads usage.
pub(super) fn usage(field: Field) -> Result<Usage, ResponseError> {
    let mut fields = field.object()?;
    let (mut cached, mut cache_written, mut reasoning) = (None, 0, None);
    if let Some(mut details) = fields.object("prompt_tokens_details")? {
        cached = details.unsigned("cached_tokens")?.filter(|cached| *cached > 0);
        cache_written = details.unsigned("cache_write_tokens")?.unwrap_or(0);
    }
    // Names of Mistral, Moonshot and DeepSeek. The gateway's metering knows them, too.
    if let (None, Ok(Some(mut details))) = (cached, fields.object("prompt_token_details")) {
        cached = details.unsigned("cached_tokens").ok().flatten();
    }
    for name in ["cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens"] {
        cached = cached.or_else(|| fields.unsigned(name).ok().flatten());
    }
    if let Some(mut details) = fields.object("completion_tokens_details")? {
        reasoning = details.unsigned("reasoning_tokens")?;
    }
    Ok(Usage {
        input: fields.unsigned("prompt_tokens")?.unwrap_or(0),
        cached: cached.unwrap_or(0),
        cache_written,
        output: fields.unsigned("completion_tokens")?.unwrap_or(0),
        reasoning,
    })
}

/// Whether a value is an empty list.
pub(super) fn is_empty_list(field: &Field) -> bool {
    matches!(field.value(), Json::List(items) if items.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_beside_the_details_are_read_once() {
        for (counts, cached) in [
            (r#""prompt_tokens_details":{"cached_tokens":10}"#, 10),
            (r#""cached_tokens":10"#, 10),
            (r#""cached_tokens":10,"prompt_tokens_details":null"#, 10),
            (r#""cached_tokens":10,"prompt_tokens_details":{"cached_tokens":10}"#, 10),
            (r#""num_cached_tokens":10"#, 10),
            (r#""prompt_token_details":{"cached_tokens":10}"#, 10),
            (
                r#""prompt_token_details":{"cached_tokens":9},"prompt_tokens_details":{"cached_tokens":10}"#,
                10,
            ),
            (r#""prompt_cache_hit_tokens":10,"prompt_cache_miss_tokens":9"#, 10),
            (r#""cached_tokens":10,"prompt_tokens_details":{"cached_tokens":0}"#, 10),
            (r#""cached_tokens":"many""#, 0),
        ] {
            let text = format!(r#"{{"prompt_tokens":19,"completion_tokens":21,{counts}}}"#);
            let read = usage(Field::root(Json::parse(text.as_bytes()).unwrap())).unwrap();
            assert_eq!((read.input, read.cached, read.output), (19, cached, 21), "{counts}");
        }
    }

    fn read(text: &str) -> Answer {
        read_response(Field::root(Json::parse(text.as_bytes()).unwrap())).unwrap()
    }

    #[test]
    fn reasons_to_end_of_several_providers_are_read() {
        for (reason, finish) in [
            ("stop", Finish::Stop),
            ("eos", Finish::Stop),
            ("end_turn", Finish::Stop),
            ("model_length", Finish::Length),
            ("model_context_window_exceeded", Finish::Length),
            ("sensitive", Finish::Filtered),
            ("content_filter: RECITATION", Finish::Filtered),
        ] {
            let answer = read(&format!(
                r#"{{"id":"1","choices":[{{"message":{{"content":"x"}},"finish_reason":"{reason}"}}]}}"#
            ));
            assert_eq!(answer.finish, finish, "{reason}");
        }
        let unknown =
            r#"{"choices":[{"message":{"content":"x"},"finish_reason":"function_call_filter: X"}]}"#;
        assert!(read_response(Field::root(Json::parse(unknown.as_bytes()).unwrap())).is_err());
    }

    #[test]
    fn a_stop_with_calls_is_one_for_its_calls() {
        let answer = read(
            r#"{"id":"1","choices":[{"message":{"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"x":1}}}]},
                "finish_reason":"stop"}]}"#,
        );
        assert_eq!(answer.finish, Finish::ToolCalls);
        let [Part::ToolCall(call)] = answer.parts.as_slice() else { panic!("{answer:?}") };
        assert_eq!(call.arguments, r#"{"x":1}"#, "arguments may be an object");
    }

    #[test]
    fn a_time_may_have_a_fraction_or_say_nothing() {
        for (created, seconds) in [
            ("1746852567.742961", Some(1_746_852_567)),
            ("1746852567", Some(1_746_852_567)),
            ("1.5e17", None),
            ("0", None),
            ("null", None),
            ("\"soon\"", None),
        ] {
            let mut fields =
                Field::root(Json::parse(format!(r#"{{"created":{created}}}"#).as_bytes()).unwrap())
                    .object()
                    .unwrap();
            assert_eq!(about(&mut fields).unwrap().created, seconds, "{created}");
        }
    }
}
