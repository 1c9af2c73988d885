//! What an auditor reads from the log: trial balances, statements of wallets, explained requests, states as of a moment,
//! reconciliations, exports. What is read is verified: positions and the chain of hashes. `verify/` proves more.

pub mod explain;
pub mod export;
mod findings;
mod partition_reader;
pub mod reconcile;
pub mod replay;
mod search_order;
pub mod statement;
pub mod trial_balance;
mod whole_log;

use farthing_core::ids::{MerchantId, RequestId, WalletId};
use farthing_core::money;
use farthing_core::partition::Partition;
use farthing_core::state::Subject;

pub use self::findings::{Findings, Place};
use super::connect::redacted;
use super::reader;

/// An error that stops the audit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer, or refuses.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] reader::Error),
    /// The database has no usable number of partitions.
    #[error("the log has no partitions: run `farthing migrate`")]
    NoPartitions,
    /// A partition has no head, so what it has is not known.
    #[error("partition {partition} of the log has no head: see `farthing audit verify`")]
    Headless {
        /// The partition.
        partition: Partition,
    },
    /// The named partition does not exist.
    #[error("the log has no partition {partition}")]
    NoSuchPartition {
        /// The partition.
        partition: Partition,
    },
    /// The named position is behind the head.
    #[error("partition {partition} has no position {position} yet: its last event is at {last}")]
    NoSuchPosition {
        /// The partition.
        partition: Partition,
        /// The position.
        position: i64,
        /// The position of the newest event.
        last: i64,
    },
    /// The merchant is in another partition than the one asked for.
    #[error("the merchant is in partition {partition}")]
    MerchantElsewhere {
        /// The merchant's partition.
        partition: Partition,
    },
    /// The previous export is of other partitions.
    #[error("the previous export is of another log: its partitions are not those of this one")]
    OtherLog,
    /// No event is of the merchant.
    #[error("no event of the log is of the merchant {0}")]
    UnknownMerchant(MerchantId),
    /// No event names the wallet.
    #[error("no event of the log names the wallet {0}")]
    UnknownWallet(WalletId),
    /// No event names the request.
    #[error("no event of the log names the request {0}")]
    UnknownRequest(RequestId),
    /// No event names the subject of a replay.
    #[error("no event of what was read names {0}")]
    UnknownSubject(Subject),
    /// The log has errors, which may be the cause: what was asked for may be missing, or a sum may be out of range.
    #[error("{error}; the log has errors: {} findings, the first one is: {}", .findings.findings_count, .findings.first())]
    InBrokenLog {
        /// What it would be in a sound log.
        error: Box<Error>,
        /// What is wrong with the log.
        findings: Findings,
    },
    /// A sum is out of range.
    #[error("a sum {0}")]
    Money(#[from] money::Error),
    /// The result cannot be written.
    #[error("the result cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Whether the log is not what was appended. Otherwise the command was refused, or something is out of reach.
    pub const fn is_of_the_events(&self) -> bool {
        match self {
            Self::Log(error) => error.is_of_the_events(),
            Self::InBrokenLog { .. } => true,
            Self::Postgres(_)
            | Self::NoPartitions
            | Self::Headless { .. }
            | Self::NoSuchPartition { .. }
            | Self::NoSuchPosition { .. }
            | Self::MerchantElsewhere { .. }
            | Self::OtherLog
            | Self::UnknownMerchant(_)
            | Self::UnknownWallet(_)
            | Self::UnknownRequest(_)
            | Self::UnknownSubject(_)
            // A sum over many sound amounts may be out of range.
            | Self::Money(_)
            | Self::Output(_) => false,
        }
    }

    /// This error, after these findings.
    fn after(self, findings: Findings) -> Self {
        if findings.is_empty() {
            return self;
        }
        Self::InBrokenLog { error: Box::new(self), findings }
    }
}
