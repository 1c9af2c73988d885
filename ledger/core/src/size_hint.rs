//! The size of a call as far as it is known before the call. Holds are bounds of its cost (completion.md sections 3 and
//! 10).

use serde::{Deserialize, Serialize};

/// The size of a call as far as it is known before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SizeHint {
    /// The output limit in the request body, in tokens, of all answers that it asks for.
    pub max_output_tokens: Option<u64>,
    /// The bytes of the body, an upper bound of its tokens and characters.
    pub input_bytes: u64,
    /// The most tokens that the model can answer, of all answers that the body asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_output_tokens: Option<u64>,
    /// What limits the input tokens.
    #[serde(default, skip_serializing_if = "InputLimit::is_body")]
    pub input_limit: InputLimit,
    /// The characters of the input, if they are what the call is billed by: speech. Its answer reports nothing, so this is
    /// exactly what is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_characters: Option<u64>,
}

/// What limits the input tokens of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputLimit {
    /// The body alone: a token has at least a byte.
    #[default]
    Body,
    /// This number of tokens: the body has content that is more tokens than bytes.
    Tokens(u64),
    /// Nothing that is known.
    Unknown,
}

impl InputLimit {
    fn is_body(&self) -> bool {
        *self == Self::Body
    }
}

impl SizeHint {
    /// The size at the model's own limits where the body sets none; `None` if the input has no known limit.
    #[must_use]
    pub fn by_model(self) -> Option<Self> {
        let input_bytes = match self.input_limit {
            InputLimit::Body => self.input_bytes,
            InputLimit::Tokens(tokens) => tokens,
            InputLimit::Unknown => return None,
        };
        let max_output_tokens = self.max_output_tokens.or(self.model_output_tokens);
        Some(Self { max_output_tokens, input_bytes, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_limits_what_the_body_leaves_open() {
        let hint = SizeHint { input_bytes: 7, model_output_tokens: Some(100), ..SizeHint::default() };
        let limits = |hint: SizeHint| hint.by_model().map(|size| (size.input_bytes, size.max_output_tokens));
        assert_eq!(limits(hint), Some((7, Some(100))));
        assert_eq!(limits(SizeHint { max_output_tokens: Some(300), ..hint }), Some((7, Some(300))));
        assert_eq!(limits(SizeHint { model_output_tokens: None, ..hint }), Some((7, None)));
        assert_eq!(limits(SizeHint { input_limit: InputLimit::Tokens(50), ..hint }), Some((50, Some(100))));
        assert_eq!(limits(SizeHint { input_limit: InputLimit::Unknown, ..hint }), None);
    }

    #[test]
    fn a_size_of_an_older_gateway_is_limited_by_its_body() {
        let read: SizeHint = serde_json::from_str(r#"{"max_output_tokens":null,"input_bytes":5}"#).unwrap();
        assert_eq!(read, SizeHint { input_bytes: 5, ..SizeHint::default() });
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"max_output_tokens":null,"input_bytes":5}"#);
        let spoken = SizeHint { input_characters: Some(7), ..read };
        let written = serde_json::to_string(&spoken).unwrap();
        assert_eq!(serde_json::from_str::<SizeHint>(&written).unwrap(), spoken);
        for input_limit in [InputLimit::Tokens(9), InputLimit::Unknown] {
            let hint = SizeHint { model_output_tokens: Some(1), input_limit, ..read };
            assert_eq!(
                serde_json::from_str::<SizeHint>(&serde_json::to_string(&hint).unwrap()).unwrap(),
                hint
            );
        }
    }
}
