//! The archive: old ranges of the log as files in a folder or a bucket. A range is written, read back, proven and recorded
//! (`ledger.archives`) before its rows are deleted, so at any moment all of the log is in the table, in files, or in both.
//!
//! Invariant: the archived ranges of a partition begin with its first event, follow each other without a gap, and end
//! before anything that a gateway or a projector reads every day. Postgres checks it (`V10__archives.sql`).

mod bucket;
mod create;
mod file;
mod list;
mod range;
mod restore;
mod store;
mod verify;

use std::sync::OnceLock;

use farthing_core::partition::{Partition, Partitions};
use tokio_postgres::{Client, GenericClient};

pub use self::create::{Created, Plan, create};
pub use self::list::{Listed, list};
pub use self::range::ArchivedRange;
pub use self::restore::{Restored, restore};
pub use self::store::{Store, StoreError};
pub use self::verify::{Finding, Report, verify};
use super::connect::{self, Role, redacted};
use super::leadership::Leadership;
use super::{partitions, reader};

pub(crate) use self::file::Content;

/// The name of the lock of the one command that changes archives.
const LOCK: &str = "farthing.archive";

/// Record batches that one transaction deletes, or loads back.
const BATCHES_AT_ONCE: i32 = 64;

/// Whether the server has Citus.
const HAS_CITUS: &str = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";

/// The archive that this process reads. Every reader of the log needs it, and its location is a fact of the machine, as its
/// clock is; so it is not passed through all of them.
static OF_PROCESS: OnceLock<Store> = OnceLock::new();

/// Names the archive that this process reads. The first call counts.
pub fn use_for_process(store: Store) {
    let _ = OF_PROCESS.set(store);
}

/// The archive that this process reads, if one was named.
pub fn of_process() -> Option<&'static Store> {
    OF_PROCESS.get()
}

/// Why archives cannot be made, restored or verified.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer, or refuses.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] reader::Error),
    /// The files cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database has no usable number of partitions.
    #[error("the log has no partitions: run `farthing migrate`")]
    NoPartitions,
    /// There is no such partition.
    #[error("the log has no such partition: it has {0}, from 0 on")]
    NoPartition(i16),
    /// Another command works on the archive.
    #[error("another `farthing archive` command is running")]
    Running,
    /// Citus runs triggers on its nodes, which cannot see the archives.
    #[error("a log on Citus cannot be archived")]
    Distributed,
    /// The log is not what was appended. Nothing of it is archived.
    #[error(
        "partition {partition}, position {position}: {what}; nothing of this was archived: run `farthing audit verify`"
    )]
    Broken {
        /// The partition.
        partition: Partition,
        /// The position.
        position: i64,
        /// What is wrong.
        what: String,
    },
    /// The store lacks a file of an earlier range.
    #[error(
        "the archive at {location} does not have {object}, which was archived before; nothing was written: check that the \
         file system is mounted and that --archive names the same archive"
    )]
    OtherStore {
        /// The URL of the store.
        location: String,
        /// The name of the file.
        object: String,
    },
    /// The table has other events than the file of a range that is loaded back.
    #[error(
        "partition {partition}, position {position}: the table has other events than {object}; what was loaded of this file \
         stays in the table, and its range still counts as archived: run `farthing archive verify`"
    )]
    OtherEvents {
        /// The partition.
        partition: Partition,
        /// The first position of a record batch that is another one.
        position: i64,
        /// The name of the file.
        object: String,
    },
    /// A file is not what was archived.
    #[error(
        "{object}: {what}; nothing of this file was archived, deleted or loaded: run `farthing archive verify`"
    )]
    Damaged {
        /// Its name.
        object: String,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    /// Whether the log or a file of it is not what was appended. Otherwise the command was refused, or something is out of
    /// reach.
    pub const fn is_of_the_events(&self) -> bool {
        match self {
            Self::Log(error) => error.is_of_the_events(),
            Self::Broken { .. } | Self::OtherEvents { .. } | Self::Damaged { .. } => true,
            Self::Postgres(_)
            | Self::Store(_)
            | Self::NoPartitions
            | Self::NoPartition(_)
            | Self::Running
            | Self::Distributed
            | Self::OtherStore { .. } => false,
        }
    }
}

/// The record batches of the archived range that has `position`; `None` if it is not archived.
pub(crate) async fn containing(
    client: &impl GenericClient,
    partition: Partition,
    position: i64,
) -> Result<Option<(ArchivedRange, Content)>, reader::Error> {
    let Some(range) = ArchivedRange::with(client, partition, position).await? else { return Ok(None) };
    let Some(store) = OF_PROCESS.get() else {
        let (first, last) = (range.first_position, range.last_position);
        return Err(reader::Error::Archived { partition, first, last, location: range.location });
    };
    let content = store.content(&range).await?;
    Ok(Some((range, content)))
}

/// A connection as the owner of the log, with the lock of the archive.
async fn open(database_url: &str) -> Result<Leadership, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    if client.query_one(HAS_CITUS, &[]).await?.try_get(0)? {
        return Err(Error::Distributed);
    }
    Leadership::try_take(client, LOCK).await?.ok_or(Error::Running)
}

/// The partition `only`, or all.
async fn chosen(client: &Client, only: Option<Partition>) -> Result<Vec<Partition>, Error> {
    let partitions: Partitions = partitions::load(client).await?.ok_or(Error::NoPartitions)?;
    let chosen: Vec<_> = partitions.all().filter(|of| only.is_none_or(|only| only == *of)).collect();
    if chosen.is_empty() { Err(Error::NoPartition(partitions.count())) } else { Ok(chosen) }
}

/// Drops the content of `range`, which its reader needs no more.
pub(crate) fn forget(range: &ArchivedRange) {
    if let Some(store) = OF_PROCESS.get() {
        store.forget(range);
    }
}
