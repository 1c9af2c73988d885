//! Metadata of a forwarded call: a JSON object of strings in a header or a query parameter. It never reaches the
//! provider (completion.md section 5). The limits are those of all metadata (interface.md, Limits).

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};

use crate::error::{ApiError, ForwardError, Issue};
use crate::input::{self, Issues};
use crate::rules;
use crate::values;

/// The header that attaches metadata to a call.
const METADATA: HeaderName = HeaderName::from_static("x-service-metadata");

/// The metadata of the headers and of the decoded query parameters. The headers override names of the parameters; a name
/// that stands twice in either is refused, for one of its values would be lost.
pub(super) fn read(headers: &HeaderMap, parameters: &[String]) -> Result<BTreeMap<String, String>, ApiError> {
    let parameters = parameters.iter().map(|text| Ok(text.as_str()));
    let headers = headers.get_all(METADATA).iter().map(|value| {
        std::str::from_utf8(value.as_bytes()).map_err(|_| vec![Issue::new([""; 0], "must be UTF-8")])
    });
    let mut issues = Issues::default();
    let mut metadata = read_all(parameters, &mut issues);
    metadata.extend(read_all(headers, &mut issues));
    if metadata.len() > rules::MAX_METADATA_PAIRS {
        issues.refuse(["metadata"], rules::TOO_MANY_PAIRS);
    }
    match issues.into_result() {
        Ok(()) => Ok(metadata),
        Err(issues) => Err(ApiError::Forward(ForwardError::MetadataInvalid(issues))),
    }
}

/// The metadata of `texts`, which came in the same way.
fn read_all<'a>(
    texts: impl Iterator<Item = Result<&'a str, Vec<Issue>>>,
    issues: &mut Issues,
) -> BTreeMap<String, String> {
    let mut metadata = BTreeMap::new();
    let mut refuse = |Issue { path, message }: Issue| {
        issues.refuse(["metadata".to_owned()].into_iter().chain(path), message);
    };
    for text in texts {
        match text.and_then(input::unambiguous_body_or_issues::<values::Metadata>) {
            Ok(values::Metadata(pairs)) => {
                for (name, value) in pairs {
                    if metadata.contains_key(&name) {
                        refuse(Issue::new([&name], "must not be repeated"));
                    }
                    metadata.insert(name, value);
                }
            }
            Err(found) => found.into_iter().for_each(&mut refuse),
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn header(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(METADATA, HeaderValue::from_bytes(text.as_bytes()).unwrap())])
    }

    fn parameters(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_name_that_is_repeated_in_the_headers_or_in_the_query_is_refused() {
        let twice = r#"{"a":"1","b":"2","\u0061":"3"}"#;
        let mut headers = header(r#"{"a":"1"}"#);
        headers.append(METADATA, HeaderValue::from_static(r#"{"b":"2","a":"1"}"#));
        for refused in [
            read(&header(twice), &[]),
            read(&HeaderMap::new(), &parameters(&[twice])),
            read(&headers, &[]),
            read(&HeaderMap::new(), &parameters(&[r#"{"a":"1"}"#, r#"{"a":"2"}"#])),
        ] {
            let Err(ApiError::Forward(ForwardError::MetadataInvalid(issues))) = refused else {
                panic!("{refused:?}")
            };
            assert_eq!(issues, [Issue::new(["metadata", "a"], "must not be repeated")]);
        }
        headers.insert(METADATA, HeaderValue::from_static(r#"{"a":"1"}"#));
        headers.append(METADATA, HeaderValue::from_static(r#"{"b":"2"}"#));
        let merged = read(&headers, &parameters(&[r#"{"c":"3"}"#, r#"{"d":"4","a":"5"}"#])).unwrap();
        let pairs: Vec<_> = merged.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
    }

    #[test]
    fn header_and_query_are_merged_and_the_header_wins() {
        let metadata = read(&header(r#"{"a":"1","b":"é"}"#), &parameters(&[r#"{"a":"2","c":"3"}"#])).unwrap();
        let pairs: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "é"), ("c", "3")]);
        assert!(read(&HeaderMap::new(), &[]).unwrap().is_empty());
    }

    #[test]
    fn all_issues_are_listed_with_their_keys() {
        let refused = read(&header(r#"{"a":1,"b c":"x","d":"y"}"#), &parameters(&[r#"{"e":""}"#]));
        let Err(ApiError::Forward(ForwardError::MetadataInvalid(issues))) = refused else {
            panic!("{refused:?}")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, ["metadata.e", "metadata.a", "metadata.b c"]);
        let refused = read(&header("[]"), &[]);
        let Err(ApiError::Forward(ForwardError::MetadataInvalid(issues))) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(issues, [Issue::new(["metadata"], "must be a JSON object")]);
    }

    #[test]
    fn metadata_that_breaks_a_rule_is_refused() {
        let many = serde_json::json!((0..101).map(|n| (format!("k{n}"), "v")).collect::<BTreeMap<_, _>>());
        for text in [
            "",
            "x",
            "[]",
            "null",
            r#"{"a":1}"#,
            r#"{"a":null}"#,
            r#"{"a b":"x"}"#,
            r#"{"":"x"}"#,
            r#"{"a":""}"#,
            r#"{"a":"\u0000"}"#,
            &many.to_string(),
            &format!(r#"{{"a":"{}"}}"#, "x".repeat(256)),
        ] {
            assert_eq!(read(&header(text), &[]).unwrap_err().code(), "metadata_invalid", "{text}");
            assert_eq!(
                read(&HeaderMap::new(), &parameters(&[text])).unwrap_err().code(),
                "metadata_invalid",
                "{text}"
            );
        }
        let of = |numbers: std::ops::Range<u32>| {
            serde_json::json!(numbers.map(|n| (format!("k{n}"), "v")).collect::<BTreeMap<_, _>>()).to_string()
        };
        assert_eq!(read(&header(&of(0..60)), &[of(0..100)]).unwrap().len(), 100);
        let together = read(&header(&of(0..60)), &[of(50..101)]);
        assert_eq!(together.unwrap_err().code(), "metadata_invalid", "101 keys of both");
    }
}
