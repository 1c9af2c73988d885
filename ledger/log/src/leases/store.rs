//! The store of the leases: connections, and what a gateway does over one.
//!
//! Postgres is the only store of a running program ([`super::statements`]). The simulation of gateways over failing
//! connections has one in memory.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;

use super::Error;
pub(crate) use super::plan::Sharer;

/// The result of a statement.
pub(crate) type LeaseResult<T> = Result<T, Error>;

/// A lease, as the database has it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRow {
    pub(crate) gateway: Option<String>,
    pub(crate) address: Option<String>,
    /// How often the partition was claimed.
    pub(crate) term: i64,
    /// Whether the gateway delivers webhooks.
    pub(crate) delivers: bool,
    /// Whether it has not expired.
    pub(crate) is_led: bool,
}

impl LeaseRow {
    /// The lease of a partition that nobody has had.
    pub(crate) const FREE: Self =
        Self { gateway: None, address: None, term: 0, delivers: false, is_led: false };
}

/// What a gateway writes to its leases.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    /// Its name.
    pub(crate) gateway: String,
    /// Its address for the commands of other gateways.
    pub(crate) address: Option<String>,
    /// Whether it delivers webhooks.
    pub(crate) delivers: bool,
    /// How long a lease lasts.
    pub(crate) seconds: f64,
}

/// The rows at the end of a round.
#[derive(Debug)]
pub(crate) struct Rows {
    /// By the number of the partition.
    pub(crate) leases: Vec<LeaseRow>,
    pub(crate) gateways: Vec<Sharer>,
}

/// The leases, to which gateways connect.
pub(crate) trait LeaseStore: Send + 'static {
    /// A connection.
    type Session: LeaseSession;

    /// Opens a connection.
    fn open(&self) -> impl Future<Output = LeaseResult<Self::Session>> + Send;
}

/// A connection of one gateway. Each call is a transaction of its own.
pub(crate) trait LeaseSession: Send + Sync {
    /// Whether the connection is known to be lost.
    fn is_closed(&self) -> bool;

    /// Announces a gateway that shares the partitions and `avoids` some of them.
    fn announce(&self, holder: &Holder, avoids: &[i16]) -> impl Future<Output = LeaseResult<()>> + Send;

    /// Ends the announcement.
    fn leave(&self, holder: &Holder) -> impl Future<Output = LeaseResult<()>> + Send;

    /// The time by the store's clock.
    fn now(&self) -> impl Future<Output = LeaseResult<DateTime<Utc>>> + Send;

    /// Gives back all leases but `kept` that this gateway had at `since`.
    fn release(
        &self,
        holder: &Holder,
        since: DateTime<Utc>,
        kept: &[i16],
    ) -> impl Future<Output = LeaseResult<()>> + Send;

    /// Renews the leases of `kept`. Returns those that are renewed.
    fn renew(
        &self,
        holder: &Holder,
        kept: &[i16],
    ) -> impl Future<Output = LeaseResult<Vec<Partition>>> + Send;

    /// Claims those of `wanted` that nobody leads. Returns them with the terms that begin.
    fn claim(
        &self,
        holder: &Holder,
        wanted: &[i16],
    ) -> impl Future<Output = LeaseResult<Vec<(Partition, i64)>>> + Send;

    /// The leases and the gateways that share the partitions.
    fn rows(&self) -> impl Future<Output = LeaseResult<Rows>> + Send;
}
