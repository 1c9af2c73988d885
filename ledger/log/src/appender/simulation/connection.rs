//! A writer's end of a simulated connection. Messages are delayed and lost; what was sent may be carried out after the
//! writer has given the connection up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farthing_core::command::PersonalChange;
use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::state::{State, StateKey};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::super::batch::{AppendBatch, EventId};
use super::super::store::{Head, LogSession, LogStore, StoreError, StoreResult};
use super::backend::{Backend, Message, Reply, Statement, Write};
use super::database::{APPENDED_TWICE, Append, Database, Fault, Row};
use crate::chain::HASH_BYTES;
use crate::claims::Changes;
use crate::record::{self, Record};

impl LogStore for Database {
    type Session = Session;

    async fn open(&self) -> StoreResult<Session> {
        sleep(self.latency()).await;
        if self.fault() != Fault::None {
            return Err(StoreError::Other("there is no connection to be had".to_owned()));
        }
        let (messages, arriving) = mpsc::unbounded_channel();
        tokio::spawn(Backend::new(self.clone()).serve(arriving));
        Ok(Session { database: self.clone(), messages, is_broken: AtomicBool::new(false) })
    }
}

/// A writer's end of a connection.
#[derive(Debug)]
pub(super) struct Session {
    database: Database,
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

    async fn ask(&self, statement: Statement) -> StoreResult<Reply> {
        if self.is_closed() {
            return Err(StoreError::Other("the connection is closed".to_owned()));
        }
        let (database, delay) = (&self.database, self.database.latency());
        let fault = database.fault();
        match fault {
            Fault::None | Fault::Repeat => {}
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
        let repeated = match &statement {
            Statement::Append(append) if fault == Fault::Repeat && !append.in_transaction => {
                Some(append.clone())
            }
            _ => None,
        };
        let Ok(reply) = self.send(statement, delay).await else {
            return self.break_off(Duration::ZERO);
        };
        if let Some(append) = repeated {
            self.repeat(append);
        }
        sleep(database.latency()).await;
        reply
    }

    /// Carries out `append`, which was carried out, once more.
    fn repeat(&self, append: Append) {
        let (database, delay) = (self.database.clone(), self.database.lateness());
        tokio::spawn(async move {
            sleep(delay).await;
            let mut backend = Backend::new(database.clone());
            let appended = backend.append(append).await;
            database.count(if matches!(appended, Ok(true)) {
                APPENDED_TWICE
            } else {
                "an append arrived twice"
            });
        });
    }

    async fn is(&self, statement: Statement) -> StoreResult<bool> {
        match self.ask(statement).await? {
            Reply::Is(is) => Ok(is),
            other => unreachable!("{other:?}"),
        }
    }

    async fn done(&self, statement: Statement) -> StoreResult<()> {
        self.ask(statement).await.map(drop)
    }
}

/// An append in a transaction of its own.
fn append_of(expected: Head, batch: &AppendBatch, changes: &[(StateKey, Option<String>)]) -> Append {
    let hashes = batch.hashes.chunks(HASH_BYTES);
    let rows =
        batch.events.lines().zip(hashes).zip(expected.position + 1..).map(|((record, hash), position)| Row {
            position,
            key: Record::parse(record).unwrap().key.to_owned(),
            record: record.to_owned(),
            recorded_at: batch.recorded_at,
            writer: batch.writer.clone(),
            hash: hash.to_vec(),
        });
    let is_kept = |change: &PersonalChange| matches!(change, PersonalChange::Write { .. });
    let personal = batch.personal.iter().map(|(id, change)| (*id, is_kept(change)));
    let changes = changes.iter().map(|(key, body)| (key.stored(), body.clone())).collect();
    Append {
        in_transaction: false,
        expected,
        rows: rows.collect(),
        indexed: batch.indexed.0.clone(),
        hash: batch.last_hash,
        changes,
        personal: personal.collect(),
    }
}

impl LogSession for Session {
    fn is_closed(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed) || self.messages.is_closed()
    }

    async fn head_position(&self) -> StoreResult<i64> {
        match self.ask(Statement::HeadPosition).await? {
            Reply::Position(position) => Ok(position),
            other => unreachable!("{other:?}"),
        }
    }

    async fn begin(&self) -> StoreResult<Head> {
        Ok(self.begin_and_read(i64::MAX, 0).await?.0)
    }

    async fn begin_and_read(&self, position: i64, limit: i64) -> StoreResult<(Head, Vec<Fact>)> {
        match self.ask(Statement::Begin { position, limit }).await? {
            Reply::Begun(head, rows) => {
                Ok((head, rows.iter().map(|row| record::decode(&row.record).unwrap()).collect()))
            }
            other => unreachable!("{other:?}"),
        }
    }

    async fn load(&self, keys: &[StateKey]) -> StoreResult<(i64, Vec<Option<State>>)> {
        match self.ask(Statement::Load(keys.to_vec())).await? {
            Reply::Loaded(position, bodies) => {
                let states = keys.iter().zip(bodies);
                let states = states.map(|(key, body)| {
                    let state = body.map(|body| State::from_json(key, &body)).transpose();
                    state.map_err(|error| StoreError::Other(error.to_string()))
                });
                Ok((position, states.collect::<StoreResult<_>>()?))
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

    async fn write_claims(&self, changes: &Changes) -> StoreResult<()> {
        let Changes { put, answered, released } = changes;
        let (put, answered, released) = (put.clone(), answered.clone(), released.clone());
        self.done(Statement::Write(Write::Claims { put, answered, released })).await
    }

    async fn append(
        &self,
        expected: Head,
        batch: &AppendBatch,
        changes: &[(StateKey, Option<String>)],
    ) -> StoreResult<bool> {
        self.is(Statement::Append(append_of(expected, batch, changes))).await
    }

    async fn append_and_commit(
        &self,
        expected: Head,
        batch: &AppendBatch,
        changes: &[(StateKey, Option<String>)],
    ) -> StoreResult<bool> {
        let append = Append { in_transaction: true, ..append_of(expected, batch, changes) };
        let (appended, committed) = tokio::join!(self.is(Statement::Append(append)), self.commit());
        let appended = appended?;
        committed?;
        Ok(appended)
    }

    async fn is_recorded(&self, event: &EventId) -> StoreResult<bool> {
        self.is(Statement::IsRecorded(event.clone())).await
    }

    async fn raise_epoch(&self) -> StoreResult<()> {
        self.done(Statement::Write(Write::RaiseEpoch)).await
    }

    async fn commit(&self) -> StoreResult<()> {
        self.done(Statement::Commit).await
    }

    async fn roll_back(&self) -> StoreResult<()> {
        self.done(Statement::RollBack).await
    }
}
