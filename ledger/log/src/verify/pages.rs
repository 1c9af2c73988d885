//! The record batches of a partition in their order, a page at a time. The next page is read while the one before it is
//! verified, and pages have about the same size in bytes, so memory does not depend on the length of the log.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio_postgres::Client;
use tokio_util::task::AbortOnDropHandle;

use super::Error;
use crate::batch_pages::{ArchivedFile, BatchPage, BatchPages, BatchRow};
use crate::reader;

/// The fewest and the most record batches of a page. A batch has at most 512 KB.
const PAGE: (i64, i64) = (16, 2_048);

/// A page with fewer bytes of events is followed by a longer one, and one with more by a shorter one.
const PAGE_BYTES: (usize, usize) = (512 * 1_024, 2 * 1_024 * 1_024);

type PageTask = AbortOnDropHandle<Result<(BatchPages, BatchPage), reader::Error>>;

/// The rest of the record batches of a partition.
pub(super) struct Pages {
    client: Arc<Client>,
    /// Up to the last batch that was read.
    place: BatchPages,
    limit: i64,
    batches: VecDeque<BatchRow>,
    /// The archived files that were read since they were taken.
    files: Vec<ArchivedFile>,
    next: Option<PageTask>,
}

impl Pages {
    /// The batches after `place`.
    pub(super) fn new(client: Arc<Client>, place: BatchPages) -> Self {
        Self { client, place, limit: PAGE.0, batches: VecDeque::new(), files: Vec::new(), next: None }
    }

    /// The next batch that begins at `end` or before; `None` if the next one begins later, or there is none.
    pub(super) async fn next(&mut self, end: i64) -> Result<Option<BatchRow>, Error> {
        while self.batches.is_empty() && self.read().await? {}
        let begins_in_time = self.batches.front().is_some_and(|batch| batch.first_position <= end);
        Ok(if begins_in_time { self.batches.pop_front() } else { None })
    }

    /// The archived files that the batches up to here come from, each once.
    pub(super) fn take_files(&mut self) -> Vec<ArchivedFile> {
        std::mem::take(&mut self.files)
    }

    /// Reads a page, which has no batches if it is a file that cannot be read; `false` at the end of the log.
    async fn read(&mut self) -> Result<bool, Error> {
        let mut page = BatchPage::default();
        if let Some(next) = self.next.take() {
            (self.place, page) = next.await.map_err(|_| Error::Stopped)??;
        }
        // What was read ahead found nothing: batches may have been appended since then.
        if page.is_end() {
            (self.place, page) = self.request().await.map_err(|_| Error::Stopped)??;
        }
        let (is_end, is_archived) = (page.is_end(), page.file.is_some());
        let is_full = is_archived || i64::try_from(page.batches.len()) == Ok(self.limit);
        // The size of an archived file says nothing about the pages of the table.
        if !is_archived && !is_end {
            let bytes: usize = page.batches.iter().map(|batch| batch.events.len()).sum();
            if bytes > PAGE_BYTES.1 {
                self.limit = (self.limit / 2).max(PAGE.0);
            } else if bytes < PAGE_BYTES.0 {
                self.limit = (self.limit * 2).min(PAGE.1);
            }
        }
        self.files.extend(page.file);
        self.batches = page.batches.into();
        if is_full {
            self.next = Some(self.request());
        }
        Ok(!is_end)
    }

    /// Begins to read the next page.
    fn request(&self) -> PageTask {
        let (client, mut place, limit) = (Arc::clone(&self.client), self.place, self.limit);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let page = place.next(&*client, limit).await?;
            Ok((place, page))
        }))
    }
}
