//! The ledger, as its callers see it: commands and states by partition, wherever a partition is written. Invariant: a
//! command is decided in the partition of its merchant, because no other has the states that it needs.

use std::sync::Arc;

use farthing_core::command::Refusal;
use farthing_core::command::wire::WireCommand;
use farthing_core::idempotency::{Claim, ClaimId};
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::partition::{Partition, Partitions};
use farthing_core::state::{State, StateKey};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::appender::{
    Appender, AppenderConfig, ClaimEnd, ClaimRecord, Error, IdempotentOutcome, QueueLimits,
};
use crate::connect::Role;
use crate::reads::{self, ReadPool, within};
use crate::states;

/// The settings of a ledger.
#[derive(Debug, Clone)]
pub struct LedgerConfig {
    /// The database of the log.
    pub database_url: String,
    /// The role to write under.
    pub role: Role,
    /// The writer's name in the record batches.
    pub writer: String,
    /// The NATS server for wake-up notifications; without one readers poll.
    pub nats_url: Option<String>,
    /// The bounds of each partition's queue of commands.
    pub queue: QueueLimits,
    /// Connections for states.
    pub reads: ReadPool,
}

/// A handle to the ledger.
#[derive(Debug, Clone)]
pub struct Ledger {
    partitions: Partitions,
    appenders: Arc<[Appender]>,
    reads: ReadPool,
}

impl Ledger {
    /// Starts the ledger of `partitions`. Once `stop` is cancelled its tasks end, and answer all queued commands first.
    pub fn start(
        config: LedgerConfig,
        partitions: Partitions,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let LedgerConfig { database_url, role, writer, nats_url, queue, reads } = config;
        let start = |partition| {
            let config = AppenderConfig {
                database_url: database_url.clone(),
                partition,
                role,
                writer: writer.clone(),
                nats_url: nats_url.clone(),
                queue,
            };
            Appender::start(config, stop.clone(), tasks)
        };
        Self { partitions, appenders: partitions.all().map(start).collect(), reads }
    }

    /// The partitions of the log.
    pub const fn partitions(&self) -> Partitions {
        self.partitions
    }

    /// The partition of a merchant.
    pub fn partition_of(&self, merchant_id: MerchantId) -> Partition {
        self.partitions.of(merchant_id)
    }

    /// Decides `command` in `partition` and appends its facts. Returns when they are durable.
    ///
    /// Dropping the future does not withdraw the command.
    pub async fn submit<C>(&self, partition: Partition, command: C) -> Result<C::Outcome, Error>
    where
        C: WireCommand + Clone,
    {
        self.appender(partition).submit(command).await
    }

    /// As [`Self::submit`], for the end of a call that was sent to its provider: it is never refused for overload. The
    /// number of such commands is bounded by the number of calls in flight.
    pub async fn settle<C>(&self, partition: Partition, command: C) -> Result<C::Outcome, Error>
    where
        C: WireCommand + Clone,
    {
        self.appender(partition).settle(command).await
    }

    /// As [`Self::submit`], under `claim`: the command is decided only when the claim is new, and the record that
    /// `record` makes of the outcome is written in the transaction of its facts. `record` must be pure: it may be
    /// called more than once.
    pub async fn submit_idempotent<C, K>(
        &self,
        partition: Partition,
        command: C,
        claim: Claim,
        record: K,
    ) -> Result<IdempotentOutcome<C::Outcome>, Error>
    where
        C: WireCommand + Clone,
        K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Clone + Send + 'static,
    {
        self.appender(partition).submit_idempotent(command, claim, record).await
    }

    /// As [`Self::settle`], for the end of the call `request_id` that began under the claim `id`.
    pub async fn submit_closing<C>(
        &self,
        partition: Partition,
        command: C,
        id: ClaimId,
        request_id: RequestId,
        end: ClaimEnd,
    ) -> Result<C::Outcome, Error>
    where
        C: WireCommand + Clone,
    {
        self.appender(partition).submit_closing(command, id, request_id, end).await
    }

    /// The authoritative state of `key` in `partition`.
    pub async fn state(&self, partition: Partition, key: StateKey) -> Result<Option<State>, reads::Error> {
        let [state] = self.states(partition, [key]).await?;
        Ok(state)
    }

    /// The authoritative states of `keys` in `partition`, all from one snapshot.
    pub async fn states<const N: usize>(
        &self,
        partition: Partition,
        keys: [StateKey; N],
    ) -> Result<[Option<State>; N], reads::Error> {
        let mut states = self.states_of(partition, &keys).await?.into_iter();
        Ok(std::array::from_fn(|_| states.next().flatten()))
    }

    /// As [`Self::states`], for any number of keys.
    pub async fn states_of(
        &self,
        partition: Partition,
        keys: &[StateKey],
    ) -> Result<Vec<Option<State>>, reads::Error> {
        let connection = self.reads.connection().await?;
        Ok(within(states::load(&connection, partition, keys)).await??)
    }

    fn appender(&self, partition: Partition) -> &Appender {
        &self.appenders[partition.index()]
    }
}
