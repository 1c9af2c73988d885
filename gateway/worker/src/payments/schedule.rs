//! Which subscriptions are due: by the instance's clock, or by a merchant's that is ahead of it (in test mode alone). A round
//! is bounded, and one merchant's part of it is, so that nobody's renewals wait for all of another's.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use farthing_core::command::{AdvanceSubscription, Advanced, Refusal};
use farthing_core::ids::{PaymentId, SubscriptionId};
use farthing_log::appender;
use tokio_postgres::Client;

use super::{Error, Payments, within};

/// Subscriptions that each of the looks below finds in one round; the rest follows in the next.
const ROUND: i64 = 100;

/// Of these, the most of one merchant, where there are others.
const OF_A_MERCHANT: i64 = 10;

/// Merchants that are looked at in turn, where more is due than a round takes.
const MERCHANTS: i64 = 10;

/// Milliseconds of Unix time are compared with what the states say of themselves; the index is on the same expression.
const DUE: &str = "\
SELECT id FROM ledger.state
WHERE kind = 'subscription' AND ledger.due_ms(body) <= $1
ORDER BY ledger.due_ms(body) LIMIT $2";

/// The merchants after one, in the order of their ids, each found by a look into the index; and what is due of them. That a
/// merchant is looked for between itself and itself, in that order, is so that no plan begins with what others have due.
const DUE_IN_TURN: &str = "\
WITH RECURSIVE merchant (id, number) AS (
    (SELECT ledger.merchant_of(body), 1 FROM ledger.state
     WHERE kind = 'subscription' AND ledger.merchant_of(body) > $1
     ORDER BY ledger.merchant_of(body) LIMIT 1)
    UNION ALL
    SELECT (SELECT ledger.merchant_of(body) FROM ledger.state
            WHERE kind = 'subscription' AND ledger.merchant_of(body) > merchant.id
            ORDER BY ledger.merchant_of(body) LIMIT 1), merchant.number + 1
    FROM merchant WHERE merchant.id IS NOT NULL AND merchant.number < $3::bigint
)
SELECT merchant.id, due.id
FROM merchant LEFT JOIN LATERAL (
    SELECT id FROM ledger.state
    WHERE kind = 'subscription' AND ledger.merchant_of(body) BETWEEN merchant.id AND merchant.id
      AND ledger.due_ms(body) <= $2
    ORDER BY ledger.merchant_of(body), ledger.due_ms(body) LIMIT $4) AS due ON true
WHERE merchant.id IS NOT NULL ORDER BY merchant.id";

/// The first of each merchant before the second of any; who comes first among equals is left to chance.
const DUE_BY_CLOCKS_AHEAD: &str = "\
SELECT due.id
FROM ledger.state AS merchant
CROSS JOIN LATERAL (
    SELECT id, ledger.due_ms(body) AS due_ms FROM ledger.state
    WHERE kind = 'subscription'
      AND ledger.merchant_of(body) >= merchant.id COLLATE \"default\"
      AND ledger.merchant_of(body) <= merchant.id COLLATE \"default\"
      AND ledger.due_ms(body) <= $1 + ledger.ahead_seconds(merchant.body) * 1000
    ORDER BY ledger.merchant_of(body), ledger.due_ms(body) LIMIT $3) AS due
WHERE merchant.kind = 'merchant' AND ledger.ahead_seconds(merchant.body) > 0
ORDER BY row_number() OVER (PARTITION BY merchant.id ORDER BY due.due_ms), random() LIMIT $2";

/// What is due, round by round.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// The merchant who had the last turn.
    after: String,
}

impl Scheduler {
    /// Does what is due; is there more?
    pub(super) async fn round(&mut self, work: &Payments) -> Result<bool, Error> {
        let connection = work.reads.connection().await?;
        let due = within(self.due(&connection, work.clock.now())).await??;
        drop(connection);
        let mut done = false;
        for subscription_id in due {
            done |= advance(work, subscription_id).await;
        }
        Ok(done)
    }

    async fn due(&mut self, client: &Client, now: DateTime<Utc>) -> Result<BTreeSet<SubscriptionId>, Error> {
        let now_ms = now.timestamp_millis();
        let oldest = client.query(DUE, &[&now_ms, &ROUND]).await?;
        let mut due = BTreeSet::new();
        for row in &oldest {
            due.insert(read(row.try_get(0)?)?);
        }
        if oldest.len() == usize::try_from(ROUND).unwrap_or(usize::MAX) {
            // The oldest may all be one merchant's: the others have their turns.
            let in_turn =
                client.query(DUE_IN_TURN, &[&self.after, &now_ms, &MERCHANTS, &OF_A_MERCHANT]).await?;
            self.after = match in_turn.last() {
                Some(row) => row.try_get(0)?,
                None => String::new(),
            };
            for row in &in_turn {
                due.extend(row.try_get::<_, Option<&str>>(1)?.map(read).transpose()?);
            }
        }
        for row in &client.query(DUE_BY_CLOCKS_AHEAD, &[&now_ms, &ROUND, &OF_A_MERCHANT]).await? {
            due.insert(read(row.try_get(0)?)?);
        }
        Ok(due)
    }
}

fn read(id: &str) -> Result<SubscriptionId, Error> {
    id.parse().map_err(|error| Error::Internal(format!("subscription {id}: {error}")))
}

/// Does what is due of one; was there anything?
async fn advance(work: &Payments, subscription_id: SubscriptionId) -> bool {
    let now = work.clock.now();
    let payment_id = PaymentId::new(work.mint.next(now));
    match work.ledger.submit(AdvanceSubscription { subscription_id, payment_id, now }).await {
        Ok(Advanced::Done) => true,
        Ok(Advanced::ToBePaid(_)) => {
            work.wake();
            true
        }
        // Another scheduler was here.
        Ok(Advanced::NothingDue) | Err(appender::Error::Refused(Refusal::SubscriptionNotFound)) => false,
        // The others need not wait for it.
        Err(error) => {
            tracing::error!(%subscription_id, %error, "a subscription that is due cannot be advanced");
            false
        }
    }
}
