//! Asks whether Postgres answers, over a connection of its own: the pools may be full of reads, and the process can serve
//! all the same.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::Client;

use crate::connect::{self, Role};

/// Answered by any server that works.
const ALIVE: &str = "SELECT 1";

/// The longest time that Postgres may take: less than the time of a check of readiness.
const TIMEOUT: Duration = Duration::from_millis(1_500);

/// A connection that is opened by the first question and kept for the next ones.
#[derive(Debug)]
pub struct Probe {
    database_url: String,
    connection: Mutex<Option<Client>>,
}

impl Probe {
    /// A probe of this database.
    pub fn new(database_url: String) -> Self {
        Self { database_url, connection: Mutex::default() }
    }

    /// Whether Postgres answers in time. The error holds no secret.
    pub async fn answers(&self) -> Result<(), String> {
        let mut connection = self.connection.lock().await;
        let asked = async {
            let client = match connection.take().filter(|client| !client.is_closed()) {
                Some(client) => client,
                None => connect::connect(&self.database_url, Role::Gateway).await?,
            };
            client.batch_execute(ALIVE).await?;
            // A connection that fails, or does not answer, is closed.
            *connection = Some(client);
            Ok::<_, tokio_postgres::Error>(())
        };
        let answered = tokio::time::timeout(TIMEOUT, asked).await;
        match answered {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::debug!(event = "postgres.probe_failed", error = %connect::redacted(&error), "Postgres does not answer");
                Err("Postgres does not answer".to_owned())
            }
            Err(_) => Err("Postgres does not answer in time".to_owned()),
        }
    }
}
