//! The backend of a simulated connection: carries out statements in their order, by the rules that the writer relies on
//! of Postgres. An append locks the head first and looks at it then; a transaction is committed as a whole or not at
//! all; one that is idle for too long is rolled back.

use std::collections::BTreeSet;
use std::time::Duration;

use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::state::StateKey;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::super::batch::EventId;
use super::super::store::{Head, StoreError, StoreResult};
use super::database::{Append, Database, Row};

/// How long a statement may wait for the head's lock.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a transaction may wait for its next statement.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A statement.
#[derive(Debug, Clone)]
pub(super) enum Statement {
    HeadPosition,
    /// Begins, locks the head and reads events after a position.
    Begin {
        position: i64,
        limit: i64,
    },
    Load(Vec<StateKey>),
    FindClaims(Vec<ClaimId>),
    Write(Write),
    Append(Append),
    IsRecorded(EventId),
    Commit,
    RollBack,
}

/// A write that takes effect with the commit of its transaction.
#[derive(Debug, Clone)]
pub(super) enum Write {
    Claims {
        put: Vec<(ClaimId, StoredClaim)>,
        answered: Vec<(ClaimId, String, Vec<u8>)>,
        released: Vec<(ClaimId, String)>,
    },
    Append(Append),
    RaiseEpoch,
}

/// The result of a statement.
#[derive(Debug)]
pub(super) enum Reply {
    Done,
    Position(i64),
    Begun(Head, Vec<Row>),
    Loaded(i64, Vec<Option<String>>),
    Claims(Vec<(ClaimId, StoredClaim)>),
    Is(bool),
}

/// A request on its way to the backend, or the end of the connection.
pub(super) enum Message {
    Request { statement: Statement, delay: Duration, reply: oneshot::Sender<StoreResult<Reply>> },
    HangUp(Duration),
}

/// An open transaction: the head's lock, and what is to be written.
struct Transaction {
    lock: OwnedMutexGuard<()>,
    writes: Vec<Write>,
    /// A statement of it failed: it can only be rolled back.
    is_aborted: bool,
}

/// What stands in the place of a connection's backend.
pub(super) struct Backend {
    database: Database,
    transaction: Option<Transaction>,
}

impl Backend {
    pub(super) fn new(database: Database) -> Self {
        Self { database, transaction: None }
    }

    /// Carries out the messages of a connection, until it ends or is idle in a transaction for too long.
    pub(super) async fn serve(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        loop {
            let next = if self.transaction.is_some() {
                let Ok(next) = timeout(IDLE_TIMEOUT, messages.recv()).await else {
                    self.database.count("a transaction ended for being idle");
                    return;
                };
                next
            } else {
                messages.recv().await
            };
            match next {
                Some(Message::Request { statement, delay, reply }) => {
                    let arrived = timeout(self.patience(), sleep(delay)).await;
                    if arrived.is_err() {
                        self.database.count("a transaction ended for being idle");
                        return;
                    }
                    let _ = reply.send(self.execute(statement).await);
                }
                Some(Message::HangUp(delay)) => {
                    let _ = timeout(self.patience(), sleep(delay)).await;
                    return;
                }
                None => return,
            }
        }
    }

    /// How long the backend waits for a message.
    fn patience(&self) -> Duration {
        if self.transaction.is_some() { IDLE_TIMEOUT } else { Duration::MAX }
    }

    async fn execute(&mut self, statement: Statement) -> StoreResult<Reply> {
        let ends = matches!(statement, Statement::Commit | Statement::RollBack);
        if self.transaction.as_ref().is_some_and(|transaction| transaction.is_aborted) && !ends {
            return Err(StoreError::Other("the transaction is aborted".to_owned()));
        }
        let result = self.carry_out(statement).await;
        if let (Err(_), Some(transaction)) = (&result, &mut self.transaction) {
            transaction.is_aborted = true;
        }
        result
    }

    async fn carry_out(&mut self, statement: Statement) -> StoreResult<Reply> {
        let database = self.database.clone();
        Ok(match statement {
            Statement::HeadPosition => Reply::Position(database.disk().head.position),
            Statement::Begin { position, limit } => {
                let lock = self.lock_head().await?;
                self.transaction = Some(Transaction { lock, writes: Vec::new(), is_aborted: false });
                let disk = database.disk();
                let from =
                    usize::try_from(position).map_or(disk.events.len(), |at| at.min(disk.events.len()));
                let after = disk.events[from..].iter().take(usize::try_from(limit).unwrap());
                let rows: Vec<_> = after.cloned().collect();
                if !rows.is_empty() {
                    database.count("a writer caught up with others");
                }
                Reply::Begun(disk.head, rows)
            }
            Statement::Load(keys) => {
                let disk = database.disk();
                let bodies = keys.iter().map(|key| disk.states.get(&key.stored()).cloned());
                Reply::Loaded(disk.head.position, bodies.collect())
            }
            Statement::FindClaims(ids) => {
                let disk = database.disk();
                let found = ids.into_iter().filter_map(|id| {
                    let claim = disk.claims.get(&id)?.clone();
                    let request = claim.request_id.map(|id| StateKey::Request(id).stored());
                    let in_flight = request.is_some_and(|key| disk.states.contains_key(&key));
                    Some((id, StoredClaim { in_flight, ..claim }))
                });
                Reply::Claims(found.collect())
            }
            Statement::Write(write) => {
                let transaction = self.transaction.as_mut().expect("writes are in a transaction");
                transaction.writes.push(write);
                Reply::Done
            }
            Statement::Append(append) => Reply::Is(self.append(append).await?),
            Statement::IsRecorded(event) => {
                let is_it = |row: &Row| (row.position, &row.hash) == (event.position, &event.hash);
                let is_recorded = database.disk().events.iter().any(is_it);
                database.count(if is_recorded {
                    "a commit in doubt was found"
                } else {
                    "a commit in doubt was not found"
                });
                Reply::Is(is_recorded)
            }
            Statement::Commit => {
                if let Some(transaction) =
                    self.transaction.take().filter(|transaction| !transaction.is_aborted)
                {
                    let Transaction { lock, writes, .. } = transaction;
                    for write in writes {
                        self.write(write);
                    }
                    drop(lock);
                }
                Reply::Done
            }
            Statement::RollBack => {
                self.transaction = None;
                Reply::Done
            }
        })
    }

    async fn lock_head(&self) -> StoreResult<OwnedMutexGuard<()>> {
        let locked = timeout(STATEMENT_TIMEOUT, self.database.lock_head()).await;
        locked.map_err(|_| StoreError::Other("the statement takes too long".to_owned()))
    }

    /// Appends, in the open transaction or in one of its own; returns whether the head was the expected one.
    pub(super) async fn append(&mut self, append: Append) -> StoreResult<bool> {
        let own = if self.transaction.is_some() { None } else { Some(self.lock_head().await?) };
        let Head { position, epoch, .. } = self.database.disk().head;
        if (position, epoch) != (append.expected.position, append.expected.epoch) {
            self.database.count(if epoch == append.expected.epoch {
                "an append found the head moved"
            } else {
                "an append was fenced out"
            });
            return Ok(false);
        }
        let distinct: BTreeSet<_> = append.indexed.iter().collect();
        let is_new = distinct.len() == append.indexed.len()
            && append.indexed.iter().all(|key| !self.database.disk().indexed.contains(key));
        if !is_new {
            self.database.count("an append repeated a fact");
            return Err(StoreError::Data("a fact is in the log already".to_owned()));
        }
        match &mut self.transaction {
            Some(transaction) => transaction.writes.push(Write::Append(append)),
            None => self.write(Write::Append(append)),
        }
        self.database.count(if own.is_some() {
            "an append without a lock"
        } else {
            "an append under the lock"
        });
        Ok(true)
    }

    /// Writes, under the head's lock.
    fn write(&self, write: Write) {
        let mut disk = self.database.disk();
        match write {
            Write::Claims { put, answered, released } => {
                for (id, claim) in put {
                    if disk.released.remove(&id) {
                        self.database.count("a released claim was made anew");
                    }
                    disk.claims.insert(id, claim);
                }
                for (id, request_id, answer) in answered {
                    let claim = disk.claims.get_mut(&id);
                    if let Some(claim) = claim.filter(|claim| is_of(claim, &request_id)) {
                        claim.answer = Some(answer);
                        self.database.count("a claim was answered");
                    }
                }
                for (id, request_id) in released {
                    if disk.claims.get(&id).is_some_and(|claim| is_of(claim, &request_id)) {
                        disk.claims.remove(&id);
                        disk.released.insert(id);
                        self.database.count("a claim was released");
                    }
                }
            }
            Write::Append(append) => {
                if append.personal.iter().any(|(_, is_kept)| !is_kept) {
                    self.database.count("a customer was deleted");
                }
                disk.append(append);
            }
            Write::RaiseEpoch => disk.head.epoch += 1,
        }
    }
}

fn is_of(claim: &StoredClaim, request_id: &str) -> bool {
    claim.request_id.is_some_and(|id| id.to_string() == request_id)
}
