//! Features that a provider charges for besides tokens at their standard price: priority, searches, containers,
//! longer-lived caches, the compaction of conversations, other models. The catalogue does not list their prices, so calls
//! on managed keys may not use them. Features that are not known to be free count as charged for. Pure.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::any_case::is_read_as;
use super::members::{Member, read_members};
use super::provider_text::string;

/// A member of a body that requests a feature without a listed price, or that may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unpriced {
    /// Its name; `body` if the body cannot be read.
    pub(crate) member: &'static str,
    /// Why a call may not have it, as the end of a sentence.
    pub(crate) why: &'static str,
}

impl Unpriced {
    /// A member for which no more is known.
    pub(crate) const fn member(member: &'static str) -> Self {
        Self { member, why: "requests a feature that has no listed price, or cannot be read" }
    }
}

/// The tiers at the standard price. `auto` is among them unless the operator's account is set to another tier.
const STANDARD_TIERS: [&str; 5] = ["auto", "default", "standard", "standard_only", "on_demand"];

/// The members that may request such a feature.
const UNPRICED: [&str; 10] = [
    // What Anthropic reads and writes when it compacts a conversation is beyond the output limit, and so beyond each hold.
    "compaction",
    "context_management",
    // Models that answer instead of the one that is named.
    "fallbacks",
    "service_tier",
    "serviceTier",
    "speed",
    "inference_geo",
    "web_search_options",
    "search_parameters",
    "tools",
];

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

/// The first member of a JSON body that requests a feature without a listed price, or that may: a member that cannot be
/// read, or that readers may understand in two ways, counts as one that does. `of_provider` are members that do so at the
/// call's provider.
pub(crate) fn unpriced_member(body: &[u8], of_provider: &[&'static str]) -> Option<&'static str> {
    let Some((body, members)) = suspects(body, of_provider) else { return Some("body") };
    let member = members.iter().find_map(|member| {
        let text = member.value.get();
        let is_named = text != "null";
        let other_than =
            |plain: &[&str]| is_named && !string(text).is_some_and(|value| plain.contains(&value.as_str()));
        let requests = match member.name {
            "service_tier" | "serviceTier" => other_than(&STANDARD_TIERS),
            "speed" => other_than(&["standard"]),
            "inference_geo" => other_than(&["global"]),
            "tools" => !are_plain(text),
            "context_management" => is_named && !leaves_out_alone(text),
            _ => is_named && text != "false",
        };
        requests.then_some(member.name)
    });
    member.or_else(|| keeps_a_cache_longer(body).then_some("cache_control"))
}

/// A JSON body as text, and its members that may request such a feature, in their order; `None` if it cannot be read. Some
/// providers' readers ignore the case of names.
fn suspects<'a>(body: &'a [u8], of_provider: &[&'static str]) -> Option<(&'a str, Vec<Member<'a>>)> {
    let names = match of_provider {
        [] => Cow::Borrowed(&UNPRICED[..]),
        [_, ..] => Cow::Owned([&UNPRICED[..], of_provider].concat()),
    };
    let body = std::str::from_utf8(body).ok()?;
    Some((body, read_members(body, &names).ok()?.known))
}

/// A JSON value with all members of its objects, repeated ones included. Reading one fails where readers may differ: at
/// a lone surrogate, a number beyond any type, or more than 128 levels.
pub(super) enum Tree {
    Object(Vec<(String, Tree)>),
    Array(Vec<Tree>),
    Text(String),
    Null,
    Other,
}

impl Tree {
    /// The members called `name`, in any case.
    pub(super) fn all<'a>(members: &'a [(String, Self)], name: &'a str) -> impl Iterator<Item = &'a Self> {
        members.iter().filter(move |(given, _)| is_read_as(given, name)).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Tree::Object(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Tree::Array(items))
            }

            fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
                Ok(Tree::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
        }

        deserializer.deserialize_any(AnyValue)
    }
}

/// Whether all of these tools cost nothing besides their tokens. Google reads a single tool for a list of one.
fn are_plain(tools: &str) -> bool {
    match serde_json::from_str(tools) {
        Ok(Tree::Array(tools)) => tools.iter().all(is_plain),
        Ok(Tree::Null) => true,
        Ok(tool @ Tree::Object(_)) => is_plain(&tool),
        Ok(Tree::Text(_) | Tree::Other) | Err(_) => false,
    }
}

fn is_plain(tool: &Tree) -> bool {
    let Tree::Object(members) = tool else { return false };
    let is_known =
        |kind: &str| PLAIN_TOOLS.contains(&kind) || DATED_TOOLS.iter().any(|begin| kind.starts_with(begin));
    let mut kinds = Tree::all(members, "type").peekable();
    if kinds.peek().is_some() {
        return kinds.all(|kind| matches!(kind, Tree::Text(kind) if is_known(kind)));
    }
    members.iter().any(|(name, _)| name == "input_schema")
        || members.iter().all(|(name, _)| TOOL_MEMBERS.contains(&name.as_str()))
}

/// Whether the edits of a conversation only leave parts of it out, as those of Anthropic's do that begin with `clear_`.
fn leaves_out_alone(management: &str) -> bool {
    let leaves_out = |edit: &Tree| {
        let Tree::Object(members) = edit else { return false };
        let mut kinds = Tree::all(members, "type").peekable();
        kinds.peek().is_some()
            && kinds.all(|kind| matches!(kind, Tree::Text(kind) if kind.starts_with("clear_")))
    };
    let Ok(Tree::Object(members)) = serde_json::from_str(management) else { return false };
    members.iter().all(|(name, edits)| {
        name == "edits" && matches!(edits, Tree::Array(edits) if edits.iter().all(leaves_out))
    })
}

/// Whether anything is cached for an hour, which costs more to write than the usual minutes.
fn keeps_a_cache_longer(body: &str) -> bool {
    fn within(value: &Tree) -> bool {
        match value {
            Tree::Object(members) => {
                let is_longer = |ttl: &Tree| match ttl {
                    Tree::Null => false,
                    Tree::Text(ttl) => ttl != "5m",
                    Tree::Object(_) | Tree::Array(_) | Tree::Other => true,
                };
                let control = |control: &Tree| matches!(control, Tree::Object(members) if Tree::all(members, "ttl").any(is_longer));
                Tree::all(members, "cache_control").any(control)
                    || members.iter().any(|(_, value)| within(value))
            }
            Tree::Array(values) => values.iter().any(within),
            Tree::Text(_) | Tree::Null | Tree::Other => false,
        }
    }
    // Only a body that may contain the name is read again. Escaped, an ASCII letter begins with `\u00`.
    let names_it = names_cache_control(body) || body.contains("\\u00");
    let read = || serde_json::from_slice::<Tree>(&without_surrogates(body.as_bytes()));
    names_it && read().map_or(true, |body| within(&body))
}

/// Whether the body has the name in plain letters. Names are looked for without regard to case: some servers read them so.
fn names_cache_control(body: &str) -> bool {
    let mut before: &[u8] = b"";
    body.as_bytes().split(|byte| *byte == b'_').any(|part| {
        let ends = before.last_chunk::<5>().is_some_and(|end| end.eq_ignore_ascii_case(b"cache"));
        before = part;
        ends && part.first_chunk::<7>().is_some_and(|begin| begin.eq_ignore_ascii_case(b"control"))
    })
}

/// The body with U+FFFD for each half of a surrogate pair in it. The reader refuses half a pair without the other; no
/// name or value that is looked for has one.
fn without_surrogates(body: &[u8]) -> Vec<u8> {
    let mut replaced = body.to_vec();
    let mut at = 0;
    while at < replaced.len() {
        at += match &replaced[at..] {
            [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F', _, _, ..] => {
                replaced[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            [b'\\', _, ..] => 2,
            _ => 1,
        };
    }
    replaced
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::any_case::first_read_as;
    use super::super::members::MAX_MEMBERS;
    use super::super::request::Ordered;
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
            (r#"{"fallbacks":[{"model":"dear"}]}"#, "fallbacks"),
            (r#"{"compaction":{"type":"auto"}}"#, "compaction"),
            (
                r#"{"context_management":{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":50000}}]}}"#,
                "context_management",
            ),
            (
                r#"{"context_management":{"edits":[{"type":"clear_tool_uses_20250919"},{"type":"compact_20260112"}]}}"#,
                "context_management",
            ),
            (
                r#"{"context_management":{"edits":[{"type":"clear_x","type":"compact_20260112"}]}}"#,
                "context_management",
            ),
            (r#"{"context_management":{"edits":[{}]}}"#, "context_management"),
            (r#"{"context_management":{"edits":[],"compact":true}}"#, "context_management"),
            (r#"{"context_management":{"edits":{"type":"clear_tool_uses_20250919"}}}"#, "context_management"),
            (
                r#"{"context_management":[{"type":"compaction","compact_threshold":1000}]}"#,
                "context_management",
            ),
            (r#"{"Context_Management":7}"#, "context_management"),
            // In a form that readers take for a tool, or a name in another case.
            (r#"{"tools":{"googleSearch":{}}}"#, "tools"),
            (r#"{"tools":"web_search"}"#, "tools"),
            (r#"{"tools":7}"#, "tools"),
            (r#"{"Tools":[{"type":"web_search"}]}"#, "tools"),
            (r#"{"tools":[{"Type":"web_search","name":"f","input_schema":{}}]}"#, "tools"),
            (r#"{"SERVICE_TIER":"priority"}"#, "service_tier"),
            (r#"{"toolſ":[{"type":"web_search"}]}"#, "tools"),
            (r#"{"service_tier":["priority"]}"#, "service_tier"),
            (r#"{"service_tier":"\ud800"}"#, "service_tier"),
            (r#"{"speed":1}"#, "speed"),
            // Of two members with one name a reader may take either.
            (r#"{"tools":[{"type":"web_search","type":"function"}]}"#, "tools"),
            (r#"{"tools":[],"tools":[{"type":"web_search"}]}"#, "tools"),
            (r#"{"system":[{"cache_control":{"ttl":"1h","ttl":"5m"}}]}"#, "cache_control"),
            (r#"{"a":{"cache_control":{"ttl":"1h"},"cache_control":{"ttl":"5m"}}}"#, "cache_control"),
            (r#"{"system":[{"cache_control":{"TTL":"1h"}}]}"#, "cache_control"),
            (r#"{"system":[{"Cache_Control":{"ttl":"1h"}}]}"#, "cache_control"),
            (r#"{"system":[{"x_CACHE":"_","CACHE_CONTROL":{"ttl":"1h"}}]}"#, "cache_control"),
            (r#"{"system":[{"cache_control":{"ttl":3600}}]}"#, "cache_control"),
            // Not to be read.
            (r#"{"tools":[{"type":"function","name":"f","description":"\ud800"}]}"#, "tools"),
            (
                r#"{"tools":[{"type":"web_search"},{"type":"function","name":"f","description":"\ud800"}]}"#,
                "tools",
            ),
            (r#"{"tools":[{"type":"function","name":"f","parameters":{"maximum":1e999}}]}"#, "tools"),
            (r#"{"cache_control":{"ttl":"1h"},"y":"\ud800"}"#, "cache_control"),
            (r#"{"y":"\ud800","z":{"c\u0061che_control":{"ttl":"\u0031h"}}}"#, "cache_control"),
            (r#"{"y":"\\\ud800","cache_control":{"ttl":"1h"}}"#, "cache_control"),
            (r#"{"cache_control":{"ttl":"5m\udfff"}}"#, "cache_control"),
            (r#"{"cache_control":{"ttl":"5m"},"y":1e999}"#, "cache_control"),
            (r#"{"\ud800":1}"#, "body"),
            ("not json", "body"),
            ("[{}]", "body"),
            (r#"{"tools":[{"type":"web_search"}],}"#, "body"),
            ("", "body"),
        ] {
            assert_eq!(unpriced_member(body.as_bytes(), &[]), Some(member), "{body}");
        }
    }

    #[test]
    fn a_provider_may_have_members_of_its_own_that_choose_another_price() {
        let of_provider = ["models", "plugins"];
        for (body, member) in [
            (r#"{"models":["a","b"]}"#, Some("models")),
            (r#"{"Plugins":[{"id":"web"}]}"#, Some("plugins")),
            (r#"{"models":null}"#, None),
            (r#"{"models":false}"#, None),
            (r#"{"route":"fallback"}"#, None),
        ] {
            assert_eq!(unpriced_member(body.as_bytes(), &of_provider), member, "{body}");
            assert_eq!(unpriced_member(body.as_bytes(), &[]), None, "{body}");
        }
    }

    #[test]
    fn what_costs_its_tokens_alone_passes() {
        for body in [
            "{}",
            // What is read by nobody here costs nothing either.
            r#"{"y":"\ud800","z":1e999,"tools":[]}"#,
            r#"{"y":"caf\u00e9 \ud83d\ude00","tools":[]}"#,
            r#"{"y":"caf\u00e9 \ud83d \uDE00 \ud800","x":"\\ud800\u00e9"}"#,
            r#"{"system":[{"text":"\ud800","cache_control":{"ttl":"5m"}}]}"#,
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
            r#"{"context_management":null,"fallbacks":null,"compaction":null}"#,
            r#"{"context_management":{"edits":[{"type":"clear_tool_uses_20250919","keep":{"type":"tool_uses","value":3}},{"type":"clear_thinking_20251015"}]}}"#,
        ] {
            assert_eq!(unpriced_member(body.as_bytes(), &[]), None, "{body}");
        }
    }

    #[test]
    fn what_is_nested_too_deeply_to_be_read_counts_as_priced_apart() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for (levels, tools, cached) in [(100, None, None), (200, Some("tools"), Some("cache_control"))] {
            let body = format!(r#"{{"tools":[{{"type":"function","parameters":{}}}]}}"#, nested(levels));
            assert_eq!(unpriced_member(body.as_bytes(), &[]), tools);
            let body = format!(r#"{{"cache_control":{{"ttl":"5m"}},"y":{}}}"#, nested(levels));
            assert_eq!(unpriced_member(body.as_bytes(), &[]), cached);
            let body = format!(r#"{{"y":{}}}"#, nested(levels));
            assert_eq!(unpriced_member(body.as_bytes(), &[]), None);
        }
    }

    /// The members that may request such a feature, among all members of a body that keeps each of them.
    fn among_all<'a>(body: &'a [u8], of_provider: &[&'static str]) -> Option<Vec<(&'static str, &'a str)>> {
        let Ordered(members) = serde_json::from_slice(body).ok()?;
        let known = members.iter().filter_map(|(name, value)| {
            Some((first_read_as(name, UNPRICED.iter().chain(of_provider))?, value.get()))
        });
        Some(known.collect())
    }

    fn kept<'a>(body: &'a [u8], of_provider: &[&'static str]) -> Option<Vec<(&'static str, &'a str)>> {
        let (_, members) = suspects(body, of_provider)?;
        Some(members.iter().map(|member| (member.name, member.value.get())).collect())
    }

    #[test]
    fn a_body_of_too_many_members_cannot_be_read() {
        for (others, member) in [(MAX_MEMBERS - 1, Some("speed")), (MAX_MEMBERS, Some("body"))] {
            let body = format!(r#"{{{}"speed":"fast"}}"#, r#""x":0,"#.repeat(others));
            assert_eq!(unpriced_member(body.as_bytes(), &[]), member, "{others}");
            assert_eq!(kept(body.as_bytes(), &[]), among_all(body.as_bytes(), &[]), "{others}");
        }
    }

    proptest! {
        #[test]
        fn the_members_that_are_kept_are_those_of_a_body_that_is_read_whole(
            members in proptest::collection::vec((0_usize..12, 0_usize..12), 0..6),
            (at, odd) in (0_usize..150, any::<u8>()),
        ) {
            const NAMES: [&str; 12] = [
                "tools", "Tools", "tool\u{17f}", "service_tier", "serviceTier", "models", "PLUGINS", "x", "messages",
                "service\\u005ftier", "\\ud800", "y\u{e9}\\n",
            ];
            const VALUES: [&str; 12] = [
                "null", "[]", "{\"tools\":[{}]}", "\"priority\"", "\"\\ud800\"", "1e999", "-0.5", "true", "\"\u{e9}\"",
                " [1, {\"a\":2} ] ", "", "\"\t\"",
            ];
            let member = |(name, value): &(usize, usize)| format!("\"{}\":{}", NAMES[*name], VALUES[*value]);
            let text = format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","));
            let mut body = text.into_bytes();
            for of_provider in [&[][..], &["models", "plugins"]] {
                prop_assert_eq!(kept(&body, of_provider), among_all(&body, of_provider));
            }
            if let Some(byte) = body.get_mut(at) {
                *byte = odd;
            }
            prop_assert_eq!(kept(&body, &["models"]), among_all(&body, &["models"]));
        }
    }

    #[test]
    fn a_body_that_is_not_utf_8_counts_as_priced_apart() {
        assert_eq!(
            unpriced_member(b"{\"cache_control\":{\"ttl\":\"1h\"},\"y\":\"\xff\"}", &[]),
            Some("body")
        );
    }
}
