//! The record batches of a partition as the database's owner sees and changes them, triggers or not.

use chrono::{DateTime, Utc};
use farthing_tests::log::next_hash;
use tokio_postgres::Client;

const ROWS: &str = "\
SELECT first_position, count, recorded_at, writer, convert_from(events, 'UTF8'), hashes FROM ledger.batches
WHERE partition = $1 ORDER BY first_position";

const INSERT: &str = "\
INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
VALUES ($1, $2, $3, $4, $5, convert_to($6, 'UTF8'), $7)";

/// A record batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) first: i64,
    recorded_at: DateTime<Utc>,
    writer: String,
    /// Each event with its hash.
    pub(crate) events: Vec<(String, Vec<u8>)>,
}

/// The batches of a partition.
#[derive(Debug, Clone)]
pub(crate) struct StoredLog {
    pub(crate) partition: i16,
    pub(crate) batches: Vec<Batch>,
}

impl StoredLog {
    /// Reads them.
    pub(crate) async fn read(sql: &Client, partition: i16) -> Self {
        let rows = sql.query(ROWS, &[&partition]).await.unwrap();
        let batch = |row: &tokio_postgres::Row| {
            let (events, hashes): (String, Vec<u8>) = (row.get(4), row.get(5));
            let lines = events.split('\n').map(ToOwned::to_owned);
            let events: Vec<_> = lines.zip(hashes.chunks(32).map(ToOwned::to_owned)).collect();
            assert_eq!(i32::try_from(events.len()), Ok(row.get(1)));
            Batch { first: row.get(0), recorded_at: row.get(2), writer: row.get(3), events }
        };
        Self { partition, batches: rows.iter().map(batch).collect() }
    }

    /// Brings the table from `self` to `to`.
    pub(crate) async fn change(&self, sql: &mut Client, to: &Self) {
        let transaction = sql.transaction().await.unwrap();
        let old: Vec<i64> = self
            .batches
            .iter()
            .filter(|batch| !to.batches.contains(batch))
            .map(|batch| batch.first)
            .collect();
        let delete = "DELETE FROM ledger.batches WHERE partition = $1 AND first_position = ANY($2)";
        transaction.execute(delete, &[&self.partition, &old]).await.unwrap();
        for batch in to.batches.iter().filter(|batch| !self.batches.contains(batch)) {
            let count = i32::try_from(batch.events.len()).unwrap();
            let lines: Vec<_> = batch.events.iter().map(|(line, _)| line.as_str()).collect();
            let hashes: Vec<u8> = batch.events.iter().flat_map(|(_, hash)| hash.clone()).collect();
            transaction
                .execute(
                    INSERT,
                    &[
                        &self.partition,
                        &batch.first,
                        &count,
                        &batch.recorded_at,
                        &batch.writer,
                        &lines.join("\n"),
                        &hashes,
                    ],
                )
                .await
                .unwrap();
        }
        transaction.commit().await.unwrap();
    }

    /// The number of events.
    pub(crate) fn len(&self) -> usize {
        self.batches.iter().map(|batch| batch.events.len()).sum()
    }

    /// The batch of the event at `position` and its index there.
    pub(crate) fn find(&self, position: i64) -> (usize, usize) {
        let batch = self.batches.iter().rposition(|batch| batch.first <= position).unwrap();
        (batch, usize::try_from(position - self.batches[batch].first).unwrap())
    }

    /// The event at `position` with its hash.
    pub(crate) fn event(&mut self, position: i64) -> &mut (String, Vec<u8>) {
        let (batch, index) = self.find(position);
        &mut self.batches[batch].events[index]
    }

    /// The hash of `line` at `position`, after the event before it.
    pub(crate) fn hash_at(&mut self, position: i64, line: &str) -> Vec<u8> {
        let before = if position == 1 { vec![0; 32] } else { self.event(position - 1).1.clone() };
        let batch = self.find(position).0;
        let Batch { recorded_at, writer, .. } = &self.batches[batch];
        next_hash(&before, position, recorded_at.timestamp_micros(), writer, line)
    }

    /// Computes the hashes anew from `position` on. Returns the last one.
    pub(crate) fn hash_from(&mut self, position: i64) -> Vec<u8> {
        let last = i64::try_from(self.len()).unwrap();
        for position in position..=last {
            let line = self.event(position).0.clone();
            self.event(position).1 = self.hash_at(position, &line);
        }
        self.event(last).1.clone()
    }

    /// Removes the events after `last`. Returns the hash of the one that is the last then.
    pub(crate) fn cut_after(&mut self, last: i64) -> Vec<u8> {
        for batch in &mut self.batches {
            let kept = usize::try_from(last + 1 - batch.first).unwrap_or(0);
            batch.events.truncate(kept);
        }
        self.batches.retain(|batch| !batch.events.is_empty());
        self.event(last).1.clone()
    }
}
