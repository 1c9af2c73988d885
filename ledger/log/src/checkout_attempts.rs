//! Counts the attempts of a checkout session at the payment processor.
//!
//! Invariant: at most [`MAX_ATTEMPTS`] per session, over all gateways, so that a hosted page cannot be used to test
//! many stolen cards.

use farthing_core::ids::CheckoutSessionId;
use farthing_core::partition::Partition;
use tokio_postgres::Client;

/// Attempts per session.
const MAX_ATTEMPTS: i32 = 10;

/// Counts an attempt, before the processor is called. So an attempt whose outcome is lost is counted too.
const COUNT: &str = "\
INSERT INTO ledger.checkout_attempt AS a (partition, checkout_session_id, attempts, first_at) VALUES ($1, $2, 1, now())
ON CONFLICT (partition, checkout_session_id) DO UPDATE SET attempts = a.attempts + 1 WHERE a.attempts < $3
RETURNING attempts";

const ATTEMPTS: &str =
    "SELECT attempts FROM ledger.checkout_attempt WHERE partition = $1 AND checkout_session_id = $2";

/// Sessions end after a day of their merchant's clock, which may be ahead of the machine's, never behind.
const PURGE: &str = "\
DELETE FROM ledger.checkout_attempt WHERE partition = $1 AND checkout_session_id IN (
    SELECT checkout_session_id FROM ledger.checkout_attempt
    WHERE partition = $1 AND first_at < now() - interval '2 days' ORDER BY first_at LIMIT 1000)";

/// Counts an attempt of a session in `partition`. `false` means that no attempt is left.
pub async fn count(
    db: &Client,
    partition: Partition,
    id: CheckoutSessionId,
) -> Result<bool, tokio_postgres::Error> {
    let counted = db.query_opt(COUNT, &[&partition.number(), &id.to_string(), &MAX_ATTEMPTS]).await?;
    Ok(counted.is_some())
}

/// Whether all attempts of a session in `partition` have been used.
pub async fn used_up(
    db: &Client,
    partition: Partition,
    id: CheckoutSessionId,
) -> Result<bool, tokio_postgres::Error> {
    let row = db.query_opt(ATTEMPTS, &[&partition.number(), &id.to_string()]).await?;
    Ok(row.map(|row| row.try_get::<_, i32>(0)).transpose()?.is_some_and(|attempts| attempts >= MAX_ATTEMPTS))
}

/// Deletes up to 1,000 counters of sessions in `partition` that ended long ago.
pub async fn purge(db: &Client, partition: Partition) -> Result<u64, tokio_postgres::Error> {
    db.execute(PURGE, &[&partition.number()]).await
}
