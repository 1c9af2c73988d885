//! The usage of the log beside that of a provider's export, printed: a line for each day, model and figure.

use std::io::{self, Write};

use anyhow::{Context as _, Result};
use farthing_core::reconcile::usage::{Figures, Measure};
use farthing_log::audit::reconcile::usage::UsageReconciliation;
use rust_decimal::Decimal;
use serde::Serialize;

use super::table::{self, ColumnOf, number, text};
use crate::audit::figures_end;
use crate::audit::flags::Format;
use crate::output::{self, Shown, print_line};

const COLUMNS: [ColumnOf; 8] = [
    text("class"),
    text("day"),
    text("model"),
    text("figure"),
    number("log"),
    number("export"),
    number("difference"),
    text("lines"),
];

const TOTALS: [ColumnOf; 6] = [
    text("class"),
    number("days and models"),
    text("figure"),
    number("log"),
    number("export"),
    number("difference"),
];

/// Lines of an export that are named in a row at most.
const MOST_LINES: usize = 5;

/// Rows of the export that were not compared.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct LeftOut {
    /// Rows of days without usage.
    pub(super) idle_rows: u64,
    /// Rows of days outside of the period.
    pub(super) rows_outside_period: usize,
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    result: &'a UsageReconciliation,
    #[serde(flatten)]
    left_out: LeftOut,
}

/// Prints the result.
pub(super) fn print(format: Format, result: &UsageReconciliation, left_out: LeftOut) -> Result<()> {
    match format {
        Format::Json => {
            let whole = output::json(&Whole { result, left_out });
            print_line(whole.context("cannot serialize the result")?)
        }
        Format::Csv => {
            table::write_csv(table::stdout(), &COLUMNS, &rows(result)).context("cannot write to stdout")
        }
        Format::Text => write_text(result, left_out).context("cannot write to stdout"),
    }
}

fn rows(result: &UsageReconciliation) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for found in &result.report.matches {
        let lines: Vec<_> = found.lines.iter().take(MOST_LINES).map(ToString::to_string).collect();
        let more = if found.lines.len() > MOST_LINES { " ..." } else { "" };
        for measure in &result.report.measures {
            let figures = figures(*measure, &found.recorded, &found.listed);
            let about = [found.class.name().to_owned(), found.key.day.to_string(), found.key.model.clone()];
            let mut row = about.to_vec();
            row.push(measure.name().to_owned());
            row.extend(figures);
            row.push(format!("{}{more}", lines.join(" ")));
            rows.push(row);
        }
    }
    rows
}

/// A figure of the log and of the export, and the difference.
fn figures(measure: Measure, recorded: &Figures, listed: &Figures) -> [String; 3] {
    let (recorded, listed) = (recorded.get(measure), listed.get(measure));
    [recorded, listed, listed - recorded].map(|figure| shown(measure, figure))
}

/// A cost has ten decimals, or all that it needs.
fn shown(measure: Measure, figure: Decimal) -> String {
    let figure = figure.normalize();
    match measure {
        Measure::Cost if figure.scale() <= 10 => format!("{figure:.10}"),
        Measure::Cost
        | Measure::Requests
        | Measure::InputTokens
        | Measure::OutputTokens
        | Measure::CacheReadTokens
        | Measure::CacheWriteTokens => figure.to_string(),
    }
}

fn write_text(result: &UsageReconciliation, left_out: LeftOut) -> io::Result<()> {
    let mut out = table::stdout();
    let (provider, from, to) = (Shown(&result.provider), result.from, result.to);
    writeln!(out, "usage of {provider} from {from} to before {to}")?;
    let rows = rows(result);
    if !rows.is_empty() {
        table::write_text(&mut out, &COLUMNS, &rows)?;
        writeln!(out)?;
    }
    let report = &result.report;
    let classes = report.classes.iter().map(|(class, totals)| (class.name(), totals));
    let mut sums = Vec::new();
    for (name, totals) in classes.chain([("total", &report.total)]) {
        for measure in &report.measures {
            let mut row = vec![name.to_owned(), totals.count.to_string(), measure.name().to_owned()];
            row.extend(figures(*measure, &totals.recorded, &totals.listed));
            sums.push(row);
        }
    }
    table::write_text(&mut out, &TOTALS, &sums)?;
    let LeftOut { idle_rows, rows_outside_period } = left_out;
    if idle_rows > 0 || rows_outside_period > 0 {
        writeln!(
            out,
            "rows left out: {idle_rows} of days without usage, {rows_outside_period} outside of the period"
        )?;
    }
    figures_end::write(&mut out, &result.heads, &result.findings)?;
    out.flush()
}
