//! The parent of a span in another process, as the header `traceparent` names it (W3C Trace Context, version 1).
//!
//! `tracestate` and `baggage` are not read: their text is the caller's, and would be in every span.

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const TRACEPARENT: &str = "traceparent";

/// The length of a value of version 00.
const LENGTH: usize = 55;

/// The parent that the headers name; `None` without a valid one.
pub(super) fn of(headers: &HeaderMap) -> Option<SpanContext> {
    let mut given = headers.get_all(TRACEPARENT).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    read(value.to_str().ok()?)
}

/// The parent that a value of `traceparent` names.
pub(super) fn read(value: &str) -> Option<SpanContext> {
    if !is_well_formed(value.as_bytes()) {
        return None;
    }
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Value(value));
    let parent = context.span().span_context().clone();
    parent.is_valid().then_some(parent)
}

/// Whether the value has fields of the right lengths. The library takes shorter ones.
fn is_well_formed(value: &[u8]) -> bool {
    let is_hex = |field: &[u8]| field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let Some((fields, more)) = value.split_at_checked(LENGTH) else { return false };
    let fields_are_hex = [0..2, 3..35, 36..52, 53..55].into_iter().all(|field| is_hex(&fields[field]));
    // A later version may have more fields.
    let ends = more.is_empty() || (more[0] == b'-' && &fields[..2] != b"00");
    fields_are_hex && [2, 35, 52].into_iter().all(|at| fields[at] == b'-') && ends
}

/// A carrier of nothing but `traceparent`.
struct Value<'a>(&'a str);

impl Extractor for Value<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_parent_is_read_with_its_flag() {
        let parent = read(VALID).unwrap();
        assert_eq!(parent.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span_id().to_string(), "00f067aa0ba902b7");
        assert!(parent.is_sampled() && parent.is_remote());
        let unsampled = read(&VALID.replace("-01", "-00")).unwrap();
        assert!(!unsampled.is_sampled());
        let later = read(&format!("{}-more", VALID.replacen("00", "cc", 1))).unwrap();
        assert!(later.is_sampled());
    }

    #[test]
    fn everything_else_is_no_parent() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let long = format!("{VALID}-more");
        let hyphen = format!("{VALID}-");
        let later = format!("{}more", VALID.replacen("00", "cc", 1));
        for value in [
            "",
            "00",
            "00-1-1-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            &zero_trace,
            &zero_span,
            &long,
            &hyphen,
            &later,
            "ééééééééééééééééééééééééééééééééééééééé",
        ] {
            assert!(read(value).is_none(), "{value}");
        }
    }

    #[test]
    fn two_parents_are_none() {
        let mut headers = HeaderMap::new();
        assert!(of(&headers).is_none());
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(of(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(of(&headers).is_none());
    }
}
