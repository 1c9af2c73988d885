//! Asks whether Postgres answers. A pool that is full of reads is no reason to say no: the process can serve all the same,
//! and if it cannot, its leases show that.

use std::time::Duration;

use crate::reads::ReadPool;

/// Answered by any server that works.
const ALIVE: &str = "SELECT 1";

/// The longest time that Postgres may take: less than the time of a check of readiness.
const TIMEOUT: Duration = Duration::from_millis(1_500);

/// Whether Postgres answers in time over a connection of `reads`, or all that it has are in use. The error holds no secret.
pub async fn answers(reads: &ReadPool) -> Result<(), String> {
    let asked = async {
        let connection = reads.connection().await.map_err(|error| error.to_string())?;
        connection.batch_execute(ALIVE).await.map_err(|error| crate::connect::redacted(&error))
    };
    match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            tracing::debug!(event = "postgres.probe_failed", error, "Postgres does not answer");
            Err("Postgres does not answer".to_owned())
        }
        Err(_) if reads.is_busy() => Ok(()),
        Err(_) => Err("Postgres does not answer in time".to_owned()),
    }
}
