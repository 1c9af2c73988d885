//! The record batches of a partition in their order, a page at a time. The next page is read while the one before it is
//! verified, and pages have about the same size in bytes, so memory does not depend on the length of the log.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio_postgres::Client;
use tokio_util::task::AbortOnDropHandle;

use super::Error;
use crate::batch_pages::{BatchPages, BatchRow};
use crate::reader;

/// The fewest and the most record batches of a page. A batch has at most 512 KB.
const PAGE: (i64, i64) = (16, 2_048);

/// A page with fewer bytes of events is followed by a longer one, and one with more by a shorter one.
const PAGE_BYTES: (usize, usize) = (512 * 1_024, 2 * 1_024 * 1_024);

type PageTask = AbortOnDropHandle<Result<(BatchPages, Vec<BatchRow>), reader::Error>>;

/// The rest of the record batches of a partition.
pub(super) struct Pages {
    client: Arc<Client>,
    /// Up to the last batch that was read.
    pages: BatchPages,
    limit: i64,
    batches: VecDeque<BatchRow>,
    next: Option<PageTask>,
}

impl Pages {
    /// The batches after `pages`.
    pub(super) fn new(client: Arc<Client>, pages: BatchPages) -> Self {
        Self { client, pages, limit: PAGE.0, batches: VecDeque::new(), next: None }
    }

    /// The next batch that begins at `end` or before; `None` if the next one begins later, or there is none.
    pub(super) async fn next(&mut self, end: i64) -> Result<Option<BatchRow>, Error> {
        if self.batches.is_empty() {
            self.read().await?;
        }
        let begins_in_time = self.batches.front().is_some_and(|batch| batch.first_position <= end);
        Ok(if begins_in_time { self.batches.pop_front() } else { None })
    }

    async fn read(&mut self) -> Result<(), Error> {
        let mut page = Vec::new();
        if let Some(next) = self.next.take() {
            (self.pages, page) = next.await.map_err(|_| Error::Stopped)??;
        }
        // What was read ahead found nothing: batches may have been appended since then.
        if page.is_empty() {
            (self.pages, page) = self.request().await.map_err(|_| Error::Stopped)??;
        }
        let is_full = i64::try_from(page.len()) == Ok(self.limit);
        let bytes: usize = page.iter().map(|batch| batch.events.len()).sum();
        if bytes > PAGE_BYTES.1 {
            self.limit = (self.limit / 2).max(PAGE.0);
        } else if !page.is_empty() && bytes < PAGE_BYTES.0 {
            self.limit = (self.limit * 2).min(PAGE.1);
        }
        self.batches = page.into();
        if is_full {
            self.next = Some(self.request());
        }
        Ok(())
    }

    /// Begins to read the next page.
    fn request(&self) -> PageTask {
        let (client, mut pages, limit) = (Arc::clone(&self.client), self.pages, self.limit);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let batches = pages.next(&*client, limit).await?;
            Ok((pages, batches))
        }))
    }
}
