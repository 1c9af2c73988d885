//! The payments of the log beside those of the processor's list, printed.

use std::io::{self, Write};

use anyhow::{Context as _, Result};
use farthing_core::money::Amount;
use farthing_core::reconcile::payments::{ListedPayment, PaymentMatch, PaymentTotals, RecordedPayment};
use farthing_log::audit::reconcile::payments::PaymentReconciliation;
use rust_decimal::Decimal;

use super::table::{self, ColumnOf, number, text};
use crate::audit::figures_end;
use crate::audit::flags::Format;
use crate::output::{self, print_line, timestamp};

const COLUMNS: [ColumnOf; 12] = [
    text("class"),
    number("line"),
    text("id"),
    text("payment_id"),
    text("merchant_id"),
    text("log_status"),
    text("list_status"),
    number("log_amount"),
    number("list_amount"),
    number("difference"),
    text("log_time"),
    text("list_time"),
];

const TOTALS: [ColumnOf; 6] = [
    text("class"),
    number("in the log"),
    number("in the list"),
    number("log amount"),
    number("list amount"),
    number("difference"),
];

/// Prints the result.
pub(super) fn print(format: Format, result: &PaymentReconciliation) -> Result<()> {
    let rows = || result.report.matches.iter().map(row).collect::<Vec<_>>();
    match format {
        Format::Json => print_line(output::json(result).context("cannot serialize the result")?),
        Format::Csv => table::write_csv(table::stdout(), &COLUMNS, &rows()).context("cannot write to stdout"),
        Format::Text => write_text(&rows(), result).context("cannot write to stdout"),
    }
}

/// The money that a payment took by the log, and by the list.
fn money(found: &PaymentMatch) -> (Decimal, Decimal) {
    let recorded = found.recorded.as_ref().map_or(Amount::ZERO, RecordedPayment::money);
    let listed = found.listed.as_ref().map_or(Amount::ZERO, ListedPayment::money);
    (recorded.decimal(), listed.decimal())
}

fn row(found: &PaymentMatch) -> Vec<String> {
    let (recorded, listed) = (found.recorded.as_ref(), found.listed.as_ref());
    let some = |text: Option<String>| text.unwrap_or_default();
    let (in_log, in_list) = money(found);
    let payment_id = recorded.map(|payment| payment.payment_id.to_string());
    vec![
        found.class.name().to_owned(),
        some(listed.map(|row| row.line.to_string())),
        some(listed.map(|row| row.id.clone()).or_else(|| recorded?.reference.clone())),
        some(payment_id.or_else(|| listed?.payment_id.clone())),
        some(recorded.map(|payment| payment.merchant_id.to_string())),
        some(recorded.map(|payment| payment.status.name().to_owned())),
        some(listed.map(|row| row.status.name().to_owned())),
        some(recorded.map(|payment| payment.amount.to_string())),
        some(listed.map(|row| row.amount.to_string())),
        format!("{:.10}", in_list - in_log),
        some(recorded.map(|payment| timestamp(payment.occurred_at))),
        some(listed.and_then(|row| row.time.clone())),
    ]
}

fn write_text(rows: &[Vec<String>], result: &PaymentReconciliation) -> io::Result<()> {
    let mut out = table::stdout();
    if !rows.is_empty() {
        table::write_text(&mut out, &COLUMNS, rows)?;
        writeln!(out)?;
    }
    let total = |name: &str, totals: &PaymentTotals| {
        let (in_log, in_list) = (totals.recorded_amount, totals.listed_amount);
        let difference = in_list.less(in_log).map_err(io::Error::other)?;
        let counts = [totals.recorded.to_string(), totals.listed.to_string()];
        let money = [in_log, in_list, difference].map(|sum| format!("{:.10}", sum.decimal()));
        Ok([name.to_owned()].into_iter().chain(counts).chain(money).collect::<Vec<_>>())
    };
    let report = &result.report;
    let rows = report.classes.iter().map(|(class, totals)| total(class.name(), totals));
    let rows = rows.chain([total("total", &report.total)]).collect::<io::Result<Vec<_>>>()?;
    table::write_text(&mut out, &TOTALS, &rows)?;
    figures_end::write(&mut out, &result.heads, &result.findings)?;
    out.flush()
}
