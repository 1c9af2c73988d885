//! The backend of a simulated connection: carries out statements in their order. A statement that writes the head locks
//! it first and looks at it then.

use std::time::Duration;

use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::state::StateKey;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::super::batch::EventId;
use super::super::store::{Head, StoreError, StoreResult};
use super::database::Database;
use super::disk::{Append, Row};
use super::history::StoredKey;
use super::leases::{LeaseReply, LeaseStatement};

/// How long a statement may wait for the head's lock.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A statement.
#[derive(Debug, Clone)]
pub(super) enum Statement {
    Lead(String),
    Read { position: i64, limit: i64 },
    Load(Vec<StateKey>),
    FindClaims(Vec<ClaimId>),
    Append(Append),
    StoreStates { epoch: i64, position: i64, changes: Vec<(StoredKey, Option<String>)> },
    Resolve(EventId, i64),
    Lease(LeaseStatement),
}

/// The result of a statement.
#[derive(Debug)]
pub(super) enum Reply {
    Leads(Option<(Head, i64)>),
    Rows(Vec<Row>),
    Loaded(Vec<Option<String>>),
    Claims(Vec<(ClaimId, StoredClaim)>),
    Is(bool),
    Lease(LeaseReply),
}

/// A request on its way to the backend, or the end of the connection.
pub(super) enum Message {
    Request { statement: Statement, delay: Duration, reply: oneshot::Sender<StoreResult<Reply>> },
    HangUp(Duration),
}

/// What stands in the place of a connection's backend.
pub(super) struct Backend(pub(super) Database);

impl Backend {
    /// Carries out the messages of a connection until it ends.
    pub(super) async fn serve(self, mut messages: mpsc::UnboundedReceiver<Message>) {
        while let Some(message) = messages.recv().await {
            match message {
                Message::Request { statement, delay, reply } => {
                    sleep(delay).await;
                    let _ = reply.send(self.execute(statement).await);
                }
                Message::HangUp(delay) => return sleep(delay).await,
            }
        }
    }

    pub(super) async fn execute(&self, statement: Statement) -> StoreResult<Reply> {
        let Self(database) = self;
        Ok(match statement {
            Statement::Lead(gateway) => {
                let _lock = self.lock_head().await?;
                Reply::Leads(database.lead(&gateway))
            }
            Statement::Read { position, limit } => Reply::Rows(database.disk().read(position, limit)),
            Statement::Load(keys) => {
                let disk = database.disk();
                if keys.iter().any(|key| disk.was_changed_by_leader(&key.stored())) {
                    database.notes.count("a leader loaded a state that it had forgotten");
                }
                Reply::Loaded(keys.iter().map(|key| disk.states.get(&key.stored()).cloned()).collect())
            }
            Statement::FindClaims(ids) => {
                let disk = database.disk();
                let found = ids.into_iter().filter_map(|id| disk.claims.get(&id).cloned().map(|it| (id, it)));
                Reply::Claims(found.collect())
            }
            Statement::Append(append) => {
                let _lock = self.lock_head().await?;
                sleep(database.commit_time()).await;
                Reply::Is(database.disk().append(append)?)
            }
            Statement::StoreStates { epoch, position, changes } => {
                sleep(database.commit_time()).await;
                Reply::Is(database.disk().store_states(epoch, position, changes))
            }
            Statement::Resolve(event, epoch) => {
                let _lock = self.lock_head().await?;
                let is_recorded = database.disk().resolve(&event, epoch);
                database.notes.count(if is_recorded {
                    "a commit in doubt was found"
                } else {
                    "a commit in doubt was not found"
                });
                Reply::Is(is_recorded)
            }
            Statement::Lease(statement) => Reply::Lease(database.leases().execute(statement)),
        })
    }

    async fn lock_head(&self) -> StoreResult<OwnedMutexGuard<()>> {
        let locked = timeout(STATEMENT_TIMEOUT, self.0.lock_head()).await;
        locked.map_err(|_| StoreError::Other("the statement takes too long".to_owned()))
    }
}
