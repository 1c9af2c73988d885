//! The lease of a gateway: a heartbeat in the database. When it stops, the sweepers of the other gateways end the open
//! requests of this one.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::ids::GatewayId;
use farthing_log::appender;
use farthing_log::clock::Clock;
use farthing_log::connect::{self, Role, redacted};
use farthing_log::pulse::Pulse;
use farthing_log::reads::ReadPool;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

const HEARTBEAT: &str = "\
INSERT INTO ledger.gateway_lease (gateway_id, beat) VALUES ($1, 1)
ON CONFLICT (gateway_id) DO UPDATE SET beat = ledger.gateway_lease.beat + 1
RETURNING clock_timestamp()";

const STATEMENT_TIMEOUT: &str = "SET statement_timeout = '5s'";

/// Shares the locks $1 until the connection ends.
const SHARE_LOCKS: &str =
    "SELECT pg_advisory_lock_shared(hashtextextended(name, 0)) FROM unnest($1::text[]) AS name";

pub(crate) const END_LEASE: &str = "\
WITH forgotten AS (DELETE FROM ledger.gateways WHERE gateway = $1)
DELETE FROM ledger.gateway_lease WHERE gateway_id = $1";

/// The number of heartbeats, and of rounds of the sweeper, in the time after which a gateway counts as dead.
pub(crate) const ROUNDS_PER_TIMEOUT: u32 = 6;

/// An error of a heartbeat or of a round of the sweeper. The next one follows as usual.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("the database did not answer in time")]
    Timeout,
    #[error(transparent)]
    Ledger(#[from] appender::Error),
}

/// Sends heartbeats until `stop`, on a dedicated connection, so that slow reads do not make a live gateway look dead.
/// Each heartbeat also measures Postgres's clock. The connection shares `locks`, which show what this process reads. None is sent
/// while `pulse` is silent, which says that the gateway does no work.
pub async fn heartbeat(
    gateway_id: GatewayId,
    mut pulse: Pulse,
    clock: Arc<Clock>,
    database_url: String,
    locks: Vec<String>,
    after: Duration,
    stop: CancellationToken,
) {
    let own = gateway_id.to_string();
    let mut connection = DedicatedConnection { locks, ..DedicatedConnection::new(database_url) };
    loop {
        if pulse.is_silent() {
            let error = "the shared threads of this process hang";
            tracing::warn!(event = "gateway.heartbeat_failed", error, "no heartbeats until they go on");
            // The next one follows at once: new calls are opened from then on.
            tokio::select! {
                () = pulse.beats() => {}
                () = stop.cancelled() => return,
            }
        }
        let sent = tokio::time::timeout(after / 3, async {
            let client = connection.client().await?;
            let started = Instant::now();
            let database_time = client.query_one(HEARTBEAT, &[&own]).await?.try_get(0)?;
            clock.measured(database_time, started.elapsed());
            Ok::<_, Error>(())
        });
        if let Err(error) = sent.await.unwrap_or(Err(Error::Timeout)) {
            tracing::warn!(event = "gateway.heartbeat_failed", %error, "heartbeat failed");
            connection.close();
        }
        tokio::select! {
            () = tokio::time::sleep(after / ROUNDS_PER_TIMEOUT) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Deletes the lease of a gateway that stops with no open requests.
pub async fn release(reads: &ReadPool, gateway_id: GatewayId) {
    let Ok(db) = reads.connection().await else { return };
    if let Err(error) = db.execute(END_LEASE, &[&gateway_id.to_string()]).await {
        tracing::info!(event = "gateway.lease_kept", %error, "the lease was not deleted; a sweeper does so");
    }
}

/// A connection for one task alone, opened again after a failure.
pub(crate) struct DedicatedConnection {
    database_url: String,
    /// The locks that it shares.
    locks: Vec<String>,
    client: Option<Client>,
}

impl DedicatedConnection {
    /// A connection that is opened when it is first used.
    pub(crate) fn new(database_url: String) -> Self {
        Self { database_url, locks: Vec::new(), client: None }
    }

    /// The open connection.
    pub(crate) async fn client(&mut self) -> Result<&Client, Error> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let client = connect::connect(&self.database_url, Role::Gateway).await?;
            client.batch_execute(STATEMENT_TIMEOUT).await?;
            if !self.locks.is_empty() {
                client.execute(SHARE_LOCKS, &[&self.locks]).await?;
            }
            self.client = Some(client);
        }
        self.client.as_ref().ok_or(Error::Timeout)
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        self.client = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio_util::task::TaskTracker;

    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    /// Heartbeats to a listener in place of Postgres, every 5 s, each limited to 10 s.
    struct Heartbeats {
        server: TcpListener,
        started: Instant,
        stop: CancellationToken,
        task: JoinHandle<()>,
    }

    impl Heartbeats {
        async fn start() -> Self {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("postgres://farthing@{}/farthing", server.local_addr().unwrap());
            let stop = CancellationToken::new();
            let gateway_id = GatewayId::new(ulid::Ulid(1));
            let pulse = Pulse::start(AFTER, stop.clone(), &TaskTracker::new());
            let (clock, until) = (Arc::default(), stop.clone());
            let task = tokio::spawn(heartbeat(gateway_id, pulse, clock, url, Vec::new(), AFTER, until));
            Self { server, started: Instant::now(), stop, task }
        }

        /// The next connection, and the seconds since the start.
        async fn connection(&self) -> (TcpStream, u64) {
            let (stream, _) = self.server.accept().await.unwrap();
            (stream, self.started.elapsed().as_secs())
        }

        /// Stops the task. Returns the seconds that it took to end.
        async fn stop(self) -> u64 {
            let stopped = Instant::now();
            self.stop.cancel();
            self.task.await.unwrap();
            stopped.elapsed().as_secs()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_heartbeats_fit_into_the_sweep_time_although_the_database_does_not_answer() {
        let heartbeats = Heartbeats::start().await;
        let mut open = Vec::new();
        for expected in [0, 15, 30] {
            let (stream, seconds) = heartbeats.connection().await;
            assert_eq!(seconds, expected);
            open.push(stream);
        }
        assert_eq!(heartbeats.stop().await, 10, "the heartbeat under way ends first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_opened_again_for_the_next_heartbeat() {
        let heartbeats = Heartbeats::start().await;
        for expected in [0, 5, 10, 15] {
            let (stream, seconds) = heartbeats.connection().await;
            assert_eq!(seconds, expected);
            drop(stream);
        }
        assert_eq!(heartbeats.stop().await, 0);
    }
}
