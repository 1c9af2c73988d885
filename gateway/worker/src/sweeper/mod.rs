//! The sweeper ends the abandoned requests of gateways that died with calls in flight, so that no hold leaks. It also
//! deletes expired idempotency claims. Each gateway sweeps the partitions that it leads.
//!
//! A gateway counts as dead when its heartbeat has not changed for the sweep time, measured by this process's clock
//! with the database available throughout; an outage of the database restarts the measurement. Two gateways may sweep the
//! same partition while it moves: a request ends once.

mod heartbeats;
mod purge;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use farthing_core::command::{Failed, Refusal, RequestRefusal, SettleRequest, Settled};
use farthing_core::event::FailureReason;
use farthing_core::ids::{GatewayId, RequestId};
use farthing_core::partition::Partition;
use farthing_log::appender;
use farthing_log::clock::Clock;
use farthing_log::connect::redacted;
use farthing_log::leases::LedPartitions;
use farthing_log::ledger::{Ledger, OPENED_WITHIN};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio_postgres::{Client, Row};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use self::heartbeats::{Heartbeats, NO_LEASE};
use self::purge::purge;
use crate::lease::{DedicatedConnection, END_LEASE, Error, ROUNDS_PER_TIMEOUT};

const LEASES: &str = "SELECT gateway_id, beat FROM ledger.gateway_lease";

/// Forgets gateways that have not announced themselves for $1 seconds and have no heartbeat: they died before the first one.
/// One that is alive announces itself again.
const FORGET: &str = "\
DELETE FROM ledger.gateways AS g
WHERE g.expires_at < clock_timestamp() - $1::double precision * interval '1 s'
    AND NOT EXISTS (SELECT FROM ledger.gateway_lease AS l WHERE l.gateway_id = g.gateway)";

/// The gateways with open requests in partition $1, each found by one index lookup.
const GATEWAYS: &str = "\
WITH RECURSIVE of (gateway_id) AS (
    (SELECT gateway_id FROM ledger.state
     WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1) AND kind = 'request' AND gateway_id > ''
     ORDER BY gateway_id LIMIT 1)
    UNION ALL
    SELECT (SELECT gateway_id FROM ledger.state
            WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1) AND kind = 'request' AND gateway_id > of.gateway_id
            ORDER BY gateway_id LIMIT 1)
    FROM of WHERE of.gateway_id IS NOT NULL
)
SELECT gateway_id FROM of WHERE gateway_id IS NOT NULL";

/// Open requests of gateway $2 in partition $1, after the id $3 and before the id $5.
const OPEN_REQUESTS: &str = "\
SELECT id FROM ledger.state
WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
    AND kind = 'request' AND gateway_id = $2 AND id > $3 AND id < $5
ORDER BY gateway_id, id LIMIT $4";

/// An open request of gateway $2 in partition $1, of any age.
const OPEN_REQUEST: &str = "\
SELECT id FROM ledger.state
WHERE partition = $1 AND generation = (SELECT h.generation FROM ledger.heads AS h WHERE h.partition = $1)
    AND kind = 'request' AND gateway_id = $2
ORDER BY gateway_id, id LIMIT 1";

/// The requests that are read at once.
const PAGE: i64 = 1_000;

/// The requests of a partition that are ended at the same time.
const ENDED_AT_ONCE: usize = 64;

/// Watches the heartbeats of the other gateways.
pub struct Sweeper {
    gateway_id: GatewayId,
    ledger: Ledger,
    led: LedPartitions,
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
        let (led, connection) = (ledger.led(), DedicatedConnection::new(database_url));
        Self { gateway_id, ledger, led, clock, connection, heartbeats: Heartbeats::new(after) }
    }

    /// Ends abandoned requests until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let after = self.heartbeats.after;
        loop {
            tokio::select! {
                () = self.round() => {}
                () = stop.cancelled() => break,
            }
            tokio::select! {
                () = tokio::time::sleep(after / ROUNDS_PER_TIMEOUT) => {}
                () = stop.cancelled() => break,
            }
        }
    }

    async fn round(&mut self) {
        let (led, patience) = (self.led.now(), self.heartbeats.after / 2);
        let dead = tokio::time::timeout(patience, self.dead(&led)).await;
        let dead = match dead.unwrap_or(Err(Error::Timeout)) {
            Ok(dead) => dead,
            Err(error) => {
                tracing::warn!(event = "sweeper.round_failed", %error, "the heartbeats cannot be read");
                self.heartbeats.restart();
                self.connection.close();
                return;
            }
        };
        let done = async {
            let db = self.connection.client().await?;
            // A partition that cannot be written does not hold up the others.
            let (ledger, clock) = (&self.ledger, self.clock.as_ref());
            let sweeps = led.iter().flat_map(|partition| dead.iter().map(|gateway| (*partition, gateway)));
            join_all(
                sweeps.map(|(partition, gateway)| sweep(db, ledger, clock, partition, gateway, patience)),
            )
            .await;
            for gateway in dead {
                match has_open(db, &self.ledger, &gateway).await {
                    Ok(true) => {}
                    Ok(false) => {
                        db.execute(END_LEASE, &[&gateway]).await?;
                        self.heartbeats.forget(&gateway);
                    }
                    Err(error) if db.is_closed() => return Err(error),
                    Err(error) => tracing::warn!(
                        event = "sweeper.lease_kept",
                        gateway,
                        %error,
                        "the lease of a dead gateway is kept: its open requests cannot be read"
                    ),
                }
            }
            db.execute(FORGET, &[&self.heartbeats.after.as_secs_f64()]).await?;
            for partition in &led {
                purge(db, *partition).await;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = done.await {
            tracing::warn!(event = "sweeper.round_failed", %error, "a round of the sweeper failed");
            self.heartbeats.restart();
            self.connection.close();
        }
    }

    /// The gateways that are dead, of all that run or have open requests in the partitions `led`.
    async fn dead(&mut self, led: &[Partition]) -> Result<Vec<String>, Error> {
        let db = self.connection.client().await?;
        let mut heartbeats = HashMap::new();
        for row in db.query(LEASES, &[]).await? {
            heartbeats.insert(row.try_get(0)?, row.try_get(1)?);
        }
        let found = join_all(led.iter().map(|partition| gateways_in(db, *partition))).await;
        for (partition, found) in led.iter().zip(found) {
            match found {
                Ok(rows) => {
                    for row in rows {
                        heartbeats.entry(row.try_get(0)?).or_insert(NO_LEASE);
                    }
                }
                Err(error) if db.is_closed() => return Err(error.into()),
                // On a Citus cluster the node of one partition may be away.
                Err(error) => tracing::warn!(
                    event = "sweeper.partition_not_read",
                    %partition,
                    error = redacted(&error),
                    "the open requests of a partition cannot be read; the next round tries again"
                ),
            }
        }
        heartbeats.remove(&self.gateway_id.to_string());
        Ok(self.heartbeats.dead(&heartbeats))
    }
}

async fn gateways_in(db: &Client, partition: Partition) -> Result<Vec<Row>, tokio_postgres::Error> {
    db.query(GATEWAYS, &[&partition.number()]).await
}

/// Ends the open requests of a dead gateway in `partition`, for `patience` at the most.
async fn sweep(
    db: &Client,
    ledger: &Ledger,
    clock: &Clock,
    partition: Partition,
    gateway: &str,
    patience: Duration,
) {
    let all = end_all(db, ledger, clock, partition, gateway);
    if let Err(error) = tokio::time::timeout(patience, all).await.unwrap_or(Err(Error::Timeout)) {
        tracing::warn!(
            event = "sweeper.partition_not_swept",
            %partition,
            gateway,
            %error,
            "requests of a dead gateway are not all ended; retrying"
        );
    }
}

/// Stops at the first request that the ledger cannot end now. Leaves those whose openings may still be on their way, from a
/// gateway that cannot announce itself: after its end a call could be opened again.
async fn end_all(
    db: &Client,
    ledger: &Ledger,
    clock: &Clock,
    partition: Partition,
    gateway: &str,
) -> Result<(), Error> {
    let mut after = String::new();
    let before = first_made_at(clock.now() - OPENED_WITHIN).to_string();
    loop {
        let rows = db.query(OPEN_REQUESTS, &[&partition.number(), &gateway, &after, &PAGE, &before]).await?;
        let ids: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let Some(last) = ids.last().cloned() else { return Ok(()) };
        after = last;
        tracing::warn!(
            event = "sweeper.gateway_dead",
            gateway,
            %partition,
            requests = ids.len(),
            "a gateway died with calls in flight"
        );
        let end = |id: String| end(ledger, clock, partition, id);
        stream::iter(ids).map(Ok).try_for_each_concurrent(ENDED_AT_ONCE, end).await?;
    }
}

/// The smallest id that a request of this time can have.
fn first_made_at(time: DateTime<Utc>) -> RequestId {
    RequestId::new(Ulid::from_parts(u64::try_from(time.timestamp_millis()).unwrap_or(0), 0))
}

/// Ends an abandoned request. One that fails for a reason of its own is left to the next round.
async fn end(ledger: &Ledger, clock: &Clock, partition: Partition, id: String) -> Result<(), Error> {
    let Ok(request_id) = id.parse::<RequestId>() else {
        tracing::error!(event = "sweeper.request_unreadable", id, "an open request has an invalid id");
        return Ok(());
    };
    let settled = Settled::Failed(Failed::because(FailureReason::Abandoned));
    let command = SettleRequest { request_id, settled, now: clock.now() };
    match ledger.end_abandoned(partition, command).await {
        Ok(()) => {
            tracing::warn!(
                event = "sweeper.request_abandoned",
                %request_id,
                "an abandoned request was ended; reconcile it with the provider"
            );
            Ok(())
        }
        // The table shows it for a moment after its end.
        Err(appender::Error::Refused(Refusal::Request(RequestRefusal::NotOpen))) => Ok(()),
        Err(error @ (appender::Error::Internal(_) | appender::Error::Refused(_))) => {
            tracing::error!(
                event = "sweeper.request_not_ended",
                %request_id,
                %error,
                "an abandoned request could not be ended; retrying"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether `gateway` has open requests in any partition.
async fn has_open(db: &Client, ledger: &Ledger, gateway: &str) -> Result<bool, Error> {
    for partition in ledger.partitions().all() {
        if db.query_opt(OPEN_REQUEST, &[&partition.number(), &gateway]).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
