//! The sweeper ends the abandoned requests of gateways that died with calls in flight, so that no hold leaks. It also
//! deletes expired idempotency claims.
//!
//! A gateway counts as dead when its heartbeat has not changed for [`Sweeper::after`], measured by this process's clock
//! with the database available throughout; an outage of the database restarts the measurement. Any number of gateways
//! may sweep: a request ends once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use farthing_core::command::{Failed, Refusal, RequestRefusal, SettleRequest, Settled};
use farthing_core::event::FailureReason;
use farthing_core::ids::{GatewayId, RequestId};
use farthing_core::state::{State, StateKey};
use farthing_log::appender::{self, Appender};
use farthing_log::clock::Clock;
use farthing_log::{checkout_attempts, claims};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::lease::{DedicatedConnection, END_LEASE, Error, ROUNDS_PER_TIMEOUT};

const LEASES: &str = "SELECT gateway_id, beat FROM ledger.gateway_lease";

const OPEN_REQUESTS: &str = "SELECT id, body FROM ledger.state WHERE kind = 'request'";

/// The most batches of expired claims that one round deletes.
const PURGE_BATCHES: u32 = 10;

/// Watches the heartbeats of the other gateways.
pub struct Sweeper {
    gateway_id: GatewayId,
    ledger: Appender,
    clock: Arc<Clock>,
    connection: DedicatedConnection,
    after: Duration,
    /// The last heartbeat of each gateway and the time when it was first seen.
    watched: HashMap<String, (i64, Instant)>,
}

impl Sweeper {
    /// A sweeper of gateway `gateway_id`: others count as dead `after` their last heartbeat.
    pub fn new(
        gateway_id: GatewayId,
        ledger: Appender,
        clock: Arc<Clock>,
        database_url: String,
        after: Duration,
    ) -> Self {
        let connection = DedicatedConnection::new(database_url);
        Self { gateway_id, ledger, clock, connection, after, watched: HashMap::new() }
    }

    /// Ends abandoned requests until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let pause = self.after / ROUNDS_PER_TIMEOUT;
        loop {
            let round = tokio::time::timeout(self.after / 2, self.round()).await;
            if let Err(error) = round.unwrap_or(Err(Error::Timeout)) {
                tracing::warn!(event = "sweeper.round_failed", %error, "a round of the sweeper failed");
                self.watched.clear();
                self.connection.close();
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => break,
            }
        }
    }

    async fn round(&mut self) -> Result<(), Error> {
        let db = self.connection.client().await?;
        let own = self.gateway_id.to_string();
        let leases: HashMap<String, i64> =
            db.query(LEASES, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut open: HashMap<String, Vec<RequestId>> = HashMap::new();
        for row in db.query(OPEN_REQUESTS, &[]).await? {
            if let Some((gateway, request)) = read_open(row.get(0), row.get(1)) {
                open.entry(gateway).or_default().push(request);
            }
        }
        let now = Instant::now();
        // A gateway with open requests and no lease is watched like one whose heartbeat does not change.
        let gateways: Vec<String> =
            leases.keys().chain(open.keys()).filter(|id| **id != own).cloned().collect();
        self.watched.retain(|gateway, _| gateways.contains(gateway));
        for gateway in gateways {
            let heartbeat = leases.get(&gateway).copied().unwrap_or(0);
            let (seen, since) = *self.watched.entry(gateway.clone()).or_insert((heartbeat, now));
            if seen != heartbeat {
                self.watched.insert(gateway, (heartbeat, now));
                continue;
            }
            if now.duration_since(since) < self.after {
                continue;
            }
            let abandoned = open.remove(&gateway).unwrap_or_default();
            if !abandoned.is_empty() {
                tracing::warn!(
                    event = "sweeper.gateway_dead",
                    gateway,
                    requests = abandoned.len(),
                    "a gateway died with calls in flight"
                );
            }
            let mut ended = true;
            for request_id in abandoned {
                ended &= end(&self.ledger, &self.clock, request_id).await;
            }
            if ended {
                db.execute(END_LEASE, &[&gateway]).await?;
                self.watched.remove(&gateway);
            }
        }
        purge(self.connection.client().await?).await;
        Ok(())
    }
}

/// Deletes expired idempotency claims and the attempts of ended checkout sessions, in bounded batches. Readers ignore
/// them already, so a failure only costs space.
async fn purge(db: &Client) {
    if let Err(error) = checkout_attempts::purge(db).await {
        tracing::warn!(
            event = "sweeper.checkout_purge_failed",
            %error,
            "attempts of ended checkout sessions were not deleted"
        );
    }
    for _ in 0..PURGE_BATCHES {
        match claims::purge(db).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(
                    event = "sweeper.claim_purge_failed",
                    %error,
                    "expired idempotency claims were not deleted"
                );
                return;
            }
        }
    }
}

/// Ends an abandoned request; `false` if it may still be open.
async fn end(ledger: &Appender, clock: &Clock, request_id: RequestId) -> bool {
    let settled = Settled::Failed(Failed::because(FailureReason::Abandoned));
    let command = SettleRequest { request_id, settled, now: clock.now() };
    match ledger.submit(command).await {
        Ok(()) => {
            tracing::warn!(
                event = "sweeper.request_abandoned",
                %request_id,
                "an abandoned request was ended; reconcile it with the provider"
            );
            true
        }
        Err(appender::Error::Refused(Refusal::Request(RequestRefusal::NotOpen))) => true,
        Err(error) => {
            tracing::warn!(
                event = "sweeper.request_not_ended",
                %request_id,
                %error,
                "an abandoned request could not be ended; retrying"
            );
            false
        }
    }
}

/// The gateway of an open request; `None` if the state is not one or cannot be read.
fn read_open(id: &str, body: &str) -> Option<(String, RequestId)> {
    let id: RequestId = id.parse().ok()?;
    match State::from_json(&StateKey::Request(id), body) {
        Ok(State::Request(open)) => Some((open.gateway_id().to_string(), id)),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(
                event = "sweeper.request_unreadable",
                request_id = %id,
                %error,
                "an open request cannot be read"
            );
            None
        }
    }
}
