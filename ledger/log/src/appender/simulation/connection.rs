//! A gateway's end of a simulated connection. Messages are delayed and lost; what was sent may be carried out after the
//! gateway has given the connection up.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farthing_core::command::PersonalChange;
use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::state::{State, StateKey, shape};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::super::batch::{AppendBatch, EventId};
use super::super::store::{Head, LogSession, LogStore, StateChanges, StoreError, StoreResult};
use super::backend::{Backend, Message, Reply, Statement};
use super::database::{Database, Fault};
use super::disk::{Append, Row};
use crate::chain::HASH_BYTES;
use crate::claims::Changes;
use crate::record::{self, Record};

/// Counts appends that were carried out and wrote once more when they arrived again.
pub(super) const APPENDED_TWICE: &str = "an append wrote twice";

/// The database as one gateway reaches it.
#[derive(Debug, Clone)]
pub(super) struct GatewayStore {
    pub(super) database: Database,
    pub(super) gateway: String,
    pub(super) link: Link,
}

/// The links of a gateway to the database and to the other gateways.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    is_cut: Arc<AtomicBool>,
    is_cut_off_peers: Arc<AtomicBool>,
    appending: Arc<AtomicU32>,
    /// When the last append ended.
    appended_at: Arc<Mutex<Option<Instant>>>,
}

impl Link {
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    pub(super) fn cut_off_peers(&self, is_cut: bool) {
        self.is_cut_off_peers.store(is_cut, Ordering::Relaxed);
    }

    /// Whether the gateway does not reach the others, nor they it.
    pub(super) fn is_cut_off_peers(&self) -> bool {
        self.is_cut_off_peers.load(Ordering::Relaxed)
    }

    /// Whether the gateway does not reach the database.
    pub(super) fn is_down(&self, database: &Database) -> bool {
        self.is_cut.load(Ordering::Relaxed) || database.is_away()
    }

    /// Whether the gateway waits for the reply to an append.
    pub(super) fn is_appending(&self) -> bool {
        self.appending.load(Ordering::Relaxed) > 0
    }
}

impl LogStore for GatewayStore {
    type Session = Session;

    async fn open(&self) -> StoreResult<Session> {
        self.connect().await
    }
}

impl GatewayStore {
    pub(super) async fn connect(&self) -> StoreResult<Session> {
        let Self { database, .. } = self;
        sleep(database.latency()).await;
        if self.link.is_down(database) || !matches!(database.fault(), Fault::None | Fault::Repeat) {
            return Err(StoreError::Other("there is no connection to be had".to_owned()));
        }
        let (messages, arriving) = mpsc::unbounded_channel();
        tokio::spawn(Backend(database.clone()).serve(arriving));
        Ok(Session { store: self.clone(), messages, is_broken: AtomicBool::new(false) })
    }
}

/// A gateway's end of a connection.
#[derive(Debug)]
pub(super) struct Session {
    store: GatewayStore,
    messages: mpsc::UnboundedSender<Message>,
    is_broken: AtomicBool,
}

impl Session {
    /// Sends a statement; its reply.
    fn send(&self, statement: Statement, delay: Duration) -> oneshot::Receiver<StoreResult<Reply>> {
        let (reply, replied) = oneshot::channel();
        let _ = self.messages.send(Message::Request { statement, delay, reply });
        replied
    }

    /// Breaks the connection; the backend learns of it after `delay`.
    fn break_off<T>(&self, delay: Duration) -> StoreResult<T> {
        self.is_broken.store(true, Ordering::Relaxed);
        let _ = self.messages.send(Message::HangUp(delay));
        Err(StoreError::Other("the connection is lost".to_owned()))
    }

    /// Whether the connection is known to be lost.
    pub(super) fn is_lost(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed) || self.messages.is_closed()
    }

    pub(super) async fn ask(&self, statement: Statement) -> StoreResult<Reply> {
        if self.is_lost() {
            return Err(StoreError::Other("the connection is closed".to_owned()));
        }
        let database = &self.store.database;
        let delay = database.latency();
        let mut fault = database.fault();
        // There are fewer checkpoints than appends.
        if fault == Fault::None && matches!(statement, Statement::StoreStates { .. }) {
            fault = database.fault();
        }
        if self.store.link.is_down(database) {
            fault = Fault::LoseRequest;
        }
        match fault {
            Fault::None | Fault::Repeat => {}
            Fault::Cancel => {
                sleep(delay).await;
                database.notes.count("a statement was cancelled");
                return Err(StoreError::Other("the statement is cancelled".to_owned()));
            }
            // At once: what is sent behind a lost request does not arrive either.
            Fault::LoseRequest => {
                let lost = self.break_off(database.lateness());
                sleep(delay).await;
                return lost;
            }
            Fault::LoseReply => {
                let replied = self.send(statement, delay);
                let _ = replied.await;
                return self.break_off(database.latency());
            }
            Fault::Late => {
                let _replied = self.send(statement, database.lateness());
                sleep(delay).await;
                return self.break_off(Duration::ZERO);
            }
            Fault::Silence => {
                let _replied = self.send(statement, database.lateness());
                return std::future::pending().await;
            }
            Fault::SilentLoss => {
                self.is_broken.store(true, Ordering::Relaxed);
                return std::future::pending().await;
            }
        }
        let repeated = (fault == Fault::Repeat).then(|| statement.clone());
        let Ok(reply) = self.send(statement, delay).await else {
            return self.break_off(Duration::ZERO);
        };
        if let Some(statement) = repeated {
            self.repeat(statement, matches!(reply, Ok(Reply::Is(true))));
        }
        sleep(database.latency()).await;
        reply
    }

    /// Carries out `statement`, which was carried out, once more.
    fn repeat(&self, statement: Statement, had_effect: bool) {
        let (database, delay) = (self.store.database.clone(), self.store.database.lateness());
        tokio::spawn(async move {
            sleep(delay).await;
            let what = match &statement {
                Statement::Append(append) if append.rows.is_empty() => "an append of claims arrived twice",
                Statement::Append(_) => "an append arrived twice",
                Statement::StoreStates { .. } => "a checkpoint arrived twice",
                Statement::Lead(_) => "a request to lead arrived twice",
                Statement::Resolve(..) => "a lookup of a commit arrived twice",
                Statement::Read { .. }
                | Statement::Load(_)
                | Statement::FindClaims(_)
                | Statement::Lease(_) => return,
            };
            let is_append = what == "an append arrived twice";
            let reply = Backend(database.clone()).execute(statement).await;
            database.notes.count(what);
            if is_append && had_effect && matches!(reply, Ok(Reply::Is(true))) {
                database.notes.violation(APPENDED_TWICE.to_owned());
            }
        });
    }

    async fn is(&self, statement: Statement) -> StoreResult<bool> {
        match self.ask(statement).await? {
            Reply::Is(is) => Ok(is),
            other => unreachable!("{other:?}"),
        }
    }
}

/// An append as a statement has it.
fn append_of(expected: Head, batch: &AppendBatch) -> Append {
    let hashes = batch.hashes.chunks(HASH_BYTES);
    let first = expected.position + 1;
    let rows = batch.events.lines().zip(hashes).zip(first..).map(|((record, hash), position)| Row {
        position,
        batch: first,
        key: Record::parse(record).unwrap().key.to_owned(),
        record: record.to_owned(),
        recorded_at: batch.recorded_at,
        writer: batch.writer.clone(),
        hash: hash.to_vec(),
    });
    let is_kept = |change: &PersonalChange| matches!(change, PersonalChange::Write { .. });
    let personal = batch.personal.iter().map(|(id, change)| (*id, is_kept(change)));
    let Changes { put, answered, released } = &batch.claims.changes;
    let claims = Changes { put: put.clone(), answered: answered.clone(), released: released.clone() };
    Append {
        expected,
        rows: rows.collect(),
        indexed: batch.indexed.0.clone(),
        hash: batch.last_hash,
        personal: personal.collect(),
        claims: Arc::new(claims),
    }
}

/// Counts an append for as long as the gateway waits for it.
struct Appending<'a>(&'a AtomicU32);

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LogSession for Session {
    fn is_closed(&self) -> bool {
        self.is_lost()
    }

    async fn lead(&self) -> StoreResult<Option<(Head, i64)>> {
        match self.ask(Statement::Lead(self.store.gateway.clone())).await? {
            Reply::Leads(leads) => Ok(leads),
            other => unreachable!("{other:?}"),
        }
    }

    async fn read(&self, position: i64, limit: i64) -> StoreResult<Vec<Fact>> {
        match self.ask(Statement::Read { position, limit }).await? {
            Reply::Rows(rows) => Ok(rows.iter().map(|row| record::decode(&row.record).unwrap()).collect()),
            other => unreachable!("{other:?}"),
        }
    }

    async fn load(&self, keys: &[StateKey]) -> StoreResult<Vec<Option<State>>> {
        match self.ask(Statement::Load(keys.to_vec())).await? {
            Reply::Loaded(bodies) => {
                let states = keys.iter().zip(bodies).map(|(key, body)| {
                    let state = body.map(|body| State::from_json(key, shape(), &body)).transpose();
                    state.map_err(|error| StoreError::Other(error.to_string()))
                });
                states.collect()
            }
            other => unreachable!("{other:?}"),
        }
    }

    async fn find_claims(&self, ids: &[ClaimId]) -> StoreResult<Vec<(ClaimId, StoredClaim)>> {
        match self.ask(Statement::FindClaims(ids.to_vec())).await? {
            Reply::Claims(claims) => Ok(claims),
            other => unreachable!("{other:?}"),
        }
    }

    async fn append(&self, expected: Head, batch: Arc<AppendBatch>) -> StoreResult<bool> {
        if self.store.database.refuses_appends() {
            return Err(StoreError::Other("the append is refused".to_owned()));
        }
        let appending = &self.store.link.appending;
        appending.fetch_add(1, Ordering::Relaxed);
        let _appending = Appending(appending);
        let appended_at = &self.store.link.appended_at;
        if *appended_at.lock().unwrap() == Some(Instant::now()) {
            self.store.database.notes.count("a batch was decided while another committed");
        }
        if self.store.database.has_conflict() {
            return Err(StoreError::Conflict("a deadlock".to_owned()));
        }
        let appended = self.is(Statement::Append(append_of(expected, &batch))).await;
        *appended_at.lock().unwrap() = Some(Instant::now());
        appended
    }

    async fn store_states(&self, epoch: i64, position: i64, changes: &StateChanges) -> StoreResult<bool> {
        let changes = changes.iter().map(|(key, body)| (key.stored(), body.clone())).collect();
        self.is(Statement::StoreStates { epoch, position, changes }).await
    }

    async fn resolve(&self, event: &EventId, epoch: i64) -> StoreResult<bool> {
        self.is(Statement::Resolve(event.clone(), epoch)).await
    }
}
