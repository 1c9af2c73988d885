//! The size of a call as far as it is known before the call, from its body and from the limits of its model.

use farthing_core::size_hint::{InputLimit, SizeHint};
use farthing_core::usage::{MAX_COUNT, Split};

use super::usage::{BodyForm, Content, RequestedOptions, content};

/// Tokens of the instructions that a provider adds to a call with tools.
const TOOL_INSTRUCTIONS_TOKENS: u64 = 1_000;

/// The size of a call. `json` is its body, if what limits its input matters; `max_tokens` are the limits of its model.
pub(super) fn of_call(
    options: &RequestedOptions,
    json: Option<&[u8]>,
    input_bytes: u64,
    max_tokens: Split<Option<u64>>,
) -> SizeHint {
    let answers = options.limited_answers.max(1);
    let input_limit = match json.map(content) {
        None | Some(Content::Text) => InputLimit::Body,
        Some(Content::Tools) => InputLimit::Tokens(input_bytes.saturating_add(TOOL_INSTRUCTIONS_TOKENS)),
        Some(Content::BeyondText) => max_tokens.input.map_or(InputLimit::Unknown, |tokens| {
            InputLimit::Tokens(tokens.saturating_mul(answers).max(input_bytes))
        }),
    };
    let model_output_tokens = max_tokens.output.map(|tokens| tokens.saturating_mul(answers));
    if options.form == BodyForm::Unknown {
        // The hold is its cap then, unless the model has a limit.
        let max_output_tokens = Some(model_output_tokens.unwrap_or(MAX_COUNT));
        let input_limit = InputLimit::Unknown;
        return SizeHint { max_output_tokens, input_bytes, model_output_tokens, input_limit };
    }
    SizeHint { max_output_tokens: options.max_output_tokens, input_bytes, model_output_tokens, input_limit }
}

/// The size of a call with a form, whose sound may be more tokens than bytes.
pub(super) fn of_form(
    options: &RequestedOptions,
    input_bytes: u64,
    max_tokens: Split<Option<u64>>,
) -> SizeHint {
    SizeHint { input_limit: InputLimit::Unknown, ..of_call(options, None, input_bytes, max_tokens) }
}

#[cfg(test)]
mod tests {
    use super::super::usage::read_request;
    use super::*;

    fn size(body: &str, max_tokens: Split<Option<u64>>) -> SizeHint {
        of_call(&read_request(body.as_bytes()), Some(body.as_bytes()), 100, max_tokens)
    }

    #[test]
    fn a_call_is_limited_by_its_body_and_else_by_its_model() {
        let model = Split { input: Some(5_000), output: Some(300) };
        let plain = size(r#"{"n":2,"messages":[{"role":"user","content":"hi"}]}"#, model);
        assert_eq!((plain.max_output_tokens, plain.model_output_tokens), (None, Some(600)));
        assert_eq!((plain.input_limit, plain.input_bytes), (InputLimit::Body, 100));
        let limited = size(r#"{"n":2,"max_tokens":9}"#, model);
        assert_eq!((limited.max_output_tokens, limited.model_output_tokens), (Some(18), Some(600)));
        let tools = size(r#"{"tools":[{"type":"function","function":{"name":"f"}}]}"#, model);
        assert_eq!(tools.input_limit, InputLimit::Tokens(1_100));
        let image = r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://a"}}]}]}"#;
        assert_eq!(size(image, model).input_limit, InputLimit::Tokens(5_000));
        assert_eq!(size(image, Split::default()).input_limit, InputLimit::Unknown);
        assert_eq!(size(image, Split { input: Some(5), output: None }).input_limit, InputLimit::Tokens(100));
        assert_eq!(size("{}", Split::default()).model_output_tokens, None);
    }

    #[test]
    fn a_body_of_an_unknown_form_is_bounded_by_its_model_or_by_nothing() {
        let options = RequestedOptions { form: BodyForm::Unknown, ..read_request(b"{}") };
        for (output, most) in [(Some(300), 300), (None, MAX_COUNT)] {
            let size = of_call(&options, None, 100, Split { input: None, output });
            assert_eq!(size.max_output_tokens, Some(most));
            assert_eq!(size.by_model(), None, "a spend limit takes the hold cap");
        }
    }
}
