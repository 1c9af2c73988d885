//! The store that a writer appends to: connections, and what the writer does over one.
//!
//! Postgres is the only store of a running program ([`super::session`]). The simulation of many writers over failing
//! connections has one in memory.

use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::state::{State, StateKey};

use super::batch::{AppendBatch, EventId};
use crate::chain::Hash;
use crate::claims::Changes;

/// The head of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) position: i64,
    pub(super) hash: Hash,
    pub(super) epoch: i64,
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The data of a statement was refused, and nothing of the statement was written.
    #[error("{0}")]
    Data(String),
    /// Any other error. Whether the statement was carried out is not known.
    #[error("{0}")]
    Other(String),
}

/// The result of a call to the store.
pub(super) type StoreResult<T> = Result<T, StoreError>;

/// A log and its states, to which writers connect.
pub(super) trait LogStore: Send + 'static {
    /// A connection.
    type Session: LogSession;

    /// Opens a connection.
    fn open(&self) -> impl Future<Output = StoreResult<Self::Session>> + Send;
}

/// A connection of one writer to the store.
///
/// A statement outside of a transaction is one by itself. A transaction is never committed in part, and dropping the
/// connection rolls it back, unless its commit is on the way.
pub(super) trait LogSession: Send + Sync + Sized {
    /// Whether the connection is known to be lost.
    fn is_closed(&self) -> bool;

    /// The position of the head.
    fn head_position(&self) -> impl Future<Output = StoreResult<i64>> + Send;

    /// Begins a transaction and locks the head in it, which keeps every other writer from appending until it ends.
    fn begin(&self) -> impl Future<Output = StoreResult<Head>> + Send;

    /// As [`Self::begin`]; also reads the first events after `position`, the end of a batch: about `limit`.
    fn begin_and_read(
        &self,
        position: i64,
        limit: i64,
    ) -> impl Future<Output = StoreResult<(Head, Vec<Fact>)>> + Send;

    /// The states of `keys`, in their order, with the position of the head at that moment.
    fn load(&self, keys: &[StateKey]) -> impl Future<Output = StoreResult<(i64, Vec<Option<State>>)>> + Send;

    /// The claims on record among `ids`.
    fn find_claims(
        &self,
        ids: &[ClaimId],
    ) -> impl Future<Output = StoreResult<Vec<(ClaimId, StoredClaim)>>> + Send;

    /// Writes changes of claims, in the open transaction.
    fn write_claims(&self, changes: &Changes) -> impl Future<Output = StoreResult<()>> + Send;

    /// Appends `batch` with its changes of states and personal data if the head is still `expected`, in a transaction of its own. Returns
    /// whether it was; if not, nothing is written.
    fn append(
        &self,
        expected: Head,
        batch: &AppendBatch,
        changes: &[(StateKey, Option<String>)],
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// As [`Self::append`], in the open transaction, which is then committed.
    fn append_and_commit(
        &self,
        expected: Head,
        batch: &AppendBatch,
        changes: &[(StateKey, Option<String>)],
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Whether this very event is in the log.
    fn is_recorded(&self, event: &EventId) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Raises the head's epoch, so that no append that expects the present one is carried out any more.
    fn raise_epoch(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// Commits the open transaction.
    fn commit(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// Rolls the open transaction back.
    fn roll_back(&self) -> impl Future<Output = StoreResult<()>> + Send;
}
