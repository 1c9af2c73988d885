//! The runner of payments and the scheduler of subscriptions: one loop in every gateway. Any number of them may run; what
//! is due happens once, because the ledger decides so.

use std::sync::Arc;
use std::time::Duration;

use farthing_ledger::ids::PaymentId;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::{carry_out, schedule};
use crate::app::App;
use crate::error::ApiError;
use crate::rest::within;

/// Payments that are carried out in one round, whichever; the rest follows in the next. So none that cannot be carried out
/// keeps the others waiting for ever.
const ROUND: i64 = 100;

/// The time between two looks, unless somebody says that there is something to do.
const PAUSE: Duration = Duration::from_secs(1);

const OPEN_PAYMENTS: &str = "SELECT id FROM ledger.state WHERE kind = 'payment' ORDER BY random() LIMIT $1";

/// Runs until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    let mut well = true;
    loop {
        let round = tokio::select! {
            round = round(&app) => round,
            () = stop.cancelled() => return,
        };
        let more = match round {
            Ok(more) => {
                well = true;
                more
            }
            Err(error) => {
                if well {
                    tracing::warn!(?error, "what is due could not be done; it is tried again");
                }
                well = false;
                false
            }
        };
        if more {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = app.payments_due.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Does what is due; is there more?
async fn round(app: &App) -> Result<bool, ApiError> {
    let payments = open_payments(app).await?;
    let mut ended = 0;
    for payment_id in &payments {
        match carry_out(app, *payment_id).await {
            Ok(_) => ended += 1,
            // The others need not wait for it.
            Err(error) => tracing::warn!(%payment_id, ?error, "a payment could not be carried out yet"),
        }
    }
    let advanced = schedule::round(app).await?;
    Ok(advanced || ended > 0)
}

async fn open_payments(app: &App) -> Result<Vec<PaymentId>, ApiError> {
    let connection = app.connection().await?;
    within(read_open(&connection)).await
}

async fn read_open(client: &Client) -> Result<Vec<PaymentId>, ApiError> {
    let rows = client.query(OPEN_PAYMENTS, &[&ROUND]).await?;
    let mut payments = Vec::with_capacity(rows.len());
    for row in rows {
        let id: &str = row.try_get(0)?;
        payments.push(id.parse().map_err(|error| ApiError::Internal(format!("payment {id}: {error}")))?);
    }
    Ok(payments)
}
