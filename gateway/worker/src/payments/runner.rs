//! The runner of payments and the scheduler of subscriptions, in every gateway. Any number of them may run; what is due
//! happens once, because the ledger decides so. Neither waits for the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farthing_core::ids::PaymentId;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::retry_backoff::RetryBackoff;
use super::schedule::Scheduler;
use super::{Error, Payments, within};

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
pub async fn run(work: Arc<Payments>, stop: CancellationToken) {
    let (to_pay, to_schedule) = (Notify::new(), Notify::new());
    let told = async {
        loop {
            work.due.notified().await;
            to_pay.notify_one();
            to_schedule.notify_one();
        }
    };
    tokio::select! {
        () = told => {}
        () = pay(&work, &to_pay) => {}
        () = schedule(&work, &to_schedule) => {}
        () = stop.cancelled() => {}
    }
}

async fn pay(work: &Payments, told: &Notify) {
    let (mut backoff, mut well) = (RetryBackoff::default(), true);
    loop {
        let round = payments(work, &mut backoff).await;
        rest(round, &mut well, told).await;
    }
}

async fn schedule(work: &Payments, told: &Notify) {
    let (mut scheduler, mut well) = (Scheduler::default(), true);
    loop {
        let round = scheduler.round(work).await;
        rest(round, &mut well, told).await;
    }
}

/// Waits for the time of the next round: none where this one had something to do.
async fn rest(round: Result<bool, Error>, well: &mut bool, told: &Notify) {
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
async fn payments(work: &Payments, backoff: &mut RetryBackoff) -> Result<bool, Error> {
    let mut open = open_payments(work, &backoff.tried()).await?;
    open.extend(backoff.due(Instant::now(), AGAIN));
    let mut ended = false;
    for some in open.chunks(AT_ONCE) {
        let outcomes = join_all(some.iter().map(|payment_id| work.carry_out(*payment_id))).await;
        for (payment_id, outcome) in some.iter().zip(outcomes) {
            match outcome {
                Ok(_) => {
                    backoff.ended(*payment_id);
                    ended = true;
                }
                // The others need not wait for it.
                Err(error) => {
                    tracing::warn!(%payment_id, ?error, "a payment could not be carried out yet");
                    backoff.failed(*payment_id, Instant::now());
                }
            }
        }
    }
    Ok(ended)
}

async fn open_payments(work: &Payments, but: &[String]) -> Result<Vec<PaymentId>, Error> {
    let connection = work.reads.connection().await?;
    within(read_open(&connection, but)).await?
}

async fn read_open(client: &Client, but: &[String]) -> Result<Vec<PaymentId>, Error> {
    let rows = client.query(OPEN_PAYMENTS, &[&but, &FRESH]).await?;
    let mut payments = Vec::with_capacity(rows.len());
    for row in rows {
        let id: &str = row.try_get(0)?;
        payments.push(id.parse().map_err(|error| Error::Internal(format!("payment {id}: {error}")))?);
    }
    Ok(payments)
}
