//! Metadata of a forwarded call: a JSON object of strings in a header or a query parameter. It never reaches the
//! provider (completion.md section 5). The limits are those of all metadata (interface.md, Limits).

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

use crate::error::{ApiError, ForwardError, Issue};
use crate::rules;

/// The header that attaches metadata to a call.
const METADATA: HeaderName = HeaderName::from_static("x-service-metadata");

/// The metadata of the header and the decoded query parameter. The header overrides keys of the parameter.
pub(super) fn read(headers: &HeaderMap, query: Option<&str>) -> Result<BTreeMap<String, String>, ApiError> {
    let mut metadata = query.map(parse).transpose()?.unwrap_or_default();
    for value in headers.get_all(METADATA) {
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| invalid(&[], "must be UTF-8"))?;
        metadata.extend(parse(text)?);
    }
    if metadata.len() > rules::MAX_METADATA_PAIRS {
        return Err(invalid(&[], rules::TOO_MANY_PAIRS));
    }
    Ok(metadata)
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let pairs: Map<String, Value> =
        serde_json::from_str(text).map_err(|_| invalid(&[], "must be a JSON object"))?;
    let mut metadata = BTreeMap::new();
    for (key, value) in pairs {
        rules::metadata_key(&key).map_err(|message| invalid(&[&key], &message))?;
        let Value::String(value) = value else { return Err(invalid(&[&key], "must be a string")) };
        let value = rules::text(value, rules::MAX_TEXT).map_err(|message| invalid(&[&key], &message))?;
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn invalid(path: &[&str], message: &str) -> ApiError {
    let path = ["metadata"].iter().chain(path).copied();
    ApiError::Forward(ForwardError::MetadataInvalid(vec![Issue::new(path, message)]))
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
    }
}
