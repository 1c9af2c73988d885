//! Reads what a body asks of Amazon Bedrock: its output limit, and what costs more than its tokens. Pure.
//!
//! `converse` has one form for all models. `invoke` has the form of the model, which its name tells.

use std::collections::BTreeMap;

use farthing_core::model_price::{ListPrice, ModelPrice};
use serde_json::value::RawValue;

use super::output_limit::BedrockLimit;
use super::request::{Ordered, RequestedOptions};
use super::unpriced::Tree;
use crate::providers::{Operation, operation_of};

/// Reads again what limits a call of `model` to `path`. Other members of the body have other meanings there, or none.
pub(crate) fn read_bedrock_options(options: &mut RequestedOptions, body: &[u8], path: &str, model: &str) {
    let Some(operation) = operation_of(path) else { return };
    options.answers = options.answers.saturating_mul(listed_inputs(body));
    options.bedrock_limit = Some(match output_limit(body, operation, model) {
        OutputLimit::Tokens(tokens) => BedrockLimit::Tokens(tokens),
        OutputLimit::Absent => BedrockLimit::Absent,
        OutputLimit::Unknown => BedrockLimit::Unknown,
        OutputLimit::Ambiguous(name) => {
            options.ambiguous = options.ambiguous.or(Some(name));
            BedrockLimit::Unknown
        }
    });
}

/// What limits the output of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputLimit {
    /// This number of tokens.
    Tokens(u64),
    /// Nothing in the body.
    Absent,
    /// The form of the body is not known, or its limit cannot be read.
    Unknown,
    /// A member that readers may understand in two ways.
    Ambiguous(&'static str),
}

/// The path of a limit: a member, or a member of a member.
type Path = &'static [&'static str];

/// Models by how their names begin, each with the limits that its bodies may have. The first that fits counts.
const FORMS: [(&str, &[Path]); 12] = [
    ("anthropic.", &[&["max_tokens"], &["max_tokens_to_sample"]]),
    ("amazon.nova", &[&["inferenceConfig", "maxTokens"], &["inferenceConfig", "max_new_tokens"]]),
    ("amazon.titan-text", &[&["textGenerationConfig", "maxTokenCount"]]),
    ("meta.", &[&["max_gen_len"]]),
    ("mistral.", &[&["max_tokens"]]),
    ("cohere.", &[&["max_tokens"]]),
    ("deepseek.", &[&["max_tokens"]]),
    ("ai21.", &[&["max_tokens"]]),
    ("openai.", &[&["max_completion_tokens"], &["max_tokens"]]),
    ("qwen.", &[&["max_tokens"]]),
    ("writer.", &[&["max_tokens"]]),
    // Embeddings have no output.
    ("amazon.titan-embed", &[]),
];

/// The limit of `converse`.
const CONVERSE: &[Path] = &[&["inferenceConfig", "maxTokens"]];

/// Members that ask for several answers, which the limit may count for one by one.
const SEVERAL: [&str; 2] = ["num_generations", "numResults"];

/// Members of `additionalModelRequestFields` that cost nothing beside their tokens, and choose no other limit.
const FREE_FIELDS: [&str; 4] = ["thinking", "reasoning_config", "top_k", "anthropic_beta"];

/// The output limit in a body.
fn output_limit(body: &[u8], operation: Operation, model: &str) -> OutputLimit {
    let Ok(Ordered(members)) = serde_json::from_slice(body) else { return OutputLimit::Unknown };
    let paths = match operation {
        Operation::Converse => CONVERSE,
        Operation::Invoke => match form_of(model) {
            Some(paths) => paths,
            None => return OutputLimit::Unknown,
        },
    };
    if operation == Operation::Invoke && members.iter().any(|(name, _)| SEVERAL.contains(&name.as_str())) {
        return OutputLimit::Unknown;
    }
    let mut largest = OutputLimit::Absent;
    for path in paths {
        largest = match (limit_at(&members, path), largest) {
            (OutputLimit::Tokens(tokens), OutputLimit::Tokens(before)) => {
                OutputLimit::Tokens(tokens.max(before))
            }
            (OutputLimit::Absent, before) => before,
            (limit @ OutputLimit::Tokens(_), _) => limit,
            (limit @ (OutputLimit::Unknown | OutputLimit::Ambiguous(_)), _) => return limit,
        };
    }
    largest
}

/// The limits of the form that the bodies of `model` have. An inference profile has the name of its model behind that of
/// its regions.
fn form_of(model: &str) -> Option<&'static [Path]> {
    let behind_regions = model.split_once('.').map(|(_, rest)| rest);
    let names = [Some(model), behind_regions].into_iter().flatten();
    let mut forms = names.filter_map(|name| FORMS.iter().find(|(begin, _)| name.starts_with(begin)));
    forms.next().map(|(_, paths)| *paths)
}

fn limit_at(members: &[(String, &RawValue)], path: &[&'static str]) -> OutputLimit {
    let [name, inner @ ..] = path else { return OutputLimit::Unknown };
    let mut spelled = members.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    let (given, value) = match (spelled.next(), spelled.next()) {
        (None, _) => return OutputLimit::Absent,
        (Some((given, value)), None) => (given, value.get()),
        (Some(_), Some(_)) => return OutputLimit::Ambiguous(name),
    };
    if given != name {
        return OutputLimit::Ambiguous(name);
    }
    match (value, inner) {
        ("null", _) => OutputLimit::Absent,
        (value, []) => match value.parse::<u64>() {
            Ok(tokens) if tokens > 0 => OutputLimit::Tokens(tokens),
            Ok(_) | Err(_) => OutputLimit::Unknown,
        },
        (value, inner) => match serde_json::from_str(value) {
            Ok(Ordered(members)) => limit_at(&members, inner),
            Err(_) => OutputLimit::Unknown,
        },
    }
}

/// The inputs in a list, each of which is metered as a call of its own: texts to embed.
fn listed_inputs(body: &[u8]) -> u64 {
    let Ok(members) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(body) else { return 1 };
    let lists = ["texts", "images", "inputs"].into_iter().filter_map(|name| {
        let list: Vec<&RawValue> = serde_json::from_str(members.get(name)?.get()).ok()?;
        u64::try_from(list.len()).ok()
    });
    lists.max().unwrap_or(1).max(1)
}

/// Whether the price of a model says what its cache costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachePrice {
    Listed,
    Unlisted,
}

impl CachePrice {
    /// That of a list price, which must have a price for reads and one for writes.
    pub(crate) fn of(price: &ListPrice) -> Self {
        let ListPrice::Listed(ModelPrice { rates, .. }) = price else { return Self::Unlisted };
        let is_listed = rates.cache_read_per_1m.is_some() && rates.cache_write_per_1m.is_some();
        if is_listed { Self::Listed } else { Self::Unlisted }
    }
}

/// The first part of a body that costs more than its tokens at Bedrock, or that may: tools that Bedrock runs, caching that
/// the price does not know or that lasts longer, and fields of the model that are not known to be free.
pub(crate) fn unpriced_at_bedrock(body: &[u8], cache: CachePrice) -> Option<&'static str> {
    let Ok(Tree::Object(members)) = serde_json::from_slice(body) else { return Some("body") };
    let runs_tools = Tree::all(&members, "toolConfig").any(|config| !has_plain_tools(config));
    let mut fields = Tree::all(&members, "additionalModelRequestFields");
    if runs_tools {
        return Some("toolConfig");
    }
    if fields.any(|fields| !are_free(fields)) {
        return Some("additionalModelRequestFields");
    }
    members.iter().find_map(|(name, value)| unpriced_cache(name, value, cache))
}

/// Whether all tools are described in the call, and run by the caller.
fn has_plain_tools(config: &Tree) -> bool {
    let is_plain = |tool: &Tree| match tool {
        Tree::Object(members) => {
            members.iter().all(|(name, _)| matches!(name.as_str(), "toolSpec" | "cachePoint"))
        }
        Tree::Array(_) | Tree::Text(_) | Tree::Null | Tree::Other => false,
    };
    match config {
        Tree::Null => true,
        Tree::Object(members) => Tree::all(members, "tools").all(|tools| match tools {
            Tree::Null => true,
            Tree::Array(tools) => tools.iter().all(is_plain),
            Tree::Object(_) | Tree::Text(_) | Tree::Other => false,
        }),
        Tree::Array(_) | Tree::Text(_) | Tree::Other => false,
    }
}

fn are_free(fields: &Tree) -> bool {
    match fields {
        Tree::Null => true,
        Tree::Object(members) => members.iter().all(|(name, _)| FREE_FIELDS.contains(&name.as_str())),
        Tree::Array(_) | Tree::Text(_) | Tree::Other => false,
    }
}

/// The member that asks for a cache, at any depth, if the cache has no price.
fn unpriced_cache(name: &str, value: &Tree, cache: CachePrice) -> Option<&'static str> {
    let known = ["cachePoint", "cache_control"].into_iter().find(|known| known.eq_ignore_ascii_case(name));
    match (known, value) {
        (_, Tree::Null) | (None, Tree::Text(_) | Tree::Other) => None,
        (Some(known), Tree::Object(members)) => {
            let is_usual =
                |ttl: &Tree| matches!(ttl, Tree::Null) || matches!(ttl, Tree::Text(ttl) if ttl == "5m");
            let is_priced = cache == CachePrice::Listed && Tree::all(members, "ttl").all(is_usual);
            (!is_priced).then_some(known)
        }
        (Some(known), Tree::Array(_) | Tree::Text(_) | Tree::Other) => Some(known),
        (None, Tree::Object(members)) => {
            members.iter().find_map(|(name, value)| unpriced_cache(name, value, cache))
        }
        (None, Tree::Array(items)) => items.iter().find_map(|item| unpriced_cache("", item, cache)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_where_the_operation_and_the_model_have_it() {
        use OutputLimit::{Absent, Ambiguous, Tokens, Unknown};

        let converse = |body: &str| output_limit(body.as_bytes(), Operation::Converse, "m");
        for (body, limit) in [
            (r#"{"inferenceConfig":{"maxTokens":9}}"#, Tokens(9)),
            // A limit of another form is none there.
            (r#"{"max_tokens":1}"#, Absent),
            (r#"{"inferenceConfig":{"max_new_tokens":1}}"#, Absent),
            ("{}", Absent),
            (r#"{"inferenceConfig":{"maxTokens":null}}"#, Absent),
            (r#"{"inferenceConfig":{"maxTokens":0}}"#, Unknown),
            (r#"{"inferenceConfig":{"maxTokens":"9"}}"#, Unknown),
            (r#"{"inferenceConfig":7}"#, Unknown),
            (r#"{"inferenceConfig":{"maxTokens":1,"maxTokens":9}}"#, Ambiguous("maxTokens")),
            (r#"{"inferenceConfig":{"maxtokens":1}}"#, Ambiguous("maxTokens")),
            (
                r#"{"inferenceConfig":{"maxTokens":1},"inferenceConfig":{"maxTokens":9}}"#,
                Ambiguous("inferenceConfig"),
            ),
            ("[]", Unknown),
        ] {
            assert_eq!(converse(body), limit, "{body}");
        }
        for (model, body, limit) in [
            ("anthropic.claude-3", r#"{"max_tokens":5}"#, Tokens(5)),
            ("eu.anthropic.claude-3", r#"{"max_tokens":5}"#, Tokens(5)),
            ("anthropic.claude-v2", r#"{"max_tokens":1,"max_tokens_to_sample":90}"#, Tokens(90)),
            ("anthropic.claude-3", r#"{"max_gen_len":5}"#, Absent),
            ("meta.llama3", r#"{"max_gen_len":5,"max_tokens":1}"#, Tokens(5)),
            (
                "us.amazon.nova-lite-v1:0",
                r#"{"inferenceConfig":{"maxTokens":7,"max_new_tokens":8}}"#,
                Tokens(8),
            ),
            ("amazon.titan-text-express-v1", r#"{"textGenerationConfig":{"maxTokenCount":6}}"#, Tokens(6)),
            ("cohere.command-r-v1:0", r#"{"max_tokens":5,"num_generations":4}"#, Unknown),
            ("amazon.titan-image-generator-v2:0", r#"{"max_tokens":5}"#, Unknown),
            ("amazon.titan-embed-text-v2:0", r#"{"inputText":"x"}"#, Absent),
            ("stability.sd3", r#"{"max_tokens":5}"#, Unknown),
            ("arn:aws:bedrock:eu-west-1:1:provisioned-model/x", r#"{"max_tokens":5}"#, Unknown),
            ("x.evil.anthropic.claude", r#"{"max_tokens":5}"#, Unknown),
        ] {
            assert_eq!(output_limit(body.as_bytes(), Operation::Invoke, model), limit, "{model} {body}");
        }
    }

    #[test]
    fn inputs_in_a_list_are_counted() {
        for (body, inputs) in
            [(r#"{"texts":["a","b"],"input_type":"x"}"#, 2), (r#"{"texts":[]}"#, 1), ("{}", 1), ("[]", 1)]
        {
            assert_eq!(listed_inputs(body.as_bytes()), inputs, "{body}");
        }
    }

    #[test]
    fn what_costs_more_than_its_tokens_is_found() {
        for (body, unlisted, listed) in [
            (r#"{"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]}}"#, true, true),
            (r#"{"toolConfig":{"tools":{"systemTool":{}}}}"#, true, true),
            (r#"{"ToolConfig":{"Tools":[{"systemTool":{}}]}}"#, true, true),
            (r#"{"toolConfig":7}"#, true, true),
            (r#"{"toolConfig":{"tools":[{"toolSpec":{"name":"systemTool"}}]}}"#, false, false),
            (r#"{"toolConfig":{"tools":[{"toolSpec":{}},{"cachePoint":{"type":"default"}}]}}"#, true, false),
            (r#"{"messages":[{"content":[{"cachePoint":{"type":"default"}}]}]}"#, true, false),
            (r#"{"messages":[{"content":[{"cachePoint":{"type":"default","ttl":"1h"}}]}]}"#, true, true),
            (r#"{"system":[{"text":"x","cache_control":{"type":"ephemeral"}}]}"#, true, false),
            (r#"{"system":[{"cachePoint":"default"}]}"#, true, true),
            (r#"{"system":[{"CachePoint":{"ttl":"5m"}}]}"#, true, false),
            (r#"{"additionalModelRequestFields":{"thinking":{"type":"enabled"}}}"#, false, false),
            (r#"{"additionalModelRequestFields":{"max_tokens":100000}}"#, true, true),
            (r#"{"additionalModelRequestFields":{"service_tier":"priority"}}"#, true, true),
            (r#"{"additionalModelRequestFields":[]}"#, true, true),
            (r#"{"messages":[{"content":[{"text":"cachePoint"}]}],"inferenceConfig":{}}"#, false, false),
            ("[]", true, true),
        ] {
            let found = |cache| unpriced_at_bedrock(body.as_bytes(), cache).is_some();
            assert_eq!(
                (found(CachePrice::Unlisted), found(CachePrice::Listed)),
                (unlisted, listed),
                "{body}"
            );
        }
    }
}
