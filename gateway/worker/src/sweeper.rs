//! The sweeper ends the abandoned requests of gateways that died with calls in flight, so that no hold leaks. It also
//! deletes expired idempotency claims.
//!
//! A gateway counts as dead when its heartbeat has not changed for the sweep time, measured by this process's clock
//! with the database available throughout; an outage of the database restarts the measurement. Any number of gateways
//! may sweep: a request ends once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use farthing_core::command::{Failed, Refusal, RequestRefusal, SettleRequest, Settled};
use farthing_core::event::FailureReason;
use farthing_core::ids::{GatewayId, RequestId};
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};
use farthing_log::appender;
use farthing_log::clock::Clock;
use farthing_log::ledger::Ledger;
use farthing_log::{checkout_attempts, claims};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::lease::{DedicatedConnection, END_LEASE, Error, ROUNDS_PER_TIMEOUT};

const LEASES: &str = "SELECT gateway_id, beat FROM ledger.gateway_lease";

const OPEN_REQUESTS: &str = "SELECT id, body FROM ledger.state WHERE partition = $1 AND kind = 'request'";

/// The most batches of expired claims that one round deletes.
const PURGE_BATCHES: u32 = 10;

/// Watches the heartbeats of the other gateways.
pub struct Sweeper {
    gateway_id: GatewayId,
    ledger: Ledger,
    clock: Arc<Clock>,
    connection: DedicatedConnection,
    heartbeats: Heartbeats,
}

impl Sweeper {
    /// A sweeper of gateway `gateway_id`: others count as dead `after` their last heartbeat.
    pub fn new(
        gateway_id: GatewayId,
        ledger: Ledger,
        clock: Arc<Clock>,
        database_url: String,
        after: Duration,
    ) -> Self {
        let connection = DedicatedConnection::new(database_url);
        Self { gateway_id, ledger, clock, connection, heartbeats: Heartbeats::new(after) }
    }

    /// Ends abandoned requests until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let after = self.heartbeats.after;
        loop {
            let round = tokio::time::timeout(after / 2, self.round()).await;
            if let Err(error) = round.unwrap_or(Err(Error::Timeout)) {
                tracing::warn!(event = "sweeper.round_failed", %error, "a round of the sweeper failed");
                self.heartbeats.restart();
                self.connection.close();
            }
            tokio::select! {
                () = tokio::time::sleep(after / ROUNDS_PER_TIMEOUT) => {}
                () = stop.cancelled() => break,
            }
        }
    }

    async fn round(&mut self) -> Result<(), Error> {
        let db = self.connection.client().await?;
        let own = self.gateway_id.to_string();
        let mut heartbeats: HashMap<String, i64> =
            db.query(LEASES, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut open: HashMap<String, Vec<(Partition, RequestId)>> = HashMap::new();
        for partition in self.ledger.partitions().all() {
            for row in db.query(OPEN_REQUESTS, &[&partition.number()]).await? {
                if let Some((gateway, request)) = read_open(row.get(0), row.get(1)) {
                    open.entry(gateway).or_default().push((partition, request));
                }
            }
        }
        for gateway in open.keys() {
            heartbeats.entry(gateway.clone()).or_insert(NO_LEASE);
        }
        heartbeats.remove(&own);
        for gateway in self.heartbeats.dead(&heartbeats) {
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
            for (partition, request_id) in abandoned {
                ended &= end(&self.ledger, &self.clock, partition, request_id).await;
            }
            if ended {
                db.execute(END_LEASE, &[&gateway]).await?;
                self.heartbeats.forget(&gateway);
            }
        }
        purge(self.connection.client().await?).await;
        Ok(())
    }
}

/// The heartbeat of a gateway with open requests but without a lease. It never changes.
const NO_LEASE: i64 = 0;

/// The heartbeats of the other gateways.
struct Heartbeats {
    /// A gateway is dead when its heartbeat has not changed for this long.
    after: Duration,
    /// The last heartbeat of each gateway and the time when it was first seen.
    seen: HashMap<String, (i64, Instant)>,
}

impl Heartbeats {
    fn new(after: Duration) -> Self {
        Self { after, seen: HashMap::new() }
    }

    /// Takes the current heartbeats of all other gateways and returns the gateways that are dead.
    fn dead(&mut self, current: &HashMap<String, i64>) -> Vec<String> {
        let now = Instant::now();
        self.seen.retain(|gateway, _| current.contains_key(gateway));
        let mut dead = Vec::new();
        for (gateway, &heartbeat) in current {
            let (last, since) = self.seen.entry(gateway.clone()).or_insert((heartbeat, now));
            if *last != heartbeat {
                (*last, *since) = (heartbeat, now);
            } else if now.duration_since(*since) >= self.after {
                dead.push(gateway.clone());
            }
        }
        dead
    }

    /// Removes a gateway whose requests and lease are ended.
    fn forget(&mut self, gateway: &str) {
        self.seen.remove(gateway);
    }

    /// Restarts the measurement, because heartbeats could not be read.
    fn restart(&mut self) {
        self.seen.clear();
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
async fn end(ledger: &Ledger, clock: &Clock, partition: Partition, request_id: RequestId) -> bool {
    let settled = Settled::Failed(Failed::because(FailureReason::Abandoned));
    let command = SettleRequest { request_id, settled, now: clock.now() };
    match ledger.submit(partition, command).await {
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    fn current(heartbeats: &[(&str, i64)]) -> HashMap<String, i64> {
        heartbeats.iter().map(|(gateway, heartbeat)| ((*gateway).to_owned(), *heartbeat)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_is_dead_once_its_heartbeat_has_not_changed_for_the_sweep_time() {
        let mut heartbeats = Heartbeats::new(AFTER);
        for round in 0..ROUNDS_PER_TIMEOUT {
            assert!(heartbeats.dead(&current(&[("live", round.into()), ("stopped", 7)])).is_empty());
            advance(AFTER / ROUNDS_PER_TIMEOUT).await;
        }
        let live = i64::from(ROUNDS_PER_TIMEOUT);
        assert_eq!(heartbeats.dead(&current(&[("live", live), ("stopped", 7)])), ["stopped"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_sweep_time_starts_again_when_a_heartbeat_changes() {
        let mut heartbeats = Heartbeats::new(AFTER);
        assert!(heartbeats.dead(&current(&[("slow", 1)])).is_empty());
        advance(AFTER).await;
        assert!(heartbeats.dead(&current(&[("slow", 2)])).is_empty(), "it changed just in time");
        advance(Duration::from_millis(29_999)).await;
        assert!(heartbeats.dead(&current(&[("slow", 2)])).is_empty());
        advance(Duration::from_millis(1)).await;
        assert_eq!(heartbeats.dead(&current(&[("slow", 2)])), ["slow"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_database_restarts_the_measurement() {
        let mut heartbeats = Heartbeats::new(AFTER);
        heartbeats.dead(&current(&[("a", 1)]));
        advance(AFTER * 2).await;
        heartbeats.restart();
        assert!(heartbeats.dead(&current(&[("a", 1)])).is_empty());
        advance(AFTER).await;
        assert_eq!(heartbeats.dead(&current(&[("a", 1)])), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_gateway_is_reported_until_it_is_forgotten() {
        let mut heartbeats = Heartbeats::new(AFTER);
        let orphaned = current(&[("without a lease", NO_LEASE)]);
        heartbeats.dead(&orphaned);
        advance(AFTER).await;
        assert_eq!(heartbeats.dead(&orphaned), ["without a lease"]);
        assert_eq!(heartbeats.dead(&orphaned), ["without a lease"], "its requests were not ended");
        heartbeats.forget("without a lease");
        assert!(heartbeats.dead(&orphaned).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_comes_back_is_watched_from_the_start() {
        let mut heartbeats = Heartbeats::new(AFTER);
        heartbeats.dead(&current(&[("a", 1)]));
        heartbeats.dead(&current(&[]));
        advance(AFTER).await;
        assert!(heartbeats.dead(&current(&[("a", 1)])).is_empty());
    }
}
