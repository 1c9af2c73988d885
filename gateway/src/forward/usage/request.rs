//! What a request body asks for: the model, and how much output at most. Pure; read from the beginning of the
//! body, before anything is sent on.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::string;

/// The output limits of the dialects of OpenAI, Anthropic and Google.
const LIMITS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"];

/// How many answers are asked for at once.
const COUNTS: [&str; 3] = ["n", "best_of", "candidateCount"];

/// What a request body asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AskedFor {
    /// The model.
    pub(crate) model: Option<String>,
    /// Could another reader find another model in the body?
    pub(crate) is_ambiguous: bool,
    /// Is a stream asked for, but not what it used?
    pub(crate) hides_usage: bool,
    /// Is the answer to be made later, after one that tells of no usage?
    pub(crate) is_background: bool,
    /// The output limit of all answers together, in tokens; by the largest limit where several are named.
    pub(crate) max_output_tokens: Option<u64>,
}

/// Reads what is asked for from a whole JSON body.
pub(crate) fn read_request(body: &[u8]) -> AskedFor {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let Ok(Ordered(members)) = serde_json::from_slice(body) else { return AskedFor::default() };
    let named = members.iter().filter(|(name, _)| name.eq_ignore_ascii_case("model")).count();
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
    let answers = largest(&COUNTS).unwrap_or(1);
    AskedFor {
        model: body.get("model").and_then(|model| string(model.get())).map(without_collection),
        is_ambiguous: named > 1,
        hides_usage: is_true(&body, "stream") && !tells_usage,
        is_background: is_true(&body, "background"),
        max_output_tokens: largest(&LIMITS).map(|limit| limit.saturating_mul(answers)),
    }
}

/// Google names a model with the collection it stands in.
fn without_collection(model: String) -> String {
    model.strip_prefix("models/").map(str::to_owned).unwrap_or(model)
}

/// The members of a JSON object in their order, repeated ones included.
struct Ordered<'a>(Vec<(String, &'a RawValue)>);

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
            assert_eq!((asked.max_output_tokens, asked.is_ambiguous), (limit, false), "{body}");
        }
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"MODEL":"m","model":"n"}"#,
            r#"{"mod\u0065l":"m","model":"m"}"#,
        ] {
            assert!(read_request(body.as_bytes()).is_ambiguous, "{body}");
        }
        assert_eq!(read_request(br#"{"model":"models/gemini"}"#).model.as_deref(), Some("gemini"));
        assert_eq!(read_request(b"not json"), AskedFor::default());
        let told = read_request(br#"{"stream":true,"stream_options":{"include_usage":true}}"#);
        assert!(!told.hides_usage && !told.is_background);
        assert!(read_request(br#"{"stream":true,"stream_options":{"include_usage":false}}"#).hides_usage);
        assert!(read_request(br#"{"stream":true}"#).hides_usage);
        assert!(read_request(br#"{"background":true}"#).is_background);
    }
}
