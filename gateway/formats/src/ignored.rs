//! The members of requests that are left out: all of them, and nowhere else. `docs/conversion.md` says of each why this
//! changes nothing for the caller; a test here compares the two, and another tries each member.

use crate::json::Json;

/// An object of a request with members that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    ChatRequest,
    ChatStreamOptions,
    /// A message of the assistant.
    ChatAssistant,
    ChatCall,
    ResponsesRequest,
    ResponsesStreamOptions,
    ResponsesItem,
    /// A paragraph of reasoning.
    ResponsesParagraph,
    /// A text of the assistant.
    ResponsesText,
    AnthropicRequest,
    AnthropicTool,
    AnthropicBlock,
    AnthropicText,
    AnthropicCall,
    GoogleRequest,
    GoogleConfig,
    GoogleSystem,
    /// `inlineData` and `fileData`.
    GoogleData,
    GoogleResult,
}

use Place::{
    AnthropicBlock, AnthropicCall, AnthropicRequest, AnthropicText, AnthropicTool, ChatAssistant, ChatCall,
    ChatRequest, ChatStreamOptions, GoogleConfig, GoogleData, GoogleRequest, GoogleResult, GoogleSystem,
    ResponsesItem, ResponsesParagraph, ResponsesRequest, ResponsesStreamOptions, ResponsesText,
};

/// The members by their object and name, and the value that is left out; without one, every value is.
const IGNORED: [(Place, &str, Option<&str>); 50] = [
    (ChatRequest, "metadata", None),
    (ChatRequest, "store", None),
    (ChatRequest, "prompt_cache_key", None),
    (ChatRequest, "prompt_cache_retention", None),
    (ChatRequest, "safety_identifier", None),
    (ChatRequest, "service_tier", Some("\"auto\"")),
    (ChatRequest, "service_tier", Some("\"default\"")),
    (ChatRequest, "n", Some("1")),
    (ChatRequest, "logprobs", Some("false")),
    (ChatRequest, "top_logprobs", Some("0")),
    (ChatRequest, "logit_bias", Some("{}")),
    (ChatRequest, "modalities", Some("[\"text\"]")),
    (ChatStreamOptions, "include_obfuscation", None),
    (ChatAssistant, "annotations", Some("[]")),
    (ChatCall, "index", None),
    (ResponsesRequest, "metadata", None),
    (ResponsesRequest, "store", None),
    (ResponsesRequest, "prompt_cache_key", None),
    (ResponsesRequest, "prompt_cache_retention", None),
    (ResponsesRequest, "safety_identifier", None),
    (ResponsesRequest, "max_tool_calls", None),
    (ResponsesRequest, "service_tier", Some("\"auto\"")),
    (ResponsesRequest, "service_tier", Some("\"default\"")),
    (ResponsesRequest, "background", Some("false")),
    (ResponsesRequest, "truncation", Some("\"disabled\"")),
    (ResponsesRequest, "top_logprobs", Some("0")),
    (ResponsesStreamOptions, "include_obfuscation", None),
    (ResponsesItem, "id", None),
    (ResponsesItem, "status", None),
    (ResponsesParagraph, "type", Some("\"summary_text\"")),
    (ResponsesParagraph, "type", Some("\"reasoning_text\"")),
    (ResponsesText, "annotations", Some("[]")),
    (ResponsesText, "logprobs", Some("[]")),
    (AnthropicRequest, "cache_control", None),
    (AnthropicRequest, "service_tier", Some("\"auto\"")),
    (AnthropicTool, "cache_control", None),
    (AnthropicTool, "eager_input_streaming", Some("false")),
    (AnthropicTool, "defer_loading", Some("false")),
    (AnthropicBlock, "cache_control", None),
    (AnthropicText, "citations", Some("[]")),
    (AnthropicCall, "caller", Some("{\"type\":\"direct\"}")),
    (GoogleRequest, "labels", None),
    (GoogleRequest, "safetySettings", Some("[]")),
    (GoogleConfig, "candidateCount", Some("1")),
    (GoogleConfig, "responseLogprobs", Some("false")),
    (GoogleConfig, "responseModalities", Some("[\"TEXT\"]")),
    (GoogleConfig, "mediaResolution", Some("\"MEDIA_RESOLUTION_UNSPECIFIED\"")),
    (GoogleSystem, "role", None),
    (GoogleData, "displayName", None),
    (GoogleResult, "willContinue", Some("false")),
];

/// Whether a member of an object is left out.
pub(crate) fn is_ignored(place: Place, name: &str, value: &Json) -> bool {
    IGNORED.iter().any(|(of, ignored, only)| {
        *of == place
            && *ignored == name
            && only.is_none_or(|only| Json::parse(only.as_bytes()).as_ref() == Ok(value))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::conversion::{Conversion, Format, RequestFacts};
    use crate::error::RequestError;

    const FORMATS: [(Format, &str, &str); 4] = [
        (Format::OpenaiChat, "chat", "openai_chat"),
        (Format::OpenaiResponses, "responses", "openai_responses"),
        (Format::Anthropic, "anthropic", "anthropic"),
        (Format::Google, "google", "google"),
    ];

    /// The format and the object as the page names them, and where the golden document has it.
    fn about(place: Place) -> (&'static str, &'static str, &'static [&'static str]) {
        match place {
            ChatRequest => ("chat", "request", &[""]),
            ChatStreamOptions => ("chat", "`stream_options`", &["/stream_options"]),
            ChatAssistant => ("chat", "message of the assistant", &["/messages/1"]),
            ChatCall => ("chat", "call", &["/messages/1/tool_calls/0"]),
            ResponsesRequest => ("responses", "request", &[""]),
            ResponsesStreamOptions => ("responses", "`stream_options`", &["/stream_options"]),
            ResponsesItem => ("responses", "item", &["/input/1", "/input/2", "/input/3", "/input/4"]),
            ResponsesParagraph => ("responses", "part of reasoning", &["/input/1/summary/0"]),
            ResponsesText => ("responses", "`output_text`", &["/input/2/content/0"]),
            AnthropicRequest => ("anthropic", "request", &[""]),
            AnthropicTool => ("anthropic", "tool", &["/tools/0"]),
            AnthropicBlock => (
                "anthropic",
                "block",
                &[
                    "/system/0",
                    "/messages/0/content/0",
                    "/messages/0/content/1",
                    "/messages/1/content/0",
                    "/messages/1/content/1",
                    "/messages/2/content/0",
                    "/messages/2/content/0/content/0",
                ],
            ),
            AnthropicText => ("anthropic", "`text`", &["/messages/1/content/0"]),
            AnthropicCall => ("anthropic", "`tool_use`", &["/messages/1/content/1"]),
            GoogleRequest => ("google", "request", &[""]),
            GoogleConfig => ("google", "`generationConfig`", &["/generationConfig"]),
            GoogleSystem => ("google", "`systemInstruction`", &["/systemInstruction"]),
            GoogleData => (
                "google",
                "`inlineData`, `fileData`",
                &["/contents/0/parts/1/inlineData", "/contents/0/parts/2/fileData"],
            ),
            GoogleResult => ("google", "`functionResponse`", &["/contents/2/parts/0/functionResponse"]),
        }
    }

    #[test]
    fn the_page_lists_what_is_left_out_and_nothing_else() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conversion.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("### Ignored\n").unwrap();
        let (section, _) = section.split_once("\n### ").unwrap();
        let mut listed = BTreeSet::new();
        for row in section.lines().filter_map(|line| line.strip_prefix("| ")).skip(1) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [format, object, fields, why] = cells[..] else { panic!("{row} has four cells") };
            assert!(!why.trim_end_matches('|').trim().is_empty(), "{row} has a reason");
            // What is in code quotes.
            for field in fields.split('`').skip(1).step_by(2) {
                let is_new = listed.insert(format!("{format}, {object}: {field}"));
                assert!(is_new, "{field} is listed twice");
            }
        }
        let ignored = IGNORED.map(|(place, name, only)| {
            let (format, object, _) = about(place);
            let value = only.map_or_else(String::new, |only| format!(": {only}"));
            format!("{format}, {object}: {name}{value}")
        });
        assert_eq!(listed, BTreeSet::from(ignored));
    }

    #[test]
    fn what_is_left_out_changes_nothing_and_any_other_value_is_refused() {
        for (client, shown, folder) in FORMATS {
            let path = format!("tests/golden/requests/{folder}/ignored.json");
            let document = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
            let document: Value = serde_json::from_slice(&document).unwrap();
            for (provider, ..) in FORMATS {
                let Some(conversion) = Conversion::between(client, provider) else { continue };
                let convert = |document: &Value| {
                    let facts = RequestFacts {
                        model: (client == Format::Google).then_some("gemini-2.5-flash"),
                        max_output_tokens: Some(1000),
                        ..RequestFacts::default()
                    };
                    conversion
                        .request(document.to_string().as_bytes(), &facts)
                        .map(|converted| converted.body)
                };
                let converted = convert(&document).unwrap();
                for (place, name, only) in IGNORED {
                    let (format, _, pointers) = about(place);
                    for pointer in pointers.iter().filter(|_| format == shown) {
                        let about = format!("{pointer}/{name} to {provider:?}");
                        let with = |value: Option<Value>| {
                            let mut changed = document.clone();
                            let object = changed.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
                            assert!(object.remove(name).is_some(), "{about} is in no golden document");
                            object.extend(value.map(|value| (name.to_owned(), value)));
                            convert(&changed)
                        };
                        assert_eq!(with(None).as_ref(), Ok(&converted), "without {about}");
                        let ignored =
                            only.map_or(json!({"a": [1]}), |only| serde_json::from_str(only).unwrap());
                        assert_eq!(with(Some(ignored)).as_ref(), Ok(&converted), "{about}");
                        if only.is_some() {
                            let Err(RequestError::Unsupported { field, .. }) = with(Some(json!("other")))
                            else {
                                panic!("another value of {about} is not refused");
                            };
                            assert!(field.ends_with(name), "{field} of {about}");
                        }
                    }
                }
            }
        }
    }
}
