//! Exports the log as tables: requests, entries and events, or the charges of FOCUS. The log is verified while it is read,
//! always from its beginning, so every export says that what it contains follows from the first event.
//!
//! Invariants: each row belongs to one position, so exports of ranges that meet have every row once. Rows are given away as
//! they are read; memory is bounded by the wallets and the calls that are open at once.

mod entries;
mod events;
pub mod focus;
mod requests;
mod rows;
mod table;

use std::io;

use farthing_core::ids::MerchantId;
use farthing_core::partition::{Partition, Partitions};
use farthing_core::statement::Period;
use serde::{Deserialize, Serialize};

use self::rows::Rows;
pub use self::table::{Column, Kind, Table, Value};
use super::Error;
use super::findings::Findings;
use super::partition_reader::Ends;
use crate::chain::GENESIS;
use crate::connect::{self, Role};
use crate::verify::Head;

/// What is exported.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The tables.
    pub tables: Vec<Table>,
    /// The period, by the time at which events occurred.
    pub period: Period,
    /// Only this merchant's rows.
    pub merchant_id: Option<MerchantId>,
    /// Only this partition.
    pub partition: Option<Partition>,
    /// Only what is new since these positions, one for each partition of the export.
    pub since: Option<Vec<CoveredRange>>,
    /// The name of the operator, which FOCUS asks for.
    pub issuer: String,
}

/// A place in a partition, with the hash of its event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedPosition {
    /// The position; 0 is before the first event.
    pub position: i64,
    /// The hash, in hexadecimal.
    pub hash: String,
}

/// The part of a partition that an export covers: what follows `after`, up to `last`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredRange {
    /// The partition.
    pub partition: Partition,
    /// The last event that is not covered.
    pub after: HashedPosition,
    /// The last event that is covered.
    pub last: HashedPosition,
}

/// Is given the rows, in the order of the log.
pub trait Output {
    /// The next row of a table.
    fn row(&mut self, table: Table, row: &[Value]) -> io::Result<()>;
}

/// What was exported.
#[derive(Debug)]
pub struct Exported {
    /// The parts of the log that were covered.
    pub log: Vec<CoveredRange>,
    /// What is wrong with the log.
    pub findings: Findings,
}

/// Gives the rows of `selection` to `output`. Gateways may write meanwhile.
pub async fn export(
    database_url: &str,
    selection: &Selection,
    output: &mut impl Output,
) -> Result<Exported, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let partitions = partitions(&ends, selection)?;
    let genesis = farthing_core::secret::hex(&GENESIS);
    if let Some(since) = &selection.since {
        let ends_nowhere = |last: &HashedPosition| match last.position {
            0 => last.hash != genesis,
            position => position < 0,
        };
        let others = since.iter().map(|range| range.partition).ne(partitions.iter().copied());
        if others || since.iter().any(|range| ends_nowhere(&range.last)) {
            return Err(Error::OtherLog);
        }
    }
    let mut exported = Exported { log: Vec::new(), findings: Findings::default() };
    let mut has_events = false;
    for (index, partition) in partitions.into_iter().enumerate() {
        let after = match &selection.since {
            Some(since) => since[index].last.clone(),
            None => HashedPosition { position: 0, hash: genesis.clone() },
        };
        match ends.has(partition, after.position) {
            // The events that the previous export had are not there any more.
            Err(Error::NoSuchPosition { position, last, .. }) => exported.findings.find(|| {
                format!(
                    "partition {partition}: the previous export ended at position {position}, the last event is at {last}"
                )
            }),
            has => has?,
        }
        let mut rows = Rows::new(selection, &after, output, &mut exported.findings);
        let Head { position, hash, .. } = ends.read_partition(&client, partition, None, &mut rows).await?;
        has_events |= rows.has_events();
        exported.log.push(CoveredRange { partition, after, last: HashedPosition { position, hash } });
    }
    match selection.merchant_id {
        Some(merchant_id) if !has_events => Err(Error::UnknownMerchant(merchant_id).after(exported.findings)),
        Some(_) | None => Ok(exported),
    }
}

/// The partitions to read. All events of a merchant are in one.
fn partitions(ends: &Ends, selection: &Selection) -> Result<Vec<Partition>, Error> {
    let all: Vec<_> = ends.partitions().collect();
    let of_merchant = selection.merchant_id.map(|merchant_id| {
        let count = i16::try_from(all.len()).ok().and_then(Partitions::new).ok_or(Error::NoPartitions)?;
        Ok::<_, Error>(count.of(merchant_id))
    });
    match (selection.partition, of_merchant.transpose()?) {
        (Some(partition), _) if !all.contains(&partition) => Err(Error::NoSuchPartition { partition }),
        (Some(partition), Some(merchants)) if partition != merchants => {
            Err(Error::MerchantElsewhere { partition: merchants })
        }
        (Some(partition), _) | (None, Some(partition)) => Ok(vec![partition]),
        (None, None) => Ok(all),
    }
}
