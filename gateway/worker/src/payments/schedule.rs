//! The scheduler advances due subscriptions: those due by the instance's clock and, in test mode, those of merchants
//! whose clock is ahead. Each round of a partition and each merchant's share of it are bounded, so that no merchant
//! starves another.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use farthing_core::command::{AdvanceSubscription, Advanced, Refusal, SubscriptionRefusal};
use farthing_core::ids::{PaymentId, SubscriptionId};
use farthing_core::partition::Partition;
use farthing_log::appender;
use farthing_log::reads::within;
use futures_util::stream::{self, StreamExt as _};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::error::Error;
use super::execution::Payments;

/// The most subscriptions that [`DUE`] and [`DUE_BY_CLOCKS_AHEAD`] return. The next round takes the next ones.
const ROUND: i64 = 100;

/// The most subscriptions of one merchant in a round in which merchants take turns.
const MAX_PER_MERCHANT: i64 = 10;

/// The merchants that have a turn in a round, if more subscriptions are due than a round takes.
const MERCHANTS_PER_ROUND: i64 = 10;

/// The most subscriptions that are advanced at the same time.
const ADVANCED_AT_ONCE: usize = 64;

/// The subscriptions of partition $1 that have been due longest. Times are Unix milliseconds.
const DUE: &str = "\
SELECT id FROM ledger.state
WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
    AND kind = 'subscription' AND due_ms <= $2
ORDER BY due_ms LIMIT $3";

/// The next merchants of partition $1 after $2 in the order of their ids, each found by one index lookup, with their due
/// subscriptions. `BETWEEN id AND id` instead of `=` stops the planner from starting with the due index.
const DUE_BY_MERCHANT: &str = "\
WITH RECURSIVE merchant (id, number) AS (
    (SELECT merchant_id, 1 FROM ledger.state
     WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
       AND kind = 'subscription' AND merchant_id > $2
     ORDER BY merchant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT merchant_id FROM ledger.state
            WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
              AND kind = 'subscription' AND merchant_id > merchant.id
            ORDER BY merchant_id LIMIT 1), merchant.number + 1
    FROM merchant WHERE merchant.id IS NOT NULL AND merchant.number < $4::bigint
)
SELECT merchant.id, due.id
FROM merchant LEFT JOIN LATERAL (
    SELECT id FROM ledger.state
    WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
      AND kind = 'subscription' AND merchant_id BETWEEN merchant.id AND merchant.id AND due_ms <= $3
    ORDER BY merchant_id, due_ms LIMIT $5) AS due ON true
WHERE merchant.id IS NOT NULL ORDER BY merchant.id";

/// Due subscriptions of merchants of partition $1 whose clock is ahead: the first of each merchant before the second of any, merchants
/// in random order.
const DUE_BY_CLOCKS_AHEAD: &str = "\
SELECT due.id
FROM ledger.state AS merchant
CROSS JOIN LATERAL (
    SELECT id, due_ms FROM ledger.state
    WHERE partition = $1
      AND generation = merchant.generation
      AND kind = 'subscription'
      AND merchant_id >= merchant.id
      AND merchant_id <= merchant.id
      AND due_ms <= $2 + merchant.ahead_seconds * 1000
    ORDER BY merchant_id, due_ms LIMIT $4) AS due
WHERE merchant.partition = $1 AND merchant.generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
  AND merchant.kind = 'merchant' AND merchant.ahead_seconds > 0
ORDER BY row_number() OVER (PARTITION BY merchant.id ORDER BY due.due_ms), random() LIMIT $3";

/// The state between rounds.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// The merchant of each partition who had the last turn; none at the start of a pass.
    after: BTreeMap<Partition, String>,
}

impl Scheduler {
    /// Advances due subscriptions of the partitions `led`; returns whether any changed, so that there may be more. A
    /// partition that cannot be read does not hold up the others.
    pub(super) async fn round(&mut self, payments: &Payments, led: &[Partition]) -> Result<bool, Error> {
        let (mut due, mut failed) = (Vec::new(), None);
        for partition in led {
            match self.due_in(payments, *partition).await {
                Ok(found) => due.extend(found.into_iter().map(|id| (*partition, id))),
                Err(error) => failed = Some(error),
            }
        }
        let advanced = stream::iter(due)
            .map(|(partition, id)| advance(payments, partition, id))
            .buffer_unordered(ADVANCED_AT_ONCE)
            .fold(false, async |any, advanced| any | advanced)
            .await;
        failed.map_or(Ok(advanced), Err)
    }

    async fn due_in(
        &mut self,
        payments: &Payments,
        partition: Partition,
    ) -> Result<BTreeSet<SubscriptionId>, Error> {
        let connection = payments.reads.connection().await?;
        within(self.due(&connection, partition, payments.clock.now())).await?
    }

    async fn due(
        &mut self,
        client: &Client,
        partition: Partition,
        now: DateTime<Utc>,
    ) -> Result<BTreeSet<SubscriptionId>, Error> {
        let (number, now_ms) = (partition.number(), now.timestamp_millis());
        let oldest = client.query(DUE, &[&number, &now_ms, &ROUND]).await?;
        let mut due = BTreeSet::new();
        for row in &oldest {
            due.insert(read(row.try_get(0)?)?);
        }
        if oldest.len() == usize::try_from(ROUND).unwrap_or(usize::MAX) {
            // The subscriptions that have been due longest may all belong to one merchant, so merchants also take
            // turns.
            let after = self.after.remove(&partition).unwrap_or_default();
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&number, &after, &now_ms, &MERCHANTS_PER_ROUND, &MAX_PER_MERCHANT];
            let by_merchant = client.query(DUE_BY_MERCHANT, &parameters).await?;
            if let Some(row) = by_merchant.last() {
                self.after.insert(partition, row.try_get(0)?);
            }
            for row in &by_merchant {
                due.extend(row.try_get::<_, Option<&str>>(1)?.map(read).transpose()?);
            }
        }
        let parameters: [&(dyn ToSql + Sync); 4] = [&number, &now_ms, &ROUND, &MAX_PER_MERCHANT];
        for row in &client.query(DUE_BY_CLOCKS_AHEAD, &parameters).await? {
            due.insert(read(row.try_get(0)?)?);
        }
        Ok(due)
    }
}

fn read(id: &str) -> Result<SubscriptionId, Error> {
    id.parse().map_err(|error| Error::Internal(format!("subscription {id}: {error}")))
}

/// Advances a subscription; returns whether anything was due.
async fn advance(payments: &Payments, partition: Partition, subscription_id: SubscriptionId) -> bool {
    let now = payments.clock.now();
    let payment_id = PaymentId::new(payments.mint.next(now));
    let command = AdvanceSubscription { subscription_id, payment_id, now };
    match payments.ledger.submit(partition, command).await {
        Ok(Advanced::Done) => true,
        Ok(Advanced::PaymentRequested(_)) => {
            payments.wake();
            true
        }
        // Another scheduler has advanced it.
        Ok(Advanced::NothingDue)
        | Err(appender::Error::Refused(Refusal::Subscription(SubscriptionRefusal::NotFound))) => false,
        // One that fails does not hold up the others.
        Err(error) => {
            tracing::error!(
                event = "subscription.advance_failed",
                %subscription_id,
                %error,
                "a due subscription could not be advanced"
            );
            false
        }
    }
}
