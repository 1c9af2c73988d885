//! The delivery queues in the outbox: rows of `webhooks.lane`, with their deliveries in `webhooks.delivery`.
//!
//! Invariants: an outcome is written only while its claim is current, so a gateway whose claim has passed to another
//! one writes nothing. A transaction that locks a queue and a delivery locks the queue first. No statement leaves its
//! partition.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use farthing_core::ids::{WebhookEventId, WebhookId};
use farthing_core::partition::Partition;
use farthing_log::connect::redacted;
use tokio::time::Instant;
use tokio_postgres::{Client, Row, Transaction};

/// The most queues that one claim takes, as the limits of [`OLDEST`] and [`DUE_BY_WEBHOOK`] say. Limits are literals, because
/// with a parameter Postgres would plan to read a fraction of the table.
pub(super) const CLAIMS_AT_ONCE: usize = 32;

/// The longest due queues that [`OLDEST`] looks at.
const OLDEST_LIMIT: i64 = 1_000;

/// The webhooks that [`DUE_BY_WEBHOOK`] looks at.
const WEBHOOKS_AT_ONCE: i64 = 256;

/// The queues that [`LOCK_DUE`] locks.
const QUEUES_GIVEN_UP: usize = 200;

/// The deliveries that [`GIVE_UP`] fails.
const DELIVERIES_GIVEN_UP: u64 = 1_000;

/// Of the thousand longest due queues of partition $1, up to eight of each webhook, as many as
/// [it may have](super::queue_tasks::MAX_QUEUES_PER_WEBHOOK), less the $3 that each of the webhooks $2 has already. The first
/// queues of all webhooks come before their second ones. Each row also says how many of the thousand there are.
const OLDEST: &str = "\
WITH oldest AS MATERIALIZED (
    SELECT webhook_id, lane, due_at FROM webhooks.lane
    WHERE partition = $1 AND due_at <= now() ORDER BY due_at LIMIT 1000
), due AS (
    SELECT o.webhook_id, o.lane, o.due_at, o.number + coalesce(taken.queues, 0) AS number
    FROM (
        SELECT webhook_id, lane, due_at, row_number() OVER (PARTITION BY webhook_id ORDER BY due_at) AS number
        FROM oldest) AS o
    LEFT JOIN unnest($2::text[], $3::integer[]) AS taken(webhook_id, queues) ON taken.webhook_id = o.webhook_id
    WHERE o.number + coalesce(taken.queues, 0) <= 8
    ORDER BY o.number + coalesce(taken.queues, 0), o.due_at LIMIT 32
)
SELECT due.webhook_id, due.lane, counted.queues FROM (SELECT count(*) AS queues FROM oldest) AS counted
LEFT JOIN due ON TRUE ORDER BY due.number, due.due_at";

/// The same of the next 256 webhooks of partition $1 after the webhook $4 that have queues, due or not, in the order of their
/// ids. Each row also says how many webhooks these are, and which is the last. It reads one row for each of them, and the first
/// eight of its queues: a webhook with a million due queues costs no more than one with eight. The bounds of a webhook's id
/// are written as a range, in the order of the index, so that no plan passes over the due queues of all webhooks for each;
/// and the first eight are taken before it is asked whether they are due. The index is on the id with an empty text
/// appended, which no statement for a single queue writes: so none of them passes over the other queues of its webhook.
const DUE_BY_WEBHOOK: &str = "\
WITH RECURSIVE webhook AS (
    (SELECT webhook_id, 1 AS number FROM webhooks.lane
    WHERE partition = $1 AND webhook_id > $4 ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT next.webhook_id, w.number + 1 FROM webhook AS w CROSS JOIN LATERAL (
        SELECT l.webhook_id FROM webhooks.lane AS l
        WHERE l.partition = $1 AND l.webhook_id > w.webhook_id ORDER BY l.webhook_id LIMIT 1) AS next
    WHERE w.number < 256
), due AS (
    SELECT w.webhook_id, queue.lane, queue.number FROM webhook AS w
    LEFT JOIN unnest($2::text[], $3::integer[]) AS taken(webhook_id, queues) ON taken.webhook_id = w.webhook_id
    CROSS JOIN LATERAL (
        SELECT lane, due_at, row_number() OVER (ORDER BY due_at) AS number FROM (
            SELECT l.lane, l.due_at FROM webhooks.lane AS l
            WHERE l.partition = $1 AND l.webhook_id || '' >= w.webhook_id AND l.webhook_id || '' <= w.webhook_id
            ORDER BY l.webhook_id || '', l.due_at LIMIT 8) AS first) AS queue
    WHERE queue.due_at <= now() AND queue.number + coalesce(taken.queues, 0) <= 8
    ORDER BY queue.number, w.webhook_id LIMIT 32
)
SELECT due.webhook_id, due.lane, walked.webhooks, walked.last
FROM (SELECT count(*) AS webhooks, max(webhook_id) AS last FROM webhook) AS walked
LEFT JOIN due ON TRUE ORDER BY due.number, due.webhook_id";

/// Claims those of the queues ($4, $5) of partition $1 that are still due, under the number $3. It finds them by their keys:
/// the sum keeps Postgres from looking for them among all that are due.
const CLAIM_THESE: &str = "\
WITH due AS (
    SELECT q.webhook_id, q.lane FROM unnest($4::text[], $5::text[]) AS c(webhook_id, lane)
    JOIN webhooks.lane AS q ON q.partition = $1 AND q.webhook_id = c.webhook_id AND q.lane = c.lane
    WHERE q.due_at + interval '0' <= now() FOR UPDATE OF q SKIP LOCKED
)
UPDATE webhooks.lane AS l SET due_at = now() + make_interval(secs => $2), claim = $3
FROM due WHERE l.partition = $1 AND l.webhook_id = due.webhook_id AND l.lane = due.lane
RETURNING l.webhook_id, l.lane";

const NEXT: &str = "\
SELECT position, event_id, attempts, extract(epoch FROM now() - queued_at)::double precision, queued_at
FROM webhooks.delivery WHERE partition = $1 AND webhook_id = $2 AND lane = $3 AND status = 'pending' ORDER BY position LIMIT 1";

/// Extends the claim.
const EXTEND: &str = "\
UPDATE webhooks.lane SET due_at = now() + make_interval(secs => $5)
WHERE partition = $1 AND webhook_id = $2 AND lane = $3 AND claim = $4";

/// Releases the claim; the queue is due again after `$5` seconds.
const RELEASE: &str = "\
UPDATE webhooks.lane SET due_at = now() + make_interval(secs => $5), claim = NULL
WHERE partition = $1 AND webhook_id = $2 AND lane = $3 AND claim = $4";

/// The same of a claim that has not lapsed. With its time, a plan by the index on that passes over the due queues.
const RELEASE_CURRENT: &str = "\
UPDATE webhooks.lane SET due_at = now() + make_interval(secs => $5), claim = NULL
WHERE partition = $1 AND webhook_id = $2 AND lane = $3 AND claim = $4 AND due_at > now()";

const DELIVERED: &str = "\
UPDATE webhooks.delivery SET status = 'delivered', attempts = attempts + 1, http_status = $4, error = NULL,
    next_attempt_at = NULL, delivered_at = now()
WHERE partition = $1 AND webhook_id = $2 AND position = $3 AND status = 'pending'";

/// The outcome of an attempt that failed and is made again, unless the delivery was queued again after $6, at which it was
/// queued when the attempt began.
const RETRY: &str = "\
UPDATE webhooks.delivery SET attempts = attempts + 1, http_status = $4, error = $5,
    next_attempt_at = now() + make_interval(secs => $7)
WHERE partition = $1 AND webhook_id = $2 AND position = $3 AND status = 'pending' AND queued_at = $6";

/// The same of the last attempt.
const FAILED: &str = "\
UPDATE webhooks.delivery SET status = 'failed', attempts = attempts + 1, http_status = $4, error = $5,
    next_attempt_at = NULL
WHERE partition = $1 AND webhook_id = $2 AND position = $3 AND status = 'pending' AND queued_at = $6";

/// The position of the last delivery of a webhook, and the time.
const LAST: &str = "\
SELECT coalesce(max(position), 0), now() FROM webhooks.delivery WHERE partition = $1 AND webhook_id = $2";

/// Locks up to 200 due queues of a webhook. The id is written as in [`DUE_BY_WEBHOOK`].
const LOCK_DUE: &str = "\
SELECT lane, due_at FROM webhooks.lane
WHERE partition = $1 AND webhook_id || '' >= $2 AND webhook_id || '' <= $2 AND due_at <= now()
ORDER BY webhook_id || '', due_at LIMIT 200 FOR UPDATE SKIP LOCKED";

/// Fails up to 1000 pending deliveries of the queues $3, none after position $5 or queued after $6. The concatenation keeps
/// Postgres from looking for their positions among all that are pending.
const GIVE_UP: &str = "\
UPDATE webhooks.delivery SET status = 'failed', error = $4, next_attempt_at = NULL
WHERE partition = $1 AND webhook_id = $2 AND position = ANY (ARRAY(
    SELECT next.position FROM unnest($3::text[]) AS queue(lane) CROSS JOIN LATERAL (
        SELECT d.position FROM webhooks.delivery AS d
        WHERE d.partition = $1 AND d.webhook_id = $2 AND d.lane = queue.lane AND d.status = 'pending'
            AND d.position <= $5 AND d.queued_at <= $6
        ORDER BY d.lane, d.position LIMIT 1000) AS next LIMIT 1000
)) AND status || '' = 'pending'";

/// Deletes those of the queues $3 that have no pending delivery. None was due after $4: also a plan by the index on that time
/// passes over few others of the webhook.
const CLOSE_EMPTY: &str = "\
DELETE FROM webhooks.lane AS l
WHERE l.partition = $1 AND l.webhook_id = $2 AND l.due_at <= $4 AND l.lane = ANY ($3::text[]) AND (
    SELECT d.position FROM webhooks.delivery AS d
    WHERE d.partition = $1 AND d.webhook_id = $2 AND d.lane = l.lane AND d.status = 'pending' LIMIT 1) IS NULL";

/// Ends lapsed claims on the queues $3, none of which was due after $4.
const UNCLAIM: &str = "\
UPDATE webhooks.lane SET claim = NULL
WHERE partition = $1 AND webhook_id = $2 AND due_at <= $4 AND lane = ANY ($3::text[]) AND claim IS NOT NULL";

const IS_PENDING: &str = "SELECT position FROM webhooks.delivery WHERE partition = $1 AND webhook_id = $2 AND lane = $3 AND status = 'pending' LIMIT 1";

const CLOSE: &str = "DELETE FROM webhooks.lane WHERE partition = $1 AND webhook_id = $2 AND lane = $3";

const QUEUE_OF: &str =
    "SELECT lane FROM webhooks.delivery WHERE partition = $1 AND webhook_id = $2 AND event_id = $3";

/// Makes a queue due now. A claimed queue stays claimed.
const OPEN: &str = "\
INSERT INTO webhooks.lane AS l (partition, webhook_id, lane) VALUES ($1, $2, $3)
ON CONFLICT (partition, webhook_id, lane) DO UPDATE SET due_at = CASE WHEN l.claim IS NULL THEN excluded.due_at ELSE l.due_at END";

/// Queues a delivery again. A pending one stays where it is in its queue. A finished one moves to a separate queue, so
/// that it cannot block newer deliveries.
const RESEND: &str = "\
UPDATE webhooks.delivery SET status = 'pending', queued_at = now(), attempts = 0, next_attempt_at = now(),
    http_status = NULL, error = NULL, delivered_at = NULL,
    lane = CASE WHEN status = 'pending' THEN lane ELSE event_id END
WHERE partition = $1 AND webhook_id = $2 AND event_id = $3";

/// The limit is a literal, as in [`OLDEST`].
const PURGE: &str = "\
DELETE FROM webhooks.delivery WHERE partition = $1 AND (webhook_id, position) IN (
    SELECT webhook_id, position FROM webhooks.delivery
    WHERE partition = $1 AND status <> 'pending' AND queued_at <= now() - interval '30 days'
    ORDER BY queued_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)";

/// The number of queues of a partition, up to 1000, and for how long the next delivery of any of them has been due, in
/// seconds. One that waits for its retry is not due.
const BACKLOG: &str = "\
SELECT count(*)::integer, coalesce(max(greatest(extract(epoch FROM now() - next.due_at), 0)), 0)::double precision
FROM (SELECT webhook_id, lane FROM webhooks.lane WHERE partition = $1 ORDER BY due_at LIMIT 1000) AS l
CROSS JOIN LATERAL (
    SELECT coalesce(d.next_attempt_at, d.queued_at) AS due_at FROM webhooks.delivery AS d
    WHERE d.partition = $1 AND d.webhook_id = l.webhook_id AND d.lane = l.lane AND d.status = 'pending'
    ORDER BY d.position LIMIT 1) AS next";

/// The most deliveries that one purge deletes.
const PURGE_BATCH: u64 = 1_000;

type PgResult<T> = Result<T, tokio_postgres::Error>;

/// The deliveries that wait in some partitions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Backlog {
    /// The queues.
    pub(super) queues: i32,
    /// For how long the delivery that is most overdue has been due.
    pub(super) overdue_seconds: f64,
}

impl Backlog {
    /// Adds that of another partition.
    pub(super) fn add(&mut self, other: Self) {
        self.queues = self.queues.saturating_add(other.queues);
        self.overdue_seconds = self.overdue_seconds.max(other.overdue_seconds);
    }
}

/// An error in reading the next delivery of a queue.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("the delivery at position {0} has an invalid event id: {1:?}")]
    EventId(i64, String),
}

/// A claim on a queue.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    partition: i16,
    pub(super) webhook_id: WebhookId,
    webhook: String,
    /// The queue's key within the webhook: a customer's id, empty for events without a customer, or the event id of a
    /// delivery that is resent.
    lane: String,
    number: i64,
    until: Instant,
}

impl Claim {
    /// The partition of the webhook's merchant.
    pub(super) const fn partition(&self) -> Partition {
        Partition::new(self.partition)
    }

    /// Whether the claim holds for `time` from now on, by this machine's clock: then no other gateway delivers the queue.
    pub(super) fn lasts(&self, time: Duration) -> bool {
        Instant::now() + time <= self.until
    }
}

/// The next delivery of a queue.
#[derive(Debug, Clone)]
pub(super) struct PendingDelivery {
    /// The event's position in the partition of its merchant.
    pub(super) position: i64,
    pub(super) event_id: WebhookEventId,
    /// Failed attempts so far.
    pub(super) attempts: u32,
    /// Seconds since it was queued.
    pub(super) queued_seconds: f64,
    /// When it was queued. Each resend changes it.
    queued_at: DateTime<Utc>,
}

/// A failed attempt.
#[derive(Debug, Clone)]
pub(super) struct FailedAttempt {
    pub(super) status: Option<u16>,
    pub(super) reason: &'static str,
    /// Seconds until the next attempt; `None` to give up.
    pub(super) retry_seconds: Option<f64>,
}

/// What a claim may take.
#[derive(Debug)]
pub(super) struct Room {
    webhooks: Vec<String>,
    taken: Vec<i32>,
    queues: usize,
}

impl Room {
    /// Up to so many `queues`, with regard to what each webhook has already.
    pub(super) fn new(queues: usize, taken: &HashMap<WebhookId, usize>) -> Self {
        let (webhooks, taken) = taken
            .iter()
            .map(|(webhook_id, taken)| (webhook_id.to_string(), i32::try_from(*taken).unwrap_or(i32::MAX)))
            .unzip();
        Self { webhooks, taken, queues: queues.min(CLAIMS_AT_ONCE) }
    }
}

/// The result of a claim.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) claims: Vec<Claim>,
    /// Whether the next claim may find further due queues.
    pub(super) more: bool,
}

/// Due queues that may be claimed.
#[derive(Debug)]
struct Due {
    queues: Vec<(String, String)>,
    more: bool,
}

/// Claims due queues of `partition` for the time `lasts` under `number`, which no claim had before. While a thousand are
/// due, claims look at the webhooks in turn, from the one after `walked` on, which is where the last claim ended.
pub(super) async fn claim(
    db: &deadpool_postgres::Client,
    partition: Partition,
    room: &Room,
    walked: &mut String,
    lasts: Duration,
    number: i64,
) -> PgResult<Claimed> {
    let (partition, seconds) = (partition.number(), lasts.as_secs_f64());
    let due = due(db, partition, room, walked).await?;
    if due.queues.is_empty() {
        return Ok(Claimed { claims: Vec::new(), more: due.more });
    }
    let (webhooks, lanes): (Vec<_>, Vec<_>) = due.queues.into_iter().unzip();
    let until = Instant::now() + lasts;
    let statement = db.prepare_cached(CLAIM_THESE).await?;
    let claimed = queues(&db.query(&statement, &[&partition, &seconds, &number, &webhooks, &lanes]).await?)?;
    let more = due.more || claimed.len() == CLAIMS_AT_ONCE;
    let mut claims = Vec::new();
    for (webhook, lane) in claimed {
        match webhook.parse() {
            Ok(webhook_id) => claims.push(Claim { partition, webhook_id, webhook, lane, number, until }),
            Err(error) => {
                tracing::error!(
                    event = "webhook.queue_invalid",
                    webhook,
                    %error,
                    "a webhook queue has an invalid webhook id"
                );
            }
        }
    }
    Ok(Claimed { claims, more })
}

/// Due queues for which there is `room`.
async fn due(
    db: &deadpool_postgres::Client,
    partition: i16,
    room: &Room,
    walked: &mut String,
) -> PgResult<Due> {
    let statement = db.prepare_cached(OLDEST).await?;
    let rows = db.query(&statement, &[&partition, &room.webhooks, &room.taken]).await?;
    let counted: i64 = rows.first().map(|row| row.try_get(2)).transpose()?.unwrap_or(0);
    if counted < OLDEST_LIMIT {
        let mut queues = queues(&rows)?;
        queues.truncate(room.queues);
        return Ok(Due { queues, more: false });
    }
    let statement = db.prepare_cached(DUE_BY_WEBHOOK).await?;
    let rows = db.query(&statement, &[&partition, &room.webhooks, &room.taken, &walked.as_str()]).await?;
    let (webhooks, last): (i64, Option<String>) = match rows.first() {
        Some(row) => (row.try_get(2)?, row.try_get(3)?),
        None => (0, None),
    };
    let mut queues = queues(&rows)?;
    queues.truncate(room.queues);
    // Of a claim that is full, the webhooks after its last one had no turn.
    let next = if queues.len() == room.queues {
        queues.iter().map(|(webhook, _)| webhook).max().cloned()
    } else {
        last.filter(|_| webhooks == WEBHOOKS_AT_ONCE)
    };
    let more = next.is_some();
    *walked = next.unwrap_or_default();
    Ok(Due { queues, more })
}

/// The webhook's id and the key of each queue in `rows`.
fn queues(rows: &[Row]) -> PgResult<Vec<(String, String)>> {
    let mut queues = Vec::new();
    for row in rows {
        if let Some(webhook) = row.try_get::<_, Option<String>>(0)? {
            queues.push((webhook, row.try_get(1)?));
        }
    }
    Ok(queues)
}

/// The next delivery of a claimed queue; `None` if it is empty.
pub(super) async fn next(db: &Client, claim: &Claim) -> Result<Option<PendingDelivery>, Error> {
    let Some(row) = db.query_opt(NEXT, &[&claim.partition, &claim.webhook, &claim.lane]).await? else {
        return Ok(None);
    };
    let (position, event_id): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
    let Ok(event_id) = event_id.parse() else { return Err(Error::EventId(position, event_id)) };
    Ok(Some(PendingDelivery {
        position,
        event_id,
        attempts: u32::try_from(row.try_get::<_, i32>(2)?).unwrap_or(0),
        queued_seconds: row.try_get(3)?,
        queued_at: row.try_get(4)?,
    }))
}

/// Releases a queue, which is due again in `seconds`.
pub(super) async fn release(db: &Client, claim: &Claim, seconds: f64) -> PgResult<()> {
    db.execute(RELEASE, &[&claim.partition, &claim.webhook, &claim.lane, &claim.number, &seconds]).await?;
    Ok(())
}

/// Records a successful delivery and has the claim hold for the time `lasts` from now on, or releases it if that is `None`.
/// Returns whether the caller still holds the claim and the queue has more deliveries.
pub(super) async fn delivered(
    db: &mut Client,
    claim: &mut Claim,
    position: i64,
    status: u16,
    lasts: Option<Duration>,
) -> PgResult<bool> {
    let until = lasts.map(|lasts| Instant::now() + lasts);
    let transaction = db.transaction().await?;
    let (update, seconds) = lasts.map_or((RELEASE, 0.0), |lasts| (EXTEND, lasts.as_secs_f64()));
    if transaction
        .execute(update, &[&claim.partition, &claim.webhook, &claim.lane, &claim.number, &seconds])
        .await?
        == 0
    {
        return Ok(false);
    }
    transaction
        .execute(DELIVERED, &[&claim.partition, &claim.webhook, &position, &i32::from(status)])
        .await?;
    let more = !close_if_empty(&transaction, claim).await?;
    transaction.commit().await?;
    let Some(until) = until else { return Ok(false) };
    claim.until = until;
    Ok(more)
}

/// Records a failed attempt at `pending` and releases the queue until the next one. If the delivery was queued again since
/// `pending` was read, no outcome is written, and the queue is due at once. Returns whether that is so. The release locks the
/// queue, as a [`resend`] does first: one that comes later finds the queue released, and makes it due.
pub(super) async fn failed(
    db: &mut Client,
    claim: &Claim,
    pending: &PendingDelivery,
    failed: &FailedAttempt,
) -> PgResult<bool> {
    let transaction = db.transaction().await?;
    let seconds = failed.retry_seconds.unwrap_or(0.0);
    if transaction
        .execute(RELEASE, &[&claim.partition, &claim.webhook, &claim.lane, &claim.number, &seconds])
        .await?
        == 0
    {
        return Ok(false);
    }
    let (status, PendingDelivery { position, queued_at, .. }) = (failed.status.map(i32::from), pending);
    let updated = if let Some(seconds) = failed.retry_seconds {
        let row: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [&claim.partition, &claim.webhook, position, &status, &failed.reason, queued_at, &seconds];
        transaction.execute(RETRY, &row).await?
    } else {
        let row: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&claim.partition, &claim.webhook, position, &status, &failed.reason, queued_at];
        transaction.execute(FAILED, &row).await?
    };
    let is_queued_again = updated == 0;
    if is_queued_again {
        transaction.execute(OPEN, &[&claim.partition, &claim.webhook, &claim.lane]).await?;
    } else if failed.retry_seconds.is_none() {
        close_if_empty(&transaction, claim).await?;
    }
    transaction.commit().await?;
    Ok(is_queued_again)
}

/// The end of what was queued for a webhook at some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    position: i64,
    at: DateTime<Utc>,
}

/// The end of what is queued for the webhook of `claim` now.
pub(super) async fn queued(db: &Client, claim: &Claim) -> PgResult<Queued> {
    let row = db.query_one(LAST, &[&claim.partition, &claim.webhook]).await?;
    Ok(Queued { position: row.try_get(0)?, at: row.try_get(1)? })
}

/// Releases the queue if its claim has not lapsed, and fails pending deliveries of up to 200 due queues of its webhook
/// without an attempt, none that was queued after `queued`. Returns whether there may be more.
pub(super) async fn give_up(db: &mut Client, claim: &Claim, reason: &str, queued: Queued) -> PgResult<bool> {
    let transaction = db.transaction().await?;
    // It is due also by the clock of a worker of Citus that is a little behind.
    let seconds = -1.0_f64;
    transaction
        .execute(RELEASE_CURRENT, &[&claim.partition, &claim.webhook, &claim.lane, &claim.number, &seconds])
        .await?;
    let rows = transaction.query(LOCK_DUE, &[&claim.partition, &claim.webhook]).await?;
    let lanes: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<PgResult<_>>()?;
    let due: Vec<DateTime<Utc>> = rows.iter().map(|row| row.try_get(1)).collect::<PgResult<_>>()?;
    let last_due = due.into_iter().max();
    let row: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&claim.partition, &claim.webhook, &lanes, &reason, &queued.position, &queued.at];
    let failed = transaction.execute(GIVE_UP, &row).await?;
    // A delivery queued at the same time is either visible, or its transaction waits for the lock.
    for statement in [CLOSE_EMPTY, UNCLAIM] {
        transaction.execute(statement, &[&claim.partition, &claim.webhook, &lanes, &last_due]).await?;
    }
    transaction.commit().await?;
    Ok(lanes.len() == QUEUES_GIVEN_UP || failed == DELIVERIES_GIVEN_UP)
}

/// Deletes the queue if it has no pending delivery; otherwise releases it.
pub(super) async fn close(db: &mut Client, claim: &Claim) -> PgResult<()> {
    let transaction = db.transaction().await?;
    let now = 0.0_f64;
    if transaction
        .execute(RELEASE, &[&claim.partition, &claim.webhook, &claim.lane, &claim.number, &now])
        .await?
        > 0
    {
        close_if_empty(&transaction, claim).await?;
    }
    transaction.commit().await
}

/// Deletes the queue if it has no pending delivery, and returns whether it did. The transaction must have locked the
/// queue: then a delivery queued at the same time is either visible, or its transaction waits for the lock and
/// recreates the queue.
async fn close_if_empty(transaction: &Transaction<'_>, claim: &Claim) -> PgResult<bool> {
    let queue: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&claim.partition, &claim.webhook, &claim.lane];
    if transaction.query_opt(IS_PENDING, &queue).await?.is_some() {
        return Ok(false);
    }
    transaction.execute(CLOSE, &queue).await?;
    Ok(true)
}

/// Queues a delivery again like a new one; `false` if there is no such delivery. An attempt at it that runs meanwhile and
/// fails then counts for nothing.
pub async fn resend(
    db: &mut Client,
    partition: Partition,
    webhook_id: WebhookId,
    event_id: WebhookEventId,
) -> PgResult<bool> {
    let partition = partition.number();
    let (webhook, event) = (webhook_id.to_string(), event_id.to_string());
    let transaction = db.transaction().await?;
    let Some(row) = transaction.query_opt(QUEUE_OF, &[&partition, &webhook, &event]).await? else {
        return Ok(false);
    };
    for lane in [row.try_get(0)?, event.as_str()] {
        transaction.execute(OPEN, &[&partition, &webhook, &lane]).await?;
    }
    transaction.execute(RESEND, &[&partition, &webhook, &event]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// What waits in `partition`.
pub(super) async fn backlog(db: &deadpool_postgres::Client, partition: Partition) -> PgResult<Backlog> {
    let statement = db.prepare_cached(BACKLOG).await?;
    let row = db.query_one(&statement, &[&partition.number()]).await?;
    Ok(Backlog { queues: row.try_get(0)?, overdue_seconds: row.try_get(1)? })
}

/// Deletes some of the finished deliveries of `partition` that are older than 30 days. Returns whether none is left.
pub(super) async fn purge(db: &Client, partition: Partition) -> PgResult<bool> {
    Ok(db.execute(PURGE, &[&partition.number()]).await? < PURGE_BATCH)
}
