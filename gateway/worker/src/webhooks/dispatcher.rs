//! The dispatcher: claims due queues and delivers them until a delivery fails, the queue is empty or its turn ends. The
//! queues of a partition are the work of the gateway that leads it, or of any other one if the leader delivers none. While
//! a partition moves, two may look for its queues; a claim is one gateway's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use deadpool_postgres::{Object, Pool};
use farthing_core::ids::{MerchantId, Mint, WebhookId};
use farthing_core::partition::Partition;
use farthing_core::secret::ServerKey;
use farthing_core::state::{State, StateKey, Webhook};
use farthing_egress::Connector;
use farthing_log::connect::redacted;
use farthing_log::leases::LedPartitions;
use farthing_log::ledger::Ledger;
use farthing_log::{reader, reads};
use farthing_projector::query::PartitionClient;
use farthing_projector::{ReadModel, Schemas, checkpoint};
use farthing_shares::{Division, Slots};
use futures_util::future::try_join_all;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::delivery::{DeliveryClient, DeliveryOutcome, DeliveryRequest};
use super::metrics::WebhookMetrics;
use super::payload::PayloadSource;
use super::queue::{self, Backlog, Claim, Claimed, FailedAttempt, PendingDelivery, Room};
use super::queue_tasks::{MAX_QUEUES, MAX_QUEUES_PER_WEBHOOK, QueueTasks};
use super::timing::WebhookTiming;

/// The pause of a dispatcher that found no due queue.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The most deliveries of a queue under one claim. Then the queue is released, so that other queues get a turn.
const MAX_DELIVERIES_PER_TURN: usize = 50;

/// The longest that the count of what waits in all partitions may take. Nothing is claimed meanwhile.
const COUNT_TIMEOUT: Duration = Duration::from_secs(15);

/// The turn of a queue also ends after this time, so that a slow receiver gets one attempt per turn.
const MAX_TURN: Duration = Duration::from_secs(1);

/// How often a running attempt looks whether its webhook is still enabled. Otherwise a merchant who makes and deletes
/// webhooks whose receivers hang would have more attempts than its webhooks may have.
const ENABLED_INTERVAL: Duration = Duration::from_secs(1);

/// The most attempts of a gateway at once.
const ATTEMPTS: usize = MAX_QUEUES;

/// The most attempts for one merchant at once: those of three webhooks.
const ATTEMPTS_PER_MERCHANT: usize = 3 * MAX_QUEUES_PER_WEBHOOK;

/// The pause of a webhook whose merchant has all the attempts that it gets.
const MERCHANT_DELAY: Duration = Duration::from_secs(1);

/// The pause of a queue until the read models have reached its next event.
const READ_MODEL_DELAY: Duration = Duration::from_millis(50);

/// How often the dispatcher looks how much waits.
const BACKLOG_INTERVAL: Duration = Duration::from_secs(10);

/// How often old deliveries are deleted.
const PURGE_INTERVAL: Duration = Duration::from_secs(10);

/// The read models that payloads are built from.
const READ_MODELS: [ReadModel; 3] = [ReadModel::Customers, ReadModel::Requests, ReadModel::SpendKeys];

/// An error that ends the turn of a queue. The queue can be claimed again when its claim lapses.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("no connection: {0}")]
    Pool(#[from] deadpool_postgres::PoolError),
    #[error(transparent)]
    Log(#[from] reader::Error),
    #[error(transparent)]
    States(#[from] reads::Error),
    #[error(transparent)]
    Queue(#[from] queue::Error),
    #[error("the backlog was not counted in time")]
    CountTimeout,
    #[error("the payload of the event at position {0} cannot be built: {1}")]
    Payload(i64, String),
}

/// Does `work` in the database, whose connection may hang without an end.
async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    reads::within(work).await?
}

/// Delivers webhooks.
pub struct Dispatcher {
    payloads: Arc<dyn PayloadSource>,
    server_key: ServerKey,
    ledger: Ledger,
    led: LedPartitions,
    db: Pool,
    schemas: Schemas,
    /// Numbers the claims.
    mint: Mint,
    client: DeliveryClient,
    timing: WebhookTiming,
    metrics: WebhookMetrics,
    /// The attempts in flight, which merchants leave to each other.
    attempts: Slots<MerchantId>,
    /// Webhooks whose merchants had no attempt left, or that wait to be given up, with the time until which no queue of
    /// theirs is claimed.
    deferred: Mutex<HashMap<WebhookId, Instant>>,
    /// Held by the task that fails the deliveries of a webhook that is disabled or deleted.
    giving_up: tokio::sync::Mutex<()>,
}

impl Dispatcher {
    /// A dispatcher that sends all deliveries through `connector`.
    pub fn new(
        payloads: Arc<dyn PayloadSource>,
        server_key: ServerKey,
        ledger: Ledger,
        (db, schemas): (Pool, Schemas),
        connector: Connector,
        (timing, metrics): (WebhookTiming, WebhookMetrics),
    ) -> Self {
        let client = DeliveryClient::new(connector, timing.timeout);
        let attempts = Slots::new(Division::of(ATTEMPTS, ATTEMPTS_PER_MERCHANT));
        Self {
            payloads,
            server_key,
            led: ledger.led(),
            ledger,
            db,
            schemas,
            mint: Mint::default(),
            client,
            timing,
            metrics,
            attempts,
            deferred: Mutex::default(),
            giving_up: tokio::sync::Mutex::default(),
        }
    }

    /// Delivers until `stop`, then waits for the running attempts, at most for the timeout of one attempt.
    pub async fn run(self, stop: CancellationToken) {
        let timeout = self.timing.timeout;
        let dispatcher = Arc::new(self);
        let mut tasks = QueueTasks::default();
        let (mut purged_at, mut counted_at): (Option<Instant>, Option<Instant>) = (None, None);
        let mut first = 0;
        // The webhook of each partition at which the last claim ended.
        let mut walks = HashMap::new();
        // The partitions whose search has reached the end since the last pause or claim. They are not searched again before
        // the next one: otherwise searches that end at different times would leave no pause.
        let mut searched = HashSet::new();
        loop {
            tasks.reap();
            let (mut more, mut has_claimed) = (false, false);
            let mut partitions = dispatcher.led.to_deliver();
            // The partitions take turns in being the first when few slots are free.
            first = (first + 1) % partitions.len().max(1);
            partitions.rotate_left(first);
            for partition in &partitions {
                if tasks.room() == 0 {
                    break;
                }
                if searched.contains(partition) {
                    continue;
                }
                let mut taken = tasks.by_webhook();
                let deferred = dispatcher.deferred().into_iter();
                taken.extend(deferred.map(|webhook_id| (webhook_id, MAX_QUEUES_PER_WEBHOOK)));
                let room = Room::new(tasks.room(), &taken);
                let walked = walks.entry(*partition).or_default();
                let claimed = dispatcher.claim(*partition, &room, walked).await;
                if claimed.more {
                    more = true;
                } else {
                    searched.insert(*partition);
                }
                has_claimed |= !claimed.claims.is_empty();
                for claim in claimed.claims {
                    tasks.spawn(claim.webhook_id, Arc::clone(&dispatcher).deliver(claim, stop.clone()));
                }
            }
            if purged_at.is_none_or(|at| at.elapsed() > PURGE_INTERVAL) {
                // What is left goes in the next rounds, so that deliveries wait for one batch of each partition.
                let is_done = dispatcher.purge(&partitions).await;
                purged_at = is_done.then(Instant::now);
            }
            if counted_at.is_none_or(|at| at.elapsed() > BACKLOG_INTERVAL) {
                dispatcher.count_backlog(&partitions).await;
                counted_at = Some(Instant::now());
            }
            if has_claimed {
                searched.clear();
            }
            if more && !stop.is_cancelled() {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                // A slot is free, and a due queue may be waiting for it.
                Some(()) = tasks.join_next() => {}
            }
            searched.clear();
        }
        // The claims of attempts that still run after the timeout lapse.
        let _ = tokio::time::timeout(timeout, async { while tasks.join_next().await.is_some() {} }).await;
    }

    /// The webhooks that are deferred now.
    fn deferred(&self) -> Vec<WebhookId> {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        deferred.retain(|_, until| *until > Instant::now());
        deferred.keys().copied().collect()
    }

    /// Claims no queue of the webhook for a moment.
    fn defer(&self, webhook_id: WebhookId) {
        let until = Instant::now() + MERCHANT_DELAY;
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).insert(webhook_id, until);
    }

    /// Claims due queues of `partition` for which there is `room`.
    async fn claim(&self, partition: Partition, room: &Room, walked: &mut String) -> Claimed {
        let claimed = async {
            let db = self.db.get().await?;
            let (lasts, number) = (self.timing.claim(), self.claim_number());
            Ok::<_, Error>(queue::claim(&db, partition, room, walked, lasts, number).await?)
        };
        in_time(claimed).await.unwrap_or_else(|error| {
            tracing::warn!(event = "webhook.claim_failed", %partition, %error, "webhook queues could not be claimed");
            Claimed::default()
        })
    }

    /// A number that no claim had before: 63 random bits.
    fn claim_number(&self) -> i64 {
        let random = self.mint.next(Utc::now()).random() & u128::from(i64::MAX.unsigned_abs());
        i64::try_from(random).unwrap_or_default()
    }

    /// Releases a queue without a delivery. If that fails, the claim lapses.
    async fn release(&self, claim: &Claim) {
        let released = async {
            let db = self.db.get().await?;
            Ok::<_, Error>(queue::release(&db, claim, 0.0).await?)
        };
        if let Err(error) = in_time(released).await {
            tracing::warn!(event = "webhook.release_failed", %error, "a webhook queue was not released");
        }
    }

    /// Counts what waits in `partitions`. If that fails, the metrics have no value.
    async fn count_backlog(&self, partitions: &[Partition]) {
        let counted = async {
            let (db, mut all) = (self.db.get().await?, Backlog::default());
            for partition in partitions {
                all.add(queue::backlog(&db, *partition).await?);
            }
            Ok::<_, Error>(all)
        };
        match tokio::time::timeout(COUNT_TIMEOUT, counted).await.unwrap_or(Err(Error::CountTimeout)) {
            Ok(all) => self.metrics.waits(Some(all)),
            Err(error) => {
                self.metrics.waits(None);
                tracing::warn!(event = "webhook.count_failed", %error, "waiting webhook deliveries were not counted");
            }
        }
    }

    /// Deletes old deliveries. Returns whether it need not go on at once.
    async fn purge(&self, partitions: &[Partition]) -> bool {
        let mut is_done = true;
        for partition in partitions {
            let purged = async {
                let db = self.db.get().await?;
                Ok::<_, Error>(queue::purge(&db, *partition).await?)
            };
            match in_time(purged).await {
                Ok(is_last) => is_done &= is_last,
                Err(error) => tracing::warn!(
                    event = "webhook.purge_failed",
                    %partition,
                    %error,
                    "old webhook deliveries were not deleted"
                ),
            }
        }
        is_done
    }

    /// Delivers a claimed queue. Logs errors other than failed deliveries.
    async fn deliver(self: Arc<Self>, mut claim: Claim, stop: CancellationToken) {
        if let Err(error) = self.deliver_queue(&mut claim, &stop).await {
            let webhook_id = claim.webhook_id;
            tracing::warn!(
                event = "webhook.queue_left",
                %webhook_id,
                %error,
                "a webhook queue was left until its claim lapses"
            );
        }
    }

    /// Delivers the pending events of a queue, in order, until an attempt fails or the turn ends.
    async fn deliver_queue(&self, claim: &mut Claim, stop: &CancellationToken) -> Result<(), Error> {
        let since = Instant::now();
        let key = StateKey::Webhook(claim.webhook_id);
        let partition = claim.partition();
        let Some(webhook) = self.enabled_webhook(partition, &key).await? else {
            return self.give_up(claim, &key).await;
        };
        let Some(_slot) = self.attempts.take(webhook.merchant_id) else {
            self.defer(claim.webhook_id);
            self.release(claim).await;
            return Ok(());
        };
        for number in 1..=MAX_DELIVERIES_PER_TURN {
            // A wait for a connection counts for the claim alone.
            let db = self.db.get().await?;
            let Some((pending, body)) = in_time(self.next_attempt(db, claim)).await? else {
                return Ok(());
            };
            // Read again after all waits for Postgres, since the webhook may have changed meanwhile.
            let Some(webhook) = self.enabled_webhook(partition, &key).await? else {
                return self.give_up(claim, &key).await;
            };
            if !claim.lasts(self.timing.attempt()) {
                // Another gateway may claim the queue before the attempt would end.
                self.release(claim).await;
                return Ok(());
            }
            let request = self.request(claim, &webhook, &pending, body);
            let Some(outcome) = self.client.send(request, self.disabled(partition, &key)).await else {
                return self.give_up(claim, &key).await;
            };
            let keep = number < MAX_DELIVERIES_PER_TURN && since.elapsed() < MAX_TURN && !stop.is_cancelled();
            let db = self.db.get().await?;
            if !in_time(self.record(db, claim, &pending, outcome, keep)).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next delivery of a queue, with its body. `None` if it must wait, or there is none: then the queue is released or
    /// closed.
    async fn next_attempt(
        &self,
        mut db: Object,
        claim: &Claim,
    ) -> Result<Option<(PendingDelivery, Vec<u8>)>, Error> {
        let Some(pending) = queue::next(&db, claim).await? else {
            queue::close(&mut db, claim).await?;
            return Ok(None);
        };
        if !self.read_models_reached(&db, claim.partition(), pending.position).await? {
            queue::release(&db, claim, READ_MODEL_DELAY.as_secs_f64()).await?;
            return Ok(None);
        }
        let body = self.body(&db, claim, &pending).await?;
        Ok(Some((pending, body)))
    }

    /// Records the outcome of an attempt. Returns whether the turn goes on, which it does only if the claim is to be kept.
    async fn record(
        &self,
        mut db: Object,
        claim: &mut Claim,
        pending: &PendingDelivery,
        outcome: DeliveryOutcome,
        keep: bool,
    ) -> Result<bool, Error> {
        match outcome {
            DeliveryOutcome::Delivered(status) => {
                let lasts = keep.then(|| self.timing.claim());
                let goes_on = queue::delivered(&mut db, claim, pending.position, status, lasts).await?;
                self.metrics.delivered.inc();
                Ok(goes_on)
            }
            DeliveryOutcome::Failed { status, reason } => {
                let retry_seconds = self.timing.retry_seconds(pending.attempts + 1, pending.queued_seconds);
                let failed = FailedAttempt { status, reason, retry_seconds };
                let is_queued_again = queue::failed(&mut db, claim, pending, &failed).await?;
                let is_last = retry_seconds.is_none() && !is_queued_again;
                let outcome = if is_last { &self.metrics.given_up } else { &self.metrics.failed };
                outcome.inc();
                Ok(false)
            }
        }
    }

    /// Fails what is due for a webhook that is disabled or deleted: one webhook at a time, until its turn ends. The others are
    /// deferred, so that they take no connection and few attempts from deliveries.
    async fn give_up(&self, claim: &Claim, key: &StateKey) -> Result<(), Error> {
        let since = Instant::now();
        let Ok(_turn) = self.giving_up.try_lock() else {
            self.defer(claim.webhook_id);
            self.release(claim).await;
            return Ok(());
        };
        while in_time(self.give_up_batch(claim, key)).await? && since.elapsed() < MAX_TURN {}
        Ok(())
    }

    /// Fails a part of it. Returns whether there may be more. If the webhook is enabled again, what is queued from then on is
    /// later than all that was queued before.
    async fn give_up_batch(&self, claim: &Claim, key: &StateKey) -> Result<bool, Error> {
        let queued = queue::queued(&*self.db.get().await?, claim).await?;
        let is_enabled = self.enabled_webhook(claim.partition(), key).await?.is_some();
        let mut db = self.db.get().await?;
        if is_enabled {
            queue::release(&db, claim, 0.0).await?;
            return Ok(false);
        }
        Ok(queue::give_up(&mut db, claim, "the webhook is disabled or deleted", queued).await?)
    }

    /// The webhook of `key`, unless it is disabled or deleted.
    async fn enabled_webhook(
        &self,
        partition: Partition,
        key: &StateKey,
    ) -> Result<Option<Box<Webhook>>, reads::Error> {
        match self.ledger.state(partition, None, key.clone()).await? {
            Some(State::Webhook(webhook)) if webhook.settings.enabled => Ok(Some(webhook)),
            Some(_) | None => Ok(None),
        }
    }

    /// Waits until the webhook of `key` is disabled or deleted. One that cannot be read counts as enabled.
    async fn disabled(&self, partition: Partition, key: &StateKey) {
        loop {
            tokio::time::sleep(ENABLED_INTERVAL).await;
            if let Ok(None) = self.enabled_webhook(partition, key).await {
                return;
            }
        }
    }

    /// Whether the read models have reached `position` of `partition`. They may go back, as when Postgres crashes, so this is
    /// asked each time.
    async fn read_models_reached(
        &self,
        db: &Client,
        partition: Partition,
        position: i64,
    ) -> Result<bool, Error> {
        let rows = PartitionClient::new(db, &self.schemas, partition);
        let reached = READ_MODELS.map(|model| checkpoint::position(rows, model));
        let reached = try_join_all(reached).await?;
        Ok(reached.iter().all(|reached| *reached >= position))
    }

    /// The body of a delivery.
    async fn body(&self, db: &Client, claim: &Claim, pending: &PendingDelivery) -> Result<Vec<u8>, Error> {
        let invalid = |why: String| Error::Payload(pending.position, why);
        let recorded = reader::event_at(db, claim.partition(), pending.position).await?;
        let recorded = recorded.ok_or_else(|| invalid("it is not in the log".to_owned()))?;
        let rows = PartitionClient::new(db, &self.schemas, claim.partition());
        let body = self.payloads.payload(rows, &recorded, pending.event_id).await.map_err(invalid)?;
        body.ok_or_else(|| invalid("no webhook receives this event".to_owned()))
    }

    /// The delivery of `body` to the webhook as it is now.
    fn request(
        &self,
        claim: &Claim,
        webhook: &Webhook,
        pending: &PendingDelivery,
        body: Vec<u8>,
    ) -> DeliveryRequest {
        DeliveryRequest {
            merchant_id: webhook.merchant_id,
            url: webhook.settings.url.clone(),
            secret: self.server_key.webhook_secret(claim.webhook_id),
            event_id: pending.event_id.to_string(),
            body,
        }
    }
}
