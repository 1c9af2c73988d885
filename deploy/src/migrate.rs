//! `farthing migrate`: creates or upgrades the database, and on the first run sets what the instance is. What stands
//! there in another program's shape is folded anew from the log. Other roles must not run meanwhile.

use farthing_core::secret::ServerKey;
use farthing_log::refold;
use farthing_schema::Migrate;
use serde::Serialize;

use crate::database::{Database, KeyOverride};
use crate::failure::{Failure, IntoFailure as _};
use crate::output::Format;

/// Flags of `migrate`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOverride,
    /// Real money or play money; set by the first run and never changed.
    #[arg(long, value_enum)]
    mode: Mode,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    /// Secret keys begin with `aks_live_`.
    Live,
    /// Secret keys begin with `aks_test_`.
    Test,
}

/// What was done.
#[derive(Debug, Serialize)]
pub(crate) struct Migrated {
    mode: String,
    migrations: Vec<String>,
    read_models: Vec<&'static str>,
    /// States folded anew, where they were in another program's shape.
    states_folded: usize,
    /// Read models built anew, for the same reason.
    read_models_renewed: Vec<&'static str>,
}

/// Runs the subcommand.
pub(crate) async fn run(args: &Args) -> Result<(), Failure> {
    let mode = match args.mode {
        Mode::Live => "live",
        Mode::Test => "test",
    };
    let migrated = apply(&args.database.database_url, mode, args.key.server_key.clone()).await?;
    args.format.print(&migrated)
}

/// Migrates; a server key is made when the first run is given none.
pub(crate) async fn apply(
    database_url: &str,
    mode: &str,
    server_key: Option<ServerKey>,
) -> Result<Migrated, Failure> {
    let key = server_key.unwrap_or_else(ServerKey::random).to_hex();
    let options = Migrate { mode, server_key_hex: &key };
    let report =
        farthing_schema::migrate(database_url, options).await.or_fail("the database cannot be migrated")?;
    if report.mode != mode {
        let born = report.mode;
        return Err(Failure::new(format!("the database is up to date, but its mode is {born}, not {mode}")));
    }
    let refolded = refold::refold(database_url).await.or_fail("the states cannot be folded anew")?;
    let renewed = farthing_projector::renew_outdated(database_url).await;
    let renewed = renewed.or_fail("the read models cannot be built anew")?;
    Ok(Migrated {
        mode: report.mode,
        migrations: report.applied,
        read_models: report.created,
        states_folded: refolded.map_or(0, |audit| audit.states),
        read_models_renewed: renewed.iter().map(|renewed| renewed.name).collect(),
    })
}
