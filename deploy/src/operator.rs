//! An operator's session with the ledger: runs commands through the same decisions and the same ledger as a gateway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use farthing_api::HttpPeers;
use farthing_core::command::wire::WireCommand;
use farthing_core::ids::{CustomerId, MerchantId, Mint, SecretKeyId};
use farthing_core::partition::Partition;
use farthing_core::state::StateKey;
use farthing_log::appender::{self, QueueLimits};
use farthing_log::clock::Clock;
use farthing_log::connect::Role;
use farthing_log::directory;
use farthing_log::leases::Leads;
use farthing_log::ledger::{Ledger, LedgerConfig, Stop};
use farthing_log::reads::{ReadPool, pool};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::database::{self, Database, Instance, KeyOverride};

/// How long this process leads partitions without a renewal, if there is no gateway.
const LEASE: Duration = Duration::from_secs(3);

/// Connections for reads.
const READ_CONNECTIONS: usize = 2;

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
    database_url: String,
    reads: ReadPool,
    /// Postgres's clock.
    clock: Arc<Clock>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Ends the ledger's threads after an error too: they would keep the process.
    _end: DropGuard,
}

impl Operator {
    /// Opens a session.
    pub(crate) async fn open(access: &Access) -> Result<Self> {
        let database_url = access.database.reachable_url().await?;
        let instance = database::instance(&database_url, &access.key).await?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let reads = pool(&database_url, READ_CONNECTIONS).context("cannot connect to the database")?;
        let reads = ReadPool::new(reads);
        let clock = Arc::<Clock>::default();
        let connection = reads.connection().await.context("cannot connect to the database")?;
        let measured = clock.measure(&connection).await;
        measured.context("the time of the database cannot be read")?;
        drop(connection);
        let end = stop.clone().drop_guard();
        Ok(Self { instance, mint: Mint::default(), database_url, reads, clock, stop, tasks, _end: end })
    }

    /// Starts the ledger. If there is no gateway, this process leads `partition` until its end.
    fn ledger(&self, partition: Partition) -> Ledger {
        let config = LedgerConfig {
            database_url: self.database_url.clone(),
            role: Role::Gateway,
            // A name of its own: two operators at once must not take each other's lease for their own.
            writer: format!("operator {}", Mint::default().next(self.now())),
            nats: None,
            queue: QueueLimits::default(),
            reads: self.reads.clone(),
            clock: Arc::clone(&self.clock),
            peers: Arc::new(HttpPeers::new(&self.instance.server_key, self.stop.clone(), &self.tasks)),
            address: None,
            delivers: false,
            leads: Leads::Alone(partition),
            lease: LEASE,
            metrics: Arc::default(),
        };
        let leaving = Stop { leave: CancellationToken::new(), end: self.stop.clone() };
        Ledger::start(config, self.instance.partitions, &leaving, &self.tasks)
    }

    /// The current time by Postgres's clock, in the log's precision of a millisecond.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The partition of a merchant.
    pub(crate) fn partition_of(&self, merchant_id: MerchantId) -> Partition {
        self.instance.partitions.of(merchant_id)
    }

    /// The partition of a secret key that ever existed.
    pub(crate) async fn partition_of_key(&self, id: SecretKeyId) -> Result<Option<Partition>> {
        let connection = self.reads.connection().await.context("nothing was changed")?;
        directory::find(&connection, &StateKey::IssuedKey(id)).await.context("nothing was changed")
    }

    /// The partition of an existing customer.
    pub(crate) async fn partition_of_customer(&self, id: CustomerId) -> Result<Option<Partition>> {
        let connection = self.reads.connection().await.context("nothing was changed")?;
        let created = format!("{id}/created");
        let located = directory::locate(&connection, self.instance.partitions, &created).await;
        located.context("nothing was changed")
    }

    /// Decides the command in `partition` and appends its events. An error says whether something may have changed.
    pub(crate) async fn submit<C>(&self, partition: Partition, command: C) -> Result<C::Outcome>
    where
        C: WireCommand + Clone,
    {
        self.ledger(partition).submit(partition, command).await.map_err(|error| {
            let context = match error {
                appender::Error::Unknown(_) => {
                    "it is not known whether this was done: look before you repeat it"
                }
                appender::Error::Refused(_)
                | appender::Error::Unavailable(_)
                | appender::Error::Internal(_)
                | appender::Error::Overloaded
                | appender::Error::Moved => "nothing was changed",
            };
            anyhow::Error::new(error).context(context)
        })
    }

    /// Closes the session.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
