//! What a request body asks for: the model, and how much output at most. Pure; read from the beginning of the
//! body, before anything is sent on.

use super::document::{Document, Member, Wanted};
use super::string;

/// Members of the bodies of OpenAI, Anthropic and Google that matter before the call.
const WANTED: Wanted = Wanted {
    members: &[
        ("model", Member::Model),
        ("max_tokens", Member::MaxOutputTokens),
        ("max_completion_tokens", Member::MaxOutputTokens),
        ("max_output_tokens", Member::MaxOutputTokens),
        ("maxOutputTokens", Member::MaxOutputTokens),
    ],
    inside: &["generationConfig"],
};

/// What a request body asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AskedFor {
    /// The model.
    pub(crate) model: Option<String>,
    /// The output limit, in tokens; the largest where several are named.
    pub(crate) max_output_tokens: Option<u64>,
}

/// Reads what is asked for from a whole JSON body.
pub(crate) fn read_request(body: &[u8]) -> AskedFor {
    let mut asked = AskedFor::default();
    Document::new(WANTED).feed(body, |member, text| match member {
        Member::Model => asked.model = string(text).or(asked.model.take()),
        Member::MaxOutputTokens => {
            if let Ok(limit) = text.parse::<u64>() {
                asked.max_output_tokens =
                    Some(asked.max_output_tokens.map_or(limit, |known| known.max(limit)));
            }
        }
        Member::Usage | Member::Id | Member::Created => {}
    });
    asked
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
            (r#"{"model":"m","max_tokens":-1}"#, None),
            (r#"{"model":"m","max_tokens":"5"}"#, None),
        ] {
            let asked = read_request(body.as_bytes());
            assert_eq!(asked, AskedFor { model: Some("m".into()), max_output_tokens: limit }, "{body}");
        }
        assert_eq!(read_request(b"not json"), AskedFor::default());
    }
}
