//! Features that a provider charges for besides tokens at their standard price: priority, searches, containers,
//! longer-lived caches. The catalogue does not list their prices, so calls on managed keys may not use them. Features
//! that are not known to be free count as charged for. Pure.

use serde_json::{Map, Value};

use super::provider_text::string;
use super::request::Ordered;

/// The tiers at the standard price. `auto` is among them unless the operator's account is set to another tier.
const STANDARD_TIERS: [&str; 5] = ["auto", "default", "standard", "standard_only", "on_demand"];

/// Tools that the caller runs, or that cost nothing besides their tokens.
const PLAIN_TOOLS: [&str; 8] = [
    "function",
    "custom",
    "local_shell",
    "apply_patch",
    "computer",
    "computer_use_preview",
    "mcp",
    "mcp_toolset",
];

/// Prefixes of such tools whose names end in a date.
const DATED_TOOLS: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];

/// Such tools of a provider that names them by their member.
const TOOL_MEMBERS: [&str; 6] = [
    "functionDeclarations",
    "function_declarations",
    "codeExecution",
    "code_execution",
    "urlContext",
    "url_context",
];

/// The first member of a JSON body that requests a feature without a listed price.
pub(crate) fn unpriced_member(body: &[u8]) -> Option<&'static str> {
    let Ordered(members) = serde_json::from_slice(body).ok()?;
    let member = members.iter().find_map(|(name, value)| {
        let text = value.get();
        let is_named = text != "null";
        let other_than = |plain: &[&str]| string(text).is_some_and(|value| !plain.contains(&value.as_str()));
        match name.as_str() {
            "service_tier" => other_than(&STANDARD_TIERS).then_some("service_tier"),
            "serviceTier" => other_than(&STANDARD_TIERS).then_some("serviceTier"),
            "speed" => other_than(&["standard"]).then_some("speed"),
            "inference_geo" => other_than(&["global"]).then_some("inference_geo"),
            "web_search_options" => is_named.then_some("web_search_options"),
            "search_parameters" => is_named.then_some("search_parameters"),
            "tools" => (!are_plain(text)).then_some("tools"),
            _ => None,
        }
    });
    member.or_else(|| keeps_a_cache_longer(body).then_some("cache_control"))
}

/// Whether all of these tools cost nothing besides their tokens.
fn are_plain(tools: &str) -> bool {
    match serde_json::from_str(tools) {
        Ok(Value::Array(tools)) => {
            tools.iter().all(|tool| matches!(tool, Value::Object(tool) if is_plain(tool)))
        }
        // No known provider reads tools from anything but an array.
        Ok(_) | Err(_) => true,
    }
}

fn is_plain(tool: &Map<String, Value>) -> bool {
    match tool.get("type") {
        Some(Value::String(kind)) => {
            PLAIN_TOOLS.contains(&kind.as_str()) || DATED_TOOLS.iter().any(|begin| kind.starts_with(begin))
        }
        Some(_) => false,
        None => {
            tool.contains_key("input_schema") || tool.keys().all(|name| TOOL_MEMBERS.contains(&name.as_str()))
        }
    }
}

/// Whether anything is cached for an hour, which costs more to write than the usual minutes.
fn keeps_a_cache_longer(body: &[u8]) -> bool {
    fn within(value: &Value) -> bool {
        match value {
            Value::Object(members) => {
                let control = members.get("cache_control").and_then(|control| control.get("ttl"));
                control.is_some_and(|ttl| *ttl != Value::Null && ttl != "5m") || members.values().any(within)
            }
            Value::Array(values) => values.iter().any(within),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
    // Only a body that contains the word needs to be parsed again.
    let names_it =
        std::str::from_utf8(body).is_ok_and(|body| body.contains("cache_control") || body.contains('\\'));
    names_it && serde_json::from_slice(body).is_ok_and(|body: Value| within(&body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_more_than_its_tokens_is_found() {
        for (body, member) in [
            (r#"{"service_tier":"priority"}"#, "service_tier"),
            (r#"{"service_tier":"flex"}"#, "service_tier"),
            (r#"{"service_tier":"auto","service_tier":"priority"}"#, "service_tier"),
            (r#"{"service\u005ftier":"priority"}"#, "service_tier"),
            (r#"{"speed":"fast"}"#, "speed"),
            (r#"{"inference_geo":"us"}"#, "inference_geo"),
            (r#"{"web_search_options":{}}"#, "web_search_options"),
            (r#"{"search_parameters":{"mode":"auto"}}"#, "search_parameters"),
            (r#"{"tools":[{"type":"function","name":"f"},{"type":"web_search"}]}"#, "tools"),
            (r#"{"tools":[{"type":"web_search_20250305","name":"web_search"}]}"#, "tools"),
            (r#"{"tools":[{"type":"code_execution_20250825"}]}"#, "tools"),
            (r#"{"tools":[{"type":"image_generation"}]}"#, "tools"),
            (r#"{"tools":[{"googleSearch":{}}]}"#, "tools"),
            (r#"{"tools":[{"google_search":{},"functionDeclarations":[]}]}"#, "tools"),
            (r#"{"tools":[{"type":7}]}"#, "tools"),
            (r#"{"tools":[7]}"#, "tools"),
            (r#"{"system":[{"text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]}"#, "cache_control"),
            (r#"{"system":[{"cache\u005fcontrol":{"t\u0074l":"1h"}}]}"#, "cache_control"),
        ] {
            assert_eq!(unpriced_member(body.as_bytes()), Some(member), "{body}");
        }
    }

    #[test]
    fn what_costs_its_tokens_alone_passes() {
        for body in [
            "{}",
            "not json",
            r#"{"service_tier":null,"speed":"standard","web_search_options":null,"tools":null}"#,
            r#"{"service_tier":"auto"}"#,
            r#"{"service_tier":"default"}"#,
            r#"{"tools":[]}"#,
            r#"{"tools":[{"type":"function","function":{"name":"web_search"}}]}"#,
            r#"{"tools":[{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}]}"#,
            r#"{"tools":[{"type":"text_editor_20250728","name":"e"},{"type":"custom","name":"c"}]}"#,
            r#"{"tools":[{"functionDeclarations":[{"name":"googleSearch"}]},{"codeExecution":{}}]}"#,
            r#"{"messages":[{"content":"cache_control \"ttl\":\"1h\"","cache_control":{"ttl":"5m"}}]}"#,
            r#"{"metadata":{"service_tier":"priority"}}"#,
        ] {
            assert_eq!(unpriced_member(body.as_bytes()), None, "{body}");
        }
    }
}
