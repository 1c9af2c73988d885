//! The size of a call as far as it is known before the call, from its body and from the limits of its model.

use farthing_core::size_hint::{InputLimit, SizeHint};
use farthing_core::usage::{MAX_COUNT, Split};

use super::usage::{BedrockLimit, Content, LimitMember, RequestedOptions, content};
use crate::providers::{BilledBy, Unbounded};

/// Tokens of the instructions that a provider adds to a call with tools.
const TOOL_INSTRUCTIONS_TOKENS: u64 = 1_000;

/// Tokens of the description that a provider adds for each tool that the body only names.
const TOOL_DESCRIPTION_TOKENS: u64 = 1_000;

/// What limits the size of a call beside its body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The members of a body that limit the output there.
    pub(super) members: &'static [LimitMember],
    /// The limits of the model.
    pub(super) model: Split<Option<u64>>,
    /// The unit by which the endpoint is billed.
    pub(super) billed_by: BilledBy,
    /// What the body does not bound, because of the model.
    pub(super) unbounded: Unbounded,
}

/// The size of a call. `json` is its body, if what limits its input matters.
pub(super) fn of_call(
    options: &RequestedOptions,
    json: Option<&[u8]>,
    input_bytes: u64,
    limits: Limits,
) -> SizeHint {
    let given = json.map(|json| match limits.unbounded {
        Unbounded::Nothing if !options.has_too_many_members => content(json),
        // What was not read may have any content.
        Unbounded::Nothing | Unbounded::Input | Unbounded::Tokens => Content::BeyondText,
    });
    let input_limit = match given {
        None | Some(Content::Text) => InputLimit::Body,
        Some(Content::Tools { undescribed }) => {
            let descriptions = undescribed.saturating_mul(TOOL_DESCRIPTION_TOKENS);
            let added = TOOL_INSTRUCTIONS_TOKENS.saturating_add(descriptions);
            InputLimit::Tokens(input_bytes.saturating_add(added))
        }
        Some(Content::BeyondText) => {
            // Where nothing limits an output, such as for embeddings, a list may be of inputs that are each as long as the
            // model takes. Elsewhere it is one conversation.
            let inputs = options.limited_answers.map(|answers| match limits.members {
                [] => answers.max(options.answers),
                [_, ..] => answers,
            });
            limits.model.input.zip(inputs).map_or(InputLimit::Unknown, |(tokens, inputs)| {
                InputLimit::Tokens(tokens.saturating_mul(inputs).max(input_bytes))
            })
        }
    };
    let of_model = limits.model.output.zip(options.limited_answers);
    let model_output_tokens = of_model.map(|(tokens, answers)| tokens.saturating_mul(answers));
    let hint = SizeHint {
        max_output_tokens: options.max_output_tokens(limits.members),
        input_bytes,
        model_output_tokens,
        input_limit,
        input_characters: match limits.billed_by {
            BilledBy::InputCharacters => options.input_characters,
            BilledBy::Report => None,
        },
    };
    if limits.unbounded == Unbounded::Tokens {
        return SizeHint {
            max_output_tokens: None,
            model_output_tokens: None,
            input_limit: InputLimit::Unknown,
            ..hint
        };
    }
    if options.bedrock_limit != Some(BedrockLimit::Unknown) {
        return hint;
    }
    SizeHint {
        // The hold is its cap then, unless the model has a limit.
        max_output_tokens: Some(model_output_tokens.unwrap_or(MAX_COUNT)),
        input_limit: InputLimit::Unknown,
        ..hint
    }
}

/// The size of a call with a form, whose sound may be more tokens than bytes.
pub(super) fn of_form(options: &RequestedOptions, input_bytes: u64, limits: Limits) -> SizeHint {
    SizeHint { input_limit: InputLimit::Unknown, ..of_call(options, None, input_bytes, limits) }
}

#[cfg(test)]
mod tests {
    use super::super::usage::read_request;
    use super::*;

    fn size(body: &str, model: Split<Option<u64>>) -> SizeHint {
        let limits = Limits {
            members: &[LimitMember::MaxTokens],
            model,
            billed_by: BilledBy::Report,
            unbounded: Unbounded::Nothing,
        };
        of_call(&read_request(body.as_bytes()), Some(body.as_bytes()), 100, limits)
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
        let named = size(r#"{"tools":[{"type":"bash_20250124"},{"type":"computer_20250124"}]}"#, model);
        assert_eq!(named.input_limit, InputLimit::Tokens(3_100));
        let image = r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://a"}}]}]}"#;
        assert_eq!(size(image, model).input_limit, InputLimit::Tokens(5_000));
        assert_eq!(size(image, Split::default()).input_limit, InputLimit::Unknown);
        assert_eq!(size(image, Split { input: Some(5), output: None }).input_limit, InputLimit::Tokens(100));
        assert_eq!(size("{}", Split::default()).model_output_tokens, None);
    }

    #[test]
    fn what_a_model_finds_or_asks_by_itself_is_not_bounded_by_the_body() {
        let body = br#"{"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
        let of = |unbounded| {
            let model = Split { input: Some(5_000), output: Some(300) };
            let members = &[LimitMember::MaxTokens];
            let limits = Limits { members, model, billed_by: BilledBy::Report, unbounded };
            let size = of_call(&read_request(body), Some(body), 100, limits);
            (size.input_limit, size.max_output_tokens, size.model_output_tokens)
        };
        assert_eq!(of(Unbounded::Nothing), (InputLimit::Body, Some(9), Some(300)));
        assert_eq!(of(Unbounded::Input), (InputLimit::Tokens(5_000), Some(9), Some(300)));
        assert_eq!(of(Unbounded::Tokens), (InputLimit::Unknown, None, None));
    }

    #[test]
    fn each_image_that_is_embedded_may_be_as_long_as_the_model_takes() {
        let model = Split { input: Some(5_000), output: Some(300) };
        let image = r#"{"type":"image_url","image_url":{"url":"https://a"}}"#;
        for (body, limit) in [
            (format!(r#"{{"input":[{image},{image},{image}]}}"#), 15_000),
            (format!(r#"{{"inputs":[{image},{image}]}}"#), 10_000),
            (r#"{"images":["https://a","https://b"]}"#.to_owned(), 10_000),
            (format!(r#"{{"input":[{image}],"n":2}}"#), 10_000),
        ] {
            let options = read_request(body.as_bytes());
            let of = |members| {
                let limits =
                    Limits { members, model, billed_by: BilledBy::Report, unbounded: Unbounded::Nothing };
                of_call(&options, Some(body.as_bytes()), 100, limits).input_limit
            };
            assert_eq!(of(&[]), InputLimit::Tokens(limit), "{body}");
            // Messages are one conversation.
            let of_messages = if body.contains("\"n\"") { 10_000 } else { 5_000 };
            assert_eq!(of(&[LimitMember::MaxOutputTokens]), InputLimit::Tokens(of_messages), "{body}");
        }
    }

    #[test]
    fn a_limit_that_the_provider_does_not_read_or_that_cannot_be_read_is_that_of_the_model() {
        let model = Split { input: Some(5_000), output: Some(300) };
        for body in [
            r#"{"max_completion_tokens":1}"#,
            r#"{"max_output_tokens":1}"#,
            r#"{"generationConfig":{"maxOutputTokens":1}}"#,
            r#"{"max_tokens":"abc"}"#,
            r#"{"max_tokens":1e99}"#,
            r#"{"max_tokens":-1}"#,
            r#"{"max_tokens":null}"#,
        ] {
            let size = size(body, model);
            assert_eq!((size.max_output_tokens, size.model_output_tokens), (None, Some(300)), "{body}");
        }
    }

    #[test]
    fn a_number_of_answers_that_cannot_be_read_leaves_nothing_limited_but_text() {
        let model = Split { input: Some(5_000), output: Some(300) };
        let plain = size(r#"{"n":"2","max_tokens":9}"#, model);
        assert_eq!((plain.max_output_tokens, plain.model_output_tokens), (None, None));
        assert_eq!(plain.input_limit, InputLimit::Body);
        let image =
            r#"{"n":"2","messages":[{"content":[{"type":"image_url","image_url":{"url":"https://a"}}]}]}"#;
        assert_eq!(size(image, model).input_limit, InputLimit::Unknown);
    }

    #[test]
    fn a_body_of_too_many_members_is_one_that_cannot_be_read() {
        let model = Split { input: Some(5_000), output: Some(300) };
        let members = vec![r#""x":0"#; 10_001].join(",");
        let many = size(&format!(r#"{{"max_tokens":9,{members}}}"#), model);
        assert_eq!(many, size("[]", model));
        assert_eq!((many.max_output_tokens, many.input_limit), (None, InputLimit::Unknown));
    }

    #[test]
    fn characters_are_the_size_of_a_call_only_where_they_are_billed() {
        let body = br#"{"input":"caf\u00e9"}"#;
        let mut options = read_request(body);
        options.read_input_characters(body);
        let of = |billed_by| {
            let limits =
                Limits { members: &[], model: Split::default(), billed_by, unbounded: Unbounded::Nothing };
            of_call(&options, None, 100, limits).input_characters
        };
        assert_eq!((of(BilledBy::InputCharacters), of(BilledBy::Report)), (Some(4), None));
    }

    #[test]
    fn a_body_of_an_unknown_form_is_bounded_by_its_model_or_by_nothing() {
        let options = RequestedOptions { bedrock_limit: Some(BedrockLimit::Unknown), ..read_request(b"{}") };
        for (output, most) in [(Some(300), 300), (None, MAX_COUNT)] {
            let model = Split { input: None, output };
            let limits =
                Limits { members: &[], model, billed_by: BilledBy::Report, unbounded: Unbounded::Nothing };
            let size = of_call(&options, None, 100, limits);
            assert_eq!(size.max_output_tokens, Some(most));
            assert_eq!(size.by_model(), None, "a spend limit takes the hold cap");
        }
    }
}
