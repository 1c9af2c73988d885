//! Golden conversations: each document of a format in `golden/` is converted to every other format and compared with the
//! file beside it. `FARTHING_UPDATE_GOLDEN=1` writes these files; look at what changed.
//!
//! `golden/<kind>/<format>/<case>.<json|sse>` is converted to `golden/<kind>/<format>/<case>/<other format>.<json|sse>`,
//! and a response also to a stream.
//! A refusal is a file too: its text is the error.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

use std::fs;
use std::path::{Path, PathBuf};

use farthing_formats::{AnswerOptions, Conversion, Format, RequestFacts};

const FORMATS: [(Format, &str); 4] = [
    (Format::OpenaiChat, "openai_chat"),
    (Format::OpenaiResponses, "openai_responses"),
    (Format::Anthropic, "anthropic"),
    (Format::Google, "google"),
];

/// The options of answers in the golden files.
const ANSWER: AnswerOptions = AnswerOptions { include_usage: true, created: 1_800_000_000 };

fn golden(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(kind)
}

/// The documents of a format: their files and bytes, by name.
fn documents(kind: &str, format: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(golden(kind).join(format))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no golden files of {kind} in {format}");
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Compares what a document became with the golden file of the same kind.
fn compare(source: &Path, to: &str, converted: &str) {
    compare_kind(source, to, source.extension().unwrap().to_str().unwrap(), converted);
}

/// Compares what a document became with the golden file of this extension.
fn compare_kind(source: &Path, to: &str, extension: &str, converted: &str) {
    let path = source.with_extension("").join(to).with_extension(extension);
    if std::env::var_os("FARTHING_UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, converted).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{} is missing", path.display()));
    assert_eq!(converted, expected, "{}", path.display());
}

/// JSON with a member a line, in the order that it has.
fn pretty(json: &[u8]) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::pretty(&mut out);
    serde_transcode(&mut serde_json::Deserializer::from_slice(json), &mut serializer);
    out.push(b'\n');
    String::from_utf8(out).unwrap()
}

/// Writes what is read, in its order.
fn serde_transcode(
    from: &mut serde_json::Deserializer<serde_json::de::SliceRead<'_>>,
    to: &mut serde_json::Serializer<&mut Vec<u8>, serde_json::ser::PrettyFormatter<'_>>,
) {
    use serde::Deserialize;
    use serde::Serialize;
    let ordered = Ordered::deserialize(from).unwrap();
    ordered.serialize(to).unwrap();
}

/// A JSON value whose members keep their order.
enum Ordered {
    Scalar(serde_json::Value),
    List(Vec<Ordered>),
    Object(Vec<(String, Ordered)>),
}

impl<'de> serde::Deserialize<'de> for Ordered {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> serde::de::Visitor<'de> for Reader {
            type Value = Ordered;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Ordered, E> {
                Ok(Ordered::Scalar(serde_json::Value::Null))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Ordered, E> {
                Ok(Ordered::Scalar(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Ordered, E> {
                Ok(Ordered::Scalar(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Ordered, E> {
                Ok(Ordered::Scalar(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Ordered, E> {
                Ok(Ordered::Scalar(value.into()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Ordered, E> {
                Ok(Ordered::Scalar(text.into()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Ordered, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Ordered::List(values))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Ordered::Object(members))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

impl serde::Serialize for Ordered {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Scalar(value) => value.serialize(serializer),
            Self::List(values) => serializer.collect_seq(values),
            Self::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, value)))
            }
        }
    }
}

/// Each pair of a document and a conversion of it.
fn each(kind: &str, mut check: impl FnMut(&Path, &[u8], (Format, &str), (Format, &str))) {
    for from in FORMATS {
        for (path, bytes) in documents(kind, from.1) {
            for to in FORMATS.into_iter().filter(|to| to.0 != from.0) {
                check(&path, &bytes, from, to);
            }
        }
    }
}

#[test]
fn requests_are_converted_between_every_two_formats() {
    each("requests", |path, bytes, client, provider| {
        let conversion = Conversion::between(client.0, provider.0).unwrap();
        let is_google = client.0 == Format::Google;
        let facts = RequestFacts {
            model: is_google.then_some("gemini-2.5-flash"),
            stream: is_google && path.ends_with("plain.json"),
            max_output_tokens: Some(64_000),
            ..RequestFacts::default()
        };
        let converted = match conversion.request(bytes, &facts) {
            Ok(converted) => {
                let head = format!("// model {}, stream {}\n", converted.model, converted.stream);
                head + &pretty(&converted.body)
            }
            Err(error) => format!("{error}\n"),
        };
        compare(path, provider.1, &converted);
    });
}

#[test]
fn responses_are_converted_between_every_two_formats() {
    each("responses", |path, bytes, provider, client| {
        let conversion = Conversion::between(client.0, provider.0).unwrap().for_answer(ANSWER);
        let converted =
            conversion.response(bytes).map_or_else(|error| format!("{error}\n"), |body| pretty(&body));
        compare(path, client.1, &converted);
    });
}

/// For a client that asked for a stream.
#[test]
fn responses_are_converted_to_streams_between_every_two_formats() {
    each("responses", |path, bytes, provider, client| {
        let conversion = Conversion::between(client.0, provider.0).unwrap().for_answer(ANSWER);
        let events = conversion.response_as_stream(bytes);
        let events =
            events.map_or_else(|error| format!("{error}\n"), |events| String::from_utf8(events).unwrap());
        compare_kind(path, client.1, "sse", &events);
    });
}

#[test]
fn errors_are_converted_between_every_two_formats() {
    each("errors", |path, bytes, provider, client| {
        let conversion = Conversion::between(client.0, provider.0).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let status = name.split('_').next().unwrap().parse().unwrap();
        compare(path, client.1, &pretty(&conversion.error(status, bytes)));
    });
}

#[test]
fn streams_are_converted_between_every_two_formats_however_they_are_cut() {
    each("streams", |path, bytes, provider, client| {
        let conversion = Conversion::between(client.0, provider.0).unwrap().for_answer(ANSWER);
        let whole = stream(conversion, bytes, bytes.len());
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(stream(conversion, bytes, size), whole, "{} in pieces of {size}", path.display());
        }
        compare(path, client.1, &whole);
    });
}

/// What a client gets of a stream in pieces of this size. An error is its last line.
fn stream(conversion: Conversion, bytes: &[u8], size: usize) -> String {
    let mut converter = conversion.stream();
    let mut out = Vec::new();
    for piece in bytes.chunks(size) {
        match converter.feed(piece) {
            Ok(bytes) => out.extend(bytes),
            Err(_) => break,
        }
    }
    match converter.finish() {
        Ok(bytes) => out.extend(bytes),
        Err(error) => out.extend(format!("{error}\n").into_bytes()),
    }
    String::from_utf8(out).unwrap()
}
