//! The table `requests`: a row for each ended request. Its place and its time are those of its end.

use chrono::{DateTime, Utc};
use farthing_core::event::{Fact, RequestFailed, RequestMetered, RequestOpened};
use farthing_core::money::Amount;
use farthing_core::usage::Usage;
use rust_decimal::Decimal;

use super::super::partition_reader::Line;
use super::table::{Column, Kind, Value, variant_name};

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column::required("partition", Kind::Integer),
    Column::required("position", Kind::Integer),
    Column::required("request_id", Kind::Name),
    Column::required("merchant_id", Kind::Name),
    Column::optional("customer_id", Kind::Name),
    Column::optional("wallet_id", Kind::Name),
    Column::required("merchant_wallet_id", Kind::Name),
    Column::optional("meter_id", Kind::Name),
    Column::optional("spend_key_id", Kind::Name),
    Column::optional("reported_id", Kind::Text),
    Column::required("provider", Kind::Text),
    Column::required("provider_key_type", Kind::Name),
    Column::required("endpoint", Kind::Text),
    Column::optional("requested_model", Kind::Text),
    Column::optional("model", Kind::Text),
    Column::optional("response_id", Kind::Text),
    Column::required("opened_at", Kind::Time),
    Column::required("ended_at", Kind::Time),
    Column::optional("provider_timestamp", Kind::Time),
    Column::optional("period_start", Kind::Time),
    Column::required("status", Kind::Name),
    Column::optional("failure_reason", Kind::Name),
    Column::optional("http_status", Kind::Integer),
    Column::required("charge", Kind::Name),
    Column::required("input_tokens", Kind::Integer),
    Column::required("output_tokens", Kind::Integer),
    Column::required("cached_read_tokens", Kind::Integer),
    Column::required("cached_write_tokens", Kind::Integer),
    Column::required("reasoning_tokens", Kind::Integer),
    Column::required("input_characters", Kind::Integer),
    Column::required("output_characters", Kind::Integer),
    Column::required("input_seconds", Kind::Quantity),
    Column::required("output_seconds", Kind::Quantity),
    Column::required("units", Kind::Quantity),
    Column::required("input_cost", Kind::Amount),
    Column::required("output_cost", Kind::Amount),
    Column::required("model_cost", Kind::Amount),
    Column::required("fee", Kind::Amount),
    Column::required("service_charge", Kind::Amount),
    Column::optional("service_charge_payer", Kind::Name),
    Column::required("total_request_cost", Kind::Amount),
    Column::required("total_wallet_cost", Kind::Amount),
    Column::required("total_merchant_cost", Kind::Amount),
    Column::required("overrun", Kind::Amount),
    Column::optional("marks", Kind::Name),
    Column::required("metadata", Kind::Json),
];

/// The opening of a request.
pub(super) struct Opening {
    pub(super) event: Box<RequestOpened>,
    pub(super) at: DateTime<Utc>,
}

/// How a request ended.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    Metered(&'a RequestMetered),
    Failed(&'a RequestFailed),
}

/// The row of a request.
pub(super) fn row(line: &Line<'_>, fact: &Fact, opening: &Opening, end: End<'_>) -> Vec<Value> {
    let opened = &opening.event;
    let (response_id, model) = match end {
        End::Metered(event) => (event.response_id.as_deref(), event.model.as_deref()),
        End::Failed(event) => (event.response_id.as_deref(), event.model.as_deref()),
    };
    let mut row = vec![
        Value::Integer(line.place.partition.number().into()),
        Value::Integer(line.place.position),
        Value::name(opened.request_id),
        Value::name(fact.merchant_id),
        Value::name_or_null(opened.parties.customer_id),
        Value::name_or_null(opened.parties.wallet_id),
        Value::name(opened.parties.merchant_wallet_id),
        Value::name_or_null(opened.terms.as_ref().map(|terms| terms.meter_id)),
        Value::name_or_null(opened.spend_key.map(|used| used.spend_key_id)),
        Value::text_or_null(opened.reported_id.as_deref()),
        Value::name(&opened.provider),
        Value::variant(&opened.provider_key_type),
        Value::name(&opened.endpoint),
        Value::text_or_null(opened.model.as_deref()),
        Value::text_or_null(model.or(opened.model.as_deref())),
        Value::text_or_null(response_id),
        Value::Time(opening.at),
        Value::Time(fact.occurred_at),
    ];
    match end {
        End::Metered(event) => metered(event, opened, &mut row),
        End::Failed(event) => failed(event, opened, &mut row),
    }
    row.push(Value::json(&opened.metadata));
    row
}

fn metered(event: &RequestMetered, opened: &RequestOpened, row: &mut Vec<Value>) {
    let http_status = Some(event.http_status).filter(|status| *status != 0);
    let marks: Vec<_> = event.marks.iter().map(variant_name).collect();
    row.extend([
        Value::time_or_null(event.provider_timestamp),
        Value::time_or_null(event.period_start),
        Value::name("completed"),
        Value::Null,
        http_status.map_or(Value::Null, |status| Value::Integer(status.into())),
        Value::variant(&opened.charge),
    ]);
    row.extend(usage(&event.usage));
    row.extend([
        Value::Quantity(event.units),
        Value::Amount(event.model_cost.input),
        Value::Amount(event.model_cost.output),
        Value::Amount(event.model_cost.total),
        Value::Amount(event.fee.amount),
        Value::Amount(event.service_charge.amount),
        Value::variant(&event.service_charge.payer),
        Value::Amount(event.total_request_cost),
        Value::Amount(event.total_wallet_cost),
        Value::Amount(event.total_merchant_cost),
        Value::Amount(event.overrun),
        Value::name_or_null(Some(marks.join(" ")).filter(|marks| !marks.is_empty())),
    ]);
}

/// Amounts and counts of a request that was not metered are zero.
fn failed(event: &RequestFailed, opened: &RequestOpened, row: &mut Vec<Value>) {
    let zero = Value::Amount(Amount::ZERO);
    row.extend([
        Value::Null,
        Value::time_or_null(opened.period_start),
        Value::name("error"),
        Value::variant(&event.reason),
        event.http_status.map_or(Value::Null, |status| Value::Integer(status.into())),
        Value::variant(&opened.charge),
    ]);
    row.extend(usage(&Usage::default()));
    row.push(Value::Quantity(Decimal::ZERO));
    row.extend([zero.clone(), zero.clone(), zero.clone(), zero.clone(), zero.clone(), Value::Null]);
    row.extend([zero.clone(), zero.clone(), zero.clone(), zero, Value::Null]);
}

fn usage(usage: &Usage) -> [Value; 9] {
    [
        Value::count(usage.tokens.input),
        Value::count(usage.tokens.output),
        Value::count(usage.cached.read),
        Value::count(usage.cached.write),
        Value::count(usage.reasoning_tokens),
        Value::count(usage.characters.input),
        Value::count(usage.characters.output),
        Value::Quantity(usage.seconds.input),
        Value::Quantity(usage.seconds.output),
    ]
}
