//! `farthing projections rebuild|verify`: a read model built anew from the log and compared with the live one.

use serde::Serialize;

use crate::database::Database;
use crate::failure::{Failure, IntoFailure as _};
use crate::output::Format;

/// Flags of `projections rebuild` and `projections verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The read model: `customers`, `connections`, `spend_keys`, `secret_keys`, `requests`, `usage`, `plans` or `subscriptions`.
    name: String,
    #[command(flatten)]
    format: Format,
}

/// Rebuilds and swaps.
pub(crate) async fn rebuild(args: &Args) -> Result<(), Failure> {
    let report = farthing_projector::rebuild(&args.database.database_url, &args.name).await;
    args.format.print(&report.or_fail("the read model was not rebuilt")?)
}

/// Compares only; fails when there is a difference.
pub(crate) async fn verify(args: &Args) -> Result<(), Failure> {
    let report = farthing_projector::verify(&args.database.database_url, &args.name).await;
    let report = report.or_fail("the read model was not verified")?;
    args.format.print(&report)?;
    differences(&report)
}

fn differences(report: &impl Serialize) -> Result<(), Failure> {
    let report = serde_json::to_value(report).or_fail("cannot read the report")?;
    match report.get("differences").and_then(serde_json::Value::as_u64) {
        Some(0) => Ok(()),
        Some(count) => Err(Failure::new(format!("{count} rows differ from a fold of the log"))),
        None => Err(Failure::new("the report counts no differences")),
    }
}
