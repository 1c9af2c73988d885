//! Fills the outbox from the log. Invariant: deliveries are written and the cursor is moved in one transaction, fenced
//! by the cursor, so that each event is queued exactly once for each webhook, also after crashes and changes of
//! process.

use std::time::Duration;

use farthing_core::event::WebhookSettings;
use farthing_core::ids::{MerchantId, WebhookId};
use farthing_log::backoff::Backoff;
use farthing_log::connect::{self, Role};
use farthing_log::leadership::Leadership;
use farthing_log::tail::{Pace, Page, Tail};
use tokio::time::Instant;
use tokio_postgres::Client;

use super::fold::{Known, NewDelivery, OutboxBatch, merchant_of};
use crate::column::json;
use crate::engine::Error;
use crate::row::{FromRow as _, row};
use crate::writer::{Statements, Writer, unnest_rows};

/// The largest number of events in one transaction.
const MAX_EVENTS: usize = 1_000;

/// How long the cursor may lag behind events that no webhook receives.
const IDLE_CURSOR: Duration = Duration::from_millis(100);

/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The lock of the one process that fills the outbox. The fence keeps the rows right.
const LOCK: &str = "farthing.webhooks";

/// A batch that a crash loses is folded again from the log.
const NO_WAIT_FOR_DISK: &str = "SET synchronous_commit = off";

const CURSOR: &str = "SELECT position FROM webhooks.cursor";

const ADVANCE: &str = "UPDATE webhooks.cursor SET position = $2 WHERE position = $1";

/// The webhooks of some merchants. A merchant has few.
const KNOWN: &str = "\
SELECT w.webhook_id, w.merchant_id, w.settings FROM unnest($1::text[]) AS merchants(merchant_id) CROSS JOIN LATERAL (
    SELECT webhook_id, merchant_id, settings FROM webhooks.webhook
    WHERE webhook.merchant_id = merchants.merchant_id COLLATE \"C\" LIMIT 100
) AS w";

const UPSERT_WEBHOOK: &str = "\
INSERT INTO webhooks.webhook (webhook_id, merchant_id, settings) VALUES ($1, $2, $3)
ON CONFLICT (webhook_id) DO UPDATE SET settings = excluded.settings";

const DELETE_WEBHOOK: &str = "DELETE FROM webhooks.webhook WHERE webhook_id = $1";

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
     " ON CONFLICT (webhook_id, lane) DO UPDATE SET claim = l.claim"],
    for (webhook, queue) in &'a (String, &'a str) => {
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
pub(crate) async fn fill(database_url: &str, tail: &Tail) {
    let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
    loop {
        let started = Instant::now();
        let Err(error) = follow(database_url, tail).await;
        tracing::warn!(event = "webhook.outbox_restarted", %error, "filling the webhook outbox starts again");
        tokio::time::sleep(backoff.next_delay_after(started.elapsed())).await;
    }
}

async fn follow(database_url: &str, tail: &Tail) -> Result<std::convert::Infallible, Error> {
    let client = connect::connect(database_url, Role::Projector).await?;
    client.batch_execute(NO_WAIT_FOR_DISK).await?;
    let mut leadership = Leadership::wait(client, LOCK).await?;
    let mut cursor: i64 = leadership.client().query_one(CURSOR, &[]).await?.try_get("position")?;
    let mut follower = tail.follow(Pace::Apart);
    // Events up to here are folded. Those after the cursor have no deliveries.
    let mut seen = cursor;
    let mut written_at = Instant::now();
    loop {
        let next = follower.next(seen, MAX_EVENTS);
        let page = if seen == cursor {
            next.await?
        } else if let Ok(page) = tokio::time::timeout_at(written_at + IDLE_CURSOR, next).await {
            page?
        } else {
            write(leadership.client_mut(), &OutboxBatch::default(), cursor, seen).await?;
            (cursor, written_at) = (seen, Instant::now());
            continue;
        };
        let mut known = known(leadership.client(), &page).await?;
        let mut batch = OutboxBatch::default();
        for entry in page.entries() {
            match entry.recorded() {
                Ok(recorded) => batch.fold(&mut known, recorded),
                Err(reason) => {
                    let (position, reason) = (entry.position(), reason.to_string());
                    return Err(Error::Unreadable { position, reason });
                }
            }
            seen = entry.position();
        }
        if !batch.is_empty() || written_at.elapsed() > IDLE_CURSOR {
            write(leadership.client_mut(), &batch, cursor, seen).await?;
            (cursor, written_at) = (seen, Instant::now());
        }
    }
}

/// The webhooks, at the cursor, of the merchants that `page` has events of.
async fn known(client: &Client, page: &Page) -> Result<Known, Error> {
    let concerned = page.entries().filter_map(|entry| merchant_of(entry.recorded().ok()?));
    let mut merchants: Vec<String> = concerned.map(|id| id.to_string()).collect();
    merchants.sort_unstable();
    merchants.dedup();
    let mut known = Known::new();
    if merchants.is_empty() {
        return Ok(known);
    }
    for row in client.query(KNOWN, &[&merchants]).await? {
        let webhook = WebhookRow::from_row(&row)
            .map_err(|error| Error::Unreadable { position: 0, reason: error.to_string() })?;
        known.entry(webhook.merchant_id).or_default().insert(webhook.webhook_id, webhook.settings);
    }
    Ok(known)
}

/// Writes a batch and moves the cursor, in one transaction.
async fn write(client: &mut Client, batch: &OutboxBatch, from: i64, to: i64) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    if transaction.execute(ADVANCE, &[&from, &to]).await? == 0 {
        return Err(Error::Fenced { position: from });
    }
    for (id, webhook) in &batch.webhooks {
        match webhook {
            Some((merchant_id, settings)) => {
                let row = [id.to_string(), merchant_id.to_string(), json(settings)];
                transaction.execute(UPSERT_WEBHOOK, &[&row[0], &row[1], &row[2]]).await?;
            }
            None => drop(transaction.execute(DELETE_WEBHOOK, &[&id.to_string()]).await?),
        }
    }
    let mut statements = Statements::new("webhooks");
    let mut writer = Writer::new(&transaction, &mut statements);
    queue(&mut writer, batch.deliveries.iter()).await?;
    open_queues(&mut writer, batch.queues().iter()).await?;
    transaction.commit().await?;
    Ok(())
}
