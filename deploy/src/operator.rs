//! An operator's session with the ledger: runs commands through the same decisions and the same appender as a gateway.

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use farthing_core::command::{Command, to_millisecond};
use farthing_core::ids::Mint;
use farthing_log::appender::{self, Appender, QueueLimits};
use farthing_log::connect::Role;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::database::{self, Database, Instance, KeyOverride};

/// Flags of every operator command that changes the ledger.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Access {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOverride,
}

/// An open session.
pub(crate) struct Operator {
    /// The instance's mode and server key.
    pub(crate) instance: Instance,
    /// Generates ids.
    pub(crate) mint: Mint,
    appender: Appender,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Operator {
    /// Opens a session.
    pub(crate) async fn open(access: &Access) -> Result<Self> {
        let instance = database::instance(&access.database, &access.key).await?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let config = appender::AppenderConfig {
            database_url: access.database.database_url.clone(),
            role: Role::Gateway,
            writer: "operator".to_owned(),
            nats_url: None,
            queue: QueueLimits::default(),
        };
        let appender = Appender::start(config, stop.clone(), &tasks);
        Ok(Self { instance, mint: Mint::default(), appender, stop, tasks })
    }

    /// The current time, in the log's precision of a millisecond.
    pub(crate) fn now() -> DateTime<Utc> {
        to_millisecond(Utc::now())
    }

    /// Decides the command and appends its events. On an error nothing was changed.
    pub(crate) async fn submit<C: Command>(&self, command: C) -> Result<C::Outcome> {
        self.appender.submit(command).await.context("nothing was changed")
    }

    /// Closes the session.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
