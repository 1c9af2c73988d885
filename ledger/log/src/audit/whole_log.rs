//! Reads partitions with a progress, and gives the decoded events of some lines to their reader.

use farthing_core::event::Fact;
use farthing_core::partition::Partition;
use tokio_postgres::Client;

use super::Error;
use super::findings::{Findings, Place};
use super::partition_reader::{Ends, Line, Visitor};
use crate::record;
use crate::verify::{Head, Progress};

/// Is given the events of the lines that it wants.
pub(super) trait Reader {
    /// Where the reader of the partition adds what it finds.
    fn findings(&mut self) -> &mut Findings;

    /// Whether the line is decoded. Decoding every event would take several times as long.
    fn wants(&mut self, line: &Line<'_>) -> bool;

    /// The event in a line that was wanted.
    fn read(&mut self, line: &Line<'_>, fact: Fact) -> Result<(), Error>;
}

/// Counts what is read, and decodes it.
struct Counted<'a, R> {
    progress: &'a Progress,
    reader: &'a mut R,
}

impl<R: Reader> Visitor for Counted<'_, R> {
    fn findings(&mut self) -> &mut Findings {
        self.reader.findings()
    }

    fn visit(&mut self, line: &Line<'_>) -> Result<(), Error> {
        self.progress.read(1);
        if !self.reader.wants(line) {
            return Ok(());
        }
        match record::decode(line.text) {
            Ok(fact) => self.reader.read(line, fact),
            Err(error) => {
                let place = line.place;
                self.reader.findings().find(|| format!("{place}: {error}"));
                Ok(())
            }
        }
    }
}

/// Reads and verifies a partition to its end, or to the position `until`.
pub(super) async fn read_partition(
    client: &Client,
    ends: &Ends,
    (partition, until): (Partition, Option<i64>),
    progress: &Progress,
    reader: &mut impl Reader,
) -> Result<Head, Error> {
    ends.read_partition(client, partition, until, &mut Counted { progress, reader }).await
}

/// Reads and verifies all partitions, one after the other.
pub(super) async fn read(
    client: &Client,
    ends: &Ends,
    progress: &Progress,
    reader: &mut impl Reader,
) -> Result<Vec<Head>, Error> {
    progress.expect(ends.partitions().map(|partition| ends.last(partition)).sum());
    let mut heads = Vec::new();
    for partition in ends.partitions() {
        heads.push(read_partition(client, ends, (partition, None), progress, reader).await?);
    }
    Ok(heads)
}

/// Adds the error of a sum to the findings.
pub(super) fn checked<T>(
    findings: &mut Findings,
    place: Place,
    result: Result<T, farthing_core::money::Error>,
) -> Option<T> {
    result.inspect_err(|error| findings.find(|| format!("{place}: an amount {error}"))).ok()
}
