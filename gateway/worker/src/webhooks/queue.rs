//! The outbox as whoever tells sees it. Invariant: every outcome is written under the claim that it was reached with; a
//! claim that has lapsed and gone to another writes nothing. Whoever locks a lane and a delivery locks the lane first.

use farthing_core::ids::{WebhookEventId, WebhookId};
use tokio_postgres::{Client, Transaction};

/// Lanes of one claim; [`CLAIM`] says it too.
pub(super) const CLAIMS_AT_ONCE: usize = 32;

/// A limit that is a parameter would be planned as a part of the table.
const CLAIM: &str = "\
WITH due AS (
    SELECT webhook_id, lane FROM webhooks.lane WHERE due_at <= now() AND webhook_id <> ALL ($1::text[])
    ORDER BY due_at LIMIT 32 FOR UPDATE SKIP LOCKED
)
UPDATE webhooks.lane AS l SET due_at = now() + make_interval(secs => $2), claim = nextval('webhooks.claims')
FROM due WHERE l.webhook_id = due.webhook_id AND l.lane = due.lane
RETURNING l.webhook_id, l.lane, l.claim";

const NEXT: &str = "\
SELECT position, event_id, attempts, extract(epoch FROM now() - queued_at)::double precision
FROM webhooks.delivery WHERE webhook_id = $1 AND lane = $2 AND status = 'pending' ORDER BY position LIMIT 1";

/// Goes on holding the lane.
const HOLD: &str = "\
UPDATE webhooks.lane SET due_at = now() + make_interval(secs => $4)
WHERE webhook_id = $1 AND lane = $2 AND claim = $3";

/// Gives the lane back, due after a while.
const RELEASE: &str = "\
UPDATE webhooks.lane SET due_at = now() + make_interval(secs => $4), claim = NULL
WHERE webhook_id = $1 AND lane = $2 AND claim = $3";

const TOLD: &str = "\
UPDATE webhooks.delivery SET status = 'delivered', attempts = attempts + 1, http_status = $3, error = NULL,
    next_attempt_at = NULL, delivered_at = now()
WHERE webhook_id = $1 AND position = $2 AND status = 'pending'";

const MISSED: &str = "\
UPDATE webhooks.delivery SET attempts = attempts + 1, http_status = $3, error = $4,
    next_attempt_at = now() + make_interval(secs => $5)
WHERE webhook_id = $1 AND position = $2 AND status = 'pending'";

const FAILED: &str = "\
UPDATE webhooks.delivery SET status = 'failed', attempts = attempts + 1, http_status = $3, error = $4,
    next_attempt_at = NULL
WHERE webhook_id = $1 AND position = $2 AND status = 'pending'";

/// A bounded part of a lane that is told no more.
const GIVE_UP: &str = "\
UPDATE webhooks.delivery SET status = 'failed', error = $3, next_attempt_at = NULL
WHERE webhook_id = $1 AND position = ANY (ARRAY(
    SELECT position FROM webhooks.delivery WHERE webhook_id = $1 AND lane = $2 AND status = 'pending'
    ORDER BY position LIMIT 500
)) AND status = 'pending'";

/// As the ledger's states have it.
const IS_ENABLED: &str = "\
SELECT id FROM ledger.state WHERE kind = 'webhook' AND id = $1 AND (body::json #>> '{settings,enabled}')::boolean";

const IS_PENDING: &str = "SELECT position FROM webhooks.delivery WHERE webhook_id = $1 AND lane = $2 AND status = 'pending' LIMIT 1";

const CLOSE: &str = "DELETE FROM webhooks.lane WHERE webhook_id = $1 AND lane = $2";

const LANE_OF: &str = "SELECT lane FROM webhooks.delivery WHERE webhook_id = $1 AND event_id = $2";

/// A lane that is being told stays claimed; one that is not is due now.
const OPEN: &str = "\
INSERT INTO webhooks.lane AS l (webhook_id, lane) VALUES ($1, $2)
ON CONFLICT (webhook_id, lane) DO UPDATE SET due_at = CASE WHEN l.claim IS NULL THEN now() ELSE l.due_at END";

/// What is still to be told stays where it is; what had ended is out of its lane's order anyway, and keeps none of the
/// lane's newer news waiting.
const SEND_AGAIN: &str = "\
UPDATE webhooks.delivery SET status = 'pending', queued_at = now(), attempts = 0, next_attempt_at = now(),
    http_status = NULL, error = NULL, delivered_at = NULL,
    lane = CASE WHEN status = 'pending' THEN lane ELSE event_id END
WHERE webhook_id = $1 AND event_id = $2";

const PURGE: &str = "\
DELETE FROM webhooks.delivery WHERE (webhook_id, position) IN (
    SELECT webhook_id, position FROM webhooks.delivery
    WHERE status <> 'pending' AND queued_at <= now() - interval '30 days'
    ORDER BY queued_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)";

/// Batches of one purge, at most.
const PURGES: u32 = 10;

type Outcome<T> = Result<T, tokio_postgres::Error>;

/// The claim to a lane.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) webhook_id: WebhookId,
    webhook: String,
    lane: String,
    number: i64,
}

/// What is to be told next.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) position: i64,
    pub(super) event_id: WebhookEventId,
    /// Failed ones so far.
    pub(super) attempts: u32,
    /// How long it has been queued.
    pub(super) queued_seconds: f64,
}

/// An attempt that failed.
#[derive(Debug, Clone)]
pub(super) struct Missed {
    pub(super) status: Option<u16>,
    pub(super) why: &'static str,
    /// When to try again; none to give up.
    pub(super) retry_seconds: Option<f64>,
}

/// Claims lanes that are due, none of the webhooks in `full`.
pub(super) async fn claim(db: &Client, full: &[String], seconds: f64) -> Outcome<Vec<Claim>> {
    let mut claims = Vec::new();
    for row in db.query(CLAIM, &[&full, &seconds]).await? {
        let (webhook, lane, number): (String, String, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        match webhook.parse() {
            Ok(webhook_id) => claims.push(Claim { webhook_id, webhook, lane, number }),
            Err(error) => tracing::error!(%error, webhook, "a lane of no webhook"),
        }
    }
    Ok(claims)
}

/// What the lane has to tell next.
pub(super) async fn next(db: &Client, claim: &Claim) -> Outcome<Option<Due>> {
    let Some(row) = db.query_opt(NEXT, &[&claim.webhook, &claim.lane]).await? else { return Ok(None) };
    let event_id: String = row.try_get(1)?;
    let Ok(event_id) = event_id.parse() else {
        unreachable!("the outbox holds ids: {event_id}");
    };
    Ok(Some(Due {
        position: row.try_get(0)?,
        event_id,
        attempts: u32::try_from(row.try_get::<_, i32>(2)?).unwrap_or(0),
        queued_seconds: row.try_get(3)?,
    }))
}

/// Gives the lane back, due in so many seconds.
pub(super) async fn release(db: &Client, claim: &Claim, seconds: f64) -> Outcome<()> {
    db.execute(RELEASE, &[&claim.webhook, &claim.lane, &claim.number, &seconds]).await?;
    Ok(())
}

/// Writes that it was told; with `keep` the lane stays claimed for so many seconds. Is there more, and may it be told?
pub(super) async fn told(
    db: &mut Client,
    claim: &Claim,
    position: i64,
    status: u16,
    keep: bool,
    seconds: f64,
) -> Outcome<bool> {
    let transaction = db.transaction().await?;
    let lane = if keep { HOLD } else { RELEASE };
    if transaction.execute(lane, &[&claim.webhook, &claim.lane, &claim.number, &seconds]).await? == 0 {
        return Ok(false);
    }
    transaction.execute(TOLD, &[&claim.webhook, &position, &i32::from(status)]).await?;
    let more = !close_if_empty(&transaction, claim).await?;
    transaction.commit().await?;
    Ok(more && keep)
}

/// Writes that an attempt failed.
pub(super) async fn missed(db: &mut Client, claim: &Claim, position: i64, missed: &Missed) -> Outcome<()> {
    let transaction = db.transaction().await?;
    let seconds = missed.retry_seconds.unwrap_or(0.0);
    if transaction.execute(RELEASE, &[&claim.webhook, &claim.lane, &claim.number, &seconds]).await? == 0 {
        return Ok(());
    }
    let status = missed.status.map(i32::from);
    if let Some(seconds) = missed.retry_seconds {
        let row: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&claim.webhook, &position, &status, &missed.why, &seconds];
        transaction.execute(MISSED, &row).await?;
    } else {
        transaction.execute(FAILED, &[&claim.webhook, &position, &status, &missed.why]).await?;
        close_if_empty(&transaction, claim).await?;
    }
    transaction.commit().await
}

/// Ends a part of what is pending in the lane as failed, untold, unless the webhook has been enabled meanwhile; the lane
/// is due again at once while there is more. Once the lane is locked nothing new comes into it.
pub(super) async fn give_up(db: &mut Client, claim: &Claim, why: &str) -> Outcome<()> {
    let transaction = db.transaction().await?;
    let now = 0.0_f64;
    if transaction.execute(RELEASE, &[&claim.webhook, &claim.lane, &claim.number, &now]).await? == 0 {
        return Ok(());
    }
    if transaction.query_opt(IS_ENABLED, &[&claim.webhook]).await?.is_none() {
        transaction.execute(GIVE_UP, &[&claim.webhook, &claim.lane, &why]).await?;
    }
    close_if_empty(&transaction, claim).await?;
    transaction.commit().await
}

/// Closes a lane in which nothing is pending.
pub(super) async fn close(db: &mut Client, claim: &Claim) -> Outcome<()> {
    let transaction = db.transaction().await?;
    let now = 0.0_f64;
    if transaction.execute(RELEASE, &[&claim.webhook, &claim.lane, &claim.number, &now]).await? > 0 {
        close_if_empty(&transaction, claim).await?;
    }
    transaction.commit().await
}

/// Closes the lane, which this transaction has locked, where nothing is pending; whether that was so. The lock comes
/// first: whoever queues more at the same time has done so by now, and is seen, or waits and opens the lane anew.
async fn close_if_empty(transaction: &Transaction<'_>, claim: &Claim) -> Outcome<bool> {
    let lane: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&claim.webhook, &claim.lane];
    if transaction.query_opt(IS_PENDING, &lane).await?.is_some() {
        return Ok(false);
    }
    transaction.execute(CLOSE, &lane).await?;
    Ok(true)
}

/// Has it told again, as if it had just been queued; is there such a delivery?
pub async fn send_again(db: &mut Client, webhook_id: WebhookId, event_id: WebhookEventId) -> Outcome<bool> {
    let (webhook, event) = (webhook_id.to_string(), event_id.to_string());
    let transaction = db.transaction().await?;
    let Some(row) = transaction.query_opt(LANE_OF, &[&webhook, &event]).await? else { return Ok(false) };
    for lane in [row.try_get(0)?, event.as_str()] {
        transaction.execute(OPEN, &[&webhook, &lane]).await?;
    }
    transaction.execute(SEND_AGAIN, &[&webhook, &event]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Deletes what ended long ago, a bounded part at a time.
pub(super) async fn purge(db: &Client) -> Outcome<()> {
    for _ in 0..PURGES {
        if db.execute(PURGE, &[]).await? == 0 {
            break;
        }
    }
    Ok(())
}
