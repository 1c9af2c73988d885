//! Reads what a body asks of Amazon Bedrock: its output limit, and what costs more than its tokens. Pure.
//!
//! `converse` has one form for all models. `invoke` has the form of the model, which its name tells.

use farthing_core::model_price::{ListPrice, ModelPrice};
use serde_json::value::RawValue;

use super::any_case::is_read_as;
use super::bedrock_forms::{CONVERSE, EVERY_LIMIT, Form, Path, form_of};
use super::output_limit::BedrockLimit;
use super::request::{Ordered, RequestedOptions};
use super::unpriced::{Tree, Unpriced};
use crate::providers::{Operation, operation_of};

/// Reads again what limits a call of `model` to `path`. Other members of the body have other meanings there, or none.
pub(crate) fn read_bedrock_options(options: &mut RequestedOptions, body: &[u8], path: &str, model: &str) {
    let Some(operation) = operation_of(path) else { return };
    options.answers = options.answers.saturating_mul(listed_inputs(body));
    if operation == Operation::Invoke && asks_for_several(body) {
        // Nothing limits the output then.
        options.limited_answers = None;
    }
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

fn asks_for_several(body: &[u8]) -> bool {
    let Ok(Ordered(members)) = serde_json::from_slice(body) else { return true };
    members.iter().any(|(name, _)| SEVERAL.contains(&name.as_str()))
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

/// Members that ask for several answers, which the limit may count for one by one.
const SEVERAL: [&str; 2] = ["num_generations", "numResults"];

/// Members of `additionalModelRequestFields` that cost nothing beside their tokens, and choose no other limit.
const FREE_FIELDS: [&str; 3] = ["thinking", "reasoning_config", "top_k"];

/// The output limit in a body: the largest that it gives, if it gives one that the operation or the model reads.
fn output_limit(body: &[u8], operation: Operation, model: &str) -> OutputLimit {
    let Ok(Ordered(members)) = serde_json::from_slice(body) else { return OutputLimit::Unknown };
    let read = match operation {
        Operation::Converse => CONVERSE,
        Operation::Invoke => match form_of(model) {
            Some(Form::Text(paths)) => paths,
            Some(Form::Embeddings) => return OutputLimit::Absent,
            None => return OutputLimit::Unknown,
        },
    };
    if operation == Operation::Invoke && members.iter().any(|(name, _)| SEVERAL.contains(&name.as_str())) {
        return OutputLimit::Unknown;
    }
    let (mut largest, mut is_limited) = (0, false);
    for path in EVERY_LIMIT {
        match limit_at(&members, path) {
            OutputLimit::Tokens(tokens) => {
                largest = tokens.max(largest);
                is_limited |= read.contains(&path);
            }
            OutputLimit::Absent => {}
            limit @ (OutputLimit::Unknown | OutputLimit::Ambiguous(_)) => return limit,
        }
    }
    if is_limited { OutputLimit::Tokens(largest) } else { OutputLimit::Absent }
}

fn limit_at(members: &[(String, &RawValue)], path: Path) -> OutputLimit {
    let [name, inner @ ..] = path else { return OutputLimit::Unknown };
    let mut spelled = members.iter().filter(|(given, _)| is_read_as(given, name));
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
    let Ok(Ordered(members)) = serde_json::from_slice(body) else { return 1 };
    let lists = ["texts", "images", "inputs"].into_iter().filter_map(|name| {
        let (_, list) = members.iter().rfind(|(given, _)| given == name)?;
        let list: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
        u64::try_from(list.len()).ok()
    });
    lists.max().unwrap_or(1).max(1)
}

/// The member that switches beta features of Anthropic's models on, in `additionalModelRequestFields` and in `invoke`.
const BETAS: &str = "anthropic_beta";

/// How the names of those begin that cost nothing beside their tokens. A date follows.
const FREE_BETAS: [&str; 12] = [
    "computer-use-",
    "context-management-",
    "dev-full-thinking-",
    "effort-",
    "fine-grained-tool-streaming-",
    "interleaved-thinking-",
    "max-tokens-3-5-sonnet-",
    "output-128k-",
    "prompt-caching-",
    "token-efficient-tools-",
    "tool-examples-",
    "tool-search-tool-",
];

/// How the name of the one begins that takes long inputs, at a higher price beyond [`USUAL_INPUT_TOKENS`].
const LONG_CONTEXT: &str = "context-1m-";

/// The input tokens up to which each model of Anthropic has one price.
const USUAL_INPUT_TOKENS: u64 = 200_000;

/// Whether the price of a model says what long inputs cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContextPrice {
    Listed,
    Unlisted,
}

impl ContextPrice {
    /// That of a list price, which must have rates above the usual input or a lower threshold.
    fn of(price: &ListPrice) -> Self {
        let ListPrice::Listed(ModelPrice { above, .. }) = price else { return Self::Unlisted };
        let is_listed = above.iter().any(|step| step.input_tokens <= USUAL_INPUT_TOKENS);
        if is_listed { Self::Listed } else { Self::Unlisted }
    }

    /// Whether all of these beta features have a price.
    fn permits(self, betas: &Tree) -> bool {
        let is_priced = |beta: &Tree| match beta {
            Tree::Text(name) if name.starts_with(LONG_CONTEXT) => self == Self::Listed,
            Tree::Text(name) => FREE_BETAS.iter().any(|begin| name.starts_with(begin)),
            Tree::Object(_) | Tree::Array(_) | Tree::Null | Tree::Other => false,
        };
        match betas {
            Tree::Null => true,
            Tree::Array(betas) => betas.iter().all(is_priced),
            Tree::Object(_) | Tree::Text(_) | Tree::Other => false,
        }
    }
}

/// Whether the price of a model says what its cache costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CachePrice {
    Listed,
    Unlisted,
}

impl CachePrice {
    /// That of a list price, which must have a price for reads and one for writes.
    fn of(price: &ListPrice) -> Self {
        let ListPrice::Listed(ModelPrice { rates, .. }) = price else { return Self::Unlisted };
        let is_listed = rates.cache_read_per_1m.is_some() && rates.cache_write_per_1m.is_some();
        if is_listed { Self::Listed } else { Self::Unlisted }
    }
}

/// Members with images, sound and films, which models that embed bill by other units than tokens.
const BEYOND_TEXTS: [&str; 7] = ["images", "inputs", "inputImage", "image", "mediaSource", "audio", "video"];

/// The first part of a body that costs more than its tokens at Bedrock, or that may: tools that Bedrock runs, caching that
/// the price does not know or that lasts longer, fields and beta features of the model that are not known to be free, and
/// what is embedded beside texts. The call is one of `model` to `path`.
pub(crate) fn unpriced_at_bedrock(
    body: &[u8],
    (path, model): (&str, Option<&str>),
    price: &ListPrice,
) -> Option<Unpriced> {
    let Ok(Tree::Object(members)) = serde_json::from_slice(body) else {
        return Some(Unpriced::member("body"));
    };
    let embeds = match (operation_of(path), model) {
        (Some(Operation::Invoke), Some(model)) => form_of(model) == Some(Form::Embeddings),
        (Some(Operation::Invoke | Operation::Converse) | None, _) => false,
    };
    if let Some(member) = BEYOND_TEXTS.into_iter().find(|name| embeds && is_given(&members, name)) {
        let why = "cannot be embedded on a managed provider key: only the tokens of texts are reported";
        return Some(Unpriced { member, why });
    }
    let runs_tools = Tree::all(&members, "toolConfig").any(|config| !has_plain_tools(config));
    if runs_tools {
        return Some(Unpriced::member("toolConfig"));
    }
    let context = ContextPrice::of(price);
    let mut betas = Tree::all(&members, BETAS);
    if betas.any(|betas| !context.permits(betas)) {
        let why = "must be a list of beta features that have a listed price";
        return Some(Unpriced { member: BETAS, why });
    }
    if Tree::all(&members, "additionalModelRequestFields").any(|fields| !are_free(fields, context)) {
        return Some(Unpriced::member("additionalModelRequestFields"));
    }
    let cache = CachePrice::of(price);
    members.iter().find_map(|(name, value)| unpriced_cache(name, value, cache)).map(Unpriced::member)
}

fn is_given(members: &[(String, Tree)], name: &str) -> bool {
    Tree::all(members, name).any(|value| !matches!(value, Tree::Null))
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

fn are_free(fields: &Tree, context: ContextPrice) -> bool {
    match fields {
        Tree::Null => true,
        Tree::Object(members) => members.iter().all(|(name, value)| match name.as_str() {
            BETAS => context.permits(value),
            name => FREE_FIELDS.contains(&name),
        }),
        Tree::Array(_) | Tree::Text(_) | Tree::Other => false,
    }
}

/// The member that asks for a cache, at any depth, if the cache has no price.
fn unpriced_cache(name: &str, value: &Tree, cache: CachePrice) -> Option<&'static str> {
    let known = ["cachePoint", "cache_control"].into_iter().find(|known| is_read_as(name, known));
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
    use super::super::request::read_request;
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
            (r#"{"inferenceConfig":{"maxTokens":5,"max_new_tokens":9},"max_tokens":7}"#, Tokens(9)),
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
            // There it limits the input.
            ("cohere.embed-v4:0", r#"{"texts":["x"],"max_tokens":5}"#, Absent),
            ("ai21.j2-ultra-v1", r#"{"max_tokens":1}"#, Absent),
            ("ai21.j2-ultra-v1", r#"{"max_tokens":1,"maxTokens":8000}"#, Tokens(8000)),
            ("ai21.jamba-1-5-mini-v1:0", r#"{"maxTokens":1}"#, Absent),
            ("openai.gpt-oss-20b-1:0", r#"{"max_tokens":1}"#, Absent),
            ("openai.gpt-oss-20b-1:0", r#"{"max_tokens":9,"max_completion_tokens":1}"#, Tokens(9)),
            // A decoy: whichever of them the model reads, it is not above the largest.
            ("qwen.qwen3-32b-v1:0", r#"{"max_tokens":1,"max_completion_tokens":8000}"#, Tokens(8000)),
            ("deepseek.v3-v1:0", r#"{"max_tokens":7,"max_completion_tokens":null}"#, Tokens(7)),
            ("mistral.mistral-large", r#"{"max_tokens":1,"max_new_tokens":"8000"}"#, Unknown),
            ("meta.llama3", r#"{"max_gen_len":5,"max_tokens":1e4}"#, Unknown),
            ("meta.llama3", r#"{"max_gen_len":5,"inferenceConfig":7}"#, Unknown),
            ("anthropic.claude-3", r#"{"max_tokens":1,"Max_Tokens":9}"#, Ambiguous("max_tokens")),
            ("stability.sd3", r#"{"max_tokens":5}"#, Unknown),
            ("arn:aws:bedrock:eu-west-1:1:provisioned-model/x", r#"{"max_tokens":5}"#, Unknown),
            ("x.evil.anthropic.claude", r#"{"max_tokens":5}"#, Unknown),
        ] {
            assert_eq!(output_limit(body.as_bytes(), Operation::Invoke, model), limit, "{model} {body}");
        }
    }

    #[test]
    fn nothing_limits_an_invocation_that_asks_for_several_answers() {
        let limited = |path: &str, body: &str| {
            let mut options = read_request(body.as_bytes());
            read_bedrock_options(&mut options, body.as_bytes(), path, "cohere.command-text-v14");
            options.limited_answers
        };
        let invoke = "/model/cohere.command-text-v14/invoke";
        assert_eq!(limited(invoke, r#"{"prompt":"x","max_tokens":9}"#), Some(1));
        assert_eq!(limited(invoke, r#"{"prompt":"x","max_tokens":9,"num_generations":5}"#), None);
        assert_eq!(limited(invoke, r#"{"prompt":"x","numResults":5}"#), None);
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
            let called = ("/model/m/converse", Some("m"));
            let found = |price| unpriced_at_bedrock(body.as_bytes(), called, &price).is_some();
            let cached = r#"{"input_per_1m":"1","cache_read_per_1m":"0.1","cache_write_per_1m":"2"}"#;
            assert_eq!(
                (found(price(r#"{"input_per_1m":"1"}"#)), found(price(cached))),
                (unlisted, listed),
                "{body}"
            );
        }
    }

    fn price(json: &str) -> ListPrice {
        ListPrice::Listed(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn long_inputs_need_a_price_of_their_own_and_other_beta_features_must_be_known_to_be_free() {
        let usual = price(r#"{"input_per_1m":"3"}"#);
        let late = price(r#"{"input_per_1m":"3","above":[{"input_tokens":300000,"input_per_1m":"6"}]}"#);
        let long = price(r#"{"input_per_1m":"3","above":[{"input_tokens":200000,"input_per_1m":"6"}]}"#);
        for (betas, at_usual, at_long) in [
            (r#"["context-1m-2025-08-07"]"#, true, false),
            (r#"["interleaved-thinking-2025-05-14","context-1m-2025-08-07"]"#, true, false),
            (r#"["interleaved-thinking-2025-05-14"]"#, false, false),
            (r#"["output-128k-2025-02-19","computer-use-2025-01-24"]"#, false, false),
            (r#"["code-execution-2025-08-25"]"#, true, true),
            (r#"["fast-mode-2026-02-01"]"#, true, true),
            (r#"["Context-1M-2025-08-07"]"#, true, true),
            (r#""context-1m-2025-08-07""#, true, true),
            (r#"[["context-1m-2025-08-07"]]"#, true, true),
            (r#"{"0":"context-1m-2025-08-07"}"#, true, true),
            ("[]", false, false),
            ("null", false, false),
        ] {
            let (converse, invoke) = ("/model/m/converse", "/model/m/invoke");
            let fields = format!(r#"{{"additionalModelRequestFields":{{"anthropic_beta":{betas}}}}}"#);
            let plain = format!(r#"{{"anthropic_beta":{betas},"max_tokens":1}}"#);
            let cased = format!(r#"{{"Anthropic_Beta":{betas}}}"#);
            for (path, body) in [(converse, fields), (invoke, plain), (invoke, cased)] {
                let called = (path, Some("anthropic.claude-sonnet-4"));
                let found = |price| unpriced_at_bedrock(body.as_bytes(), called, price).is_some();
                assert_eq!(
                    (found(&usual), found(&late), found(&long)),
                    (at_usual, at_usual, at_long),
                    "{body}"
                );
            }
        }
    }

    #[test]
    fn only_texts_are_embedded_because_their_tokens_alone_are_reported() {
        let invoke = "/model/m/invoke";
        for (model, body, member) in [
            ("amazon.titan-embed-image-v1", r#"{"inputText":"x","inputImage":"aGk="}"#, Some("inputImage")),
            ("amazon.titan-embed-image-v1", r#"{"InputImage":"aGk="}"#, Some("inputImage")),
            ("amazon.titan-embed-image-v1", r#"{"inputText":"x","inputImage":null}"#, None),
            ("cohere.embed-english-v3", r#"{"images":["data:image/png;base64,aGk="]}"#, Some("images")),
            (
                "eu.cohere.embed-v4:0",
                r#"{"inputs":[{"content":[{"type":"text","text":"x"}]}]}"#,
                Some("inputs"),
            ),
            ("cohere.embed-v4:0", r#"{"texts":["images","inputs"]}"#, None),
            ("meta.llama3-2-11b-instruct-v1:0", r#"{"prompt":"x","images":["aGk="]}"#, None),
        ] {
            let free = price(r#"{"input_per_1m":"1"}"#);
            let found = unpriced_at_bedrock(body.as_bytes(), (invoke, Some(model)), &free);
            assert_eq!(found.map(|unpriced| unpriced.member), member, "{model} {body}");
            assert!(found.is_none_or(|unpriced| unpriced.why.contains("only the tokens of texts")));
            let conversed = unpriced_at_bedrock(body.as_bytes(), ("/model/m/converse", Some(model)), &free);
            assert_eq!(conversed, None, "{model} {body}");
        }
    }
}
