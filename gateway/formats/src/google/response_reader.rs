//! Google's `generateContent`: reads a provider's response. Members that are not known are no part of the answer.

use crate::answer::{About, Answer, Finish, Usage, made_call_id};
use crate::conversation::{Part, ToolCall};
use crate::error::ResponseError;
use crate::fields::{Field, Fields};

/// Reads a response.
pub(crate) fn read_response(document: Field) -> Result<Answer, ResponseError> {
    let mut fields = document.object()?;
    let about = about(&mut fields)?;
    let piece = read_piece(&mut fields, &about, &mut 0)?;
    let Some(finish) = piece.finish else {
        return Err(ResponseError::Invalid {
            field: "candidates[0].finishReason".to_owned(),
            message: "is missing".to_owned(),
        });
    };
    Ok(Answer { about, parts: join(piece.parts), finish, usage: piece.usage })
}

/// What a response, or a chunk of one, says.
pub(super) struct Piece {
    pub(super) parts: Vec<Part>,
    pub(super) finish: Option<Finish>,
    pub(super) usage: Option<Usage>,
}

/// Reads what identifies an answer.
pub(super) fn about(fields: &mut Fields) -> Result<About, ResponseError> {
    Ok(About {
        id: fields.answer_id("responseId")?,
        model: fields.answer_model("modelVersion")?,
        created: None,
    })
}

/// Reads a response or a chunk. `call_count` says how many calls came before, and counts on.
pub(super) fn read_piece(
    fields: &mut Fields,
    about: &About,
    call_count: &mut usize,
) -> Result<Piece, ResponseError> {
    let usage = fields.object("usageMetadata")?.map(read_usage).transpose()?;
    let mut piece = Piece { parts: Vec::new(), finish: None, usage };
    let mut candidates = fields.list("candidates")?.into_iter();
    let (candidate, other) = (candidates.next(), candidates.next());
    if let Some(other) = other {
        return Err(other.unsupported("only one candidate was asked for").into());
    }
    let Some(candidate) = candidate else {
        let feedback = fields.object("promptFeedback")?;
        let is_blocked = feedback.map_or(Ok(None), |mut feedback| feedback.text("blockReason"))?.is_some();
        piece.finish = is_blocked.then_some(Finish::Filtered);
        return Ok(piece);
    };
    let mut candidate = candidate.object()?;
    if let Some(mut content) = candidate.object("content")? {
        for part in content.list("parts")? {
            read_part(part.object()?, about, call_count, &mut piece.parts)?;
        }
    }
    let reason = candidate.take("finishReason");
    piece.finish = reason.map_or(Ok(None), |reason| read_finish(&reason, *call_count > 0))?;
    Ok(piece)
}

fn read_part(
    mut part: Fields,
    about: &About,
    call_count: &mut usize,
    parts: &mut Vec<Part>,
) -> Result<(), ResponseError> {
    let is_thought = part.boolean("thought")?.unwrap_or(false);
    if let Some(signature) = part.text("thoughtSignature")? {
        parts.push(Part::Reasoning { text: String::new(), signature: Some(signature) });
    }
    if let Some(text) = part.text("text")? {
        if is_thought {
            parts.push(Part::Reasoning { text, signature: None });
        } else if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        return Ok(());
    }
    let Some(mut call) = part.object("functionCall")? else {
        // A part of nothing, or of a signature alone, is no content.
        part.take("partMetadata");
        return Ok(part.end()?);
    };
    let id = call.text("id")?.filter(|id| !id.is_empty());
    let args = call.take("args").map(Field::json);
    parts.push(Part::ToolCall(ToolCall {
        id: id.unwrap_or_else(|| made_call_id(&about.id, *call_count)),
        name: call.require("name")?.text()?,
        arguments: args.map_or_else(|| "{}".to_owned(), |args| args.to_text()),
    }));
    *call_count += 1;
    Ok(())
}

/// Joins neighbours: pieces of text, pieces of reasoning, and reasoning with the signature after it.
fn join(parts: Vec<Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(text)) => before.push_str(&text),
            (
                Some(Part::Reasoning { text: before, signature: unsigned @ None }),
                Part::Reasoning { text, signature },
            ) => {
                before.push_str(&text);
                *unsigned = signature;
            }
            (_, part) => joined.push(part),
        }
    }
    joined
}

fn read_finish(reason: &Field, has_calls: bool) -> Result<Option<Finish>, ResponseError> {
    Ok(Some(match reason.value().as_text() {
        Some("FINISH_REASON_UNSPECIFIED") => return Ok(None),
        Some("STOP") if has_calls => Finish::ToolCalls,
        Some("STOP") => Finish::Stop,
        Some("MAX_TOKENS") => Finish::Length,
        Some("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "LANGUAGE") => {
            Finish::Filtered
        }
        _ => {
            // Such as MALFORMED_FUNCTION_CALL: the provider failed, and no other format has a word for it.
            let why = format!("the answer ended by {}", reason.value().to_text());
            return Err(reason.unsupported(why).into());
        }
    }))
}

/// Reads usage. Google counts reasoning beside the answer, and the input of tools beside the prompt.
fn read_usage(mut fields: Fields) -> Result<Usage, ResponseError> {
    let mut count = |name: &str| fields.unsigned(name);
    let prompt = count("promptTokenCount")?.unwrap_or(0);
    let of_tools = count("toolUsePromptTokenCount")?.unwrap_or(0);
    let reasoning = count("thoughtsTokenCount")?;
    Ok(Usage {
        input: prompt.saturating_add(of_tools),
        cached: count("cachedContentTokenCount")?.unwrap_or(0),
        cache_written: 0,
        output: count("candidatesTokenCount")?.unwrap_or(0).saturating_add(reasoning.unwrap_or(0)),
        reasoning,
    })
}
