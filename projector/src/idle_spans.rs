//! Idle spans: runs of events that change no row of a read model. Those of all read models are written in one statement,
//! so that a read model with nothing to do costs no transactions of its own, and readers still see at once how far it
//! has come.
//!
//! Invariant: a span says something about events and a version of a read model only. So it is true for every generation
//! of that version, and needs no fence.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farthing_core::partition::Partition;
use farthing_log::backoff::Backoff;
use farthing_log::positions::Positions;
use farthing_schema::read_model::ReadModel;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::Error;
use crate::writers::{Writers, close_failed};

/// The shortest time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(40);

/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Writes the spans of the partitions $1 and the read models $2 of the versions $3, after the positions $4 up to $5. A
/// process that was paused takes nothing back.
const WRITE: &str = "\
INSERT INTO ledger.idle_spans AS s (partition, read_model, version, starts_after, ends_at)
SELECT partition, read_model, version, starts_after, ends_at
FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
    AS new(partition, read_model, version, starts_after, ends_at)
ON CONFLICT (partition, read_model, version)
DO UPDATE SET starts_after = excluded.starts_after, ends_at = excluded.ends_at
WHERE (s.ends_at, excluded.starts_after) < (excluded.ends_at, s.starts_after)";

/// The spans that the projections of this process found since the last write.
#[derive(Debug, Default)]
pub(crate) struct IdleSpans {
    found: Mutex<Found>,
    news: Notify,
}

/// The last span of each partition and read model: the position after which it starts, and that of its end. In the order
/// of the rows, so that two processes cannot deadlock.
type Found = BTreeMap<(Partition, &'static str, i64), (i64, i64)>;

impl IdleSpans {
    /// Adds that the events after the positions of the checkpoint up to `seen` change no row of `model` in its version.
    pub(crate) fn add(&self, model: ReadModel, version: i64, checkpoint: &Positions, seen: &Positions) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (partition, end) in seen.iter() {
            let start = checkpoint.get(partition);
            if start < end {
                found.insert((partition, model.name(), version), (start, end));
            }
        }
        drop(found);
        self.news.notify_one();
    }

    /// Forgets those of `model` in its version, which may be of events that a failover of Postgres lost.
    pub(crate) fn forget(&self, model: ReadModel, version: i64) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.retain(|(_, name, of), _| (*name, *of) != (model.name(), version));
    }

    /// Writes spans until the process ends. Those that a failure loses are found again with the next events.
    pub(crate) async fn write(&self, writers: &Writers) {
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        loop {
            let started = Instant::now();
            let Err(error) = self.write_until_failure(writers).await;
            tracing::warn!(event = "projection.idle_spans_restarted", %error, "writing idle spans starts again");
            tokio::time::sleep(backoff.next_delay_after(started.elapsed())).await;
        }
    }

    async fn write_until_failure(&self, writers: &Writers) -> Result<std::convert::Infallible, Error> {
        loop {
            self.news.notified().await;
            let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
            let written_at = Instant::now();
            let (mut partitions, mut models, mut versions) = (Vec::new(), Vec::new(), Vec::new());
            let (mut starts, mut ends) = (Vec::new(), Vec::new());
            for ((partition, model, version), (start, end)) in found {
                partitions.push(partition.number());
                models.push(model);
                versions.push(version);
                starts.push(start);
                ends.push(end);
            }
            let client = writers.connection().await?;
            let written = async {
                let statement = client.prepare_cached(WRITE).await?;
                client.execute(&statement, &[&partitions, &models, &versions, &starts, &ends]).await?;
                Ok(())
            };
            let written = writers.answered(written).await;
            close_failed(client, written)?;
            tokio::time::sleep_until(written_at + WRITE_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_found_in_each_partition_that_went_on_without_a_change() {
        let at = |positions: [i64; 2]| -> Positions { (0..).map(Partition::new).zip(positions).collect() };
        let spans = IdleSpans::default();
        spans.add(ReadModel::Plans, 7, &at([3, 4]), &at([3, 6]));
        spans.add(ReadModel::Plans, 7, &at([3, 4]), &at([3, 9]));
        spans.add(ReadModel::Requests, 7, &at([3, 4]), &at([5, 4]));
        spans.forget(ReadModel::Requests, 7);
        let found = std::mem::take(&mut *spans.found.lock().unwrap());
        assert_eq!(found, [((Partition::new(1), "plans", 7), (4, 9))].into());
    }
}
