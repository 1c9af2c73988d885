//! Fuzzing of the readers of a provider's answer: the JSON scanner, the framing of server-sent events and the chunk
//! filter. `PROPTEST_CASES` says how many cases are made.
//!
//! Each reader is compared with a plain one that has the whole text and reads it with `serde_json`. For any bytes,
//! cut into any pieces, a reader does not panic and gets the same result.

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};

use super::chunk::ChunkFilter;
use super::document::{Document, Member, MemberSelection, Within};
use super::framing::Framing;
use super::shape::Shape;

/// A key of an object: its text, and whether it is written without escapes. The scanner compares bytes, so it finds a
/// name only where it is written plainly.
struct Key {
    text: String,
    is_plain: bool,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Key;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key, E> {
                Ok(Key { text: text.to_owned(), is_plain: true })
            }

            fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                Ok(Key { text: text.to_owned(), is_plain: false })
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// The members of an object in their order, repeated ones included.
struct Members<'a>(Vec<(Key, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

type Found = Vec<(Member, String)>;

/// Adds the members of one object that `selection` names; `within` is `None` for the outermost.
fn members_of(selection: MemberSelection, object: &str, within: Option<Within>, found: &mut Found) {
    let Members(members) = serde_json::from_str(object).unwrap();
    for (key, value) in members.iter().filter(|(key, _)| key.is_plain) {
        let inside = selection.inside.iter().find(|(name, _)| *name == key.text);
        match (within, inside, value.get().as_bytes().first()) {
            (None, Some((_, Within::UsageOfItems)), Some(b'[')) => {
                let items: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap();
                for item in items.iter().filter(|item| item.get().starts_with('{')) {
                    members_of(selection, item.get(), Some(Within::UsageOfItems), found);
                }
            }
            (None, Some((_, within @ (Within::All | Within::Beginning | Within::Usage))), Some(b'{')) => {
                members_of(selection, value.get(), Some(*within), found);
            }
            (_, _, _) => {}
        }
        let member = selection.members.iter().find(|(name, _)| *name == key.text);
        let reads = |member: Member| match within.unwrap_or(Within::All) {
            Within::All | Within::Beginning => true,
            Within::Usage | Within::UsageOfItems => matches!(member, Member::Usage | Member::UsageMetadata),
        };
        if let Some((_, member)) = member.filter(|(_, member)| reads(*member)) {
            let member = match (within, *member) {
                (Some(Within::UsageOfItems), _) => Member::ItemUsage,
                (Some(Within::Beginning), Member::Usage) => Member::FirstUsage,
                (_, member) => member,
            };
            found.push((member, value.get().to_owned()));
        }
    }
}

/// Adds the members of one document that `selection` names. The document is a list of documents if the shape allows
/// that.
fn document_of(selection: MemberSelection, text: &str, found: &mut Found) {
    if text.starts_with('{') {
        members_of(selection, text, None, found);
    } else if text.starts_with('[') && selection.in_list {
        let list: Vec<&RawValue> = serde_json::from_str(text).unwrap();
        for text in list {
            document_of(selection, text.get(), found);
        }
    }
}

/// The members that `selection` names, of the JSON documents in `text` up to the first invalid one.
fn expected(selection: MemberSelection, text: &str) -> Found {
    let mut found = Vec::new();
    for document in Deserializer::from_str(text).into_iter::<&RawValue>().map_while(Result::ok) {
        document_of(selection, document.get(), &mut found);
    }
    found
}

/// The bytes in pieces of these sizes, which repeat.
fn pieces<'a>(bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    sizes.iter().cycle().map_while(move |size| {
        let (piece, after) = rest.split_at_checked(*size).unwrap_or((rest, &[]));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![usize::MAX]),
        Just(vec![1]),
        prop::collection::vec(prop_oneof![1_usize..8, 1_usize..200], 1..8),
    ]
}

fn scanned(selection: MemberSelection, bytes: &[u8], sizes: &[usize]) -> Found {
    let mut document = Document::new(selection);
    let mut found = Vec::new();
    for piece in pieces(bytes, sizes) {
        document.feed(piece, |member, text| found.push((member, text.to_owned())));
    }
    found
}

fn framed(selection: MemberSelection, bytes: &[u8], sizes: &[usize]) -> Found {
    let mut framing = Framing::of("text/event-stream", selection);
    let mut found = Vec::new();
    for piece in pieces(bytes, sizes) {
        framing.feed(piece, |member, text| found.push((member, text.to_owned())));
    }
    found
}

fn passed(bytes: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut filter = ChunkFilter::new();
    let mut out = Vec::new();
    for piece in pieces(bytes, sizes) {
        out.extend_from_slice(&filter.pass(piece));
    }
    out.extend_from_slice(&filter.end());
    out
}

fn shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(&Shape::ALL[..])
}

/// White space between the tokens of a document.
fn blank() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 2 => Just(" "), 1 => Just("\n"), 1 => Just("\r\n\t")]
}

fn key() -> impl Strategy<Value = String> {
    let names = &[
        "usage",
        "usageMetadata",
        "id",
        "model",
        "created",
        "createTime",
        "response",
        "message",
        "delta",
        "meta",
        "x_groq",
        "duration",
        "choices",
        "usag\\u0065",
        "a\\\"usage",
        "\\\\",
        "",
        "usage ",
        "a key that is longer than any name that is looked for",
    ];
    prop_oneof![8 => prop::sample::select(&names[..]).prop_map(str::to_owned), 1 => "[a-z]{1,4}"]
}

fn scalar() -> impl Strategy<Value = String> {
    let texts = &[
        "null",
        "true",
        "0",
        "-1.5e+3",
        "1700000000",
        "\"\"",
        "\"}{][,:\"",
        "\"\\\"usage\\\":1\"",
        "\"\\\\\"",
        "\"\\u0000\u{1F600}\"",
        "\"data: \"",
    ];
    prop::sample::select(&texts[..]).prop_map(str::to_owned)
}

/// The text of a valid JSON document.
fn json() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 40, 6, |inner| {
        let member = (blank(), key(), blank(), blank(), inner.clone(), blank());
        let object = (prop::collection::vec(member, 0..6), blank()).prop_map(|(members, blank)| {
            let members = members.into_iter().map(|(before, key, after, between, value, end)| {
                format!("{before}\"{key}\"{after}:{between}{value}{end}")
            });
            format!("{{{}{blank}}}", members.collect::<Vec<_>>().join(","))
        });
        let value =
            (blank(), inner, blank()).prop_map(|(before, value, end)| format!("{before}{value}{end}"));
        let list = prop::collection::vec(value, 0..4).prop_map(|values| format!("[{}]", values.join(",")));
        prop_oneof![4 => object, 1 => list]
    })
}

/// Bytes that look like JSON and events, valid or not.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        4 => "[\\[\\]{}:,\"\\\\\r\n ]".prop_map(String::into_bytes),
        2 => key().prop_map(|key| format!("\"{key}\":").into_bytes()),
        1 => Just(b"data:".to_vec()),
        1 => Just(b"\n\n".to_vec()),
        1 => json().prop_map(String::into_bytes),
        1 => any::<[u8; 3]>().prop_map(Vec::from),
    ];
    prop::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

/// The data of an event.
fn data() -> impl Strategy<Value = String> {
    let chunks = &[
        "[DONE]",
        "usage of no JSON",
        r#"{"choices":[],"usage":{"prompt_tokens":3}}"#,
        r#"{"choices":[ ],"usage":{},"id":"c"}"#,
        r#"{"choices":[],"usage":null}"#,
        r#"{"choices":null,"usage":{}}"#,
        r#"{"choices":[{"delta":{}}],"usage":{}}"#,
        r#"{"choices":[],"choices":[1],"usage":{}}"#,
        r#"{"choices":[],"usage":{},"usage":1}"#,
        r#"{"\u0063hoices":[],"usage":7}"#,
        r#"[[],{"usage":1}]"#,
        r#""usage""#,
    ];
    prop_oneof![3 => json(), 2 => prop::sample::select(&chunks[..]).prop_map(str::to_owned)]
}

/// A line of an event that is not its data.
fn other_line() -> impl Strategy<Value = String> {
    let lines = &[
        ": comment {\"usage\":0}",
        "event: x",
        "id: {\"usage\":7}",
        "retry",
        "data",
        "data:",
        "dat",
        "datax: {\"usage\":1}",
        " data: {\"usage\":1}",
    ];
    prop::sample::select(&lines[..]).prop_map(str::to_owned)
}

/// The text of an event stream. Its last event may be incomplete.
fn events() -> impl Strategy<Value = String> {
    let event = (prop::collection::vec(other_line(), 0..2), prop::option::of(data()), any::<bool>());
    let ends = prop_oneof![Just(vec!["\n"]), Just(vec!["\r\n"]), Just(vec!["\r"]), Just(vec!["\n", "\r\n"])];
    let is_ended = prop::bool::weighted(0.8);
    (prop::collection::vec(event, 0..6), ends, is_ended).prop_map(|(events, ends, is_ended)| {
        let mut lines = Vec::new();
        for (others, data, has_blank) in events {
            lines.extend(others);
            let field = if has_blank { "data: " } else { "data:" };
            // White space that ends a line puts the rest of the document on the next one.
            let data = data.iter().flat_map(|data| data.split(['\r', '\n']));
            lines.extend(data.map(|data| format!("{field}{data}")));
            lines.push(String::new());
        }
        if !is_ended {
            lines.pop();
        }
        let ends = ends.iter().cycle();
        lines.iter().zip(ends).flat_map(|(line, end)| [line, *end]).collect()
    })
}

/// The events of a stream: each one's text with all its line ends, and its data.
fn split(stream: &str) -> Vec<(String, String)> {
    let mut split = Vec::new();
    let (mut text, mut data) = (String::new(), Vec::new());
    let mut rest = stream;
    while !rest.is_empty() {
        let at = rest.find(['\r', '\n']).unwrap_or(rest.len());
        let (line, after) = rest.split_at(at);
        let end = ["\r\n", "\r", "\n"].into_iter().find(|end| after.starts_with(end)).unwrap_or_default();
        text.extend([line, end]);
        rest = &after[end.len()..];
        if let Some(part) = line.strip_prefix("data:") {
            data.push(part.strip_prefix(' ').unwrap_or(part));
        }
        if line.is_empty() {
            split.push((std::mem::take(&mut text), data.join("\n")));
            data.clear();
        }
    }
    split.push((text, data.join("\n")));
    split
}

/// Whether the event reports usage and nothing else. The text must name `usage` without escapes.
fn is_usage_alone(text: &str, data: &str) -> bool {
    if !text.contains("usage") {
        return false;
    }
    let Ok(Members(members)) = serde_json::from_str(data) else { return false };
    let value = |name: &str| {
        let mut named = members.iter().filter(|(key, _)| key.text == name);
        let (value, again) = (named.next(), named.next());
        // A reader could take either of two values, so such a chunk passes.
        value
            .filter(|_| again.is_none())
            .map(|(_, value)| serde_json::from_str::<Value>(value.get()).unwrap())
    };
    value("choices") == Some(Value::Array(Vec::new())) && value("usage").is_some_and(|usage| !usage.is_null())
}

proptest! {
    #[test]
    fn the_scanner_finds_the_members_that_serde_json_finds(
        documents in prop::collection::vec(json(), 1..4), shape in shape(), sizes in sizes(),
    ) {
        let text = documents.join("\n");
        let found = scanned(shape.selection(), text.as_bytes(), &sizes);
        prop_assert_eq!(found, expected(shape.selection(), &text));
    }

    #[test]
    fn the_scanner_is_within_a_document_until_its_last_byte(text in json(), shape in shape()) {
        let mut document = Document::new(shape.selection());
        let (body, last) = text.as_bytes().split_at(text.len() - 1);
        document.feed(body, |_, _| {});
        // The bracket around a list of documents is not counted.
        let is_object = text.starts_with('{');
        prop_assert!(!is_object || document.is_begun());
        document.feed(last, |_, _| {});
        prop_assert!(!document.is_begun());
    }

    #[test]
    fn events_are_read_as_a_reader_of_the_whole_stream_reads_them(
        stream in events(), shape in shape(), sizes in sizes(),
    ) {
        let selection = shape.selection();
        let expected: Found = split(&stream).iter().flat_map(|(_, data)| expected(selection, data)).collect();
        prop_assert_eq!(framed(selection, stream.as_bytes(), &sizes), expected);
    }

    #[test]
    fn the_chunk_filter_takes_out_events_of_usage_alone(stream in events(), sizes in sizes()) {
        let others = split(&stream).into_iter().filter(|(text, data)| !is_usage_alone(text, data));
        let expected: String = others.map(|(text, _)| text).collect();
        let passed = String::from_utf8(passed(stream.as_bytes(), &sizes)).unwrap();
        prop_assert_eq!(passed, expected);
    }

    #[test]
    fn any_bytes_are_read_the_same_in_any_pieces(bytes in noise(), shape in shape(), sizes in sizes()) {
        let (selection, whole) = (shape.selection(), [usize::MAX]);
        prop_assert_eq!(scanned(selection, &bytes, &sizes), scanned(selection, &bytes, &whole));
        prop_assert_eq!(framed(selection, &bytes, &sizes), framed(selection, &bytes, &whole));
        prop_assert_eq!(passed(&bytes, &sizes), passed(&bytes, &whole));
    }

    #[test]
    fn bytes_without_usage_pass_unchanged(bytes in noise(), sizes in sizes()) {
        let bytes = String::from_utf8_lossy(&bytes).replace("usage", "users").into_bytes();
        prop_assert_eq!(passed(&bytes, &sizes), bytes);
    }
}
