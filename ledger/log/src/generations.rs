//! Builds the states of this program's generation beside those of an older one, from the log, while gateways of the older
//! release lead. Works in pages with bounded memory; its checkpoint is the generation's own. One gateway at a time
//! builds; another goes on if it dies.
//!
//! Invariant: states are stored only after the hashes of their page were verified and its events up to them were folded
//! without a broken invariant, and only while no gateway leads the partition with this generation (the epoch of
//! `ledger.build_states`).

use std::sync::Arc;
use std::time::Duration;

use farthing_core::event::Fact;
use farthing_core::partition::Partition;
use farthing_core::state::{CacheSize, EvolveError, Missing, StateCache, StateKey, generation, shape};
use tokio::time::Instant;
use tokio_postgres::{Client, Statement};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::chain::{self, GENESIS, Hash, Link};
use crate::connect::{self, Role, redacted};
use crate::folding::folded_first;
use crate::leadership::Leadership;
use crate::reader::{self, Reader};
use crate::record_batch::RecordBatch;
use crate::{partitions, record, states};

/// The most events by which the states of a new generation may be behind their partition when this gateway takes it over:
/// it folds them first.
pub(crate) const MAX_BEHIND: i64 = 20_000;

/// The events that are read at once, and folded and stored if their states are not too long.
const PAGE: usize = 5_000;

/// The number of states that are kept in memory from one page to the next.
const MAX_CACHED: CacheSize = CacheSize { states: 50_000, bytes: 64 * 1024 * 1024 };
/// What of them is kept once there are more.
const KEPT: CacheSize = CacheSize { states: 40_000, bytes: 48 * 1024 * 1024 };

/// The pause between two rounds over the partitions that older gateways still lead.
const ROUND_INTERVAL: Duration = Duration::from_millis(500);

/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Settings as those of a leader: each statement finds a few rows by their keys.
const SETTINGS: &str = "\
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET statement_timeout = '60s'";

/// The partitions whose leader keeps states of a generation before $1.
const UNBUILT: &str = "SELECT partition FROM ledger.heads WHERE generation < $1 ORDER BY partition";

const NEWER: &str = "SELECT count(*) > 0 FROM ledger.heads WHERE shape > $1";

const GENERATION: &str = "SELECT generation FROM ledger.heads WHERE partition = $1";

const NEWEST_LED: &str = "SELECT max(generation) FROM ledger.heads";

/// The generations before $1, and those after $2.
const UNUSED: &str =
    "SELECT DISTINCT generation FROM ledger.checkpoints WHERE generation < $1 OR generation > $2 ORDER BY 1";

/// Begins generation $2 of partition $1 anew, unless a leader keeps it.
const BEGIN_ANEW: &str = "\
WITH head AS (SELECT 1 FROM ledger.heads WHERE partition = $1 AND generation < $2 FOR SHARE)
UPDATE ledger.checkpoints SET position = 0, built = false, epoch = least(epoch, 0) - 1
WHERE partition = $1 AND generation = $2 AND EXISTS (SELECT FROM head)";

/// A page of the states of generation $2 of partition $1.
const DELETE: &str = "\
WITH page AS (
    SELECT kind, id FROM ledger.state
    WHERE partition = $1 AND generation = $2 ORDER BY kind, id LIMIT $3)
DELETE FROM ledger.state AS s USING page
WHERE s.partition = $1 AND s.generation = $2 AND s.kind = page.kind AND s.id = page.id";

/// The same, for the builder with the epoch $4, before it has stored any: once a leader has begun, or another builder, it
/// deletes nothing.
const DELETE_BEFORE_BUILD: &str = "\
WITH own AS (
    SELECT 1 FROM ledger.checkpoints
    WHERE partition = $1 AND generation = $2 AND epoch = $4 AND position = 0 FOR SHARE),
page AS (
    SELECT kind, id FROM ledger.state
    WHERE partition = $1 AND generation = $2 AND EXISTS (SELECT FROM own) ORDER BY kind, id LIMIT $3)
DELETE FROM ledger.state AS s USING page
WHERE s.partition = $1 AND s.generation = $2 AND s.kind = page.kind AND s.id = page.id";

const DELETE_CHECKPOINT: &str = "DELETE FROM ledger.checkpoints WHERE partition = $1 AND generation = $2";

const BUILD: &str = "SELECT stored_position, build_epoch FROM ledger.build_states($1, $2)";

const SET_BUILT: &str = "\
UPDATE ledger.checkpoints SET built = true WHERE partition = $1 AND generation = $2 AND epoch = $3 AND NOT built";

/// Why a round of the builder failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Log(#[from] reader::Error),
    #[error(transparent)]
    States(#[from] states::Error),
    #[error("partition {partition}, position {position}: {what}")]
    Broken { partition: Partition, position: i64, what: String },
}

/// Why the states of other generations are not dropped.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// Postgres does not answer, or refuses.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// A partition is still led with them.
    #[error("partition {0} is led with the states of an earlier release")]
    Used(Partition),
    /// A newer release builds them, or leads with them.
    #[error("a gateway of a newer release builds the states of generation {0}: stop it first")]
    Building(i16),
    /// The log has no partitions.
    #[error("the log has no partitions: run `farthing migrate`")]
    NoPartitions,
}

/// Drops the stored states of the generations before this program's, once every partition is led with its own, and of
/// later ones that no partition has been led with: a newer release began to build them. Returns their number.
pub async fn prune(database_url: &str) -> Result<u64, PruneError> {
    let client = connect::connect(database_url, Role::Owner).await?;
    if let Some(partition) = unbuilt(&client).await?.first() {
        return Err(PruneError::Used(*partition));
    }
    let partitions = partitions::load(&client).await?.ok_or(PruneError::NoPartitions)?;
    let newest_led: i16 = client.query_one(NEWEST_LED, &[]).await?.try_get(0)?;
    let mut dropped = 0;
    for row in client.query(UNUSED, &[&generation(), &newest_led]).await? {
        let unused: i16 = row.try_get(0)?;
        // A builder begins only after the states are gone.
        let own = connect::connect(database_url, Role::Owner).await?;
        let lock =
            Leadership::try_take(own, &lock_name(unused)).await?.ok_or(PruneError::Building(unused))?;
        for partition in partitions.all() {
            if unused > newest_led {
                begin_anew(lock.client(), partition, unused).await?;
            }
            dropped += delete_states(lock.client(), partition, unused, None).await?;
            lock.client().execute(DELETE_CHECKPOINT, &[&partition.number(), &unused]).await?;
        }
        lock.release().await?;
    }
    Ok(dropped)
}

/// If the states are dropped in part only, they are not built on.
async fn begin_anew(client: &Client, partition: Partition, generation: i16) -> Result<(), PruneError> {
    let number = partition.number();
    let has_begun = client.execute(BEGIN_ANEW, &[&number, &generation]).await? == 1;
    let head: i16 = client.query_one(GENERATION, &[&number]).await?.try_get(0)?;
    if has_begun || head < generation { Ok(()) } else { Err(PruneError::Building(generation)) }
}

/// Deletes the stored states of a generation, in pages. Returns their number. With the epoch of its builder, only until
/// somebody leads with them.
async fn delete_states(
    client: &Client,
    partition: Partition,
    generation: i16,
    build_epoch: Option<i64>,
) -> Result<u64, tokio_postgres::Error> {
    let page = i64::try_from(PAGE).unwrap_or(i64::MAX);
    let mut deleted = 0;
    loop {
        let number = partition.number();
        let count = match build_epoch {
            None => client.execute(DELETE, &[&number, &generation, &page]).await?,
            Some(epoch) => {
                client.execute(DELETE_BEFORE_BUILD, &[&number, &generation, &page, &epoch]).await?
            }
        };
        if count == 0 {
            return Ok(deleted);
        }
        deleted += count;
    }
}

/// The name of the lock of the one gateway that builds a generation.
fn lock_name(generation: i16) -> String {
    format!("farthing.generation.{generation}")
}

/// Whether a newer program has led a partition: this one must not lead any more.
pub async fn has_newer_shape(client: &Client) -> Result<bool, tokio_postgres::Error> {
    client.query_one(NEWER, &[&i64::from(shape())]).await?.try_get(0)
}

/// Whether every partition is led with the states of this program's generation, or a newer one.
pub async fn are_live(client: &Client) -> Result<bool, tokio_postgres::Error> {
    Ok(unbuilt(client).await?.is_empty())
}

/// Builds until every partition is led with this generation or a newer one, or until `stop`. Does nothing if all are.
pub(crate) async fn build(database_url: String, stop: CancellationToken) {
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        let started = Instant::now();
        let error = match stop.run_until_cancelled(build_all(&database_url)).await {
            None | Some(Ok(())) => return,
            Some(Err(error)) => error,
        };
        tracing::error!(
            event = "generations.build_failed",
            generation = generation(),
            %error,
            "the states of this release cannot be built; the build goes on after a pause"
        );
        let pause = tokio::time::sleep(backoff.next_delay_after(started.elapsed()));
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

async fn build_all(database_url: &str) -> Result<(), Error> {
    let client = connect::connect(database_url, Role::Gateway).await?;
    if unbuilt(&client).await?.is_empty() {
        return Ok(());
    }
    let leadership = Leadership::wait(client, &lock_name(generation()), || {}).await?;
    let builder = Builder::open(database_url, leadership.into_client()).await?;
    tracing::info!(
        event = "generations.build_started",
        generation = generation(),
        "builds the states of this release beside those of an older one"
    );
    loop {
        let partitions = unbuilt(&builder.client).await?;
        if partitions.is_empty() {
            tracing::info!(
                event = "generations.built",
                generation = generation(),
                "all partitions are led with the states of this release"
            );
            return Ok(());
        }
        for partition in partitions {
            builder.catch_up(partition).await?;
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
}

async fn unbuilt(client: &Client) -> Result<Vec<Partition>, tokio_postgres::Error> {
    let rows = client.query(UNBUILT, &[&generation()]).await?;
    rows.iter().map(|row| row.try_get(0).map(Partition::new)).collect()
}

struct Builder {
    client: Client,
    reader: Reader,
    build: Statement,
    load: Statement,
    store: Statement,
}

impl Builder {
    async fn open(database_url: &str, client: Client) -> Result<Self, Error> {
        client.batch_execute(SETTINGS).await?;
        let (build, load, store) = tokio::try_join!(
            client.prepare(BUILD),
            client.prepare(states::LOAD),
            client.prepare(states::STORE)
        )?;
        let reader = Reader::connect(database_url, Role::Gateway).await?;
        Ok(Self { client, reader, build, load, store })
    }

    /// Builds the states of `partition` up to the head that it has now, or until this program leads it.
    async fn catch_up(&self, partition: Partition) -> Result<(), Error> {
        let begun = self.client.query_opt(&self.build, &[&partition.number(), &generation()]).await?;
        let Some(begun) = begun else { return Ok(()) };
        let (mut position, epoch): (i64, i64) = (begun.try_get(0)?, begun.try_get(1)?);
        let head = reader::head(&self.client, partition).await?;
        if position == 0 {
            // What was left when this generation was dropped.
            delete_states(&self.client, partition, generation(), Some(epoch)).await?;
        }
        let mut hash = self.hash_at(partition, position).await?;
        let mut cache = StateCache::default();
        while position < head {
            let batches = self.reader.read_batches(partition, position, PAGE).await?;
            let facts = verified(&batches, &mut hash)?;
            let Some((last, _)) = batches.last() else {
                let what = "no event follows, though the head is later".to_owned();
                return Err(Error::Broken { partition, position, what });
            };
            let end = last.last_position();
            let mut left = facts.as_slice();
            while !left.is_empty() {
                let (part, others) = folded_first(&cache, left);
                left = others;
                self.load_unknown(partition, &mut cache, part).await?;
                position += i64::try_from(part.len()).unwrap_or(i64::MAX);
                let broken = |error: EvolveError| Error::Broken {
                    partition,
                    position,
                    what: match error {
                        EvolveError::Missing(Missing(keys)) => format!("{keys:?} were not loaded"),
                        EvolveError::InvariantBroken(broken) => broken.to_string(),
                    },
                };
                cache.evolve(part).map_err(broken)?;
                if position < end && !cache.size().exceeds(MAX_CACHED) {
                    continue;
                }
                let changes = cache.take_changes();
                let at = (epoch, position);
                if !states::store_prepared(&self.client, &self.store, partition, at, &changes).await? {
                    return Ok(());
                }
                cache.confirm_stored();
                cache.forget_unknown_keys();
                if cache.size().exceeds(MAX_CACHED) {
                    cache.shrink_to(KEPT);
                }
            }
        }
        self.client.execute(SET_BUILT, &[&partition.number(), &generation(), &epoch]).await?;
        Ok(())
    }

    /// The hash of the event at `position`.
    async fn hash_at(&self, partition: Partition, position: i64) -> Result<Hash, Error> {
        if position == 0 {
            return Ok(GENESIS);
        }
        let hash = reader::hash_at(&self.client, partition, position).await?;
        let hash = hash.and_then(|hash| Hash::try_from(hash).ok());
        let what = || "the event is missing".to_owned();
        hash.ok_or_else(|| Error::Broken { partition, position, what: what() })
    }

    async fn load_unknown(
        &self,
        partition: Partition,
        cache: &mut StateCache,
        facts: &[Fact],
    ) -> Result<(), Error> {
        let unknown: Vec<StateKey> = cache.unknown_states(facts).into_iter().collect();
        let found = states::load_prepared(&self.client, &self.load, partition, &unknown).await?;
        for (key, state) in unknown.into_iter().zip(found) {
            cache.load(key, state);
        }
        Ok(())
    }
}

/// The facts of `batches`, each from its first event on, after the hash of the event before. Moves the hash to the last
/// event.
fn verified(batches: &[(Arc<RecordBatch>, usize)], hash: &mut Hash) -> Result<Vec<Fact>, Error> {
    let mut facts = Vec::new();
    for (batch, first) in batches {
        for index in *first..batch.len() {
            let (position, record) = (batch.position_of(index), batch.line(index));
            let broken = |what: String| Error::Broken { partition: batch.partition(), position, what };
            let link = Link { position, recorded_at: batch.recorded_at(), writer: batch.writer(), record };
            *hash = chain::hash(hash, &link);
            if batch.hash(index) != *hash {
                return Err(broken(
                    "the hash does not follow from the event and the previous hash".to_owned(),
                ));
            }
            facts.push(record::decode(record).map_err(|error| broken(error.to_string()))?);
        }
    }
    Ok(facts)
}
