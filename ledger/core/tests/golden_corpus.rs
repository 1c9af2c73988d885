//! The golden files have every shape of an event: each kind and version, and each optional member both set and not set.
//! None of them is ever edited: `golden.sha256` has their digests, in the form of `sha256sum`.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use farthing_core::event::codec::{self, Error, decode, encode};
use farthing_core::secret::hex;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// A member that no event has.
const NO_MEMBER: &str = "no_member_of_any_event";

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A golden file: `<kind>.v<version>.json`, or `<kind>.v<version>.<what it has>.json`.
struct Golden {
    file: String,
    kind: &'static str,
    version: i32,
    text: String,
}

impl Golden {
    fn all() -> Vec<Self> {
        let files = std::fs::read_dir(own("tests/golden")).unwrap().map(|file| file.unwrap().file_name());
        let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
        files.sort();
        let golden = |file: String| {
            let text = std::fs::read_to_string(own("tests/golden").join(&file)).unwrap();
            let kind = codec::kinds().find(|kind| file.starts_with(&format!("{kind}.v")));
            let kind = kind.unwrap_or_else(|| panic!("{file} is of no kind"));
            let version = file[kind.len() + 2..].split('.').next().unwrap();
            let version = version.parse().unwrap_or_else(|_| panic!("{file} is of no version"));
            Self { file, kind, version, text }
        };
        files.into_iter().map(golden).collect()
    }

    fn reads(&self, document: &Value) -> bool {
        decode(self.kind, self.version, &document.to_string()).is_ok()
    }

    /// The document as this program writes it; `None` if it is not read.
    fn written(&self, document: &Value) -> Option<Value> {
        let event = decode(self.kind, self.version, &document.to_string()).ok()?;
        Some(serde_json::from_str(&encode(&event).body).unwrap())
    }
}

#[test]
fn every_kind_and_version_has_a_golden_file_and_every_golden_file_is_read() {
    let all = Golden::all();
    for kind in codec::kinds() {
        let versions = (1..).take_while(|version| {
            !matches!(decode(kind, *version, "{}"), Err(Error::UnknownVersion { .. } | Error::UnknownKind(_)))
        });
        let versions: Vec<_> = versions.collect();
        assert!(!versions.is_empty(), "{kind}");
        for version in versions {
            let plain = format!("{kind}.v{version}.json");
            assert!(all.iter().any(|golden| golden.file == plain), "{plain} is missing");
        }
    }
    for golden in &all {
        let event = decode(golden.kind, golden.version, &golden.text);
        let event = event.unwrap_or_else(|error| panic!("{}: {error}", golden.file));
        let encoded = encode(&event);
        assert_eq!(encoded.kind, golden.kind, "{}", golden.file);
        if encoded.schema_version == golden.version {
            assert_eq!(encoded.body, golden.text.trim_end(), "{}", golden.file);
        }
    }
}

#[test]
fn no_golden_file_was_edited() {
    let mut written = String::new();
    for golden in Golden::all() {
        writeln!(written, "{}  {}", hex(&Sha256::digest(&golden.text)), golden.file).unwrap();
    }
    let listed = std::fs::read_to_string(own("tests/golden.sha256")).unwrap();
    let listed: BTreeSet<_> = listed.lines().collect();
    let now: BTreeSet<_> = written.lines().collect();
    let differ: Vec<_> = listed.symmetric_difference(&now).collect();
    assert!(differ.is_empty(), "add a new file to golden.sha256, and change no other line: {differ:#?}");
}

/// The names of all fields in the source, as they are in JSON.
fn field_names() -> BTreeSet<String> {
    let (mut names, mut folders) = (BTreeSet::new(), vec![own("src")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let field = line.trim().strip_prefix("pub ").unwrap_or_else(|| line.trim());
                let Some((name, _)) = field.split_once(": ") else { continue };
                if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
                {
                    names.insert(name.to_owned());
                }
            }
        }
    }
    names
}

/// The JSON pointers of all objects in `value`, each with its path in which positions of lists do not count.
fn objects(value: &Value, pointer: &str, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            found.push((pointer.to_owned(), path.to_owned()));
            for (name, value) in members {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                objects(value, &format!("{pointer}/{escaped}"), &format!("{path}/{name}"), found);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                objects(value, &format!("{pointer}/{at}"), &format!("{path}/[]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn members<'v>(document: &'v mut Value, pointer: &str) -> &'v mut Map<String, Value> {
    document.pointer_mut(pointer).and_then(Value::as_object_mut).expect("an object is at its pointer")
}

/// Whether the golden files of a kind and version have an optional member set, and not set.
#[derive(Debug, Default)]
struct Seen {
    set: bool,
    unset: bool,
}

#[test]
fn every_optional_member_is_set_in_one_golden_file_and_not_set_in_another() {
    let names = field_names();
    assert!(names.contains("wallet_id") && names.len() > 100, "{names:?}");
    let mut optional: BTreeMap<(&str, i32, String), Seen> = BTreeMap::new();
    // Objects of the same members know the same further ones.
    let mut probed = BTreeSet::new();
    for golden in Golden::all() {
        let whole: Value = serde_json::from_str(&golden.text).unwrap();
        let mut found = Vec::new();
        objects(&whole, "", "", &mut found);
        for (pointer, path) in found {
            // A value of a member that is known has a type. One that is not known is ignored, whatever it is.
            let knows = |name: &str| {
                [json!(0.5), json!([[[]]])].into_iter().any(|value| {
                    let mut probe = whole.clone();
                    members(&mut probe, &pointer).insert(name.to_owned(), value);
                    !golden.reads(&probe)
                })
            };
            // The names of a map are data.
            if knows(NO_MEMBER) {
                continue;
            }
            let own = members(&mut whole.clone(), &pointer).clone();
            let is_member = |name: &str| (golden.kind, golden.version, format!("{path}/{name}"));
            let given: Vec<_> = own.keys().cloned().collect();
            if probed.insert((golden.kind, golden.version, path.clone(), given)) {
                for name in names.iter().filter(|name| !own.contains_key(*name) && knows(name)) {
                    optional.entry(is_member(name)).or_default().unset = true;
                }
            }
            for (name, value) in &own {
                let mut without = whole.clone();
                members(&mut without, &pointer).remove(name);
                let Some(mut without) = golden.written(&without) else { continue };
                let seen = optional.entry(is_member(name)).or_default();
                let default = members(&mut without, &pointer).get(name).cloned();
                if default.as_ref() == Some(value) { seen.unset = true } else { seen.set = true }
            }
        }
    }
    assert!(optional.len() > 30, "{optional:?}");
    let lacking: Vec<_> = optional.iter().filter(|(_, seen)| !(seen.set && seen.unset)).collect();
    assert!(lacking.is_empty(), "no golden file has these members set, or not set: {lacking:#?}");
}

/// The values of an enumeration that a decoder names when it finds another one: "unknown variant `x`, expected `a` or `b`",
/// or "expected one of `a`, `b`, `c`".
fn values_in(error: &str) -> Option<Vec<String>> {
    let (_, expected) = error.split_once("unknown variant `")?.1.split_once(", expected ")?;
    let (expected, _) = expected.split_once(" at line ")?;
    Some(expected.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect())
}

/// The JSON pointers of all texts, and of all objects with one member, which may be a variant with its members.
fn candidates(value: &Value, pointer: &str, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            if members.len() == 1 {
                found.push((pointer.to_owned(), path.to_owned()));
            }
            for (name, value) in members {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                candidates(value, &format!("{pointer}/{escaped}"), &format!("{path}/{name}"), found);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                candidates(value, &format!("{pointer}/{at}"), &format!("{path}/[]"), found);
            }
        }
        Value::String(_) => found.push((pointer.to_owned(), path.to_owned())),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What is known of a place that takes the values of an enumeration.
#[derive(Debug, Default)]
struct Enumeration {
    known: BTreeSet<String>,
    /// Those that a golden file has, or that are left out of an event because they are the default.
    seen: BTreeSet<String>,
}

#[test]
fn every_value_of_every_enumeration_stands_in_a_golden_file() {
    let mut enumerations: BTreeMap<(&str, i32, String), Enumeration> = BTreeMap::new();
    for golden in Golden::all() {
        let whole: Value = serde_json::from_str(&golden.text).unwrap();
        let mut found = Vec::new();
        candidates(&whole, "", "", &mut found);
        for (pointer, path) in found {
            let with = |value: &str| {
                let mut probe = whole.clone();
                let place = probe.pointer_mut(&pointer).unwrap();
                *place = match place.as_object().and_then(|members| members.values().next()) {
                    Some(members) => json!({ value: members }),
                    None => json!(value),
                };
                probe
            };
            let error = decode(golden.kind, golden.version, &with(NO_MEMBER).to_string());
            let Some(values) = error.err().and_then(|error| values_in(&error.to_string())) else { continue };
            let Enumeration { known, seen } =
                enumerations.entry((golden.kind, golden.version, path)).or_default();
            let is_default = |value: &str| {
                golden.written(&with(value)).is_some_and(|written| written.pointer(&pointer).is_none())
            };
            seen.extend(values.iter().filter(|value| is_default(value)).cloned());
            known.extend(values);
            let value = match whole.pointer(&pointer).unwrap() {
                Value::Object(members) => members.keys().next().cloned(),
                text => text.as_str().map(ToOwned::to_owned),
            };
            seen.extend(value);
        }
    }
    assert!(enumerations.len() > 20, "{enumerations:#?}");
    enumerations.retain(|_, Enumeration { known, seen }| !known.is_subset(seen));
    assert!(enumerations.is_empty(), "no golden file has some of these values: {enumerations:#?}");
}
