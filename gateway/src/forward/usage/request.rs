//! What a request body asks for: the model, and how much output at most. Pure; read from the beginning of the
//! body, before anything is sent on.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::string;

/// The output limits of the dialects of OpenAI, Anthropic and Google.
const LIMITS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"];

/// How many answers are asked for at once.
const COUNTS: [&str; 3] = ["n", "best_of", "candidateCount"];

/// What a request body asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AskedFor {
    /// The model.
    pub(crate) model: Option<String>,
    /// The output limit of all answers together, in tokens; by the largest limit where several are named.
    pub(crate) max_output_tokens: Option<u64>,
}

/// Reads what is asked for from a whole JSON body.
pub(crate) fn read_request(body: &[u8]) -> AskedFor {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let Ok(body) = serde_json::from_slice::<Members<'_>>(body) else { return AskedFor::default() };
    let inner = body.get("generationConfig").map(|inner| serde_json::from_str::<Members<'_>>(inner.get()));
    let inner = inner.and_then(Result::ok).unwrap_or_default();
    let largest = |names: &[&str]| {
        let named = names.iter().filter_map(|name| inner.get(*name).or_else(|| body.get(*name)));
        named.filter_map(|value| value.get().parse::<u64>().ok()).filter(|number| *number > 0).max()
    };
    let answers = largest(&COUNTS).unwrap_or(1);
    AskedFor {
        model: body.get("model").and_then(|model| string(model.get())),
        max_output_tokens: largest(&LIMITS).map(|limit| limit.saturating_mul(answers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_every_dialect_are_read() {
        for (body, limit) in [
            (r#"{"model":"m","max_tokens":5}"#, Some(5)),
            (r#"{"model":"m","max_tokens":5,"max_completion_tokens":9}"#, Some(9)),
            (r#"{"model":"m","max_output_tokens":7}"#, Some(7)),
            (r#"{"model":"m","generationConfig":{"maxOutputTokens":8}}"#, Some(8)),
            (r#"{"model":"m","messages":[{"max_tokens":3}]}"#, None),
            (r#"{"model":"m","max_tokens":5,"n":3}"#, Some(15)),
            (r#"{"model":"m","max_tokens":1,"max\u005ftokens":70}"#, Some(70)),
            (r#"{"model":"m","max_tokens":0}"#, None),
            (r#"{"model":"m","max_tokens":-1}"#, None),
            (r#"{"model":"m","max_tokens":"5"}"#, None),
        ] {
            let asked = read_request(body.as_bytes());
            assert_eq!(asked, AskedFor { model: Some("m".into()), max_output_tokens: limit }, "{body}");
        }
        assert_eq!(read_request(b"not json"), AskedFor::default());
    }
}
