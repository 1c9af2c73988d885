//! Secret keys and spend keys that exist, with their partitions, so that no unknown key reaches the queue of a partition.
//! Invariant: a key is never accepted because it is here; the ledger decides. So a deleted key stops at once on every
//! gateway, and a new one works at once: the absence of a key is not kept. The partition of a key never changes.

use std::time::Duration;

use farthing_core::command::Caller;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};
use farthing_log::directory;
use farthing_log::ledger::Ledger;
use farthing_log::reads::ReadPool;
use quick_cache::sync::Cache;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::db::within;
use crate::error::{ApiError, AuthError};

/// The most keys that are remembered; of the others, each call costs a look-up.
const MAX_KEYS: usize = 65_536;

/// The most concurrent look-ups of keys that are not known to exist: half of the connections for reads, so that
/// strangers leave the other half to everyone else.
const LOOKUPS: usize = 4;

/// The longest wait for a look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The keys that were found of late, with their partitions.
pub(crate) struct KnownKeys {
    found: Cache<StateKey, Partition>,
    lookups: Semaphore,
}

impl Default for KnownKeys {
    fn default() -> Self {
        Self { found: Cache::new(MAX_KEYS), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl KnownKeys {
    /// The partition of a caller. Refuses one whose key does not exist.
    pub(crate) async fn partition_of(
        &self,
        caller: &Caller,
        ledger: &Ledger,
        reads: &ReadPool,
    ) -> Result<Partition, ApiError> {
        let (key, unknown) = (state_key(caller), unknown(caller));
        if let Some(partition) = self.found.get(&key) {
            return Ok(partition);
        }
        let found = self.state(key, ledger, reads).await?;
        found.map(|(partition, _)| partition).ok_or(ApiError::Auth(unknown))
    }

    /// The authoritative state of `key`, with its partition; `None` if there is no such key.
    pub(crate) async fn state(
        &self,
        key: StateKey,
        ledger: &Ledger,
        reads: &ReadPool,
    ) -> Result<Option<(Partition, State)>, ApiError> {
        let known = self.found.get(&key);
        // Held until the end of the look-up.
        let turn = if known.is_none() { Some(self.turn().await?) } else { None };
        let partition = if known.is_some() {
            known
        } else {
            let connection = reads.connection().await?;
            within(directory::find(&connection, &key)).await?
        };
        let Some(partition) = partition else { return Ok(None) };
        let state = ledger.state(partition, key.clone()).await?;
        drop(turn);
        if state.is_some() {
            self.found.insert(key, partition);
        } else {
            self.found.remove(&key);
        }
        Ok(state.map(|state| (partition, state)))
    }

    /// Waits for permission to look up a key that is not known to exist.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        match tokio::time::timeout(LOOKUP_TIMEOUT, self.lookups.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(ApiError::overloaded("look-ups of keys")),
        }
    }

    /// Forgets a caller whose key the ledger does not know any more.
    pub(crate) fn forget(&self, caller: &Caller) {
        self.found.remove(&state_key(caller));
    }
}

/// The state under the hash of the caller's key.
fn state_key(caller: &Caller) -> StateKey {
    match caller {
        Caller::SecretKey(hash) => StateKey::SecretKey(hash.clone()),
        Caller::SpendKey(hash) => StateKey::SpendKeyHash(hash.clone()),
    }
}

/// The error for a caller whose key does not exist.
const fn unknown(caller: &Caller) -> AuthError {
    match caller {
        Caller::SecretKey(_) => AuthError::SecretKeyInvalid,
        Caller::SpendKey(_) => AuthError::SpendKeyInvalid,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farthing_core::partition::Partitions;
    use farthing_core::secret::ServerKey;
    use farthing_log::appender::QueueLimits;
    use farthing_log::connect::Role;
    use farthing_log::leases::Leads;
    use farthing_log::ledger::{LedgerConfig, Stop};
    use farthing_log::reads::pool;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::peers::HttpPeers;

    /// A ledger that has ended, and reads of a database that does not exist.
    async fn unreachable_ledger() -> (Ledger, ReadPool) {
        let tasks = TaskTracker::new();
        let url = "postgres://nobody@127.0.0.1:1/none";
        let reads = ReadPool::new(pool(url, 1).unwrap());
        let config = LedgerConfig {
            database_url: url.to_owned(),
            role: Role::Gateway,
            writer: String::new(),
            nats_url: None,
            queue: QueueLimits::default(),
            reads: reads.clone(),
            clock: Arc::default(),
            peers: Arc::new(HttpPeers::new(&ServerKey::random(), CancellationToken::new(), &tasks)),
            address: None,
            delivers: false,
            leads: Leads::Share,
            lease: Duration::from_secs(3),
        };
        let partitions = Partitions::new(8).unwrap();
        let stop = Stop::default();
        stop.end.cancel();
        let ledger = Ledger::start(config, partitions, &stop, &tasks);
        tasks.close();
        tasks.wait().await;
        (ledger, reads)
    }

    #[tokio::test(start_paused = true)]
    async fn look_ups_of_unknown_keys_are_bounded_and_a_known_key_needs_none() {
        let (keys, server_key) = (KnownKeys::default(), ServerKey::random());
        let (ledger, reads) = unreachable_ledger().await;
        let caller = |raw| Caller::SecretKey(server_key.hash(raw));
        keys.found.insert(state_key(&caller("known")), Partition::new(5));
        let mut turns = Vec::new();
        for _ in 0..LOOKUPS {
            turns.push(keys.turn().await.unwrap());
        }
        let overloaded = keys.partition_of(&caller("unknown"), &ledger, &reads).await;
        assert_eq!(overloaded.unwrap_err(), ApiError::overloaded("look-ups of keys"));
        assert_eq!(keys.partition_of(&caller("known"), &ledger, &reads).await, Ok(Partition::new(5)));
        keys.forget(&caller("known"));
        let overloaded = keys.partition_of(&caller("known"), &ledger, &reads).await;
        assert_eq!(
            overloaded.unwrap_err(),
            ApiError::overloaded("look-ups of keys"),
            "it is looked up again"
        );
        drop(turns);
        assert!(keys.turn().await.is_ok());
    }
}
