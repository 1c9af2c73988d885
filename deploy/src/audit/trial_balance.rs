//! `farthing audit trial-balance`: the double-entry accounts as of a moment. Broken if they do not add up to zero, or the log
//! has errors.

use anyhow::{Context as _, Result};
use farthing_core::money::Total;
use farthing_log::audit::trial_balance::{self, Moment, Report};

use super::flags::{self, Format, FormatFlags, moment_text};
use crate::csv_text;
use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::{self, print_line};

/// Flags of `audit trial-balance`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The moment: a date, a time such as 2026-11-01T00:00:00Z, whose own events do not count, or the position of the last
    /// event of one partition as PARTITION:POSITION [default: now].
    #[arg(long, value_name = "TIME|PARTITION:POSITION", value_parser = flags::moment)]
    at: Option<Moment>,
    #[command(flatten)]
    format: FormatFlags,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Soundness> {
    let url = args.database.reachable_url().await?;
    let report = trial_balance::trial_balance(&url, args.at.unwrap_or(Moment::Now)).await;
    let report = report.context("cannot make the trial balance")?;
    match args.format.format() {
        Format::Text => print_text(&report)?,
        Format::Csv => print_csv(&report)?,
        Format::Json => {
            print_line(output::json(&report).context("cannot serialize the result")?)?;
        }
    }
    Ok(Soundness::of(&report.findings))
}

/// An account with its balance on one of two sides.
struct Row {
    account: &'static str,
    debit: String,
    credit: String,
}

/// The accounts, and the sums of both sides.
fn rows(report: &Report) -> Result<Vec<Row>> {
    let (mut debits, mut credits) = (Total::default(), Total::default());
    let mut rows = Vec::new();
    for (account, balance) in report.accounts.balances() {
        let is_credit = balance.decimal().is_sign_negative() && !balance.decimal().is_zero();
        let side = if is_credit { &mut credits } else { &mut debits };
        *side = side.and(balance).context("a sum is out of range")?;
        let shown = format!("{:.10}", balance.decimal().abs());
        let (debit, credit) = if is_credit { (String::new(), shown) } else { (shown, String::new()) };
        rows.push(Row { account: account.name(), debit, credit });
    }
    let [debit, credit] = [debits, credits].map(|sum| format!("{:.10}", sum.decimal().abs()));
    rows.push(Row { account: "total", debit, credit });
    Ok(rows)
}

fn print_text(report: &Report) -> Result<()> {
    let moment = moment_text(report.at);
    print_line(format!("trial balance {moment}, {} events", report.events))?;
    for head in report.heads.iter().filter(|head| head.position > 0) {
        print_line(format!(
            "partition {}: read to position {}, hash {}",
            head.partition, head.position, head.hash
        ))?;
    }
    let rows = rows(report)?;
    let width = rows.iter().map(|row| row.debit.len().max(row.credit.len())).max().unwrap_or_default().max(6);
    print_line(format!("{:<18}  {:>width$}  {:>width$}", "account", "debit", "credit"))?;
    for Row { account, debit, credit } in rows {
        let row = format!("{account:<18}  {debit:>width$}  {credit:>width$}");
        print_line(row.trim_end())?;
    }
    if let Some(warning) = report.findings.warning() {
        print_line(warning)?;
    }
    Ok(())
}

fn print_csv(report: &Report) -> Result<()> {
    let mut csv = csv_text::writer(std::io::stdout().lock());
    csv.write_record(["account", "debit", "credit"]).context("cannot write to stdout")?;
    for Row { account, debit, credit } in rows(report)? {
        csv.write_record([account, &debit, &credit]).context("cannot write to stdout")?;
    }
    if let Some(warning) = report.findings.warning() {
        csv.write_record([warning.as_str(), "", ""]).context("cannot write to stdout")?;
    }
    csv.flush().context("cannot write to stdout")
}
