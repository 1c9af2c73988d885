//! Leadership: among the processes that could do the same work, the holder of a session-level advisory lock does it.
//!
//! Invariant: the lock lives exactly as long as the connection that took it, so work on that connection cannot outlast
//! its leadership. Postgres frees the lock at once if the process dies, and after the keepalives of
//! [`connect`](crate::connect) if the machine dies.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::Client;

use crate::connect::{Role, Sessions};

/// Takes the lock of the name $1 if it is free. The key is the name's 64-bit hash.
const TRY_LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";

const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";

/// The pause between attempts to take a lock that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two looks at whether a lock is still held.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The time between two looks at whether Postgres answers on the connection of the locks, and how long it may take.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A statement on the connection of the locks ends before the connection counts as one that hangs: the server would keep a
/// session that waits, and its locks with it.
const SHORT_STATEMENTS: &str = "statement_timeout = '15s'";

/// A held lock, with its connection.
#[derive(Debug)]
pub struct Leadership {
    client: Client,
    name: String,
}

impl Leadership {
    /// Waits on the connection `client` until the lock `name` is free, and takes it. Calls `stands_by` while another process
    /// has it. Polls, because a waiting statement would hold back vacuum for as long as another process leads.
    pub async fn wait(
        client: Client,
        name: &str,
        stands_by: impl Fn(),
    ) -> Result<Self, tokio_postgres::Error> {
        let leadership = Self { client, name: name.to_owned() };
        while !leadership.try_lock().await? {
            stands_by();
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        Ok(leadership)
    }

    /// Takes the lock `name` on the connection `client`; `None` if another session holds it.
    pub async fn try_take(client: Client, name: &str) -> Result<Option<Self>, tokio_postgres::Error> {
        let leadership = Self { client, name: name.to_owned() };
        Ok(leadership.try_lock().await?.then_some(leadership))
    }

    async fn try_lock(&self) -> Result<bool, tokio_postgres::Error> {
        try_lock(&self.client, &self.name).await
    }

    /// The connection that holds the lock.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The connection that holds the lock, for transactions.
    pub const fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Leaves the lock with its connection: it is held until the connection ends.
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Releases the lock at once. Dropping the connection releases it too, but later: the server must notice first.
    pub async fn release(self) -> Result<(), tokio_postgres::Error> {
        self.client.query_one(UNLOCK, &[&self.name]).await.map(drop)
    }
}

/// The locks of a process on one connection: all that a process needs while others do the work. The connection is opened
/// again after it was lost, and all of the locks with it.
#[derive(Debug)]
pub struct Locks {
    database_url: String,
    role: Role,
    /// The lock of the process itself.
    process: String,
    /// Drives the connection, also if a task of another runtime opens it.
    runtime: Handle,
    connection: tokio::sync::Mutex<Option<Arc<Client>>>,
}

/// A lock that this process holds until the value is dropped, or the connection of the locks is lost.
#[derive(Debug)]
pub struct Held {
    client: Arc<Client>,
    name: String,
}

impl Locks {
    /// Locks under `role`. The connection is opened when it is first used. One of all processes with the lock `process`
    /// works: the others would have connections for their part of the work, too.
    pub fn new(database_url: String, role: Role, process: String) -> Self {
        let (runtime, connection) = (Handle::current(), tokio::sync::Mutex::default());
        Self { database_url, role, process, runtime, connection }
    }

    /// Waits until this process works and the lock `name` is free, and takes it. Calls `stands_by` meanwhile. Polls, because a
    /// waiting statement would hold back vacuum for as long as another process leads, and the other locks of this process.
    pub async fn wait(&self, name: &str, stands_by: impl Fn()) -> Result<Held, tokio_postgres::Error> {
        let client = self.client().await?;
        while !(try_lock(&client, &self.process).await? && try_lock(&client, name).await?) {
            stands_by();
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        Ok(Held { client, name: name.to_owned() })
    }

    /// The connection, for short statements. It is opened if it is not open.
    pub async fn client(&self) -> Result<Arc<Client>, tokio_postgres::Error> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let sessions = Sessions::of(&self.database_url, self.role)?.with(SHORT_STATEMENTS);
        let opened = self.runtime.spawn(async move { sessions.open().await }).await;
        match opened {
            Ok(opened) => {
                let (client, task) = opened?;
                let client = Arc::clone(connection.insert(Arc::new(client)));
                self.runtime.spawn(watch(Arc::downgrade(&client), task.abort_handle()));
                Ok(client)
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends, and all tasks with it.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Held {
    /// Whether the connection has ended, and the lock with it.
    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// Does `work`, which may be dropped at any time; `None` if the lock is lost meanwhile.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let lost = async {
            while !self.is_lost() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = lost => None,
        }
    }

    /// The connection that holds the lock, for short statements: the other locks of the process are on it, too.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (client, name) = (Arc::clone(&self.client), std::mem::take(&mut self.name));
        // Postgres counts how often a session has taken a lock: one that was taken again meanwhile stays held.
        runtime.spawn(async move {
            if let Err(error) = client.execute(UNLOCK, &[&name]).await {
                tracing::debug!(event = "leadership.not_released", name, %error, "a lock ends with its connection");
            }
        });
    }
}

/// Ends a connection on which Postgres does not answer any more, so that its locks are lost for this process too.
async fn watch(client: Weak<Client>, connection: AbortHandle) {
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let Some(client) = client.upgrade().filter(|client| !client.is_closed()) else { return };
        if tokio::time::timeout(ANSWER_TIMEOUT, client.simple_query("")).await.is_err() {
            tracing::warn!(
                event = "leadership.connection_hangs",
                "the connection of the locks hangs; it is closed"
            );
            connection.abort();
            return;
        }
    }
}

async fn try_lock(client: &Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    client.query_one(TRY_LOCK, &[&name]).await?.try_get(0)
}
