//! The background tasks of payments: one charges open payments, one advances due subscriptions. Neither waits for the
//! other. Each gateway works on the partitions that it leads. While a partition moves, two gateways may do the same; the
//! ledger ensures that each piece of work has its effect once.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::partition::Partition;
use farthing_log::reads::within;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::execution::Payments;
use super::retry_backoff::{DuePayment, RetryBackoff};
use super::schedule::Scheduler;

/// The most new payments of a partition that one round charges. The next round takes the next ones.
const NEW_PER_ROUND: i64 = 32;

/// The oldest new payments of a partition, among which merchants take turns.
const LOOKED_AT: i64 = 1_000;

/// Failed payments that one round retries.
const RETRIES_PER_ROUND: usize = 16;

/// The most payments that are charged concurrently.
const CONCURRENCY: usize = 16;

/// The time between two rounds, unless a notification ends it or the last round found work.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Open payments of a partition, without those whose last attempt by this process failed or ended them: the oldest of each
/// merchant, then the second oldest of each, and so on, so that no merchant with many renewals comes before all others.
const OPEN_PAYMENTS: &str = "\
WITH oldest AS (
    SELECT id, ledger.member(body, '\"merchant_id\":\"(mer_[0-9A-Z]{26})\"') AS merchant_id FROM ledger.state
    WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
        AND kind = 'payment' AND id <> ALL($2::text[]) ORDER BY id LIMIT $4
)
SELECT id FROM oldest
ORDER BY row_number() OVER (PARTITION BY merchant_id ORDER BY id), id LIMIT $3";

/// Runs both tasks until `stop`. Without a payment processor, subscriptions are advanced and no payment is carried out.
pub async fn run(payments: Arc<Payments>, stop: CancellationToken) {
    if payments.processor().is_err() {
        tracing::warn!(
            event = "payment.no_processor",
            "the instance has no payment processor: it takes no payments, and those that are due stay open"
        );
    }
    let (payment_wakeup, schedule_wakeup) = (Notify::new(), Notify::new());
    let (made_due, mut led) = (payments.ledger.made_due(), payments.ledger.led());
    let forward_wakeups = async {
        loop {
            tokio::select! {
                () = payments.due.notified() => {}
                () = made_due.notified() => {}
                () = led.changed() => {}
            }
            payment_wakeup.notify_one();
            schedule_wakeup.notify_one();
        }
    };
    tokio::select! {
        () = forward_wakeups => {}
        () = run_payments(&payments, &payment_wakeup) => {}
        () = run_schedule(&payments, &schedule_wakeup) => {}
        () = stop.cancelled() => {}
    }
}

async fn run_payments(payments: &Payments, wakeup: &Notify) {
    if payments.processor().is_err() {
        return std::future::pending().await;
    }
    let (mut backoff, mut healthy, led) = (RetryBackoff::default(), true, payments.ledger.led());
    loop {
        let round = payment_round(payments, &led.now(), &mut backoff).await;
        pause(round, &mut healthy, wakeup).await;
    }
}

async fn run_schedule(payments: &Payments, wakeup: &Notify) {
    let (mut scheduler, mut healthy, led) = (Scheduler::default(), true, payments.ledger.led());
    loop {
        let round = scheduler.round(payments, &led.now()).await;
        pause(round, &mut healthy, wakeup).await;
    }
}

/// Waits for the next round, except after a round that found work (`Ok(true)`). Logs the first error of a series.
async fn pause(round: Result<bool, Error>, healthy: &mut bool, wakeup: &Notify) {
    match round {
        Ok(true) => {
            *healthy = true;
            return;
        }
        Ok(false) => *healthy = true,
        Err(error) => {
            if *healthy {
                tracing::warn!(
                    event = "payment.round_failed",
                    ?error,
                    "due payments or renewals could not be read; retrying"
                );
            }
            *healthy = false;
        }
    }
    tokio::select! {
        () = tokio::time::sleep(POLL_INTERVAL) => {}
        () = wakeup.notified() => {}
    }
}

/// Carries out new payments of the partitions `led`, and then failed ones that are due; returns whether any has ended. What
/// is requested meanwhile waits for the next round. A partition whose payments cannot be read does not hold up the others.
async fn payment_round(
    payments: &Payments,
    led: &[Partition],
    backoff: &mut RetryBackoff,
) -> Result<bool, Error> {
    backoff.keep(led, Instant::now());
    let (mut open, mut failed) = (Vec::new(), None);
    for partition in led {
        match open_payments(payments, *partition, &backoff.left_out(*partition)).await {
            Ok(found) => open.extend(found),
            Err(error) => failed = Some(error),
        }
    }
    open.extend(backoff.due(Instant::now(), RETRIES_PER_ROUND));
    let mut ended = false;
    for chunk in open.chunks(CONCURRENCY) {
        let outcomes =
            join_all(chunk.iter().map(|open| payments.carry_out(open.partition, open.payment_id))).await;
        for (open, outcome) in chunk.iter().zip(outcomes) {
            match outcome {
                Ok(_) => {
                    backoff.ended(*open, Instant::now());
                    ended = true;
                }
                Err(error) => {
                    tracing::warn!(
                        event = "payment.attempt_failed",
                        payment_id = %open.payment_id,
                        ?error,
                        "a payment could not be carried out; it is retried"
                    );
                    backoff.failed(*open, Instant::now());
                }
            }
        }
    }
    failed.map_or(Ok(ended), Err)
}

async fn open_payments(
    payments: &Payments,
    partition: Partition,
    without: &[String],
) -> Result<Vec<DuePayment>, Error> {
    let connection = payments.reads.connection().await?;
    within(read_open(&connection, partition, without)).await?
}

async fn read_open(
    client: &Client,
    partition: Partition,
    without: &[String],
) -> Result<Vec<DuePayment>, Error> {
    let rows =
        client.query(OPEN_PAYMENTS, &[&partition.number(), &without, &NEW_PER_ROUND, &LOOKED_AT]).await?;
    let mut payments = Vec::with_capacity(rows.len());
    for row in rows {
        let id: &str = row.try_get(0)?;
        let payment_id = id.parse().map_err(|error| Error::Internal(format!("payment {id}: {error}")))?;
        payments.push(DuePayment { partition, payment_id });
    }
    Ok(payments)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long [`pause`] waits after `round`.
    async fn paused(round: Result<bool, Error>, wakeup: &Notify) -> Duration {
        let started = Instant::now();
        pause(round, &mut true, wakeup).await;
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_follows_at_once_after_work_or_a_notification() {
        let wakeup = Notify::new();
        assert_eq!(paused(Ok(true), &wakeup).await, Duration::ZERO);
        assert_eq!(paused(Ok(false), &wakeup).await, POLL_INTERVAL);
        let error = Error::Unavailable("Postgres".to_owned());
        assert_eq!(paused(Err(error), &wakeup).await, POLL_INTERVAL);
        wakeup.notify_one();
        assert_eq!(paused(Ok(false), &wakeup).await, Duration::ZERO);
    }
}
