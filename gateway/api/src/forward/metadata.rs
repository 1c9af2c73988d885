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

/// The metadata of the header and the decoded query parameter. The header overrides keys of the parameter.
pub(super) fn read(headers: &HeaderMap, query: Option<&str>) -> Result<BTreeMap<String, String>, ApiError> {
    let headers = headers.get_all(METADATA).iter().map(|value| {
        std::str::from_utf8(value.as_bytes()).map_err(|_| vec![Issue::new([""; 0], "must be UTF-8")])
    });
    let (mut metadata, mut issues) = (BTreeMap::new(), Issues::default());
    let mut refuse = |Issue { path, message }: Issue| {
        issues.refuse(["metadata".to_owned()].into_iter().chain(path), message);
    };
    for text in query.map(Ok).into_iter().chain(headers) {
        match text.and_then(input::body_or_issues::<values::Metadata>) {
            Ok(pairs) => metadata.extend(pairs.0),
            Err(found) => found.into_iter().for_each(&mut refuse),
        }
    }
    if metadata.len() > rules::MAX_METADATA_PAIRS {
        refuse(Issue::new([""; 0], rules::TOO_MANY_PAIRS));
    }
    match issues.into_result() {
        Ok(()) => Ok(metadata),
        Err(issues) => Err(ApiError::Forward(ForwardError::MetadataInvalid(issues))),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn header(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(METADATA, HeaderValue::from_bytes(text.as_bytes()).unwrap())])
    }

    #[test]
    fn header_and_query_are_merged_and_the_header_wins() {
        let metadata = read(&header(r#"{"a":"1","b":"é"}"#), Some(r#"{"a":"2","c":"3"}"#)).unwrap();
        let pairs: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "é"), ("c", "3")]);
        assert!(read(&HeaderMap::new(), None).unwrap().is_empty());
    }

    #[test]
    fn all_issues_are_listed_with_their_keys() {
        let refused = read(&header(r#"{"a":1,"b c":"x","d":"y"}"#), Some(r#"{"e":""}"#));
        let Err(ApiError::Forward(ForwardError::MetadataInvalid(issues))) = refused else {
            panic!("{refused:?}")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, ["metadata.e", "metadata.a", "metadata.b c"]);
        let refused = read(&header("[]"), None);
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
            assert_eq!(read(&header(text), None).unwrap_err().code(), "metadata_invalid", "{text}");
            assert_eq!(read(&HeaderMap::new(), Some(text)).unwrap_err().code(), "metadata_invalid", "{text}");
        }
        let of = |numbers: std::ops::Range<u32>| {
            serde_json::json!(numbers.map(|n| (format!("k{n}"), "v")).collect::<BTreeMap<_, _>>()).to_string()
        };
        assert_eq!(read(&header(&of(0..60)), Some(&of(0..100))).unwrap().len(), 100);
        let together = read(&header(&of(0..60)), Some(&of(50..101)));
        assert_eq!(together.unwrap_err().code(), "metadata_invalid", "101 keys of both");
    }
}
