//! Fuzzing of the event codec: bodies made from the golden files by random edits. `PROPTEST_CASES` says how many.
//!
//! Decoding never panics. An accepted body is encoded with the same meaning, as `serde_json` reads both. The
//! encoded body decodes and encodes again to the same bytes.

use std::path::Path;
use std::sync::LazyLock;

use chrono::{DateTime, FixedOffset};
use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::codec::{decode, encode, kinds};

/// The golden bodies, each with its kind.
static GOLDEN: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut golden: Vec<_> = files
        .map(|path| {
            let (kind, _) = path.file_name().unwrap().to_str().unwrap().split_once(".v1.").unwrap();
            (kind.to_owned(), std::fs::read_to_string(&path).unwrap().trim_end().to_owned())
        })
        .collect();
    golden.sort();
    golden
});

/// A change to a document. A number selects a value by its order, modulo the number of values.
#[derive(Debug, Clone)]
enum Edit {
    /// Puts another value in a value's place.
    Replace(usize, Value),
    /// Replaces a value by one of another golden body.
    Transplant(usize, prop::sample::Index, usize),
    /// Takes a member, or a list's last value, away.
    Remove(usize),
    /// Adds a member to an object.
    Add(usize, String),
    /// Replaces some bytes of the document by text.
    Splice(usize, usize, String),
}

/// Values at the borders of the types of fields.
fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("0"),
        Just("-0.0"),
        Just("1.5"),
        Just("1.00000000001"),
        Just("1e5"),
        Just("79228162514264337593543950335"),
        Just("0.0000000000000000000000000001"),
        Just("1970-01-01T00:00:00Z"),
        Just("2024-02-29T23:59:60.999999999+23:59"),
        Just("+262142-12-31T23:59:59Z"),
        Just("-0001-01-01T00:00:00Z"),
        Just("usd"),
        Just("\u{0}\u{1F600}\"\\"),
        Just(""),
    ];
    prop_oneof![
        4 => text.prop_map(Value::from),
        1 => ".{0,40}".prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => (-2_i64..=70_000).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        2 => Just(Value::Null),
        1 => Just(json!([])),
        1 => Just(json!({})),
        1 => Just(json!([{"a": [null]}, 1.5e300])),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = 0_usize..100;
    let piece = prop_oneof![
        Just(String::new()),
        "[\\[\\]{}:,\"\\\\0-9a-z. \n-]{1,6}",
        Just("\\ud800".to_owned()),
        Just("\"a\":1,".to_owned()),
        Just("[".repeat(200)),
    ];
    prop_oneof![
        4 => (at.clone(), value()).prop_map(|(at, value)| Edit::Replace(at, value)),
        3 => (at.clone(), any::<prop::sample::Index>(), at.clone())
            .prop_map(|(at, file, from)| Edit::Transplant(at, file, from)),
        2 => at.clone().prop_map(Edit::Remove),
        1 => (at.clone(), "[a-z_]{1,8}").prop_map(|(at, name)| Edit::Add(at, name)),
        2 => (0_usize..2000, 0_usize..8, piece).prop_map(|(at, cut, piece)| Edit::Splice(at, cut, piece)),
    ]
}

/// The paths of all values in a document, as JSON pointers.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                paths(value, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                paths(value, &format!("{path}/{at}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn value_at(document: &mut Value, at: usize) -> &mut Value {
    let mut found = Vec::new();
    paths(document, "", &mut found);
    let path = &found[at % found.len()];
    document.pointer_mut(path).unwrap()
}

/// The text with `edit` made in it. An edit that does not fit changes nothing.
fn edited(text: String, edit: &Edit) -> String {
    if let Edit::Splice(at, cut, piece) = edit {
        let at = text.floor_char_boundary(at % (text.len() + 1));
        let end = text.ceil_char_boundary((at + cut).min(text.len()));
        return format!("{}{piece}{}", &text[..at], &text[end..]);
    }
    let Ok(mut document) = serde_json::from_str::<Value>(&text) else { return text };
    match edit {
        Edit::Replace(at, value) => *value_at(&mut document, *at) = value.clone(),
        Edit::Transplant(at, file, from) => {
            let (_, other) = &GOLDEN[file.index(GOLDEN.len())];
            let mut other: Value = serde_json::from_str(other).unwrap();
            *value_at(&mut document, *at) = value_at(&mut other, *from).take();
        }
        Edit::Remove(at) => match value_at(&mut document, *at) {
            Value::Object(members) => {
                let name = members.keys().nth(at % members.len().max(1)).cloned();
                name.map(|name| members.remove(&name));
            }
            Value::Array(values) => drop(values.pop()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        },
        Edit::Add(at, name) => {
            if let Value::Object(members) = value_at(&mut document, *at) {
                members.insert(name.clone(), json!(1));
            }
        }
        Edit::Splice(..) => unreachable!("edits the text"),
    }
    document.to_string()
}

/// Whether `given` has every value of `written`. An absent member is null, and a decimal or an instant may be written
/// in another form.
fn says(given: &Value, written: &Value) -> bool {
    let decimal = |text: &str| text.parse::<Decimal>().ok();
    let instant = |text: &str| text.parse::<DateTime<FixedOffset>>().ok();
    match (given, written) {
        (Value::Object(given), Value::Object(written)) => {
            written.iter().all(|(name, value)| says(given.get(name).unwrap_or(&Value::Null), value))
        }
        (Value::Array(given), Value::Array(written)) => {
            given.len() == written.len() && given.iter().zip(written).all(|(one, other)| says(one, other))
        }
        // serde reads the fields of a struct from a list too.
        (Value::Array(given), Value::Object(written)) => {
            written.values().all(|value| given.iter().any(|given| says(given, value)))
        }
        (Value::String(given), Value::String(written)) => {
            given == written
                || decimal(given).is_some_and(|number| Some(number) == decimal(written))
                || instant(given).is_some_and(|at| Some(at) == instant(written))
        }
        (given, written) => given == written,
    }
}

/// Checks the properties of the codec for one body.
fn check(kind: &str, version: i32, body: &str) {
    let Ok(event) = decode(kind, version, body) else { return };
    let written = encode(&event);
    assert_eq!(written.kind, kind);
    let again = decode(written.kind, written.schema_version, &written.body)
        .unwrap_or_else(|error| panic!("{error}\n{body}\n{}", written.body));
    assert_eq!(again, event, "{body}");
    assert_eq!(encode(&again), written, "{body}");
    // A body may be accepted that has half a surrogate pair in a member of no interest.
    let Ok(given) = serde_json::from_str::<Value>(body) else { return };
    let shown: Value = serde_json::from_str(&written.body).unwrap();
    assert!(says(&given, &shown), "{body} is written as {shown}");
}

proptest! {
    #[test]
    fn an_edited_golden_body_is_refused_or_keeps_its_meaning(
        file in any::<prop::sample::Index>(), edits in prop::collection::vec(edit(), 1..6),
    ) {
        let (kind, body) = &GOLDEN[file.index(GOLDEN.len())];
        let body = edits.iter().fold(body.clone(), edited);
        check(kind, 1, &body);
    }

    #[test]
    fn any_text_of_any_kind_and_version_does_no_harm(
        kind in prop_oneof![prop::sample::select(kinds().collect::<Vec<_>>()).prop_map(str::to_owned), ".{0,12}"],
        version in prop_oneof![Just(1), any::<i32>()],
        body in prop_oneof!["\\PC{0,60}", "[\\[\\]{}:,\"\\\\0-9a-z_ -]{0,60}"],
    ) {
        check(&kind, version, &body);
    }
}

/// Some edited bodies are accepted; otherwise the property would be tested on none.
#[test]
fn some_edited_bodies_are_accepted_and_some_are_refused() {
    use proptest::strategy::ValueTree as _;

    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut accepted, mut refused) = (0, 0);
    for (kind, body) in GOLDEN.iter() {
        for _ in 0..10 {
            let edited = edited(body.clone(), &edit().new_tree(&mut runner).unwrap().current());
            if edited == *body {
                continue;
            }
            if decode(kind, 1, &edited).is_ok() { accepted += 1 } else { refused += 1 }
        }
    }
    assert!(accepted > 40 && refused > 40, "{accepted} accepted, {refused} refused");
}
