//! Nothing of a request is dropped silently: a member that no reader knows is refused by its path, wherever it stands, or
//! it is in the converted request, where the provider decides (schemas, arguments, results of tools). One of a response
//! is left out.

use std::fs;
use std::path::Path;

use farthing_formats::{Conversion, Format, RequestFacts};
use serde_json::Value;

const FORMATS: [(Format, &str); 4] = [
    (Format::OpenaiChat, "openai_chat"),
    (Format::OpenaiResponses, "openai_responses"),
    (Format::Anthropic, "anthropic"),
    (Format::Google, "google"),
];

/// Objects that docs/conversion.md lists as ignored: with all that is in them, or as they are and not with more.
const IGNORED: [&str; 5] = ["metadata", "cache_control", "labels", "logit_bias", "caller"];

const UNKNOWN: &str = "unheard";

/// A name as messages show it: Google's are written in both ways.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// The paths of all objects of a document that are not in an ignored member, as JSON pointers and as messages show them.
fn objects(value: &Value, pointer: &str, shown: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            found.push((pointer.to_owned(), shown.to_owned()));
            for (name, member) in members.iter().filter(|(name, _)| !IGNORED.contains(&name.as_str())) {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                let shown = if shown.is_empty() { name.clone() } else { format!("{shown}.{name}") };
                objects(member, &format!("{pointer}/{escaped}"), &shown, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{pointer}/{index}"), &format!("{shown}[{index}]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn an_unknown_member_of_any_object_is_refused_by_its_path_or_reaches_the_provider() {
    let (mut refused, mut passed, mut wrong) = (0, 0, Vec::new());
    for (client, name) in FORMATS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/requests").join(name);
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.is_file()) {
            let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let mut places = Vec::new();
            objects(&document, "", "", &mut places);
            for (provider, _) in FORMATS.into_iter().filter(|(provider, _)| *provider != client) {
                let conversion = Conversion::between(client, provider).unwrap();
                let is_google = client == Format::Google;
                let facts = RequestFacts {
                    model: is_google.then_some("gemini-2.5-flash"),
                    max_output_tokens: Some(64_000),
                    ..RequestFacts::default()
                };
                // What is refused as it is says nothing of its members.
                if conversion.request(document.to_string().as_bytes(), &facts).is_err() {
                    continue;
                }
                for (pointer, shown) in &places {
                    let mut changed = document.clone();
                    let object = changed.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
                    object.insert(UNKNOWN.to_owned(), 1.into());
                    let converted = conversion.request(changed.to_string().as_bytes(), &facts);
                    let path =
                        if shown.is_empty() { UNKNOWN.to_owned() } else { format!("{shown}.{UNKNOWN}") };
                    let about = format!("{} to {provider:?}: {path}", file.display());
                    match converted {
                        Err(error) => {
                            let is_named = camel(&error.to_string()).starts_with(&camel(&path));
                            wrong.extend((!is_named).then(|| format!("{about}: {error}")));
                            refused += 1;
                        }
                        Ok(converted) => {
                            let body = String::from_utf8(converted.body).unwrap();
                            wrong.extend((!body.contains(UNKNOWN)).then(|| format!("{about} is dropped")));
                            passed += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(refused > 500 && passed > 50, "{refused} refused, {passed} passed");
}

/// Providers add members every month, and a call that was paid for must not fail by one: it is no part of the answer.
#[test]
fn an_unknown_member_of_any_object_of_a_response_changes_nothing() {
    let (mut unchanged, mut passed, mut wrong) = (0, 0, Vec::new());
    for (provider, name) in FORMATS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/responses").join(name);
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.is_file()) {
            let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let mut places = Vec::new();
            objects(&document, "", "", &mut places);
            for (client, _) in FORMATS.into_iter().filter(|(client, _)| *client != provider) {
                let conversion = Conversion::between(client, provider).unwrap();
                let converted = conversion.response(document.to_string().as_bytes());
                for (pointer, shown) in &places {
                    let mut changed = document.clone();
                    let object = changed.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
                    object.insert(UNKNOWN.to_owned(), 1.into());
                    let with = conversion.response(changed.to_string().as_bytes());
                    if with == converted {
                        unchanged += 1;
                    } else if with.as_ref().is_ok_and(|body| String::from_utf8_lossy(body).contains(UNKNOWN))
                    {
                        // Arguments of a call are the model's.
                        passed += 1;
                    } else {
                        wrong.push(format!("{} to {client:?}: {shown}: {with:?}", file.display()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unchanged > 300 && passed > 5, "{unchanged} unchanged, {passed} passed");
}
