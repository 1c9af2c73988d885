//! The runner of payments and the scheduler of subscriptions, in every gateway. Any number of them may run; what is due
//! happens once, because the ledger decides so. Neither waits for the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farthing_ledger::ids::PaymentId;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::carry_out;
use super::patience::Patience;
use super::schedule::Scheduler;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::within;

/// Payments that are tried for the first time in one round; the rest follows in the next.
const FRESH: i64 = 32;

/// Payments that are tried again in one round.
const AGAIN: usize = 16;

/// Payments that are carried out at once.
const AT_ONCE: usize = 16;

/// The time between two looks, unless somebody says that there is something to do.
const PAUSE: Duration = Duration::from_secs(1);

/// Those that this process has not tried in vain, the oldest first.
const OPEN_PAYMENTS: &str = "\
SELECT id FROM ledger.state WHERE kind = 'payment' AND id <> ALL($1::text[]) ORDER BY id LIMIT $2";

/// Runs until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    let (to_pay, to_schedule) = (Notify::new(), Notify::new());
    let told = async {
        loop {
            app.payments_due.notified().await;
            to_pay.notify_one();
            to_schedule.notify_one();
        }
    };
    tokio::select! {
        () = told => {}
        () = pay(&app, &to_pay) => {}
        () = schedule(&app, &to_schedule) => {}
        () = stop.cancelled() => {}
    }
}

async fn pay(app: &App, told: &Notify) {
    let (mut patience, mut well) = (Patience::default(), true);
    loop {
        let round = payments(app, &mut patience).await;
        rest(round, &mut well, told).await;
    }
}

async fn schedule(app: &App, told: &Notify) {
    let (mut scheduler, mut well) = (Scheduler::default(), true);
    loop {
        let round = scheduler.round(app).await;
        rest(round, &mut well, told).await;
    }
}

/// Waits for the time of the next round: none where this one had something to do.
async fn rest(round: Result<bool, ApiError>, well: &mut bool, told: &Notify) {
    match round {
        Ok(true) => {
            *well = true;
            return;
        }
        Ok(false) => *well = true,
        Err(error) => {
            if *well {
                tracing::warn!(?error, "what is due could not be done; it is tried again");
            }
            *well = false;
        }
    }
    tokio::select! {
        () = tokio::time::sleep(PAUSE) => {}
        () = told.notified() => {}
    }
}

/// Carries payments out; did any end?
async fn payments(app: &App, patience: &mut Patience) -> Result<bool, ApiError> {
    let mut open = open_payments(app, &patience.tried()).await?;
    open.extend(patience.due(Instant::now(), AGAIN));
    let mut ended = false;
    for some in open.chunks(AT_ONCE) {
        let outcomes = join_all(some.iter().map(|payment_id| carry_out(app, *payment_id))).await;
        for (payment_id, outcome) in some.iter().zip(outcomes) {
            match outcome {
                Ok(_) => {
                    patience.ended(*payment_id);
                    ended = true;
                }
                // The others need not wait for it.
                Err(error) => {
                    tracing::warn!(%payment_id, ?error, "a payment could not be carried out yet");
                    patience.failed(*payment_id, Instant::now());
                }
            }
        }
    }
    Ok(ended)
}

async fn open_payments(app: &App, but: &[String]) -> Result<Vec<PaymentId>, ApiError> {
    let connection = app.connection().await?;
    within(read_open(&connection, but)).await
}

async fn read_open(client: &Client, but: &[String]) -> Result<Vec<PaymentId>, ApiError> {
    let rows = client.query(OPEN_PAYMENTS, &[&but, &FRESH]).await?;
    let mut payments = Vec::with_capacity(rows.len());
    for row in rows {
        let id: &str = row.try_get(0)?;
        payments.push(id.parse().map_err(|error| ApiError::Internal(format!("payment {id}: {error}")))?);
    }
    Ok(payments)
}
