//! The body that reports usage measured elsewhere.

use std::collections::BTreeMap;

use farthing_core::command::{Completeness, CustomerRef, MeterRef, Metered};
use farthing_core::usage::{Split, Usage};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::input::{self, Issues};
use crate::values;

/// The endpoint of a report that names none.
const NO_ENDPOINT: &str = "reported";

/// The status of a reported call. A call with usage was successful.
const HTTP_STATUS: u16 = 200;

/// A call that was made elsewhere.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewRequest)]
pub(super) struct NewRequestBody {
    /// The merchant's own id of the call. It must not have the form `req_<ULID>`.
    #[schema(value_type = values::Text)]
    request_id: values::ReportedId,
    /// The customer, by id or reference id.
    customer_id: Option<values::ReferenceOrId>,
    /// The older name of `customer_id`.
    connection_id: Option<values::ReferenceOrId>,
    /// Instead of `customer_id`.
    reference_id: Option<values::ReferenceId>,
    /// The meter, by id or slug.
    meter_id: Option<values::SlugOrId>,
    /// The older name of `meter_id`.
    product_id: Option<values::SlugOrId>,
    /// Instead of `meter_id`.
    meter_slug: Option<values::MeterSlug>,
    /// By default `other`.
    provider: Option<values::Text>,
    /// Method and full URL.
    #[schema(inline)]
    endpoint: Option<values::Endpoint>,
    /// The model that responded.
    model: Option<values::Text>,
    /// The provider's own id of its response.
    response_id: Option<values::Text>,
    /// The completion time that the provider returned.
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    timestamp: Option<values::Instant>,
    /// The counts. They may also be given beside `usage`, with the same names.
    usage: Option<UsageBody>,
    metadata: Option<values::Metadata>,
}

/// An undivided count is input. Input and output counts take precedence over it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = NewUsage)]
struct UsageBody {
    /// Undivided.
    #[schema(inline)]
    tokens: Option<values::UsageCount>,
    #[schema(inline)]
    input_tokens: Option<values::UsageCount>,
    #[schema(inline)]
    output_tokens: Option<values::UsageCount>,
    /// Undivided.
    #[schema(inline)]
    characters: Option<values::UsageCount>,
    /// Undivided; at most nine fractional digits.
    #[schema(inline)]
    duration_seconds: Option<values::UsageSeconds>,
    /// The same as `tokens`, which takes precedence.
    #[schema(inline)]
    total_tokens: Option<values::UsageCount>,
    #[schema(inline)]
    input_characters: Option<values::UsageCount>,
    #[schema(inline)]
    output_characters: Option<values::UsageCount>,
    /// The same as `characters`, which takes precedence.
    #[schema(inline)]
    total_characters: Option<values::UsageCount>,
    #[schema(inline)]
    input_seconds: Option<values::UsageSeconds>,
    #[schema(inline)]
    output_seconds: Option<values::UsageSeconds>,
    /// The same as `duration_seconds`, which takes precedence.
    #[schema(inline)]
    total_seconds: Option<values::UsageSeconds>,
}

/// A checked report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) reported_id: String,
    pub(super) customer: Option<CustomerRef>,
    pub(super) meter: Option<MeterRef>,
    pub(super) provider: String,
    pub(super) endpoint: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) metered: Metered,
}

impl Report {
    /// Reads the body `json`.
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        let (beside, body): (UsageBody, NewRequestBody) = input::body(json)?;
        let mut issues = Issues::default();
        let customer =
            issues.either(("connection_id", body.connection_id), ("customer_id", body.customer_id));
        if customer.is_some() && body.reference_id.is_some() {
            issues.refuse(["reference_id"], "must not be given with customer_id");
        }
        let reference = body.reference_id.map(|reference| reference.0);
        let customer = customer.map(|customer| customer.0).or(reference).map(|name| match name.parse() {
            Ok(id) => CustomerRef::Id(id),
            Err(_) => CustomerRef::Reference(name),
        });
        let meter = issues.either(("product_id", body.product_id), ("meter_id", body.meter_id));
        if meter.is_some() && body.meter_slug.is_some() {
            issues.refuse(["meter_slug"], "must not be given with meter_id");
        }
        let slug = body.meter_slug.map(|slug| MeterRef::Slug(slug.0));
        let inside = body.usage.unwrap_or_default();
        let counts = Counts::from(beside).merged(Counts::from(inside));
        if counts.is_none() {
            issues.refuse(["usage"], "must not differ from the counts beside it");
        }
        issues.checked()?;
        Ok(Self {
            reported_id: body.request_id.0,
            customer,
            meter: meter.map(|meter| meter.0).or(slug),
            provider: body.provider.map_or_else(|| "other".to_owned(), |provider| provider.0),
            endpoint: body.endpoint.map_or_else(|| NO_ENDPOINT.to_owned(), |endpoint| endpoint.0),
            metadata: body.metadata.map(|metadata| metadata.0).unwrap_or_default(),
            metered: Metered {
                http_status: HTTP_STATUS,
                usage: counts.and_then(Counts::usage),
                ending: Completeness::Whole,
                counted: None,
                raw_usage: None,
                response_id: body.response_id.map(|id| id.0),
                model: body.model.map(|model| model.0),
                provider_timestamp: body.timestamp.map(|instant| instant.0),
            },
        })
    }
}

/// Input, output and undivided.
type Parts = [Option<Decimal>; 3];

/// The counts of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    tokens: Parts,
    characters: Parts,
    seconds: Parts,
}

impl From<UsageBody> for Counts {
    fn from(body: UsageBody) -> Self {
        let count = |count: Option<values::UsageCount>| count.map(|count| count.0);
        let time = |time: Option<values::UsageSeconds>| time.map(|time| time.0);
        Self {
            tokens: [
                count(body.input_tokens),
                count(body.output_tokens),
                count(body.tokens.or(body.total_tokens)),
            ],
            characters: [
                count(body.input_characters),
                count(body.output_characters),
                count(body.characters.or(body.total_characters)),
            ],
            seconds: [
                time(body.input_seconds),
                time(body.output_seconds),
                time(body.duration_seconds.or(body.total_seconds)),
            ],
        }
    }
}

impl Counts {
    /// The union of both, or `None` if they differ.
    fn merged(self, other: Self) -> Option<Self> {
        let mut merged = self;
        let pairs = [
            (&mut merged.tokens, other.tokens),
            (&mut merged.characters, other.characters),
            (&mut merged.seconds, other.seconds),
        ];
        for (mine, theirs) in pairs {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                if mine.is_some() && theirs.is_some() && *mine != theirs {
                    return None;
                }
                *mine = mine.or(theirs);
            }
        }
        Some(merged)
    }

    /// The usage, or `None` without any count.
    fn usage(self) -> Option<Usage> {
        if self == Self::default() {
            return None;
        }
        let whole = |parts: Parts| {
            let Split { input, output } = split(parts);
            Split { input: input.to_u64().unwrap_or(0), output: output.to_u64().unwrap_or(0) }
        };
        Some(Usage {
            tokens: whole(self.tokens),
            characters: whole(self.characters),
            seconds: split(self.seconds),
            ..Usage::default()
        })
    }
}

/// An undivided count is input. Input and output counts take precedence over it.
fn split([input, output, undivided]: Parts) -> Split<Decimal> {
    match (input, output) {
        (None, None) => Split { input: undivided.unwrap_or_default(), output: Decimal::ZERO },
        (input, output) => Split { input: input.unwrap_or_default(), output: output.unwrap_or_default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn usage(json: &str) -> Usage {
        let body = format!(r#"{{"request_id": "a", {json}}}"#);
        Report::read(&body).unwrap().metered.usage.unwrap()
    }

    fn paths(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = Report::read(json) else {
            panic!("accepted: {json}")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn counts_are_read_in_the_standard_object_or_beside_it() {
        let divided = usage(r#""usage": {"input_tokens": 3, "output_tokens": 4, "tokens": 99}"#);
        assert_eq!(divided.tokens, Split { input: 3, output: 4 });
        assert_eq!(usage(r#""input_tokens": 3, "output_tokens": 4"#), divided);
        assert_eq!(usage(r#""input_tokens": 3, "usage": {"input_tokens": 3, "output_tokens": 4}"#), divided);
        assert_eq!(usage(r#""usage": {"tokens": 5}"#).tokens, Split { input: 5, output: 0 });
        assert_eq!(usage(r#""characters": 7"#).characters, Split { input: 7, output: 0 });
        let seconds = usage(r#""usage": {"duration_seconds": 1.25}"#).seconds;
        assert_eq!(seconds, Split { input: "1.25".parse().unwrap(), output: Decimal::ZERO });
        assert_eq!(Report::read(r#"{"request_id": "a"}"#).unwrap().metered.usage, None);
        assert_eq!(Report::read(r#"{"request_id": "a", "usage": {}}"#).unwrap().metered.usage, None);
    }

    #[test]
    fn issues_name_their_path() {
        for (json, path) in [
            ("{}", "request_id"),
            (r#"{"request_id": ""}"#, "request_id"),
            (r#"{"request_id": "req_01ARZ3NDEKTSV4RRFFQ69G5FAV"}"#, "request_id"),
            (r#"{"request_id": "a", "usage": {"tokens": -1}}"#, "usage.tokens"),
            (r#"{"request_id": "a", "usage": {"tokens": 1.5}}"#, "usage.tokens"),
            (r#"{"request_id": "a", "usage": {"tokens": 1000000000001}}"#, "usage.tokens"),
            (r#"{"request_id": "a", "usage": {"tokens": "many"}}"#, "usage.tokens"),
            (r#"{"request_id": "a", "usage": 7}"#, "usage"),
            (r#"{"request_id": "a", "input_tokens": 1, "usage": {"input_tokens": 2}}"#, "usage"),
            (r#"{"request_id": "a", "input_seconds": 0.0000000001}"#, "input_seconds"),
            (r#"{"request_id": "a", "meter_id": "prd_x"}"#, "meter_id"),
            (r#"{"request_id": "a", "meter_id": "b", "product_id": "c"}"#, "meter_id"),
            (r#"{"request_id": "a", "meter_id": "b", "meter_slug": "c"}"#, "meter_slug"),
            (r#"{"request_id": "a", "customer_id": "b", "connection_id": "c"}"#, "customer_id"),
            (r#"{"request_id": "a", "customer_id": "b", "reference_id": "c"}"#, "reference_id"),
            (r#"{"request_id": "a", "timestamp": "yesterday"}"#, "timestamp"),
        ] {
            assert_eq!(paths(json), [path], "{json}");
        }
        assert!(Report::read(r#"{"request_id": "req_018EeWyXxfu5pfWkrYcMdjWG"}"#).is_ok(), "a provider's id");
    }
}
