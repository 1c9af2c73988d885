//! The sweeper: ends the requests of gateways that died with calls in flight, so that no hold leaks. It also
//! deletes idempotency claims that have expired.
//!
//! Every gateway beats in the database. A gateway is taken for dead when this process has watched its beat stand
//! still for the whole of [`Sweeper::after`], by its own clock and with the database answering all the while; an
//! outage of the database starts the watch anew. Any number of gateways may sweep: a request ends once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use farthing_ledger::command::{Failed, Refusal, SettleRequest, Settled};
use farthing_ledger::event::FailureReason;
use farthing_ledger::ids::{GatewayId, RequestId};
use farthing_ledger::log::appender;
use farthing_ledger::log::claims;
use farthing_ledger::log::connect::{self, Role, words};
use farthing_ledger::state::{State, StateKey};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::checkout;

const BEAT: &str = "\
INSERT INTO ledger.gateway_lease (gateway_id, beat) VALUES ($1, 1)
ON CONFLICT (gateway_id) DO UPDATE SET beat = ledger.gateway_lease.beat + 1
RETURNING clock_timestamp()";

const STATEMENT_TIMEOUT: &str = "SET statement_timeout = '5s'";

const LEASES: &str = "SELECT gateway_id, beat FROM ledger.gateway_lease";

const OPEN_REQUESTS: &str = "SELECT id, body FROM ledger.state WHERE kind = 'request'";

const END_LEASE: &str = "DELETE FROM ledger.gateway_lease WHERE gateway_id = $1";

/// Beats, and looks, in the time after which a gateway is taken for dead.
const LOOKS: u32 = 6;

/// Batches of expired claims that are deleted in one round.
const PURGES: u32 = 10;

/// Why a round was not carried out; the next one comes.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("Postgres: {}", words(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("the database did not answer in time")]
    Slow,
}

/// Beats until `stop`, on a connection that nothing else uses: a gateway that lives must not seem dead because its
/// reads are slow. Each beat tells what Postgres's clock says.
pub(crate) async fn beat(app: Arc<App>, database_url: String, after: Duration, stop: CancellationToken) {
    let own = app.gateway_id.to_string();
    let mut line = Line::new(database_url);
    loop {
        let beaten = tokio::time::timeout(after / 3, async {
            let client = line.client().await?;
            let asked = Instant::now();
            let theirs = client.query_one(BEAT, &[&own]).await?.try_get(0)?;
            app.clock.measured(theirs, asked.elapsed());
            Ok::<_, Error>(())
        });
        if let Err(error) = beaten.await.unwrap_or(Err(Error::Slow)) {
            tracing::warn!(%error, "this gateway could not beat");
            line.drop();
        }
        tokio::select! {
            () = tokio::time::sleep(after / LOOKS) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// A connection of one's own, opened again after a failure.
struct Line {
    database_url: String,
    client: Option<Client>,
}

impl Line {
    fn new(database_url: String) -> Self {
        Self { database_url, client: None }
    }

    async fn client(&mut self) -> Result<&Client, Error> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let client = connect::connect(&self.database_url, Role::Gateway).await?;
            client.batch_execute(STATEMENT_TIMEOUT).await?;
            self.client = Some(client);
        }
        self.client.as_ref().ok_or(Error::Slow)
    }

    fn drop(&mut self) {
        self.client = None;
    }
}

/// Watches the other gateways.
pub(crate) struct Sweeper {
    app: Arc<App>,
    line: Line,
    after: Duration,
    /// Each gateway's beat, and since when it stands there.
    watched: HashMap<String, (i64, Instant)>,
}

impl Sweeper {
    /// A sweeper that takes a gateway for dead after `after` without a beat.
    pub(crate) fn new(app: Arc<App>, database_url: String, after: Duration) -> Self {
        Self { app, line: Line::new(database_url), after, watched: HashMap::new() }
    }

    /// Sweeps until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let pause = self.after / LOOKS;
        loop {
            let round = tokio::time::timeout(self.after / 2, self.round()).await;
            if let Err(error) = round.unwrap_or(Err(Error::Slow)) {
                tracing::warn!(%error, "a sweep was not carried out");
                self.watched.clear();
                self.line.drop();
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => break,
            }
        }
    }

    async fn round(&mut self) -> Result<(), Error> {
        let db = self.line.client().await?;
        let own = self.app.gateway_id.to_string();
        let leases: HashMap<String, i64> =
            db.query(LEASES, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut open: HashMap<String, Vec<RequestId>> = HashMap::new();
        for row in db.query(OPEN_REQUESTS, &[]).await? {
            if let Some((gateway, request)) = read_open(row.get(0), row.get(1)) {
                open.entry(gateway).or_default().push(request);
            }
        }
        let now = Instant::now();
        // A gateway with open requests and no lease is watched like one that stands still.
        let gateways: Vec<String> =
            leases.keys().chain(open.keys()).filter(|id| **id != own).cloned().collect();
        self.watched.retain(|gateway, _| gateways.contains(gateway));
        for gateway in gateways {
            let beat = leases.get(&gateway).copied().unwrap_or(0);
            let (seen, since) = *self.watched.entry(gateway.clone()).or_insert((beat, now));
            if seen != beat {
                self.watched.insert(gateway, (beat, now));
                continue;
            }
            if now.duration_since(since) < self.after {
                continue;
            }
            let abandoned = open.remove(&gateway).unwrap_or_default();
            if !abandoned.is_empty() {
                tracing::warn!(gateway, requests = abandoned.len(), "a gateway died with calls in flight");
            }
            let mut ended = true;
            for request_id in abandoned {
                ended &= end(&self.app, request_id).await;
            }
            if ended {
                db.execute(END_LEASE, &[&gateway]).await?;
                self.watched.remove(&gateway);
            }
        }
        purge(self.line.client().await?).await;
        Ok(())
    }
}

/// Deletes expired idempotency claims, and attempts on checkout sessions that have ended, a bounded number in one round.
/// They count as absent already, so a failure costs nothing but room.
async fn purge(db: &Client) {
    if let Err(error) = checkout::purge(db).await {
        tracing::warn!(%error, "attempts on ended checkout sessions are not purged");
    }
    for _ in 0..PURGES {
        match claims::purge(db).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return tracing::warn!(%error, "expired idempotency claims are not purged"),
        }
    }
}

/// Ends an abandoned request; `false` when it may still be open.
async fn end(app: &App, request_id: RequestId) -> bool {
    let settled = Settled::Failed(Failed::because(FailureReason::Abandoned));
    let command = SettleRequest { request_id, settled, now: app.now() };
    match app.ledger.submit(command).await {
        Ok(()) => {
            tracing::warn!(%request_id, "ended as abandoned: to be reconciled with the provider");
            true
        }
        Err(appender::Error::Refused(Refusal::RequestNotOpen)) => true,
        Err(error) => {
            tracing::warn!(%request_id, %error, "an abandoned request is not ended yet");
            false
        }
    }
}

fn read_open(id: &str, body: &str) -> Option<(String, RequestId)> {
    let id: RequestId = id.parse().ok()?;
    match State::from_json(&StateKey::Request(id), body) {
        Ok(State::Request(open)) => Some((open.gateway_id().to_string(), id)),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(%id, %error, "an open request cannot be read");
            None
        }
    }
}

/// A gateway that stops in good order has nothing to be swept.
pub(crate) async fn give_back(app: &App) {
    let Ok(db) = app.reads.get().await else { return };
    let own: GatewayId = app.gateway_id;
    if let Err(error) = db.execute(END_LEASE, &[&own.to_string()]).await {
        tracing::info!(%error, "the lease stays behind; it is harmless");
    }
}
