//! The verification of the log (`farthing audit verify`, `farthing log verify`): reads every partition of the log once,
//! verifies its record batches, positions and hash chain, folds every state from the events and compares it with the stored
//! one, and verifies each stated balance and the sums of money.
//! Invariant: it writes nothing, and memory does not grow with the number of events.

mod archives;
mod batch;
mod beginning;
mod chain_walk;
mod fold;
mod heads;
mod pages;
mod partition_audit;
pub mod published_heads;
mod run;
pub mod signed_checkpoints;
mod stored_states;
pub mod verdict;

use std::sync::Arc;

use farthing_core::money;
use farthing_core::partition::Partition;
use serde::Serialize;

pub use self::fold::Sums;
pub use self::run::{Audit, Plan, Progress, Published, Trusted, run};
use self::verdict::MAX_FINDINGS;
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
    /// There is no such position.
    #[error("partition {partition} has no position {position} yet: its last event is at {last}")]
    NoPosition {
        /// The partition.
        partition: Partition,
        /// The position.
        position: i64,
        /// The position of the last event.
        last: i64,
    },
    /// There is no such partition.
    #[error("the log has no such partition: it has {0}, from 0 on")]
    NoPartition(i16),
    /// The published heads are of another log.
    #[error("the published heads are of a log with more partitions than the {0} of this one")]
    OtherHeads(i16),
    /// The event before the first one of the run is not there.
    #[error("partition {partition} has no event at position {position}, which the run would begin after")]
    NoBeginning {
        /// The partition.
        partition: Partition,
        /// The position.
        position: i64,
    },
    /// The sums over all partitions cannot be written.
    #[error("the sum over all partitions {0}")]
    Money(#[from] money::Error),
    /// The folder of the checkpoints cannot be used.
    #[error(transparent)]
    Checkpoints(#[from] signed_checkpoints::Error),
    /// A task of the audit was stopped.
    #[error("the audit was stopped")]
    Stopped,
}

impl Error {
    /// Whether the log is not what was appended. Otherwise the command was refused, or something is out of reach.
    pub const fn is_of_the_events(&self) -> bool {
        match self {
            Self::Log(error) => error.is_of_the_events(),
            Self::Postgres(_)
            | Self::NoPartitions
            | Self::NoPosition { .. }
            | Self::NoPartition(_)
            | Self::OtherHeads(_)
            | Self::NoBeginning { .. }
            | Self::Money(_)
            | Self::Checkpoints(_)
            | Self::Stopped => false,
        }
    }
}

/// The report of `farthing log verify`.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// No finding.
    pub ok: bool,
    /// The number of events read.
    pub events: u64,
    /// The heads of the partitions.
    pub heads: Vec<Head>,
    /// The number of states folded and compared.
    pub states: usize,
    /// The sums of money, in dollars.
    #[serde(flatten)]
    pub sums: Sums,
    /// The text of each finding, at most 100.
    pub findings: Vec<String>,
    /// The number of findings.
    pub findings_count: u64,
}

/// The head of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Head {
    /// The partition.
    pub partition: Partition,
    /// The position of its newest event.
    pub position: i64,
    /// The hash of that event, in hexadecimal.
    pub hash: String,
}

impl From<Audit> for Report {
    fn from(
        Audit {
            heads,
            events,
            trusted: _,
            published: _,
            checkpoints_written: _,
            states,
            sums,
            tallies,
            is_headless: _,
        }: Audit,
    ) -> Self {
        let verdicts = tallies.verdicts();
        let findings_count = verdicts.iter().map(|verdict| verdict.broken).sum();
        let findings = verdicts.into_iter().flat_map(|verdict| verdict.findings);
        let findings = findings.map(|finding| finding.text).take(MAX_FINDINGS).collect();
        Self { ok: findings_count == 0, events, heads, states, sums, findings, findings_count }
    }
}

/// Audits the whole log of `database_url`, `jobs` partitions at once.
pub async fn report(database_url: &str, jobs: usize) -> Result<Report, Error> {
    let plan = Plan { partition: None, from: 1, to: None, published: None, checkpoints: None, jobs };
    Ok(run(database_url, plan, &Arc::default()).await?.into())
}
