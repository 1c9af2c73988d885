//! Leadership: among the processes that could do the same work, the holder of a session-level advisory lock does it.
//!
//! Invariant: the lock lives exactly as long as the connection that took it, so work on that connection cannot outlast
//! its leadership. Postgres frees the lock at once if the process dies, and after the keepalives of
//! [`connect`](crate::connect) if the machine dies.

use std::time::Duration;

use tokio_postgres::Client;

/// Takes the lock of the name $1 if it is free. The key is the name's 64-bit hash.
const TRY_LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";

const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";

/// The pause between attempts to take a lock that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

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
        self.client.query_one(TRY_LOCK, &[&self.name]).await?.try_get(0)
    }

    /// Whether the connection has ended, and the lock with it.
    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
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
