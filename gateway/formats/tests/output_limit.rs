//! The output limit of a request that is converted into Chat Completions stands in the member that its provider reads.

use farthing_formats::{ChatLimitMember, Conversion, Format, RequestFacts};
use serde_json::{Value, json};

#[test]
fn a_limit_is_written_under_the_one_name_that_the_provider_of_chat_completions_reads() {
    for (client, body) in [
        (Format::OpenaiResponses, json!({"model": "m", "input": "Hi", "max_output_tokens": 7})),
        (
            Format::Anthropic,
            json!({"model": "m", "max_tokens": 7, "messages": [{"role": "user", "content": "Hi"}]}),
        ),
        (
            Format::Google,
            json!({
                "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
                "generationConfig": {"maxOutputTokens": 7},
            }),
        ),
    ] {
        for (chat_limit, name, other) in [
            (ChatLimitMember::MaxTokens, "max_tokens", "max_completion_tokens"),
            (ChatLimitMember::MaxCompletionTokens, "max_completion_tokens", "max_tokens"),
        ] {
            let facts = RequestFacts { model: Some("m"), chat_limit, ..RequestFacts::default() };
            let conversion = Conversion::between(client, Format::OpenaiChat).unwrap();
            let converted = conversion.request(body.to_string().as_bytes(), &facts).unwrap();
            let written: Value = serde_json::from_slice(&converted.body).unwrap();
            assert_eq!(written[name], 7, "{client:?} {written}");
            assert_eq!(written.get(other), None, "{client:?} {written}");
        }
    }
}
