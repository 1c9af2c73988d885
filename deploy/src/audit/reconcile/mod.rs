//! `farthing audit reconcile`: calls that somebody must look at; or the payments of the log against the processor's list; or
//! the usage of the log against a provider's export. Broken if anything differs or the log has errors; refused if a
//! file cannot be read without doubt.

mod calls_report;
mod csv_file;
mod payments_file;
mod payments_report;
mod table;
mod usage_file;
mod usage_report;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use farthing_core::event::ProviderKeyType;
use farthing_core::money::Amount;
use farthing_core::reconcile::payments::{Failures, PaymentMatching};
use farthing_core::statement::Period;
use farthing_log::audit::reconcile::usage::{UsagePlan, next_day};
use farthing_log::audit::reconcile::{calls, payments, usage};
use farthing_log::verify::Progress;
use serde::de::DeserializeOwned;

use self::csv_file::CsvFile;
use self::payments_file::PaymentMapping;
use self::usage_file::UsageMapping;
use super::flags::FormatFlags;
use super::progress_line;
use crate::database::Database;
use crate::exit_code::Soundness;
use crate::{bounded_file, value_parsers};

/// The largest mapping.
const MAX_MAPPING_BYTES: u64 = 1 << 20;

/// Flags of `audit reconcile`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// CSV file of the payment processor's payments, which are compared with those of the log.
    #[arg(long, value_name = "FILE", conflicts_with = "usage")]
    payments: Option<PathBuf>,
    /// The file has payments that took money alone: declined payments of the log are not looked for in it.
    #[arg(long, requires = "payments")]
    without_failures: bool,
    /// CSV file of a provider's usage or cost, which is compared with the log by UTC day and model.
    #[arg(long, value_name = "FILE", requires = "provider")]
    usage: Option<PathBuf>,
    /// The provider of the file, by its name in the log. The columns of openai and anthropic are known.
    #[arg(long, value_name = "NAME", requires = "usage")]
    provider: Option<String>,
    /// JSON file that names the columns of the CSV file.
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// The calls that count: those on the operator's managed keys, on keys of the callers, or all.
    #[arg(long, value_enum, default_value_t = Keys::Managed, requires = "usage")]
    keys: Keys,
    /// The largest difference of a day's cost of a model that is none, for files with rounded amounts [default: 0].
    #[arg(long, value_name = "AMOUNT", requires = "usage", value_parser = value_parsers::amount)]
    tolerance: Option<Amount>,
    /// The first instant of the period: a date, or a time such as 2026-11-01T00:00:00Z [default: the beginning; with
    /// --usage, the first day of the file].
    #[arg(long, value_name = "TIME", value_parser = crate::value_parsers::instant)]
    from: Option<DateTime<Utc>>,
    /// The end of the period, which is not part of it [default: now; with --usage, the day after the last one of the file].
    #[arg(long, value_name = "TIME", value_parser = crate::value_parsers::instant)]
    to: Option<DateTime<Utc>>,
    #[command(flatten)]
    format: FormatFlags,
}

/// The owner of the provider keys whose calls count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Keys {
    Managed,
    Unmanaged,
    All,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Soundness> {
    let period = value_parsers::period(args.from, args.to)?;
    match (&args.payments, &args.usage) {
        (Some(file), _) => reconcile_payments(args, file, period).await,
        (None, Some(file)) => reconcile_usage(args, file).await,
        (None, None) => {
            ensure!(args.mapping.is_none(), "--mapping needs --payments or --usage");
            reconcile_calls(args, period).await
        }
    }
}

/// Waits for `work`, which reports to a progress, and shows the progress meanwhile.
async fn with_progress<T>(
    progress: &Arc<Progress>,
    work: impl Future<Output = Result<T, farthing_log::audit::Error>>,
) -> Result<T> {
    let done = tokio::select! {
        done = work => done,
        never = progress_line::show("log", Arc::clone(progress)) => match never {},
    };
    done.context("cannot reconcile the log")
}

async fn reconcile_calls(args: &Args, period: Period) -> Result<Soundness> {
    let url = args.database.reachable_url().await?;
    let progress = Arc::<Progress>::default();
    let mut report = calls_report::CallsReport::new(args.format.format());
    let calls = with_progress(&progress, calls::calls(&url, period, &progress, &mut report)).await?;
    report.close(&calls).context("cannot write to stdout")?;
    Ok(Soundness::of(&calls.findings).and(calls.ok))
}

async fn reconcile_payments(args: &Args, path: &Path, period: Period) -> Result<Soundness> {
    let mapping = args.mapping.as_deref().map(mapping::<PaymentMapping>).transpose()?;
    let file = CsvFile::read(path, delimiter(mapping.as_ref().and_then(|mapping| mapping.delimiter))?)?;
    let shown = farthing_tls::shown(path);
    let mapping = mapping.unwrap_or_else(|| PaymentMapping::plain(&file));
    let rows = mapping.rows(&file).with_context(|| shown.clone())?;
    let failures = if args.without_failures { Failures::NotListed } else { Failures::Listed };
    let matching = PaymentMatching::new(rows, failures).with_context(|| shown)?;
    let url = args.database.reachable_url().await?;
    let progress = Arc::<Progress>::default();
    let result = with_progress(&progress, payments::payments(&url, period, matching, &progress)).await?;
    payments_report::print(args.format.format(), &result)?;
    Ok(Soundness::of(&result.findings).and(result.ok))
}

async fn reconcile_usage(args: &Args, path: &Path) -> Result<Soundness> {
    let mapping = args.mapping.as_deref().map(mapping::<UsageMapping>).transpose()?;
    let file = CsvFile::read(path, delimiter(mapping.as_ref().and_then(|mapping| mapping.delimiter))?)?;
    let shown = farthing_tls::shown(path);
    let provider = args.provider.clone().context("--usage needs --provider")?;
    let mapping = match mapping {
        Some(mapping) => mapping,
        None => UsageMapping::built_in(&provider, &file).with_context(|| shown.clone())?,
    };
    let mut read = mapping.rows(&file).with_context(|| shown.clone())?;
    let from = day("--from", args.from)?.or(read.ends.map(|(first, _)| first));
    let to = day("--to", args.to)?.or(read.ends.map(|(_, last)| next_day(last)));
    let (Some(from), Some(to)) = (from, to) else {
        anyhow::bail!("{shown} has no row: give --from and --to");
    };
    ensure!(from < to, "--from and --to leave no day: the file has rows from {from} to before {to}");
    let all = read.rows.len();
    read.rows.retain(|row| (from..to).contains(&row.key.day));
    let outside = all - read.rows.len();
    let plan = UsagePlan {
        provider,
        keys: match args.keys {
            Keys::Managed => Some(ProviderKeyType::Managed),
            Keys::Unmanaged => Some(ProviderKeyType::Unmanaged),
            Keys::All => None,
        },
        from,
        to,
        rows: read.rows,
        measures: read.measures,
        tolerance: args.tolerance.unwrap_or(Amount::ZERO).decimal(),
    };
    let url = args.database.reachable_url().await?;
    let progress = Arc::<Progress>::default();
    let result = with_progress(&progress, usage::usage(&url, plan, &progress)).await?;
    let left_out = usage_report::LeftOut { idle_rows: read.idle, rows_outside_period: outside };
    usage_report::print(args.format.format(), &result, left_out)?;
    Ok(Soundness::of(&result.findings).and(result.ok))
}

/// The day that an instant begins. Exports have whole days.
fn day(flag: &str, instant: Option<DateTime<Utc>>) -> Result<Option<NaiveDate>> {
    let Some(instant) = instant else { return Ok(None) };
    ensure!(instant.time() == NaiveTime::MIN, "with --usage, {flag} must be a day: an export has whole days");
    Ok(Some(instant.date_naive()))
}

/// Reads a mapping.
fn mapping<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let shown = farthing_tls::shown(path);
    let text = bounded_file::read(path, MAX_MAPPING_BYTES).context("--mapping")?;
    let text = String::from_utf8(text).with_context(|| format!("--mapping: {shown} is not UTF-8"))?;
    serde_json::from_str(&text).with_context(|| format!("--mapping: {shown}"))
}

fn delimiter(delimiter: Option<char>) -> Result<u8> {
    let delimiter = u8::try_from(delimiter.unwrap_or(','));
    let delimiter = delimiter.ok().filter(|byte| byte.is_ascii() && !b"\"\r\n".contains(byte));
    delimiter.context("--mapping: the delimiter must be one ASCII character, such as a comma")
}
