//! The content of a request body, by what bounds its input tokens. Text has at most a token per byte. An image, a file or
//! a reference to something that the provider keeps or fetches can be more tokens than the body has bytes. Pure.

use super::unpriced::Tree;

/// The content of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Text alone.
    Text,
    /// Text, with tools: the provider adds instructions of its own.
    Tools,
    /// Content that is more tokens than bytes, or that may be.
    BeyondText,
}

/// Members that hold or name such content.
const MEMBERS: [&str; 25] = [
    "audio",
    "cachedContent",
    "cached_content",
    "codeExecution",
    "code_execution",
    "container",
    "conversation",
    "document_url",
    "file",
    "fileData",
    "file_data",
    "file_id",
    "file_ids",
    "file_url",
    "image_url",
    "inlineData",
    "inline_data",
    "input_audio",
    "mcp_servers",
    "previous_response_id",
    "server_url",
    "source",
    "urlContext",
    "url_context",
    "video_url",
];

/// Types of such content.
const TYPES: [&str; 14] = [
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
    "video_url",
];

/// Members that describe the form of values. No content is read in them.
const SCHEMAS: [&str; 8] = [
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
    if names_prompt || members.iter().any(|(name, value)| is_beyond_text(name, value)) {
        return Content::BeyondText;
    }
    let has_tools = ["tools", "functions", "toolConfig"].into_iter().any(|name| {
        Tree::all(&members, name).any(|tools| match tools {
            Tree::Array(tools) => !tools.is_empty(),
            Tree::Object(_) | Tree::Text(_) | Tree::Other => true,
            Tree::Null => false,
        })
    });
    if has_tools { Content::Tools } else { Content::Text }
}

/// Whether a member holds content beyond text, at any depth.
fn is_beyond_text(name: &str, value: &Tree) -> bool {
    let is_one_of = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    match value {
        Tree::Null => false,
        Tree::Text(kind) if name.eq_ignore_ascii_case("type") => TYPES.contains(&kind.as_str()),
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
        ] {
            assert_eq!(content(body.as_bytes()), Content::Tools, "{body}");
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
            "[]",
            "x",
            "",
            deep.as_str(),
        ] {
            assert_eq!(content(body.as_bytes()), Content::BeyondText, "{body}");
        }
    }
}
