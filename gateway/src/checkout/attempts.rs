//! How often a session has been tried with a card or a payment. Invariant: at most ten times, over all gateways, so that a
//! page is of no use for testing stolen cards; then it is closed for good.

use farthing_ledger::ids::CheckoutSessionId;
use tokio_postgres::Client;

use crate::app::App;
use crate::error::ApiError;
use crate::rest::within;

/// So often a session may go to the payment processor.
const MOST: i32 = 10;

/// Counted before the processor is asked: an attempt whose outcome is lost has been one.
const COUNT: &str = "\
INSERT INTO ledger.checkout_attempt AS a (checkout_session_id, attempts, first_at) VALUES ($1, 1, now())
ON CONFLICT (checkout_session_id) DO UPDATE SET attempts = a.attempts + 1 WHERE a.attempts < $2
RETURNING attempts";

const MADE: &str = "SELECT attempts FROM ledger.checkout_attempt WHERE checkout_session_id = $1";

/// Sessions end after a day of their merchant's clock, which may stand ahead of the machine's, never behind.
const PURGE: &str = "\
DELETE FROM ledger.checkout_attempt WHERE checkout_session_id IN (
    SELECT checkout_session_id FROM ledger.checkout_attempt WHERE first_at < now() - interval '2 days'
    ORDER BY first_at LIMIT 1000)";

/// Counts an attempt; is it one that may be made?
pub(super) async fn count(app: &App, id: CheckoutSessionId) -> Result<bool, ApiError> {
    let connection = app.connection().await?;
    let counted = within(async { connection.query_opt(COUNT, &[&id.to_string(), &MOST]).await }).await?;
    Ok(counted.is_some())
}

/// Have all attempts been made?
pub(super) async fn used_up(app: &App, id: CheckoutSessionId) -> Result<bool, ApiError> {
    let connection = app.connection().await?;
    let made = within(async { connection.query_opt(MADE, &[&id.to_string()]).await }).await?;
    Ok(made.map(|row| row.try_get::<_, i32>(0)).transpose()?.is_some_and(|made| made >= MOST))
}

/// Forgets attempts on sessions that have ended long ago.
pub(crate) async fn purge(db: &Client) -> Result<u64, tokio_postgres::Error> {
    db.execute(PURGE, &[]).await
}
