//! `POST /requests`: reports usage that was measured elsewhere; idempotent by `request_id` (completion.md section 5).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{CustomerRef, Ending, MeterRef, Metered, ReportRequest, Reported, Timed};
use farthing_core::event::{Event, RequestEvent, RequestMetered, RequestOpened, codec};
use farthing_core::ids::RequestId;
use farthing_core::usage::{MAX_COUNT, Split, Usage};
use farthing_projector::ReadModel;
use farthing_projector::requests::query::{self, RequestRow};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use tokio_postgres::Client;
use utoipa::ToSchema;

use super::resource::Request;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::idempotency::Answer;
use crate::openapi::values;
use crate::rest::body::Reply;
use crate::rest::fields::Fields;
use crate::rest::reads::Reads;
use crate::rest::writes::{Rendered, Submitted, Writes};
use crate::rules;

/// Fractional digits of seconds that are taken.
const MAX_SECONDS_SCALE: u32 = 9;

/// The longest endpoint that is taken, in characters.
const MAX_ENDPOINT: usize = 8 * 1024;

/// What stands for an endpoint that is not told.
const NO_ENDPOINT: &str = "reported";

/// The status of a call that is reported: it was a success, or there would be no usage to report.
const HTTP_STATUS: u16 = 200;

/// 201 with a new request, or 200 with the one that was reported under this id already, whatever this report says.
#[utoipa::path(
    post, path = "/requests", operation_id = "report_request", tag = "requests",
    request_body = NewRequest,
    responses(
        (status = 201, description = "The request, priced and charged.", body = Request),
        (status = 200, description = "The request that was reported under this id already, unchanged.", body = Request),
        (status = 400, description = "model_not_priced"),
        (status = 404, description = "customer_not_found meter_not_found"),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    reads: Reads,
    writes: Writes,
) -> Result<Answer, ApiError> {
    let merchant_id = writes.merchant_id;
    let wanted = Wanted::read(writes.json()?)?;
    let now = app.now();
    let list_price = app.providers.listed(&wanted.provider, wanted.metered.model.as_deref());
    let command = ReportRequest {
        merchant_id,
        reported_id: wanted.reported_id,
        request_id: RequestId::new(app.mint.next(now)),
        gateway_id: app.gateway_id,
        customer: wanted.customer,
        meter: wanted.meter,
        provider: wanted.provider,
        endpoint: wanted.endpoint,
        metadata: wanted.metadata,
        list_price,
        metered: wanted.metered,
        service_charge_rate: app.settings.service_charge_rate,
        now,
    };
    let render = move |(outcome, at): &(Reported, DateTime<Utc>)| match outcome {
        Reported::New(opened, metered) => {
            let row = RequestRow::reported((**opened).clone(), (**metered).clone(), *at);
            Rendered::Reply(Reply::created(Request::from(row)))
        }
        Reported::Existing(id) => Rendered::Later(*id),
    };
    match writes.submit_or_read(Timed { command, merchant_id, now }, render).await? {
        Submitted::Answer(answer) => Ok(answer),
        Submitted::Later(id) => {
            let connection = reads.caught_up(ReadModel::Requests).await?;
            let row = match within(query::find(&connection, merchant_id, &id.to_string())).await? {
                Some(row) => row,
                None => within(as_reported(&connection, id)).await?,
            };
            writes.keep(Reply::ok(Request::from(row))).await
        }
    }
}

/// The two events of a report.
const REPORT: &str = "\
SELECT kind, schema_version, body::text, occurred_at FROM ledger.events WHERE key = $1 OR key = $2 ORDER BY position";

/// The request as the log says it was reported, while the read model lags.
async fn as_reported(client: &Client, id: RequestId) -> Result<RequestRow, ApiError> {
    let rows = client.query(REPORT, &[&format!("{id}/opened"), &format!("{id}/metered")]).await?;
    let (mut opened, mut metered): (Option<RequestOpened>, Option<RequestMetered>) = (None, None);
    let mut at = DateTime::UNIX_EPOCH;
    for row in rows {
        let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        match event.map_err(|error| ApiError::internal(error.to_string()))? {
            Event::Request(RequestEvent::Opened(event)) => opened = Some(*event),
            Event::Request(RequestEvent::Metered(event)) => metered = Some(*event),
            other => return Err(ApiError::internal(format!("{id} was reported by {}", other.key()))),
        }
        at = row.try_get(3)?;
    }
    match (opened, metered) {
        (Some(opened), Some(metered)) => Ok(RequestRow::reported(opened, metered, at)),
        _ => Err(ApiError::internal(format!("{id} was reported and is not in the log"))),
    }
}

/// A call that was made elsewhere.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
struct NewRequest {
    /// The merchant's own id of the call; not of the form `req_<ULID>`.
    request_id: values::Text,
    /// By id or reference id.
    customer_id: Option<values::ReferenceOrId>,
    /// The same in the older word.
    connection_id: Option<values::ReferenceOrId>,
    /// In place of `customer_id`.
    reference_id: Option<values::ReferenceId>,
    /// By id or slug.
    meter_id: Option<values::SlugOrId>,
    /// The same in the older word.
    product_id: Option<values::SlugOrId>,
    /// In place of `meter_id`.
    meter_slug: Option<values::MeterSlug>,
    /// `other` when absent.
    provider: Option<values::Text>,
    /// Method and full URL.
    #[schema(min_length = 1, max_length = 8192)]
    endpoint: Option<String>,
    /// The model that answered.
    model: Option<values::Text>,
    /// The provider's own id of its answer.
    response_id: Option<values::Text>,
    /// The completion time that the provider returned.
    timestamp: Option<DateTime<Utc>>,
    /// The counts may stand beside it as well.
    usage: Option<NewUsage>,
    metadata: Option<values::Metadata>,
}

/// An undivided count is input; a divided one wins over it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Counts::read` reads")]
struct NewUsage {
    /// Undivided.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    tokens: Option<u64>,
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    input_tokens: Option<u64>,
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    output_tokens: Option<u64>,
    /// Undivided.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    characters: Option<u64>,
    /// Undivided; whole, or with at most nine fractional digits.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    duration_seconds: Option<u64>,
}

/// What the body asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    reported_id: String,
    customer: Option<CustomerRef>,
    meter: Option<MeterRef>,
    provider: String,
    endpoint: String,
    metadata: BTreeMap<String, String>,
    metered: Metered,
}

impl Wanted {
    fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let reported_id = body.ruled("request_id", reported_id);
        let reported_id = body.required("request_id", reported_id);
        let customer = body.either("connection_id", "customer_id", |name| rules::text(name, rules::MAX_TEXT));
        let reference = body.ruled("reference_id", rules::reference_id);
        if customer.is_some() && reference.is_some() {
            body.refuse("reference_id", "names a customer that customer_id names already");
        }
        let customer = customer.or(reference).map(|name| match name.parse() {
            Ok(id) => CustomerRef::Id(id),
            Err(_) => CustomerRef::Reference(name),
        });
        let meter = body.either("product_id", "meter_id", rules::meter);
        let slug = body.ruled("meter_slug", rules::slug);
        if meter.is_some() && slug.is_some() {
            body.refuse("meter_slug", "names a meter that meter_id names already");
        }
        let provider = body.text("provider", rules::MAX_TEXT);
        let endpoint = body.text("endpoint", MAX_ENDPOINT);
        let metadata = body.metadata("metadata").unwrap_or_default();
        let usage = read_usage(&mut body);
        let metered = Metered {
            http_status: HTTP_STATUS,
            usage,
            ending: Ending::Whole,
            raw_usage: None,
            response_id: body.text("response_id", rules::MAX_TEXT),
            model: body.text("model", rules::MAX_TEXT),
            provider_timestamp: body.instant("timestamp"),
        };
        body.checked()?;
        Ok(Self {
            reported_id: reported_id.ok_or_else(|| ApiError::issue(["request_id"], "is required"))?,
            customer,
            meter: meter.or(slug.map(MeterRef::Slug)),
            provider: provider.unwrap_or_else(|| "other".to_owned()),
            endpoint: endpoint.unwrap_or_else(|| NO_ENDPOINT.to_owned()),
            metadata,
            metered,
        })
    }
}

/// A merchant's own id of a call: anything but the form of ours. Providers' ids begin with `req_` as well.
fn reported_id(id: String) -> Result<String, String> {
    if id.parse::<RequestId>().is_ok() {
        return Err("must not have the form of an id of ours, req_<ULID>".to_owned());
    }
    rules::text(id, rules::MAX_TEXT)
}

/// The counts, in the standard object `usage`, beside it, or both where they agree; none where there is no count.
fn read_usage(body: &mut Fields<'_>) -> Option<Usage> {
    let beside = Counts::read(body);
    let within = body.object("usage", |usage| Some(Counts::read(usage))).unwrap_or_default();
    let merged = beside.agreeing(within);
    if merged.is_none() {
        body.refuse("usage", "says otherwise than the counts beside it");
    }
    merged.and_then(Counts::usage)
}

/// Input, output, and undivided.
type Parts = [Option<Decimal>; 3];

/// The counts that are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    tokens: Parts,
    characters: Parts,
    seconds: Parts,
}

impl Counts {
    fn read(body: &mut Fields<'_>) -> Self {
        let mut whole = |names: [&str; 4]| parts(names.map(|name| count(body, name, 0)));
        let tokens = whole(["input_tokens", "output_tokens", "tokens", "total_tokens"]);
        let characters = whole(["input_characters", "output_characters", "characters", "total_characters"]);
        let mut timed = |names: [&str; 4]| parts(names.map(|name| count(body, name, MAX_SECONDS_SCALE)));
        let seconds = timed(["input_seconds", "output_seconds", "duration_seconds", "total_seconds"]);
        Self { tokens, characters, seconds }
    }

    /// Both together; none where they disagree.
    fn agreeing(self, other: Self) -> Option<Self> {
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

fn parts([input, output, undivided, total]: [Option<Decimal>; 4]) -> Parts {
    [input, output, undivided.or(total)]
}

/// An undivided count is input; a divided one wins over it.
fn split([input, output, undivided]: Parts) -> Split<Decimal> {
    match (input, output) {
        (None, None) => Split { input: undivided.unwrap_or_default(), output: Decimal::ZERO },
        (input, output) => Split { input: input.unwrap_or_default(), output: output.unwrap_or_default() },
    }
}

/// A count of at most `scale` fractional digits.
fn count(body: &mut Fields<'_>, name: &str, scale: u32) -> Option<Decimal> {
    let number = body.number(name)?.normalize();
    let believed =
        !number.is_sign_negative() && number.scale() <= scale && number <= Decimal::from(MAX_COUNT);
    if believed || number.is_zero() {
        return Some(number.abs());
    }
    let kind = if scale == 0 { "whole number" } else { "number of at most nine fractional digits" };
    body.refuse(name, format!("must be a {kind} from 0 to 10^12"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn usage(json: &str) -> Usage {
        let body = format!(r#"{{"request_id": "a", {json}}}"#);
        Wanted::read(&body).unwrap().metered.usage.unwrap()
    }

    fn paths(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = Wanted::read(json) else {
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
        assert_eq!(Wanted::read(r#"{"request_id": "a"}"#).unwrap().metered.usage, None);
        assert_eq!(Wanted::read(r#"{"request_id": "a", "usage": {}}"#).unwrap().metered.usage, None);
    }

    #[test]
    fn what_cannot_be_counted_is_refused_with_its_place() {
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
        assert!(Wanted::read(r#"{"request_id": "req_018EeWyXxfu5pfWkrYcMdjWG"}"#).is_ok(), "a provider's id");
    }
}
