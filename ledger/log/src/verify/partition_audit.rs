//! The audit of a partition, which reads it once. No snapshot lasts longer than the comparison of the stored states.

use std::sync::Arc;

use farthing_core::partition::{Partition, Partitions};
use farthing_core::secret::hex;
use farthing_core::state::generation;
use tokio_postgres::{Client, IsolationLevel};

use super::archives;
use super::batch::StoredBatch;
use super::beginning::{self, Begin};
use super::chain_walk::{ChainWalk, Next};
use super::fold::Fold;
use super::pages::Pages;
use super::published_heads::PublishedPosition;
use super::run::{Audit, Plan, Progress, Published, Trusted};
use super::signed_checkpoints::{Checkpoints, Writer};
use super::stored_states::{self, CHECKPOINT};
use super::verdict::{Check, Finding, Place};
use super::{Error, Head};
use crate::batch_pages::{ArchivedFile, BatchPages};
use crate::connect::{self, Role};
use crate::reader;

/// The head of partition $1, and the last position of its last record batch.
const HEAD: &str = "\
SELECT h.position, h.hash, (
    SELECT greatest(b.first_position, least(b.first_position, 9223372036854775807 - b.count) + b.count - 1)
    FROM ledger.batches AS b
    WHERE b.partition = $1 ORDER BY b.first_position DESC LIMIT 1) AS last
FROM ledger.heads AS h WHERE h.partition = $1";

/// The generation of states that the leaders of partition $1 keep, and the head's position.
const LED_GENERATION: &str = "SELECT generation, position FROM ledger.heads WHERE partition = $1";

/// The number of stored states of partition $1 and generation $2.
const STATES: &str = "SELECT count(*) FROM ledger.state WHERE partition = $1 AND generation = $2";

/// The end of a partition, at one moment.
pub(super) struct End {
    pub(super) position: i64,
    hash: Vec<u8>,
    /// The last position of its last record batch.
    pub(super) last: i64,
}

impl End {
    pub(super) async fn load(client: &Client, partition: Partition) -> Result<Self, Error> {
        let row = client.query_one(HEAD, &[&partition.number()]).await?;
        let last: Option<i64> = row.try_get("last")?;
        Ok(Self { position: row.try_get("position")?, hash: row.try_get("hash")?, last: last.unwrap_or(0) })
    }
}

/// What the audit of a partition is about.
pub(super) struct Of<'p> {
    pub(super) partition: Partition,
    pub(super) partitions: Partitions,
    pub(super) checkpoints: Option<&'p Checkpoints>,
}

/// The audit of a partition.
pub(super) struct PartitionAudit<'p> {
    partition: Partition,
    plan: &'p Plan,
    progress: &'p Progress,
    client: Arc<Client>,
    pages: Pages,
    walk: ChainWalk,
    fold: Fold,
    seen: Audit,
    writer: Option<Writer<'p>>,
    /// Whether the last event that was followed is the last one of its record batch.
    ends_a_batch: bool,
    /// The events that were followed, but not folded: those of the last batch after the checkpoint of the states, which may
    /// be within a batch.
    unfolded: Vec<(Place, String)>,
}

/// What becomes of the audit of a partition.
pub(super) enum Opened<'p> {
    Begins(Box<PartitionAudit<'p>>),
    /// The archived file that it would begin in is damaged: what was seen.
    Stopped(Box<Audit>),
}

impl<'p> PartitionAudit<'p> {
    pub(super) async fn open(
        database_url: &str,
        Of { partition, partitions, checkpoints }: Of<'p>,
        plan: &'p Plan,
        progress: &'p Progress,
    ) -> Result<Opened<'p>, Error> {
        let client = Arc::new(connect::connect(database_url, Role::Owner).await?);
        let (mut fold, mut seen) = (Fold::new(partitions), Audit::default());
        let published = plan.published.as_ref().map(|heads| heads.of(partition));
        if published.is_none() {
            seen.tallies.skip(Check::PublishedHeads, "no file of published heads was given");
        }
        let to = plan.to.unwrap_or(i64::MAX);
        let mut walk = ChainWalk::whole(partition, to, published.unwrap_or_default());
        let mut after = BatchPages::new(partition);
        if plan.from > 1 {
            let begin = match Begin::load(&client, partition, plan.from - 1).await {
                Ok(begin) => begin,
                Err(Error::Log(reader::Error::DamagedArchive { first_position, object, damage })) => {
                    let place = Place { partition, position: first_position };
                    archives::damaged(&mut seen.tallies, place, &object, damage);
                    archives::skip_all(&mut seen.tallies, partition, &object);
                    return Ok(Opened::Stopped(Box::new(seen)));
                }
                Err(error) => return Err(error),
            };
            walk = walk.from(plan.from, begin.hash, &mut seen.tallies);
            after = begin.pages;
            let place = Place { partition, position: plan.from };
            fold.lose(&mut seen.tallies, place, "states are folded from the first event of a partition");
        }
        let mut writer = None;
        if let Some(checkpoints) = checkpoints {
            let with = (checkpoints, to, End::load(&client, partition).await?.last);
            let at = beginning::find(&client, partition, with, &mut seen.tallies, &mut fold).await?;
            writer = checkpoints.writer(partition, at.as_ref().map(|(signed, _)| *signed));
            if let Some((signed, begin)) = at {
                let position = signed.position();
                let with = (walk, position, &begin);
                walk = beginning::after(&client, partition, with, &mut seen.tallies).await?;
                after = begin.pages;
                let (hash, written_at) = (hex(&begin.hash), signed.written_at().to_owned());
                seen.trusted.push(Trusted { partition, position, hash, written_at });
                progress.skip(position);
            }
        }
        let pages = Pages::new(Arc::clone(&client), after);
        let (ends_a_batch, unfolded) = (true, Vec::new());
        Ok(Opened::Begins(Box::new(Self {
            partition,
            plan,
            progress,
            client,
            pages,
            walk,
            fold,
            seen,
            writer,
            ends_a_batch,
            unfolded,
        })))
    }

    pub(super) async fn run(mut self, database_url: &str) -> Result<Audit, Error> {
        self.stored_states(database_url).await?;
        let end = End::load(&self.client, self.partition).await?;
        self.follow(end.last, i64::MAX).await?;
        self.head(&end);
        let last = Place { partition: self.partition, position: self.walk.position };
        self.walk.report_unreached(end.last, &mut self.seen.tallies);
        if self.plan.to.is_none_or(|to| to >= end.last) {
            self.fold.sum_up(&mut self.seen.tallies, last);
        } else if self.fold.is_whole {
            self.seen.tallies.skip(Check::Balances, self.ends_before("the last event"));
        }
        if self.fold.is_whole {
            self.seen.sums.add(&self.fold.sums)?;
        }
        self.seen.events = self.walk.events;
        if let Some(PublishedPosition { line, published_at, position, hash }) = self.walk.contained.take() {
            let (partition, hash, published_at) = (self.partition, hex(&hash), published_at.to_string());
            self.seen.published.push(Published { partition, position, hash, line, published_at });
        }
        self.write_checkpoint()?;
        Ok(self.seen)
    }

    /// Verifies the record batches that begin at `end` or before, and within the plan. Folds their events up to the position
    /// `folded`.
    async fn follow(&mut self, end: i64, folded: i64) -> Result<(), Error> {
        let rest = self.unfolded.partition_point(|(place, _)| place.position <= folded);
        for (place, line) in self.unfolded.drain(..rest) {
            self.fold.event(&mut self.seen.tallies, place, &line);
        }
        let end = end.min(self.plan.to.unwrap_or(i64::MAX));
        while let Some(row) = self.pages.next(end).await? {
            let (before, events) = (self.walk.position, self.walk.events);
            let (fold, unfolded) = (&mut self.fold, &mut self.unfolded);
            let batch = StoredBatch::of(&row);
            let next = self.walk.follow(&batch, &mut self.seen.tallies, |tallies, place, line| {
                if place.position <= folded {
                    fold.event(tallies, place, line);
                } else {
                    unfolded.push((place, line.to_owned()));
                }
            });
            if next == Next::Lost {
                let place = Place { partition: self.partition, position: before.saturating_add(1) };
                fold.lose(&mut self.seen.tallies, place, "events are missing or cannot be read");
            }
            let events = i64::try_from(self.walk.events - events).unwrap_or(0);
            self.progress.read(events);
            self.ends_a_batch = batch.last_position() == self.walk.position;
            if self.writer.as_ref().is_some_and(|writer| writer.is_due(self.walk.position)) {
                // Nothing is signed that comes from a damaged file.
                self.archived_files();
                self.write_checkpoint()?;
            }
            // The connections share the threads.
            tokio::task::yield_now().await;
        }
        self.archived_files();
        Ok(())
    }

    /// Adds what was found about the archived files that were read.
    fn archived_files(&mut self) {
        let (partition, tallies) = (self.partition, &mut self.seen.tallies);
        for ArchivedFile { object, first_position, damage, strays } in self.pages.take_files() {
            tallies.checked(Check::Archives, 1);
            if let Some(damage) = damage {
                archives::damaged(tallies, Place { partition, position: first_position }, &object, damage);
            }
            for position in strays {
                archives::stray(tallies, Place { partition, position }, &object);
            }
        }
    }

    /// Follows the log to the checkpoint of this program's generation of states, and compares the stored states.
    async fn stored_states(&mut self, database_url: &str) -> Result<(), Error> {
        if !self.fold.is_whole {
            return Ok(());
        }
        let parameters = (self.partition.number(), generation());
        let stored = self.client.query_opt(CHECKPOINT, &[&parameters.0, &parameters.1]).await?;
        let Some(stored) = stored else { return self.without_stored_states().await };
        let before: i64 = stored.try_get(0)?;
        self.follow(before, before).await?;
        let mut client = connect::connect(database_url, Role::Owner).await?;
        let snapshot = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .await?;
        let position: i64 =
            snapshot.query_one(CHECKPOINT, &[&parameters.0, &parameters.1]).await?.try_get(0)?;
        self.follow(position, position).await?;
        let (partition, last) = (self.partition, self.folded());
        if self.plan.to.is_some_and(|to| to < position) {
            self.seen.tallies.skip(Check::StoredStates, self.ends_before("the stored states"));
        } else if last > position {
            let reason = format!(
                "partition {partition}: their checkpoint moved back from position {before} to {position} meanwhile"
            );
            self.seen.tallies.miss(Check::StoredStates, reason);
        } else if last < position {
            let found = format!("the log ends at position {last}");
            let text =
                format!("partition {partition}: the states are stored as of position {position}, {found}");
            let expected = format!("an event at position {position}");
            let finding = Finding { partition, position: last + 1, text, expected, found };
            self.seen.tallies.find(Check::StoredStates, finding);
        } else if self.fold.is_whole {
            let place = Place { partition: self.partition, position };
            stored_states::compare(&snapshot, &mut self.seen.tallies, &self.fold, place).await?;
            self.seen.states = self.fold.states.len();
        }
        snapshot.commit().await?;
        Ok(())
    }

    /// There is no checkpoint of this program's generation. The leader goes on from one: if it keeps that generation, somebody
    /// has removed it.
    async fn without_stored_states(&mut self) -> Result<(), Error> {
        let partition = self.partition;
        let row = self.client.query_one(LED_GENERATION, &[&partition.number()]).await?;
        let (led, position): (i16, i64) = (row.try_get(0)?, row.try_get(1)?);
        if position == 0 {
            let states: i64 =
                self.client.query_one(STATES, &[&partition.number(), &generation()]).await?.try_get(0)?;
            if states > 0 {
                let text = format!("partition {partition}: states are stored, although it has no event");
                let (expected, found) = ("no state".to_owned(), format!("{states} states"));
                let finding = Finding { partition, position: 1, text, expected, found };
                self.seen.tallies.find(Check::StoredStates, finding);
            }
            return Ok(());
        }
        if led != generation() {
            let reason = format!(
                "partition {partition}: the states of this release's generation are not stored; the leader keeps others"
            );
            self.seen.tallies.miss(Check::StoredStates, reason);
            return Ok(());
        }
        let text = format!(
            "partition {partition}: the checkpoint of the stored states is missing, although the leader goes on from it"
        );
        let expected = format!("a checkpoint of generation {led}");
        let finding = Finding { partition, position: 1, text, expected, found: "none".to_owned() };
        self.seen.tallies.find(Check::StoredStates, finding);
        Ok(())
    }

    /// The position of the last event that was folded.
    fn folded(&self) -> i64 {
        self.unfolded.first().map_or(self.walk.position, |(place, _)| place.position - 1)
    }

    /// Writes a checkpoint after the last event. An audit begins at the start of a record batch.
    fn write_checkpoint(&mut self) -> Result<(), Error> {
        if let Some(writer) = &mut self.writer
            && self.ends_a_batch
            && self.unfolded.is_empty()
        {
            let is_written =
                writer.write((self.walk.position, &self.walk.hash), &self.fold, &self.seen.tallies)?;
            self.seen.checkpoints_written += u64::from(is_written);
        }
        Ok(())
    }

    fn ends_before(&self, what: &str) -> String {
        format!("partition {}: --to is before {what}", self.partition)
    }

    /// Compares the head with the last event.
    fn head(&mut self, end: &End) {
        let (partition, last) = (self.partition, self.walk.position);
        let End { position, hash, .. } = end;
        self.seen.heads.push(Head { partition, position: *position, hash: hex(hash) });
        if self.plan.to.is_some_and(|to| to < *position) {
            self.seen.tallies.skip(Check::Heads, self.ends_before("the head"));
            return;
        }
        self.seen.tallies.checked(Check::Heads, 1);
        if *position != last {
            self.seen.tallies.find(
                Check::Heads,
                Finding {
                    partition,
                    position: last.min(*position) + 1,
                    text: format!(
                        "partition {partition}: the head is at position {position}, the last event at {last}"
                    ),
                    expected: format!("a head at position {last}"),
                    found: format!("a head at position {position}"),
                },
            );
        } else if *hash != self.walk.hash {
            let expected = hex(&self.walk.hash);
            self.seen.tallies.find(Check::Heads, Finding {
                partition,
                position: last,
                text: format!(
                    "partition {partition}: the head's hash is not that of the last event, at position {last}"
                ),
                expected,
                found: hex(hash),
            });
        }
    }
}
