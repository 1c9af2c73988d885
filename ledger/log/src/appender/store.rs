//! The store of one partition: connections, and what its leader does over one.
//!
//! Postgres is the only store of a running program ([`super::session`]). The simulation of gateways over failing
//! connections has one in memory.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::state::{State, StateKey};

use super::batch::{AppendBatch, EventId};
use crate::chain::Hash;

/// The time of an attempt or a lookup after which Postgres counts as unreachable.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The head of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) position: i64,
    pub(super) hash: Hash,
    pub(super) epoch: i64,
}

/// The changes of states: the stored form, or `None` for a state to delete.
pub(super) type StateChanges = [(StateKey, Option<String>)];

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The data of a statement was refused, and nothing of the statement was written.
    #[error("{0}")]
    Data(String),
    /// The store undid the statement for the sake of another one, as in a deadlock. The same may succeed when it is sent
    /// again.
    #[error("{0}")]
    Conflict(String),
    /// A stored state cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// Any other error. Whether the statement was carried out is not known.
    #[error("{0}")]
    Other(String),
}

/// The result of a call to the store.
pub(super) type StoreResult<T> = Result<T, StoreError>;

/// The log of a partition and its states, to which leaders connect.
pub(super) trait LogStore: Send + 'static {
    /// A connection.
    type Session: LogSession;

    /// Opens a connection.
    fn open(&self) -> impl Future<Output = StoreResult<Self::Session>> + Send;
}

/// A connection of one gateway to the store. Each call is a transaction of its own, and is never carried out in part.
pub(super) trait LogSession: Send + Sync + Sized + 'static {
    /// Whether the connection is known to be lost.
    fn is_closed(&self) -> bool;

    /// Whether appends go over a connection that the leaders of this process share.
    fn appends_elsewhere(&self) -> bool {
        false
    }

    /// Makes this gateway the leader, if it holds the lease: no append and no checkpoint of an earlier leader is carried
    /// out any more. Returns the head, and the position up to which the states are stored.
    fn lead(&self) -> impl Future<Output = StoreResult<Option<(Head, i64)>>> + Send;

    /// The events after `position`, which may be within a batch: about `limit`, and fewer if they are long.
    fn read(&self, position: i64, limit: i64) -> impl Future<Output = StoreResult<Vec<Fact>>> + Send;

    /// The stored states of `keys`, in their order.
    fn load(&self, keys: &[StateKey]) -> impl Future<Output = StoreResult<Vec<Option<State>>>> + Send;

    /// The claims on record among `ids`.
    fn find_claims(
        &self,
        ids: &[ClaimId],
    ) -> impl Future<Output = StoreResult<Vec<(ClaimId, StoredClaim)>>> + Send;

    /// Appends `batch` with its changes of claims and personal data if the head is still `expected`. Returns whether it
    /// was; if not, nothing is written.
    fn append(
        &self,
        expected: Head,
        batch: Arc<AppendBatch>,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Stores `changes`, with which the states are as they are at `position`, unless the epoch has moved. Returns whether
    /// they are stored.
    fn store_states(
        &self,
        epoch: i64,
        position: i64,
        changes: &StateChanges,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Whether this very event is in the log. If it is not, its append, which expected `epoch`, is fenced out.
    fn resolve(&self, event: &EventId, epoch: i64) -> impl Future<Output = StoreResult<bool>> + Send;
}
