//! The content of a request body, by what bounds its input tokens. Text has at most a token per byte. An image, a file or
//! a reference to something that the provider keeps or fetches can be more tokens than the body has bytes. Pure.

use super::any_case::{first_read_as, is_read_as};
use super::unpriced::Tree;

/// The content of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Text alone.
    Text,
    /// Text, with tools: the provider adds instructions of its own, and the descriptions of so many tools that the body only
    /// names.
    Tools { undescribed: u64 },
    /// Content that is more tokens than bytes, or that may be.
    BeyondText,
}

/// Members that hold or name such content.
const MEMBERS: [&str; 35] = [
    "audio",
    "cachedContent",
    "cached_content",
    "codeExecution",
    "code_execution",
    "container",
    "conversation",
    "conversation_id",
    "document_url",
    "file",
    "fileData",
    "file_data",
    "file_id",
    "file_ids",
    "file_url",
    "image",
    "image_url",
    "images",
    "inlineData",
    "inline_data",
    "inputImage",
    "input_audio",
    "mcp_servers",
    "mediaSource",
    "previous_response_id",
    "promptVariables",
    "s3Location",
    "s3Uri",
    "server_url",
    "source",
    "urlContext",
    "url_context",
    "video",
    "video_url",
    "videos",
];

/// Types of such content.
const TYPES: [&str; 15] = [
    "audio",
    "code_interpreter",
    "computer_call_output",
    "document",
    "file",
    "image",
    "image_url",
    "input_audio",
    "input_file",
    "input_image",
    "item_reference",
    "mcp",
    "mcp_toolset",
    "video",
    "video_url",
];

/// Members that describe the form of values. No content is read in them.
const SCHEMAS: [&str; 9] = [
    "inputSchema",
    "input_schema",
    "json_schema",
    "parameters",
    "parametersJsonSchema",
    "responseJsonSchema",
    "responseSchema",
    "response_schema",
    "schema",
];

/// The content of a JSON body. One that cannot be read may have any.
pub(crate) fn content(body: &[u8]) -> Content {
    let Ok(Tree::Object(members)) = serde_json::from_slice(body) else { return Content::BeyondText };
    // A prompt that the provider keeps is an object.
    let names_prompt = Tree::all(&members, "prompt").any(|prompt| matches!(prompt, Tree::Object(_)));
    let names_item = Tree::all(&members, "input").any(names_stored_item);
    if names_prompt || names_item || members.iter().any(|(name, value)| is_beyond_text(name, value)) {
        return Content::BeyondText;
    }
    let given = ["tools", "functions", "toolConfig"].into_iter().flat_map(|name| Tree::all(&members, name));
    let counted = given.map(|tools| match tools {
        Tree::Null => None,
        Tree::Array(tools) if tools.is_empty() => None,
        tools => Some(undescribed(tools)),
    });
    let counted = counted
        .flatten()
        .fold(None, |all: Option<u64>, tools| Some(all.unwrap_or_default().saturating_add(tools)));
    counted.map_or(Content::Text, |undescribed| Content::Tools { undescribed })
}

/// Types of items of an input whose content stands in them, beside messages.
const WHOLE_ITEMS: [&str; 10] = [
    "apply_patch_call",
    "apply_patch_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
];

/// Whether an item of the input may name one that the provider keeps. Reasoning does so by its id, also beside a type.
fn names_stored_item(input: &Tree) -> bool {
    let is_whole = |members: &[(String, Tree)]| {
        // What readers may understand in two ways is no such text.
        let text = |name: &str| {
            let mut spelled = members.iter().filter(|(given, _)| is_read_as(given, name));
            match (spelled.next(), spelled.next()) {
                (Some((given, Tree::Text(text))), None) if given == name => Some(text.as_str()),
                _ => None,
            }
        };
        let has = |name: &str| members.iter().any(|(given, _)| given == name);
        match text("type") {
            Some("message") => has("content"),
            Some("reasoning") => !Tree::all(members, "id").any(|id| !matches!(id, Tree::Null)),
            Some(kind) => WHOLE_ITEMS.contains(&kind),
            // A message needs no type.
            None => Tree::all(members, "type").next().is_none() && text("role").is_some() && has("content"),
        }
    };
    let names = |item: &Tree| matches!(item, Tree::Object(members) if !is_whole(members));
    matches!(input, Tree::Array(items) if items.iter().any(names))
}

/// Types of tools that the body describes.
const DESCRIBED_TYPES: [&str; 2] = ["function", "custom"];

/// Members that describe a tool, if it has no type.
const DESCRIPTIONS: [&str; 5] = ["function", "input_schema", "inputSchema", "name", "parameters"];

/// Members of a tool without a type that describe further tools, or that are none.
const DESCRIBED_MEMBERS: [&str; 5] =
    ["cachePoint", "functionCallingConfig", "functionDeclarations", "function_declarations", "toolSpec"];

/// The tools that are only named, such as Anthropic's `bash_20250124` and those that Google names by a member: the
/// provider adds their descriptions. A type that is the provider's own counts, whatever else the tool has.
fn undescribed(tools: &Tree) -> u64 {
    match tools {
        Tree::Array(tools) => tools.iter().map(undescribed).fold(0, u64::saturating_add),
        Tree::Object(members) => {
            let mut types = Tree::all(members, "type").peekable();
            if types.peek().is_some() {
                let is_described = |kind: &Tree| matches!(kind, Tree::Text(kind) if DESCRIBED_TYPES.contains(&kind.as_str()));
                return u64::from(!types.all(is_described));
            }
            let mut nested = Tree::all(members, "tools").peekable();
            if nested.peek().is_some() {
                return nested.map(undescribed).fold(0, u64::saturating_add);
            }
            if members.iter().any(|(name, _)| DESCRIPTIONS.contains(&name.as_str())) {
                return 0;
            }
            let named =
                members.iter().filter(|(name, _)| !DESCRIBED_MEMBERS.contains(&name.as_str())).count();
            u64::try_from(named).unwrap_or(u64::MAX)
        }
        Tree::Null => 0,
        Tree::Text(_) | Tree::Other => 1,
    }
}

/// Whether a member holds content beyond text, at any depth.
fn is_beyond_text(name: &str, value: &Tree) -> bool {
    let is_one_of = |names: &[&'static str]| first_read_as(name, names).is_some();
    match value {
        Tree::Null => false,
        Tree::Text(kind) if is_read_as(name, "type") => TYPES.contains(&kind.as_str()),
        Tree::Object(_) | Tree::Array(_) if is_one_of(&SCHEMAS) => false,
        Tree::Object(_) | Tree::Array(_) | Tree::Text(_) | Tree::Other => {
            is_one_of(&MEMBERS) || any_within(value)
        }
    }
}

fn any_within(value: &Tree) -> bool {
    match value {
        Tree::Object(members) => members.iter().any(|(name, value)| is_beyond_text(name, value)),
        Tree::Array(items) => items.iter().any(any_within),
        Tree::Text(_) | Tree::Null | Tree::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_alone_is_bounded_by_its_bytes() {
        for body in [
            r#"{"messages":[{"role":"user","content":"an image_url and a \"source\""}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#,
            r#"{"input":"hi","previous_response_id":null,"tools":[]}"#,
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}]}"#,
            r#"{"contents":[{"parts":[{"text":"x"}]}],"generationConfig":{"responseSchema":{"properties":{"source":{"type":"string"}}}}}"#,
            r#"{"prompt":["a","b"]}"#,
            r#"{"input":["a","b"]}"#,
            r#"{"input":[{"type":"reasoning","id":null,"summary":[{"type":"summary_text","text":"x"}]}]}"#,
            r#"{"input":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"x"}]}]}"#,
            r#"{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}"#,
        ] {
            assert_eq!(content(body.as_bytes()), Content::Text, "{body}");
        }
    }

    #[test]
    fn tools_add_instructions_of_the_provider() {
        for body in [
            r#"{"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"source":{"type":"image"}}}}}]}"#,
            r#"{"tools":[{"name":"f","input_schema":{"properties":{"file":{"type":"string"}}}}]}"#,
            r#"{"tools":{"functionDeclarations":[]}}"#,
            r#"{"Tools":[{}]}"#,
            r#"{"functions":[{"name":"f"}]}"#,
            r#"{"toolConfig":{"tools":[{"toolSpec":{"name":"f"}}]}}"#,
            r#"{"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"properties":{"image":{"type":"string"}}}}}}]}}"#,
        ] {
            assert_eq!(content(body.as_bytes()), Content::Tools { undescribed: 0 }, "{body}");
        }
    }

    #[test]
    fn tools_that_are_only_named_are_counted_one_by_one() {
        for (tools, undescribed) in [
            (r#""tools":[{"type":"bash_20250124","name":"bash"}]"#, 1),
            (
                r#""tools":[{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},
                    {"type":"computer_20250124","name":"computer"},{"name":"f","input_schema":{}}]"#,
                3,
            ),
            // A schema that the provider does not read describes nothing.
            (r#""tools":[{"type":"memory_20250818","name":"m","input_schema":{}}]"#, 1),
            (r#""tools":[{"type":"function","type":"bash_20250124"}]"#, 1),
            (r#""tools":[{"Type":"bash_20250124","input_schema":{}}]"#, 1),
            (r#""tools":[{"type":"local_shell"},{"type":"apply_patch"},{"type":"custom","name":"c"}]"#, 2),
            (r#""tools":[{"type":7}]"#, 1),
            (r#""tools":[{"functionDeclarations":[{"name":"f"}]},{"googleSearch":{},"retrieval":{}}]"#, 2),
            (r#""tools":{"googleSearch":{}}"#, 1),
            (r#""tools":["bash",7,null]"#, 2),
            (r#""tools":[{"type":"bash_20250124"}],"Tools":[{"type":"bash_20250124"}]"#, 2),
            (
                r#""toolConfig":{"tools":[{"toolSpec":{"name":"f"}},{"systemTool":{"name":"g"}},{"cachePoint":{}}]}"#,
                1,
            ),
            (r#""toolConfig":{"functionCallingConfig":{"mode":"ANY"}}"#, 0),
        ] {
            let body = format!("{{{tools}}}");
            assert_eq!(content(body.as_bytes()), Content::Tools { undescribed }, "{body}");
        }
    }

    #[test]
    fn images_files_and_references_can_be_more_tokens_than_bytes() {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for body in [
            r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://a/b.png"}}]}]}"#,
            r#"{"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"x"}}]}]}"#,
            r#"{"messages":[{"content":[{"type":"tool_result","content":[{"type":"document"}]}]}]}"#,
            r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"x"}}]}]}"#,
            r#"{"contents":[{"parts":[{"FileData":{"fileUri":"x"}}]}]}"#,
            r#"{"previous_response_id":"resp_1"}"#,
            r#"{"prompt":{"id":"pmpt_1"}}"#,
            r#"{"cachedContent":"cachedContents/1"}"#,
            r#"{"tools":[{"type":"mcp","server_label":"x"}]}"#,
            r#"{"tools":[{"url_context":{}}]}"#,
            r#"{"input":[{"type":"item_reference","id":"x"}]}"#,
            r#"{"input":[{"type":"input\u005fimage"}]}"#,
            // At Bedrock: of models that embed, of Llama, and of `converse`.
            r#"{"inputText":"x","inputImage":"aGk="}"#,
            r#"{"input_type":"image","images":["data:image/png;base64,aGk="]}"#,
            r#"{"inputs":[{"content":[{"type":"image_url","image_url":"data:image/png;base64,aGk="}]}]}"#,
            r#"{"inputType":"video","mediaSource":{"base64String":"aGk="}}"#,
            r#"{"inputPrompt":"x","MediaSource":{"S3Location":{"uri":"s3://b/k"}}}"#,
            r#"{"singleEmbeddingParams":{"video":{"format":"mp4"}}}"#,
            r#"{"prompt":"x","images":["aGk="]}"#,
            r#"{"messages":[{"content":[{"image":{"format":"png"}}]}]}"#,
            r#"{"messages":[{"content":[{"video":{"format":"mp4"}}]}]}"#,
            r#"{"messages":[{"content":[{"document":{"s3Location":{"uri":"s3://b/k"}}}]}]}"#,
            r#"{"promptVariables":{"a":{"text":"x"}}}"#,
            // Items and conversations that the provider keeps.
            r#"{"input":[{"id":"msg_1"}]}"#,
            r#"{"input":[{"role":"user","content":"x"},{"type":null,"id":"msg_1"}]}"#,
            r#"{"Input":[{"id":"msg_1","type":7}]}"#,
            r#"{"input":[{"id":"msg_1","type":"message"}]}"#,
            r#"{"input":[{"id":"msg_1","type":"message","type":null,"content":"x"}]}"#,
            r#"{"input":[{"id":"msg_1","Type":"message","content":"x"}]}"#,
            r#"{"input":[{"id":"msg_1","ROLE":"user","content":"x"}]}"#,
            r#"{"input":[{"id":"msg_1","role":"user"}]}"#,
            r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"function_call_output","call_id":"c","output":"x"}]}"#,
            r#"{"input":[{"type":"image_generation_call","id":"ig_1"}]}"#,
            r#"{"input":[{"type":"function_call","type":"reasoning","id":"rs_1"}]}"#,
            r#"{"message":"x","conversation_id":"c"}"#,
            "[]",
            "x",
            "",
            deep.as_str(),
        ] {
            assert_eq!(content(body.as_bytes()), Content::BeyondText, "{body}");
        }
    }
}
