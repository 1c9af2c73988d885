//! Deletes what has expired beside the log, in bounded batches. Readers ignore it already, so a failure only costs space.

use farthing_core::partition::Partition;
use farthing_log::connect::redacted;
use farthing_log::{checkout_attempts, claims};
use tokio_postgres::Client;

/// The most batches of a kind that one round deletes in a partition.
const BATCHES: u32 = 10;

/// Deletes the expired idempotency claims of a partition, and the attempts of its checkout sessions that have ended.
pub(super) async fn purge(db: &Client, partition: Partition) {
    if let Err(error) = purge_attempts(db, partition).await {
        tracing::warn!(
            event = "sweeper.checkout_purge_failed",
            %partition,
            error = redacted(&error),
            "attempts of ended checkout sessions were not deleted"
        );
    }
    if let Err(error) = purge_claims(db, partition).await {
        tracing::warn!(
            event = "sweeper.claim_purge_failed",
            %partition,
            error = redacted(&error),
            "expired idempotency claims were not deleted"
        );
    }
}

async fn purge_attempts(db: &Client, partition: Partition) -> Result<(), tokio_postgres::Error> {
    for _ in 0..BATCHES {
        if checkout_attempts::purge(db, partition).await? == 0 {
            break;
        }
    }
    Ok(())
}

async fn purge_claims(db: &Client, partition: Partition) -> Result<(), tokio_postgres::Error> {
    for _ in 0..BATCHES {
        if claims::purge(db, partition).await? == 0 {
            break;
        }
    }
    Ok(())
}
