//! The models that a body names beside its `model`: a provider may answer with them, too. The list of models of a spend key
//! bounds them all. Models of tools are not read. Pure.

use serde_json::value::RawValue;

use super::any_case::is_read_as;
use super::request::Ordered;

/// The members that list further models, at any provider.
const LISTS: [&str; 2] = ["models", "fallbacks"];

/// The members that may choose further models at the providers that have them.
const SETTINGS: [&str; 5] = ["agent_id", "preset", "plugins", "providerOptions", "compound_custom"];

/// The longest spelling of these names in JSON, in bytes: six for each letter of `providerOptions`.
const MAX_SPELLING: usize = 15 * 6;

/// Whether a JSON body has a member that may name further models, at any provider, or cannot be read.
pub(crate) fn may_name_further_models(body: &[u8]) -> bool {
    let is_known = |name: &str| LISTS.iter().chain(&SETTINGS).any(|known| is_read_as(name, known));
    has_text_like_name(body)
        && serde_json::from_slice(body)
            .map_or(true, |Ordered(members)| members.iter().any(|(name, _)| is_known(name)))
}

/// Whether any text of a JSON body, at any depth, may be one of the names, in whatever spelling. Most bodies are read no further.
fn has_text_like_name(body: &[u8]) -> bool {
    let may_be_name = |text: &[u8]| {
        LISTS.iter().chain(&SETTINGS).any(|name| text.eq_ignore_ascii_case(name.as_bytes()))
            || (text.len() <= MAX_SPELLING && text.iter().any(|byte| *byte == b'\\' || !byte.is_ascii()))
    };
    body.split(|byte| *byte == b'"').any(may_be_name)
}

/// Whether all further models that a JSON body names are among these. What cannot be read is not. `of_provider` are the members
/// with which the call's provider chooses another price.
pub(crate) fn are_further_models_among(allowed: &[String], body: &[u8], of_provider: &[&str]) -> bool {
    let Ok(Ordered(members)) = serde_json::from_slice(body) else { return false };
    members.iter().all(|(name, value)| {
        let value = value.get();
        let is_read = |known: &&str| is_read_as(name, known);
        let chooses = || SETTINGS.iter().any(|known| of_provider.contains(known) && is_read(known));
        if matches!(value, "null" | "false") {
            true
        } else if LISTS.iter().any(is_read) {
            are_among(allowed, value)
        } else {
            !chooses()
        }
    })
}

/// Whether all models of a list are among the allowed ones. One without a list is a list of one.
fn are_among(allowed: &[String], list: &str) -> bool {
    match serde_json::from_str::<Vec<&RawValue>>(list) {
        Ok(models) => models.iter().all(|model| is_among(allowed, model.get())),
        Err(_) => is_among(allowed, list),
    }
}

/// Whether a model is among the allowed ones: a text, or an object that names it in `model`.
fn is_among(allowed: &[String], model: &str) -> bool {
    let is_allowed = |text: &str| {
        let name: Result<String, _> = serde_json::from_str(text);
        name.is_ok_and(|name| allowed.contains(&name))
    };
    match serde_json::from_str(model) {
        Ok(Ordered(members)) => {
            let mut named = members.iter().filter(|(name, _)| is_read_as(name, "model")).peekable();
            named.peek().is_some() && named.all(|(_, name)| is_allowed(name.get()))
        }
        Err(_) => is_allowed(model),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_that_a_body_names_must_be_allowed() {
        let allowed = ["cheap".to_owned(), "small".to_owned()];
        let of_provider = ["models", "provider", "plugins", "preset"];
        for (body, is_allowed) in [
            (r#"{"model":"cheap"}"#, true),
            (r#"{"models":["cheap","small"]}"#, true),
            (r#"{"models":[]}"#, true),
            (r#"{"models":null,"fallbacks":false,"preset":null}"#, true),
            (r#"{"models":"cheap"}"#, true),
            (r#"{"fallbacks":[{"model":"cheap","max_tokens":5}]}"#, true),
            (r#"{"fallbacks":{"model":"small"}}"#, true),
            (r#"{"messages":[{"models":["dear"]}],"provider":{"order":["x"]}}"#, true),
            (r#"{"providerOptions":{"gateway":{"models":["dear"]}}}"#, true),
            (r#"{"models":["cheap","dear"]}"#, false),
            (r#"{"models":["cheap"],"models":["dear"]}"#, false),
            (r#"{"Models":["dear"]}"#, false),
            (r#"{"mod\u0065ls":["dear"]}"#, false),
            (r#"{"modelſ":["dear"]}"#, false),
            (r#"{"models":"dear"}"#, false),
            (r#"{"models":["CHEAP"]}"#, false),
            (r#"{"models":[["cheap"]]}"#, false),
            (r#"{"models":[7]}"#, false),
            (r#"{"models":true}"#, false),
            (r#"{"models":["\ud800"]}"#, false),
            (r#"{"fallbacks":[{"model":"cheap"},{"model":"dear"}]}"#, false),
            (r#"{"fallbacks":[{"model":"cheap","model":"dear"}]}"#, false),
            (r#"{"fallbacks":[{"model":"cheap","Model":"dear"}]}"#, false),
            (r#"{"fallbacks":[{"name":"cheap"}]}"#, false),
            (r#"{"FALLBACKS":["dear"]}"#, false),
            (r#"{"preset":"theirs"}"#, false),
            (r#"{"plugins":[{"id":"auto-router"}]}"#, false),
            (r#"{"models":["cheap"]"#, false),
            (r#"[{"models":["cheap"]}]"#, false),
        ] {
            let found = are_further_models_among(&allowed, body.as_bytes(), &of_provider);
            assert_eq!(found, is_allowed, "{body}");
        }
        // Members with such names mean something else elsewhere.
        let preset = br#"{"preset":"theirs","plugins":[{}]}"#;
        assert!(are_further_models_among(&allowed, preset, &[]));
        let options = br#"{"ProviderOptions":{}}"#;
        assert!(!are_further_models_among(&allowed, options, &["models", "providerOptions"]));
        let systems = br#"{"Compound_Custom":{"models":{"answering_model":"dear"}}}"#;
        assert!(!are_further_models_among(&allowed, systems, &["compound_custom"]));
        assert!(are_further_models_among(&allowed, systems, &[]));
        assert!(!are_further_models_among(&[], br#"{"models":["cheap"]}"#, &[]));
    }

    #[test]
    fn members_that_may_name_further_models_are_found_in_every_spelling() {
        for (body, may_name) in [
            (r#"{"model":"cheap","messages":[{"role":"user","content":"which models are there?"}]}"#, false),
            (r#"{"model":"models","messages":[{"models":["dear"],"content":"caf\u00e9"}]}"#, false),
            (r#"{"model":"cheap""#, false),
            (r#"{"model":"cheap","models":"#, true),
            (r#"{"models":[]}"#, true),
            (r#"{"Models" :[]}"#, true),
            (r#"{"fallbacks":[]}"#, true),
            (r#"{"preset":"x"}"#, true),
            (r#"{"plugins":[]}"#, true),
            (r#"{"agent_id":"x"}"#, true),
            (r#"{"compound_custom":{}}"#, true),
            (r#"{"PROVIDEROPTIONS":{}}"#, true),
            (r#"{"modelſ":[]}"#, true),
            (r#"{"mod\u0065ls":[]}"#, true),
        ] {
            assert_eq!(may_name_further_models(body.as_bytes()), may_name, "{body}");
        }
        let letters = "providerOptions".chars().map(|letter| format!("\\u{:04x}", u32::from(letter)));
        let escaped = letters.collect::<Vec<_>>().concat();
        assert!(may_name_further_models(format!("{{\"{escaped}\":1}}").as_bytes()), "{escaped}");
        let long = format!(r#"{{"content":"{}"}}"#, "caf\u{e9} ".repeat(20));
        let texts = [(long.as_str(), false), (r#"{"x":"model"}"#, false), (r#"{"x":"models"}"#, true)];
        for (body, has_text) in texts {
            assert_eq!(has_text_like_name(body.as_bytes()), has_text, "{body}");
        }
    }
}
