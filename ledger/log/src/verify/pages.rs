//! The record batches of a partition in their order, a page at a time. The next page is read while the one before it is
//! verified, and pages have about the same size in bytes, so memory does not depend on the length of the log.

use std::collections::VecDeque;
use std::sync::Arc;

use farthing_core::partition::Partition;
use tokio_postgres::{Client, Row};
use tokio_util::task::AbortOnDropHandle;

use super::Error;

/// The record batches whose first position is above $2, in the order of their positions.
const BATCHES: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position > $2 ORDER BY first_position LIMIT $3";

/// The fewest and the most record batches of a page. A batch has at most 512 KB.
const PAGE: (i64, i64) = (16, 2_048);

/// A page with fewer bytes of events is followed by a longer one, and one with more by a shorter one.
const PAGE_BYTES: (usize, usize) = (512 * 1_024, 2 * 1_024 * 1_024);

/// The rest of the record batches of a partition.
pub(super) struct Pages {
    client: Arc<Client>,
    partition: Partition,
    /// The first position of the last batch that was read.
    last: i64,
    limit: i64,
    rows: VecDeque<Row>,
    next: Option<AbortOnDropHandle<Result<Vec<Row>, tokio_postgres::Error>>>,
}

impl Pages {
    /// The batches of `partition` whose first position is above `after`.
    pub(super) fn new(client: Arc<Client>, partition: Partition, after: i64) -> Self {
        Self { client, partition, last: after, limit: PAGE.0, rows: VecDeque::new(), next: None }
    }

    /// The next batch that begins at `end` or before; `None` if the next one begins later, or there is none.
    pub(super) async fn next(&mut self, end: i64) -> Result<Option<Row>, Error> {
        if self.rows.is_empty() {
            self.read().await?;
        }
        let Some(row) = self.rows.front() else { return Ok(None) };
        if row.try_get::<_, i64>("first_position")? > end {
            return Ok(None);
        }
        Ok(self.rows.pop_front())
    }

    async fn read(&mut self) -> Result<(), Error> {
        let mut page = match self.next.take() {
            Some(page) => page.await.map_err(|_| Error::Stopped)??,
            None => Vec::new(),
        };
        // What was read ahead found nothing: batches may have been appended since then.
        if page.is_empty() {
            page = self.request().await.map_err(|_| Error::Stopped)??;
        }
        let Some(last) = page.last() else { return Ok(()) };
        self.last = last.try_get("first_position")?;
        let is_full = i64::try_from(page.len()) == Ok(self.limit);
        let mut bytes = 0;
        for row in &page {
            bytes += row.try_get::<_, &[u8]>("events")?.len();
        }
        if bytes > PAGE_BYTES.1 {
            self.limit = (self.limit / 2).max(PAGE.0);
        } else if bytes < PAGE_BYTES.0 {
            self.limit = (self.limit * 2).min(PAGE.1);
        }
        self.rows = page.into();
        if is_full {
            self.next = Some(self.request());
        }
        Ok(())
    }

    /// Begins to read the next page.
    fn request(&self) -> AbortOnDropHandle<Result<Vec<Row>, tokio_postgres::Error>> {
        let (client, partition, last, limit) =
            (Arc::clone(&self.client), self.partition.number(), self.last, self.limit);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let statement = client.prepare(BATCHES).await?;
            client.query(&statement, &[&partition, &last, &limit]).await
        }))
    }
}
