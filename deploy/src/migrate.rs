//! `farthing migrate`: creates or upgrades the database under a lock, and on the first run records the instance's mode,
//! its server key and the number of partitions. Invariant: processes of the release before work on meanwhile. What this
//! release stores in another form gets empty tables here; its projectors and gateways fill them from the log.

use anyhow::{Context as _, Result, ensure};
use farthing_core::partition::Partitions;
use farthing_core::secret::ServerKey;
use farthing_core::state::{generation, shape};
use farthing_log::connect::{Role, connect};
use farthing_log::server_key::{self, First};
use farthing_schema::Migrate;
use serde::Serialize;

use crate::database::{Database, KeyOverride};
use crate::output::OutputFormat;

/// Flags of `migrate`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOverride,
    /// Whether wallets hold real money. The first run needs it and sets it; it never changes.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Number of partitions of the log, from 1 to 1024. The first run sets it; it never changes [default: 8].
    #[arg(long, env = "FARTHING_PARTITIONS", value_name = "N", value_parser = clap::value_parser!(i16).range(1..=i64::from(Partitions::MAX)))]
    partitions: Option<i16>,
    /// Distribute all tables by partition over the nodes of a Citus cluster. The database is the coordinator's. Later runs
    /// need not repeat it.
    #[arg(long)]
    citus: bool,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    /// Real money. Secret keys begin with `aks_live_`.
    Live,
    /// Test money. Secret keys begin with `aks_test_`.
    Test,
}

/// The result of a migration.
#[derive(Debug, Serialize)]
struct Migrated {
    mode: String,
    /// The number of partitions of the log.
    partitions: i32,
    /// Whether the tables are distributed over the nodes of a Citus cluster.
    distributed: bool,
    migrations: Vec<String>,
    /// The read models that got new tables. Unless the log is empty, a projector of this release builds them.
    read_models: Vec<&'static str>,
}

/// Runs the subcommand. The first run generates a server key if none is given.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let (database_url, given) = (args.database.reachable_url().await?, args.key.read()?);
    let mode = args.mode.map(|mode| match mode {
        Mode::Live => "live",
        Mode::Test => "test",
    });
    let key = given.clone().unwrap_or_else(ServerKey::random).to_hex();
    let options = Migrate {
        mode,
        server_key_hex: &key,
        partitions: args.partitions,
        shape: shape(),
        generation: generation(),
        citus: args.citus,
    };
    let owner = connect(&database_url, Role::Owner).await.context("cannot connect to the database")?;
    let report = farthing_schema::migrate(owner, options).await.context("cannot migrate the database")?;
    if let Some(mode) = mode {
        ensure!(
            report.mode == mode,
            "the database is up to date, but its mode is {}, not {mode}: the mode cannot be changed",
            report.mode
        );
    }
    if let Some(key) = &given {
        let client = connect(&database_url, Role::Gateway).await.context("cannot connect to the database")?;
        let checked = server_key::check(&client, key, First::Operator).await;
        checked.context("the database is up to date, and nothing else was done")?;
    }
    args.format.print(&Migrated {
        mode: report.mode,
        partitions: report.partitions,
        distributed: report.distributed,
        migrations: report.applied,
        read_models: report.created,
    })
}
