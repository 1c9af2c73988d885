//! Fills the outbox from the log. Invariant: deliveries are written and the cursor is moved in one transaction, fenced
//! by the cursor of each partition, so that each event is queued exactly once for each webhook, also after crashes and
//! changes of process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use deadpool_postgres::Object;
use farthing_core::event::WebhookSettings;
use farthing_core::ids::{MerchantId, WebhookId};
use farthing_core::partition::Partition;
use farthing_log::backoff::Backoff;
use farthing_log::positions::Positions;
use farthing_log::tail::{Pace, Page};
use farthing_telemetry::Counter;
use tokio::time::Instant;

use super::fold::{Known, NewDelivery, OutboxBatch, merchant_of};
use crate::checkpoint::Advance;
use crate::column::json;
use crate::engine::{Error, Source, next_page};
use crate::row::{FromRow as _, row};
use crate::writer::{Statements, Writer, unnest_rows};
use crate::writers::{Writers, close_failed};

/// The largest number of events in one transaction.
const MAX_EVENTS: usize = 1_000;

/// How long the cursor may lag behind events that no webhook receives.
const IDLE_CURSOR: Duration = Duration::from_millis(100);

/// The most merchants whose webhooks are remembered, and those of one more page.
const MAX_KNOWN: usize = 10_000;

/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The lock of the one process that fills the outbox. The fence keeps the rows right.
const LOCK: &str = "farthing.webhooks";

/// Adds the partitions that a new outbox lacks.
const ADD_PARTITIONS: &str = "\
INSERT INTO webhooks.cursor (partition, position) SELECT partition, 0 FROM ledger.heads
ON CONFLICT (partition) DO NOTHING";

const CURSOR: &str = "SELECT partition, position FROM webhooks.cursor ORDER BY partition";

/// Moves the cursor of the partitions $1 from the positions $2 to $3. The row of a partition that another process has
/// moved is not changed.
const ADVANCE: &str = "\
UPDATE webhooks.cursor AS c SET position = moved.after
FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS moved(partition, before, after)
WHERE c.partition = moved.partition AND c.position = moved.before";

/// The webhooks of the merchants $2, each in one of the partitions $1. A merchant has few.
const KNOWN: &str = "\
SELECT webhook_id, merchant_id, settings FROM webhooks.webhook
WHERE partition = ANY($1::smallint[]) AND merchant_id = ANY($2::text[])";

const UPSERT_WEBHOOK: &str = "\
INSERT INTO webhooks.webhook (partition, webhook_id, merchant_id, settings) VALUES ($1, $2, $3, $4)
ON CONFLICT (partition, webhook_id) DO UPDATE SET settings = excluded.settings";

const DELETE_WEBHOOK: &str = "DELETE FROM webhooks.webhook WHERE partition = $1 AND webhook_id = $2";

unnest_rows! {
    QUEUE, queue<'a>,
    ["INSERT INTO webhooks.delivery (" (columns) ", next_attempt_at) SELECT " (columns) ", now() FROM " (rows as new)],
    for delivery in &'a NewDelivery => {
        webhook_id: text = delivery.webhook_id.to_string(),
        position: int8 = delivery.position,
        event_id: text = delivery.event_id.to_string(),
        topic: text = delivery.topic.name(),
        lane: text = delivery.queue.as_str(),
        created_at: timestamptz = delivery.created_at,
    }
}

// The update locks a queue that exists until the deliveries are committed. A process that finds the queue empty at the
// same time waits, and then sees them.
unnest_rows! {
    OPEN_QUEUES, open_queues<'a>,
    ["INSERT INTO webhooks.lane AS l (" (columns) ") SELECT " (columns) " FROM " (rows as new)
     " ON CONFLICT (partition, webhook_id, lane) DO UPDATE SET claim = l.claim"],
    for (webhook, queue) in (String, &'a str) => {
        webhook_id: text = webhook,
        lane: text = queue,
    }
}

row! {
    /// A webhook at the cursor.
    struct WebhookRow {
        webhook_id: WebhookId = id,
        merchant_id: MerchantId = id,
        settings: WebhookSettings = json,
    }
}

/// Fills the outbox until the process ends. Restarts after every failure.
pub(crate) async fn fill(source: &Source, deliveries: &Counter) {
    let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
    loop {
        let started = Instant::now();
        let Err(error) = follow(source, deliveries).await;
        source.progress.failed();
        tracing::warn!(event = "webhook.outbox_restarted", %error, "filling the webhook outbox starts again");
        tokio::time::sleep(backoff.next_delay_after(started.elapsed())).await;
    }
}

async fn follow(
    Source { locks, writers, tail, progress }: &Source,
    deliveries: &Counter,
) -> Result<std::convert::Infallible, Error> {
    let lock = locks.wait(LOCK, || progress.stands_by()).await?;
    lock.client().execute(ADD_PARTITIONS, &[]).await?;
    let cursor = Positions::from_rows(&lock.client().query(CURSOR, &[]).await?)?;
    let follower = tail.follow(Pace::Apart);
    // Events up to here are folded. Those after the cursor have no deliveries.
    let mut seen = cursor.clone();
    let (writers, statements) = (writers.clone(), Statements::new("webhooks"));
    let mut outbox = Outbox { writers, cursor, statements };
    // Nobody else writes webhooks while the cursor is where this process has moved it.
    let mut known = Known::new();
    let mut written_at = Instant::now();
    loop {
        progress.reached(&seen);
        let deadline = (seen != outbox.cursor).then(|| written_at + IDLE_CURSOR);
        let Some(page) = next_page(&lock, &follower, &seen, MAX_EVENTS, deadline).await? else {
            outbox.write(&[], &seen).await?;
            written_at = Instant::now();
            continue;
        };
        outbox.load(&mut known, &page).await?;
        let mut batches: BTreeMap<Partition, OutboxBatch> = BTreeMap::new();
        for entry in page.entries() {
            match entry.recorded() {
                Ok(recorded) => batches.entry(entry.partition()).or_default().fold(&mut known, recorded),
                Err(reason) => return Err(Error::unreadable(entry, reason)),
            }
            seen.set(entry.partition(), entry.position());
        }
        progress.folded(page.len());
        batches.retain(|_, batch| !batch.is_empty());
        if !batches.is_empty() || written_at.elapsed() > IDLE_CURSOR {
            let queued: usize = batches.values().map(|batch| batch.deliveries.len()).sum();
            outbox.write(Vec::from_iter(batches).as_slice(), &seen).await?;
            deliveries.inc_by(u64::try_from(queued).unwrap_or_default());
            written_at = Instant::now();
        }
    }
}

/// The outbox, open for writing.
struct Outbox {
    writers: Writers,
    cursor: Positions,
    statements: Statements,
}

impl Outbox {
    /// Adds to `known` the webhooks, at the cursor, of the merchants that `page` needs and `known` lacks.
    async fn load(&mut self, known: &mut Known, page: &Page) -> Result<(), Error> {
        if known.len() > MAX_KNOWN {
            known.clear();
        }
        let needed = page.entries().filter_map(|entry| merchant_of(entry.recorded().ok()?));
        let missing: BTreeSet<_> =
            needed.filter(|(_, merchant_id)| !known.contains_key(merchant_id)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let partitions: Vec<i16> = missing.iter().map(|(partition, _)| partition.number()).collect();
        let merchants: Vec<String> = missing.iter().map(|(_, merchant_id)| merchant_id.to_string()).collect();
        let client = self.writers.connection().await?;
        let rows = async {
            let statement = client.prepare_cached(KNOWN).await?;
            Ok(client.query(&statement, &[&partitions, &merchants]).await?)
        };
        let rows = self.writers.answered(rows).await;
        let rows = close_failed(client, rows)?;
        known.extend(missing.into_iter().map(|(_, merchant_id)| (merchant_id, BTreeMap::new())));
        for row in rows {
            let webhook = WebhookRow::from_row(&row).map_err(|error| Error::Webhook(error.to_string()))?;
            known.entry(webhook.merchant_id).or_default().insert(webhook.webhook_id, webhook.settings);
        }
        Ok(())
    }

    /// Writes batches and moves the cursor to the positions `to`, in one transaction.
    async fn write(&mut self, batches: &[(Partition, OutboxBatch)], to: &Positions) -> Result<(), Error> {
        let mut client = self.writers.connection().await?;
        let advance = Advance::new(&self.cursor, to);
        let written = self.writers.answered(write_on(&mut client, &self.statements, batches, &advance)).await;
        close_failed(client, written)?;
        self.cursor.clone_from(to);
        Ok(())
    }
}

async fn write_on(
    client: &mut Object,
    statements: &Statements,
    batches: &[(Partition, OutboxBatch)],
    advance: &Advance,
) -> Result<(), Error> {
    let Advance { partitions, before, after } = advance;
    if batches.is_empty() {
        // One statement is a transaction of its own, in one round trip.
        let statement = client.prepare_cached(ADVANCE).await?;
        let moved = client.execute(&statement, &[partitions, before, after]).await?;
        return if advance.is_done_by(moved) { Ok(()) } else { Err(Error::Fenced) };
    }
    let transaction = client.transaction().await?;
    let writer = Writer::new(&transaction, statements);
    if !advance.is_done_by(writer.execute(ADVANCE, &[partitions, before, after]).await?) {
        return Err(Error::Fenced);
    }
    write_batches(batches, &writer).await?;
    Ok(transaction.commit().await?)
}

async fn write_batches(
    batches: &[(Partition, OutboxBatch)],
    writer: &Writer<'_>,
) -> Result<(), tokio_postgres::Error> {
    for (partition, batch) in batches {
        let partition = partition.number();
        for (id, webhook) in &batch.webhooks {
            let id = id.to_string();
            match webhook {
                Some((merchant_id, settings)) => {
                    let (merchant, settings) = (merchant_id.to_string(), json(settings));
                    writer.execute(UPSERT_WEBHOOK, &[&partition, &id, &merchant, &settings]).await?;
                }
                None => drop(writer.execute(DELETE_WEBHOOK, &[&partition, &id]).await?),
            }
        }
    }
    queue(writer, batches, |batch| batch.deliveries.iter()).await?;
    open_queues(writer, batches, |batch| batch.queues().into_iter()).await
}
