//! `farthing log verify`: proves the whole log; exit code 1 when anything is wrong with it.

use crate::database::Database;
use crate::failure::{Failure, IntoFailure as _};
use crate::output::Format;

/// Flags of `log verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    format: Format,
}

/// Runs the subcommand.
pub(crate) async fn run(args: &Args) -> Result<(), Failure> {
    let report = farthing_log::audit::verify(&args.database.database_url).await;
    let report = report.or_fail("the log could not be verified")?;
    args.format.print(&report)?;
    if report.ok { Ok(()) } else { Err(Failure::new("the log is not sound: see the report")) }
}
