//! The table `entries`: a row for each change of a wallet's money, with the funds after it. The rows of a wallet are those of
//! its statement.

use farthing_core::entry::{Cause, Entry, Funds};
use farthing_core::event::{Event, WalletEvent};
use farthing_core::money;

use super::super::partition_reader::Line;
use super::table::{Column, Kind, Value};
use farthing_core::event::Fact;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column::required("partition", Kind::Integer),
    Column::required("position", Kind::Integer),
    Column::required("occurred_at", Kind::Time),
    Column::required("recorded_at", Kind::Time),
    Column::required("merchant_id", Kind::Name),
    Column::required("wallet_id", Kind::Name),
    Column::optional("customer_id", Kind::Name),
    Column::required("kind", Kind::Name),
    Column::required("reference", Kind::Name),
    Column::optional("plan_id", Kind::Name),
    Column::optional("payment_id", Kind::Name),
    Column::optional("note", Kind::Text),
    Column::required("change", Kind::Amount),
    Column::required("balance_change", Kind::Amount),
    Column::required("plan_credit_change", Kind::Amount),
    Column::required("bundle_credit_change", Kind::Amount),
    Column::required("balance_after", Kind::Amount),
    Column::required("plan_credit_after", Kind::Amount),
    Column::required("bundle_credit_after", Kind::Amount),
    Column::optional("sources", Kind::Json),
];

/// The row of an entry, with the funds after it.
pub(super) fn row(
    line: &Line<'_>,
    fact: &Fact,
    entry: &Entry,
    after: Funds,
) -> Result<Vec<Value>, money::Error> {
    let (plan_id, payment_id) = match &entry.cause {
        Cause::Grant { plan_id, payment_id, .. } => (Some(*plan_id), *payment_id),
        Cause::BundleGrant { payment_id, .. } => (None, Some(*payment_id)),
        Cause::Credit { .. } | Cause::Debit { .. } | Cause::Expiry { .. } | Cause::Cancellation { .. } => {
            (None, None)
        }
    };
    let sources = match &fact.event {
        Event::Wallet(WalletEvent::Debited(debited)) => Value::json(&debited.sources),
        Event::Wallet(WalletEvent::Credited(_) | WalletEvent::AutopayChanged(_))
        | Event::Merchant(_)
        | Event::SecretKey(_)
        | Event::Customer(_)
        | Event::Meter(_)
        | Event::SpendKey(_)
        | Event::Request(_)
        | Event::Plan(_)
        | Event::Subscription(_)
        | Event::Payment(_)
        | Event::Checkout(_)
        | Event::Webhook(_) => Value::Null,
    };
    let note = entry.cause.note();
    Ok(vec![
        Value::Integer(line.place.partition.number().into()),
        Value::Integer(line.place.position),
        Value::Time(fact.occurred_at),
        Value::Time(line.recorded_at),
        Value::name(fact.merchant_id),
        Value::name(entry.wallet_id),
        Value::name_or_null(entry.customer_id),
        Value::name(entry.cause.kind()),
        Value::Text(entry.cause.reference()),
        Value::name_or_null(plan_id),
        Value::name_or_null(payment_id),
        Value::text_or_null(Some(note.as_str()).filter(|note| !note.is_empty())),
        Value::Amount(entry.change.total()?),
        Value::Amount(entry.change.balance),
        Value::Amount(entry.change.plan_credit),
        Value::Amount(entry.change.bundle_credit),
        Value::Amount(after.balance),
        Value::Amount(after.plan_credit),
        Value::Amount(after.bundle_credit),
        sources,
    ])
}
