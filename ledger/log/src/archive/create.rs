//! `farthing archive create`: moves the old range of each partition to files.
//!
//! Order: read and prove the range, write the file, read it back and prove it again, write its manifest, record it, delete
//! the rows in short transactions. A run that was killed left the range in the table, or recorded and in the file; the next
//! run finishes the deletion first.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use serde::Serialize;
use tokio_postgres::Client;

use super::file;
use super::range::ArchivedRange;
use super::store::Store;
use super::{BATCHES_AT_ONCE, Error, restore};
use crate::batch_pages::{BatchPages, BatchRow};
use crate::chain::{GENESIS, Hash};
use crate::reader;

/// The part of the system that has come least far in partition $1, and its position.
const LIMIT: &str = "SELECT what, reached FROM ledger.archive_limits($1) ORDER BY reached LIMIT 1";

/// Deletes at most $3 record batches of archive $2 of partition $1.
const DELETE: &str = "SELECT ledger.delete_archived($1, $2, $3)";

/// Record batches that are read at once: of at most 512 KB each.
const PAGE: i64 = 32;

/// A file ends with the record batch that brings its events to this size.
const FILE_BYTES: usize = 16 * 1_024 * 1_024;

/// What is archived.
#[derive(Debug, Clone)]
pub struct Plan {
    /// One partition, or all.
    pub partition: Option<Partition>,
    /// Nothing after this position.
    pub to: Option<i64>,
    /// Nothing that was appended at this time or later.
    pub before: Option<DateTime<Utc>>,
    /// The newest events of each partition that stay in the table.
    pub keep_events: i64,
    /// A file ends with the record batch that brings it to this number of events.
    pub events_per_file: i64,
    /// The position up to which the feed has each partition, if it is known.
    pub published: BTreeMap<Partition, i64>,
}

/// What a run did in a partition.
#[derive(Debug, Clone, Serialize)]
pub struct Created {
    /// The partition.
    pub partition: Partition,
    /// The ranges that were archived.
    pub archived: Vec<ArchivedRange>,
    /// The ranges whose deletion earlier runs had left unfinished.
    pub finished: Vec<ArchivedRange>,
    /// What keeps the next events in the table, and the last position that may be archived.
    pub limit: String,
    /// That position; 0 if nothing may be archived.
    pub limit_position: i64,
}

/// Archives what `plan` allows. `report` is given each range when it has left the table.
pub async fn create(
    database_url: &str,
    store: &Store,
    plan: &Plan,
    mut report: impl FnMut(&ArchivedRange),
) -> Result<Vec<Created>, Error> {
    store.check()?;
    let lock = super::open(database_url).await?;
    let client = lock.client();
    for partition in super::chosen(client, None).await? {
        is_same_store(client, store, partition).await?;
    }
    let mut done = Vec::new();
    for partition in super::chosen(client, plan.partition).await? {
        let mover = Mover { client, store, plan, partition };
        done.push(mover.run(&mut report).await?);
    }
    lock.release().await?;
    Ok(done)
}

/// Refuses a store that does not have the newest archived file of `partition`, as an empty mount point has not.
async fn is_same_store(client: &Client, store: &Store, partition: Partition) -> Result<(), Error> {
    let Some(range) = ArchivedRange::newest(client, partition).await? else { return Ok(()) };
    match store.size(&range.object).await? {
        Some(size) if i64::try_from(size) == Ok(range.bytes) => Ok(()),
        Some(size) => {
            let what = format!("it has {size} bytes, and had {} when it was archived", range.bytes);
            Err(Error::Damaged { object: range.object, what })
        }
        None => Err(Error::OtherStore { location: store.location().to_owned(), object: range.object }),
    }
}

struct Mover<'a> {
    client: &'a Client,
    store: &'a Store,
    plan: &'a Plan,
    partition: Partition,
}

impl Mover<'_> {
    async fn run(&self, report: &mut impl FnMut(&ArchivedRange)) -> Result<Created, Error> {
        let mut finished = Vec::new();
        for range in ArchivedRange::in_table(self.client, self.partition).await? {
            self.delete(&range).await?;
            report(&range);
            finished.push(range);
        }
        let mut last = ArchivedRange::newest(self.client, self.partition).await?;
        let (limit, limit_position) = self.limit().await?;
        let mut archived = Vec::new();
        while let Some(range) = self.next(last.as_ref(), limit_position).await? {
            self.delete(&range).await?;
            report(&range);
            archived.push(range.clone());
            last = Some(range);
        }
        Ok(Created { partition: self.partition, archived, finished, limit, limit_position })
    }

    /// What keeps the next events in the table, and the last position that may leave it.
    async fn limit(&self) -> Result<(String, i64), Error> {
        let row = self.client.query_one(LIMIT, &[&self.partition.number()]).await?;
        let head = reader::head(self.client, self.partition).await?;
        let (needed, kept) = ((row.try_get(0)?, row.try_get(1)?), self.plan.keep_events);
        let limits = [
            Some(needed),
            Some((format!("the newest {kept} events stay"), head.saturating_sub(kept))),
            // The relay compares the event there.
            self.plan
                .published
                .get(&self.partition)
                .map(|position| ("the feed".to_owned(), position.saturating_sub(1))),
            self.plan.to.map(|to| ("the last position that was asked for".to_owned(), to)),
        ];
        let least = limits.into_iter().flatten().min_by_key(|(_, position)| *position);
        Ok(least.map(|(limit, position)| (limit, position.max(0))).unwrap_or_default())
    }

    /// Writes, proves and records the range after `last`; `None` if there is none up to `limit`.
    async fn next(&self, last: Option<&ArchivedRange>, limit: i64) -> Result<Option<ArchivedRange>, Error> {
        let (end, previous) = last.map_or((0, GENESIS), |last| (last.last_position, last.last_hash));
        let batches = self.read(end, limit).await?;
        let (Some(begin), Some(end)) = (batches.first(), batches.last()) else { return Ok(None) };
        let hash = self.proven(&batches, begin.first_position, previous)?;
        let file = file::write(&batches).map_err(|what| self.broken(begin.first_position, what))?;
        let range = ArchivedRange {
            partition: self.partition,
            number: ArchivedRange::next_number(self.client, self.partition).await?,
            first_position: begin.first_position,
            last_position: end.last_position(),
            batches: i32::try_from(batches.len()).unwrap_or(i32::MAX),
            previous_hash: previous,
            last_hash: hash,
            first_recorded_at: begin.recorded_at,
            last_recorded_at: end.recorded_at,
            location: self.store.location().to_owned(),
            // The name says what is in the file: a run that was killed left the same file, or one of another name.
            object: format!(
                "partition-{:04}/{:016}-{:016}-{}{}",
                self.partition.number(),
                begin.first_position,
                end.last_position(),
                &hex(&file.sha256)[..16],
                file::SUFFIX
            ),
            bytes: i64::try_from(file.bytes.len()).unwrap_or(i64::MAX),
            text_bytes: file.text_bytes,
            sha256: file.sha256,
        };
        self.store.put(&range.object, file.bytes).await?;
        let written = self.store.read(&range).await?;
        let damaged = |what| Error::Damaged { object: range.object.clone(), what };
        if let Some(what) = written.damage {
            return Err(damaged(what));
        }
        if *written.batches != batches {
            return Err(damaged("what is read back is not what was written".to_owned()));
        }
        let manifest =
            serde_json::to_vec_pretty(&range.manifest()).map_err(|error| damaged(error.to_string()))?;
        self.store.put(&range.manifest_object(), manifest).await?;
        range.record(self.client).await?;
        Ok(Some(range))
    }

    /// The record batches after position `end` that go into one file.
    async fn read(&self, end: i64, limit: i64) -> Result<Vec<BatchRow>, Error> {
        let mut pages = BatchPages::behind(self.partition, end);
        let (mut batches, mut bytes, mut events) = (Vec::new(), 0, 0);
        loop {
            let page = pages.next(self.client, PAGE).await?.batches;
            if page.is_empty() {
                return Ok(batches);
            }
            for batch in page {
                let is_new = self.plan.before.is_some_and(|before| batch.recorded_at >= before);
                if batch.last_position() > limit || is_new {
                    return Ok(batches);
                }
                bytes += batch.events.len();
                events += i64::from(batch.count);
                batches.push(batch);
                if bytes >= FILE_BYTES || events >= self.plan.events_per_file {
                    return Ok(batches);
                }
            }
        }
    }

    fn proven(&self, batches: &[BatchRow], first: i64, previous: Hash) -> Result<Hash, Error> {
        file::follow(batches, first, previous).map_err(|(position, what)| self.broken(position, what))
    }

    fn broken(&self, position: i64, what: String) -> Error {
        Error::Broken { partition: self.partition, position, what }
    }

    /// Deletes the rows of a recorded range, after its file was read and proven once more. All that is deleted is in the file.
    async fn delete(&self, range: &ArchivedRange) -> Result<(), Error> {
        let content = self.store.proven(range).await?;
        if let Some(position) = restore::other(self.client, range, &content.batches).await? {
            let what = format!("the table has another record batch at position {position}");
            return Err(Error::Damaged { object: range.object.clone(), what });
        }
        let parameters = (range.partition.number(), range.number, BATCHES_AT_ONCE);
        loop {
            let row = self.client.query_one(DELETE, &[&parameters.0, &parameters.1, &parameters.2]).await?;
            if row.try_get::<_, i64>(0)? == 0 {
                return Ok(());
            }
        }
    }
}
