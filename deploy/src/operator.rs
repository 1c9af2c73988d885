//! An operator at the ledger: the same decisions and the same appender as a gateway's, for one command.

use chrono::{DateTime, Utc};
use farthing_core::command::{Command, to_millisecond};
use farthing_core::ids::Mint;
use farthing_log::appender::{self, Appender};
use farthing_log::connect::Role;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::database::{self, Database, Instance, KeyOverride};
use crate::failure::{Failure, IntoFailure as _};

/// Flags of every operator command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Access {
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) key: KeyOverride,
}

/// An open session of an operator.
pub(crate) struct Operator {
    /// What the ledger says of itself.
    pub(crate) instance: Instance,
    /// Makes ids.
    pub(crate) mint: Mint,
    appender: Appender,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Operator {
    /// Opens the ledger for commands.
    pub(crate) async fn open(access: &Access) -> Result<Self, Failure> {
        let instance = database::instance(&access.database, &access.key).await?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let config = appender::Config {
            database_url: access.database.database_url.clone(),
            role: Role::Gateway,
            writer: "operator".to_owned(),
            nats_url: None,
        };
        let appender = Appender::start(config, stop.clone(), &tasks);
        Ok(Self { instance, mint: Mint::default(), appender, stop, tasks })
    }

    /// Now, as the log keeps it.
    pub(crate) fn now() -> DateTime<Utc> {
        to_millisecond(Utc::now())
    }

    /// Has the command decided and appended.
    pub(crate) async fn submit<C: Command>(&self, command: C) -> Result<C::Outcome, Failure> {
        self.appender.submit(command).await.or_fail("nothing was changed")
    }

    /// Ends the session.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
