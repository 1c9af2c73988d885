//! Reads the options of a request body that metering needs: the model, the output limit and the reporting of usage.
//! Pure.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::provider_text::string;

/// The output limits of the dialects of OpenAI, Anthropic and Google.
const LIMITS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"];

/// The number of answers requested at once.
const COUNTS: [&str; 3] = ["n", "best_of", "candidateCount"];

/// The members that decide the price of a call and the reporting of its usage.
const DECISIVE: [&str; 3] = ["model", "stream", "stream_options"];

/// The options that a request body sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RequestedOptions {
    /// The model.
    pub(crate) model: Option<String>,
    /// A decisive member that the body gives more than once, so that the provider may read another value; the model comes
    /// first.
    pub(crate) ambiguous: Option<&'static str>,
    /// Whether a stream is requested without its usage.
    pub(crate) hides_usage: bool,
    /// Whether the answer is produced in the background, after a response without usage.
    pub(crate) is_background: bool,
    /// The output limit of all answers together, in tokens; the largest if several are given.
    pub(crate) max_output_tokens: Option<u64>,
}

/// Reads the options of a whole JSON body.
pub(crate) fn read_request(body: &[u8]) -> RequestedOptions {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let Ok(Ordered(members)) = serde_json::from_slice(body) else { return RequestedOptions::default() };
    let times = |name: &str| members.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name)).count();
    let ambiguous = DECISIVE.into_iter().find(|name| times(name) > 1);
    let body: Members<'_> = members.into_iter().collect();
    let inner = body.get("generationConfig").map(|inner| serde_json::from_str::<Members<'_>>(inner.get()));
    let inner = inner.and_then(Result::ok).unwrap_or_default();
    let largest = |names: &[&str]| {
        let named = names.iter().filter_map(|name| inner.get(*name).or_else(|| body.get(*name)));
        named.filter_map(|value| value.get().parse::<u64>().ok()).filter(|number| *number > 0).max()
    };
    let is_true =
        |members: &Members<'_>, name: &str| members.get(name).is_some_and(|value| value.get() == "true");
    let options = body.get("stream_options").map(|inner| serde_json::from_str::<Members<'_>>(inner.get()));
    let tells_usage = options.and_then(Result::ok).is_some_and(|options| is_true(&options, "include_usage"));
    let streams = body.get("stream").is_some_and(|value| !matches!(value.get(), "false" | "null"));
    let answers = largest(&COUNTS).unwrap_or(1);
    RequestedOptions {
        model: body.get("model").and_then(|model| string(model.get())).map(without_collection),
        ambiguous,
        hides_usage: streams && !tells_usage,
        is_background: is_true(&body, "background"),
        max_output_tokens: largest(&LIMITS).map(|limit| limit.saturating_mul(answers)),
    }
}

/// The JSON body with `stream_options.include_usage` set and every other byte unchanged; `None` if `stream_options` is
/// not an object.
pub(crate) fn requesting_usage(body: &[u8]) -> Option<Vec<u8>> {
    const ASKED: &str = r#""include_usage":true"#;
    let Ordered(members) = serde_json::from_slice(body).ok()?;
    let Some((_, options)) = members.iter().find(|(name, _)| name == "stream_options") else {
        let at = body.iter().position(|byte| *byte == b'{')? + 1;
        let comma = if members.is_empty() { "" } else { "," };
        let asked = format!(r#""stream_options":{{{ASKED}}}{comma}"#);
        return Some([&body[..at], asked.as_bytes(), &body[at..]].concat());
    };
    let given = options.get();
    let others = match given {
        "null" => Ordered(Vec::new()),
        _ => serde_json::from_str(given).ok()?,
    };
    let mut asked = format!("{{{ASKED}");
    for (name, value) in others.0.iter().filter(|(name, _)| name != "include_usage") {
        asked.extend([",", &serde_json::to_string(name).ok()?, ":", value.get()]);
    }
    asked.push('}');
    // The value is a part of the body.
    let at = given.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    Some([body.get(..at)?, asked.as_bytes(), body.get(at + given.len()..)?].concat())
}

/// Removes Google's collection prefix from a model's name.
fn without_collection(model: String) -> String {
    model.strip_prefix("models/").map(str::to_owned).unwrap_or(model)
}

/// The members of a JSON object in their order, repeated ones included.
pub(super) struct Ordered<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Ordered<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> serde::de::Visitor<'de> for Members {
            type Value = Ordered<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Ordered<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Ordered(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_every_dialect_are_read() {
        for (body, limit) in [
            (r#"{"model":"m","max_tokens":5}"#, Some(5)),
            (r#"{"model":"m","max_tokens":5,"max_completion_tokens":9}"#, Some(9)),
            (r#"{"model":"m","max_output_tokens":7}"#, Some(7)),
            (r#"{"model":"m","generationConfig":{"maxOutputTokens":8}}"#, Some(8)),
            (r#"{"model":"m","messages":[{"max_tokens":3}]}"#, None),
            (r#"{"model":"m","max_tokens":5,"n":3}"#, Some(15)),
            (r#"{"model":"m","max_tokens":1,"max\u005ftokens":70}"#, Some(70)),
            (r#"{"model":"m","max_tokens":0}"#, None),
            (r#"{"model":"m","max_tokens":-1}"#, None),
            (r#"{"model":"m","max_tokens":"5"}"#, None),
        ] {
            let asked = read_request(body.as_bytes());
            assert_eq!(asked.model.as_deref(), Some("m"), "{body}");
            assert_eq!((asked.max_output_tokens, asked.ambiguous), (limit, None), "{body}");
        }
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"MODEL":"m","model":"n"}"#,
            r#"{"mod\u0065l":"m","model":"m"}"#,
        ] {
            assert_eq!(read_request(body.as_bytes()).ambiguous, Some("model"), "{body}");
        }
        for (body, name) in [
            (r#"{"model":"m","stream":true,"stream":false}"#, "stream"),
            (r#"{"stream":true,"Stream":false,"model":"m"}"#, "stream"),
            (r#"{"model":"m","stream_options":{},"stream_options":null}"#, "stream_options"),
        ] {
            assert_eq!(read_request(body.as_bytes()).ambiguous, Some(name), "{body}");
        }
        assert_eq!(read_request(br#"{"model":"models/gemini"}"#).model.as_deref(), Some("gemini"));
        assert_eq!(read_request(b"not json"), RequestedOptions::default());
        let told = read_request(br#"{"stream":true,"stream_options":{"include_usage":true}}"#);
        assert!(!told.hides_usage && !told.is_background);
        assert!(read_request(br#"{"stream":true,"stream_options":{"include_usage":false}}"#).hides_usage);
        for (stream, hides) in
            [("true", true), ("false", false), ("null", false), ("1", true), ("\"x\"", true)]
        {
            let body = format!(r#"{{"stream":{stream}}}"#);
            assert_eq!(read_request(body.as_bytes()).hides_usage, hides, "{body}");
        }
        assert!(read_request(br#"{"background":true}"#).is_background);
    }

    #[test]
    fn a_body_that_asks_for_usage_is_otherwise_as_it_came() {
        for (body, asking) in [
            ("{}", r#"{"stream_options":{"include_usage":true}}"#),
            (
                " { \"model\" : \"m\", \"x\":[1,{}] }\n",
                " {\"stream_options\":{\"include_usage\":true}, \"model\" : \"m\", \"x\":[1,{}] }\n",
            ),
            (r#"{"stream_options": null ,"a":1}"#, r#"{"stream_options": {"include_usage":true} ,"a":1}"#),
            (r#"{"a":1, "stream_options":{}}"#, r#"{"a":1, "stream_options":{"include_usage":true}}"#),
            (
                r#"{"stream_options":{"include_usage":false,"o\"k":[1, 2],"include_usage":null},"a":1}"#,
                r#"{"stream_options":{"include_usage":true,"o\"k":[1, 2]},"a":1}"#,
            ),
        ] {
            let asked = requesting_usage(body.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(asked.clone()).unwrap(), asking);
            let read = serde_json::from_slice::<serde_json::Value>(&asked).unwrap();
            assert_eq!(read["stream_options"]["include_usage"], true);
        }
        for body in
            [r#"{"stream_options":7}"#, r#"{"stream_options":"x"}"#, r#"{"stream_options":[]}"#, "[]", "x"]
        {
            assert_eq!(requesting_usage(body.as_bytes()), None, "{body}");
        }
    }
}
