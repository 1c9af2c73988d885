//! `farthing archive verify`: reads every archived file, and follows the chain of hashes through them.

use farthing_core::partition::Partition;
use serde::Serialize;
use tokio_postgres::Client;

use super::range::ArchivedRange;
use super::store::Store;
use super::{Error, file, restore};
use crate::batch_pages::BatchRow;
use crate::chain::GENESIS;
use crate::connect::{self, Role};

/// What is wrong with an archived range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The partition.
    pub partition: Partition,
    /// The first position that is not proven.
    pub position: i64,
    /// The file.
    pub object: String,
    /// What is wrong.
    pub text: String,
}

/// The result of a verification.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// No finding.
    pub ok: bool,
    /// The files that were read.
    pub files: u64,
    /// Their size.
    pub bytes: i64,
    /// The events in them.
    pub events: i64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Verifies the files of `partition`, or of all.
pub async fn verify(
    database_url: &str,
    store: &Store,
    partition: Option<Partition>,
) -> Result<Report, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let mut report = Report::default();
    for partition in super::chosen(&client, partition).await? {
        let (mut expected, mut previous) = (1, GENESIS);
        for range in ArchivedRange::all(&client, partition).await? {
            if (range.first_position, range.previous_hash) != (expected, previous) {
                report.find(&range, expected, "the record does not follow the one before it".to_owned());
            }
            report.range(&client, store, &range).await?;
            (expected, previous) = (range.last_position + 1, range.last_hash);
        }
    }
    report.ok = report.findings.is_empty();
    Ok(report)
}

impl Report {
    fn find(&mut self, range: &ArchivedRange, position: i64, text: String) {
        let (partition, object) = (range.partition, range.object.clone());
        self.findings.push(Finding { partition, position, object, text });
    }

    async fn range(&mut self, client: &Client, store: &Store, range: &ArchivedRange) -> Result<(), Error> {
        self.files += 1;
        self.bytes += range.bytes;
        self.events += range.last_position - range.first_position + 1;
        let content = store.read(range).await?;
        let broken = range.check(&content.batches).err();
        if let Some(damage) = content.damage {
            let position = broken.map_or(range.first_position, |(position, _)| position);
            self.find(range, position, damage);
            return Ok(());
        }
        if let Some((position, text)) = broken {
            self.find(range, position, text);
        }
        if store.manifest(range).await? != Some(range.manifest()) {
            let text = format!("{} is missing or says something else", range.manifest_object());
            self.find(range, range.first_position, text);
        }
        // What the table still has of a range, or has again.
        if let Some(other) = restore::other(client, range, &content.batches).await? {
            let text = "the table has another record batch at this position".to_owned();
            self.find(range, other, text);
        }
        Ok(())
    }
}

impl ArchivedRange {
    /// Follows the chain through the record batches of the range. Gives the first position that is not proven, and why.
    pub(super) fn check(&self, batches: &[BatchRow]) -> Result<(), (i64, String)> {
        let hash = file::follow(batches, self.first_position, self.previous_hash)?;
        let end = batches.last().map_or(self.first_position - 1, BatchRow::last_position);
        if end != self.last_position {
            return Err((end + 1, format!("the file ends at position {end}")));
        }
        if hash == self.last_hash {
            return Ok(());
        }
        Err((self.last_position, "the last hash is not the recorded one".to_owned()))
    }
}
