//! Which subscriptions are due: by the instance's clock, or by a merchant's that is ahead of it (in test mode alone).

use chrono::{DateTime, Utc};
use farthing_ledger::command::{AdvanceSubscription, Advanced, Refusal};
use farthing_ledger::ids::{PaymentId, SubscriptionId};
use farthing_ledger::log::appender;
use tokio_postgres::Client;

use crate::app::App;
use crate::error::ApiError;
use crate::rest::within;

/// Subscriptions that are looked at in one round; the rest follows in the next.
const ROUND: i64 = 100;

/// Milliseconds of Unix time are compared with what the states say of themselves; the index is on the same expression.
const DUE: &str = "\
SELECT id FROM ledger.state
WHERE kind = 'subscription' AND ledger.due_ms(body) <= $1
ORDER BY ledger.due_ms(body) LIMIT $2";

const DUE_BY_CLOCKS_AHEAD: &str = "\
SELECT subscription.id
FROM ledger.state AS merchant
JOIN ledger.state AS subscription
  ON subscription.kind = 'subscription' AND ledger.merchant_of(subscription.body) = merchant.id
WHERE merchant.kind = 'merchant' AND ledger.ahead_seconds(merchant.body) > 0
  AND ledger.due_ms(subscription.body) <= $1 + ledger.ahead_seconds(merchant.body) * 1000
ORDER BY ledger.due_ms(subscription.body) LIMIT $2";

/// Does what is due; is there more?
pub(super) async fn round(app: &App) -> Result<bool, ApiError> {
    let connection = app.connection().await?;
    let due = within(due(&connection, app.now())).await?;
    drop(connection);
    let mut done = false;
    for subscription_id in due {
        let now = app.now();
        let payment_id = PaymentId::new(app.mint.next(now));
        match app.ledger.submit(AdvanceSubscription { subscription_id, payment_id, now }).await {
            Ok(Advanced::Done | Advanced::ToBePaid(_)) => done = true,
            // Another scheduler was here.
            Ok(Advanced::NothingDue) | Err(appender::Error::Refused(Refusal::SubscriptionNotFound)) => {}
            // The others need not wait for it.
            Err(error) => {
                tracing::error!(%subscription_id, %error, "a subscription that is due cannot be advanced");
            }
        }
    }
    Ok(done)
}

async fn due(client: &Client, now: DateTime<Utc>) -> Result<Vec<SubscriptionId>, ApiError> {
    let now_ms = now.timestamp_millis();
    let mut rows = client.query(DUE, &[&now_ms, &ROUND]).await?;
    rows.extend(client.query(DUE_BY_CLOCKS_AHEAD, &[&now_ms, &ROUND]).await?);
    let mut due = Vec::with_capacity(rows.len());
    for row in rows {
        let id: &str = row.try_get(0)?;
        due.push(id.parse().map_err(|error| ApiError::Internal(format!("subscription {id}: {error}")))?);
    }
    Ok(due)
}
