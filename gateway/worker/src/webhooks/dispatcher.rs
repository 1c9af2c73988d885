//! Tells webhooks what happened (completion.md section 9): the outbox that the projector fills is emptied here, since a
//! gateway has the guarded way out and the key that signs. Invariant: of what concerns one customer, a webhook is told in
//! order and one at a time, by whichever of any number of gateways holds the claim to it; what a dead one held comes free.

mod attempt;
pub mod queue;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use deadpool_postgres::Pool;
use farthing_core::event::{Event, Fact, Recorded, WebhookSettings, codec};
use farthing_core::ids::{MerchantId, WebhookEventId, WebhookId};
use farthing_core::secret::ServerKey;
use farthing_core::state::{State, StateKey};
use farthing_egress::Connector;
use farthing_log::connect::redacted;
use farthing_log::states;
use farthing_projector::{ReadModel, checkpoint};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use self::attempt::{Letter, Outcome, Post};
use self::queue::{Claim, Due, Missed};

/// How long a gateway without anything to tell waits before it looks again.
const IDLE: Duration = Duration::from_millis(200);

/// Lanes that are told at once.
const MAX_LANES: usize = 256;

/// Lanes of one webhook that are told at once: a slow receiver takes no place from another.
const MAX_LANES_OF_ONE: usize = 8;

/// What is told of one lane before it is claimed anew, so that others have their turn.
const MAX_IN_A_ROW: usize = 50;

/// After which time a lane is given back, too: the turn of a slow receiver is one attempt.
const TURN: Duration = Duration::from_secs(1);

/// How long news wait for the read models to come as far as they.
const CATCH_UP: Duration = Duration::from_millis(50);

/// How long a claim lasts beyond the time that an attempt may take. Whoever died with it is waited for so long.
const CLAIM_MARGIN: Duration = Duration::from_secs(15);

/// How often what has ended long ago is deleted.
const PURGE_EVERY: Duration = Duration::from_mins(1);

/// The read models that news are made of.
const READ_MODELS: [ReadModel; 3] = [ReadModel::Customers, ReadModel::Requests, ReadModel::SpendKeys];

const EVENT: &str = "\
SELECT kind, schema_version, body::text, merchant_id, occurred_at FROM ledger.events WHERE position = $1";

/// How webhooks are told, and told again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookTiming {
    /// For a receiver to answer, the connection included.
    pub timeout: Duration,
    /// Between one attempt and the next; the last one for all that follow.
    pub retry_after: Vec<Duration>,
    /// What has been queued for so long is not tried again.
    pub give_up_after: Duration,
}

impl WebhookTiming {
    fn claim_seconds(&self) -> f64 {
        (self.timeout + CLAIM_MARGIN).as_secs_f64()
    }

    /// Seconds from the failure of attempt `attempts` (from 1) to the next.
    fn retry_seconds(&self, attempts: u32) -> f64 {
        let at = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
        let delay = self.retry_after.get(at).or(self.retry_after.last()).copied();
        delay.unwrap_or(self.give_up_after).as_secs_f64()
    }
}

/// Why a lane was left; it comes free when the claim lapses.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("no connection: {0}")]
    Pool(#[from] deadpool_postgres::PoolError),
    #[error(transparent)]
    States(#[from] states::Error),
    #[error("the news at position {0} cannot be made: {1}")]
    News(i64, String),
}

/// What builds the body of a delivery.
pub trait PayloadSource: Send + Sync {
    /// The body of the delivery of `recorded` under `event_id`; none for an event that no webhook receives. The read models
    /// must have reached the event's position.
    fn payload<'a>(
        &'a self,
        db: &'a Client,
        recorded: &'a Recorded,
        event_id: WebhookEventId,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, String>> + Send + 'a>>;
}

/// Delivers webhooks.
pub struct Teller {
    payloads: Arc<dyn PayloadSource>,
    server_key: ServerKey,
    db: Pool,
    post: Post,
    timing: WebhookTiming,
    /// The read models have come as far as this.
    read_to: AtomicI64,
}

impl Teller {
    /// A teller whose only way out is `connector`.
    pub fn new(
        payloads: Arc<dyn PayloadSource>,
        server_key: ServerKey,
        db: Pool,
        connector: Connector,
        timing: WebhookTiming,
    ) -> Self {
        let post = Post::new(connector, timing.timeout);
        Self { payloads, server_key, db, post, timing, read_to: AtomicI64::new(0) }
    }

    /// Tells until `stop`; what is being told then is told to its end, as long as one attempt may take.
    pub async fn run(self, stop: CancellationToken) {
        let teller = Arc::new(self);
        let mut lanes: JoinSet<WebhookId> = JoinSet::new();
        let mut busy: HashMap<WebhookId, usize> = HashMap::new();
        let mut purged_at: Option<Instant> = None;
        loop {
            while let Some(ended) = lanes.try_join_next() {
                free(&mut busy, &ended);
            }
            let has_place = lanes.len() < MAX_LANES;
            let claims = if has_place { teller.claim(&busy).await } else { Vec::new() };
            let more = claims.len() == queue::CLAIMS_AT_ONCE;
            for claim in claims {
                let webhook_id = claim.webhook_id;
                let of_this = busy.get(&webhook_id).copied().unwrap_or(0);
                if of_this >= MAX_LANES_OF_ONE || lanes.len() >= MAX_LANES {
                    // There were places before this claim.
                    teller.give_back(&claim).await;
                    continue;
                }
                busy.insert(webhook_id, of_this + 1);
                let teller = Arc::clone(&teller);
                let stop = stop.clone();
                lanes.spawn(async move {
                    if let Err(error) = teller.tell_lane(&claim, &stop).await {
                        tracing::warn!(%webhook_id, %error, "a webhook is not told now");
                    }
                    webhook_id
                });
            }
            if purged_at.is_none_or(|at| at.elapsed() > PURGE_EVERY) {
                teller.purge().await;
                purged_at = Some(Instant::now());
            }
            if more && !stop.is_cancelled() {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(IDLE) => {}
                // A place is free: somebody may be waiting for it.
                Some(ended) = lanes.join_next() => free(&mut busy, &ended),
            }
        }
        // What is not told by then comes free when its claim lapses.
        let _ =
            tokio::time::timeout(teller.timing.timeout, async { while lanes.join_next().await.is_some() {} })
                .await;
    }

    async fn claim(&self, busy: &HashMap<WebhookId, usize>) -> Vec<Claim> {
        let full = busy.iter().filter(|(_, lanes)| **lanes >= MAX_LANES_OF_ONE);
        let full: Vec<String> = full.map(|(id, _)| id.to_string()).collect();
        let claimed = async {
            let db = self.db.get().await?;
            Ok::<_, Error>(queue::claim(&db, &full, self.timing.claim_seconds()).await?)
        };
        claimed.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "webhooks are not told now");
            Vec::new()
        })
    }

    /// Gives a lane back untold; where that cannot be written, the claim lapses.
    async fn give_back(&self, claim: &Claim) {
        let given_back = async {
            let db = self.db.get().await?;
            Ok::<_, Error>(queue::release(&db, claim, 0.0).await?)
        };
        if let Err(error) = given_back.await {
            tracing::warn!(%error, "a lane is not given back");
        }
    }

    async fn purge(&self) {
        let purged = async {
            let db = self.db.get().await?;
            Ok::<_, Error>(queue::purge(&db).await?)
        };
        if let Err(error) = purged.await {
            tracing::warn!(%error, "what webhooks were told long ago is not deleted");
        }
    }

    /// Tells what is pending in a lane, one after the other, until something fails.
    async fn tell_lane(&self, claim: &Claim, stop: &CancellationToken) -> Result<(), Error> {
        let since = Instant::now();
        for told in 1..=MAX_IN_A_ROW {
            let mut db = self.db.get().await?;
            let [webhook] =
                states::load(&db, &[StateKey::Webhook(claim.webhook_id)]).await?.try_into().unwrap_or([None]);
            let Some(State::Webhook(webhook)) = webhook.filter(is_enabled) else {
                queue::give_up(&mut db, claim, "the webhook is disabled or deleted").await?;
                return Ok(());
            };
            let Some(due) = queue::next(&db, claim).await? else {
                queue::close(&mut db, claim).await?;
                return Ok(());
            };
            if !self.is_read(&db, due.position).await? {
                queue::release(&db, claim, CATCH_UP.as_secs_f64()).await?;
                return Ok(());
            }
            let letter = self.letter(&db, claim, &due, &webhook.settings).await?;
            drop(db);
            let outcome = self.post.send(letter).await;
            let mut db = self.db.get().await?;
            let keep = told < MAX_IN_A_ROW && since.elapsed() < TURN && !stop.is_cancelled();
            let goes_on = match outcome {
                Outcome::Told(status) => {
                    let hold = if keep { self.timing.claim_seconds() } else { 0.0 };
                    queue::told(&mut db, claim, due.position, status, keep, hold).await?
                }
                Outcome::Missed { status, why } => {
                    let retry_seconds = self.timing.retry_seconds(due.attempts + 1);
                    let age = Duration::try_from_secs_f64(due.queued_seconds).unwrap_or_default();
                    let next = age + Duration::try_from_secs_f64(retry_seconds).unwrap_or_default();
                    let late = next > self.timing.give_up_after;
                    let missed = Missed { status, why, retry_seconds: (!late).then_some(retry_seconds) };
                    queue::missed(&mut db, claim, due.position, &missed).await?;
                    false
                }
            };
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Have the read models come as far as `position`?
    async fn is_read(&self, db: &Client, position: i64) -> Result<bool, Error> {
        if self.read_to.load(Ordering::Relaxed) >= position {
            return Ok(true);
        }
        let mut read_to = i64::MAX;
        for model in READ_MODELS {
            read_to = read_to.min(checkpoint::position(db, model).await?);
        }
        self.read_to.fetch_max(read_to, Ordering::Relaxed);
        Ok(read_to >= position)
    }

    async fn letter(
        &self,
        db: &Client,
        claim: &Claim,
        due: &Due,
        settings: &WebhookSettings,
    ) -> Result<Letter, Error> {
        let cannot = |why: String| Error::News(due.position, why);
        let row = db.query_one(EVENT, &[&due.position]).await?;
        let event: Event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)
            .map_err(|error| cannot(error.to_string()))?;
        let merchant_id: MerchantId =
            row.try_get::<_, &str>(3)?.parse().map_err(|error| cannot(format!("{error}")))?;
        let fact = Fact { merchant_id, occurred_at: row.try_get(4)?, event };
        let recorded = Recorded { position: due.position, fact };
        let body = self.payloads.payload(db, &recorded, due.event_id).await.map_err(cannot)?;
        let body = body.ok_or_else(|| cannot("nobody is told of it".to_owned()))?;
        let secret = self.server_key.webhook_secret(claim.webhook_id);
        Ok(Letter { url: settings.url.clone(), secret, id: due.event_id.to_string(), body })
    }
}

fn is_enabled(state: &State) -> bool {
    matches!(state, State::Webhook(webhook) if webhook.settings.enabled)
}

/// A lane of this webhook is told no more.
fn free(busy: &mut HashMap<WebhookId, usize>, ended: &Result<WebhookId, tokio::task::JoinError>) {
    let Ok(webhook_id) = ended else {
        // Which one is not known any more: all places are counted anew as they come free.
        tracing::error!("telling a webhook panicked");
        return busy.clear();
    };
    if let Some(lanes) = busy.get_mut(webhook_id) {
        *lanes = lanes.saturating_sub(1);
        if *lanes == 0 {
            busy.remove(webhook_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_last_and_stay_there() {
        let timing = WebhookTiming {
            timeout: Duration::from_secs(10),
            retry_after: [5, 30, 120].map(Duration::from_secs).to_vec(),
            give_up_after: Duration::from_hours(24),
        };
        let delays: Vec<_> = (1..=5).map(|attempts| timing.retry_seconds(attempts)).collect();
        assert_eq!(delays, [5.0, 30.0, 120.0, 120.0, 120.0]);
    }
}
