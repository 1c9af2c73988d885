//! The check that a process has the server key of its instance. With another one it would lead partitions, refuse every
//! key, and issue keys and secrets that no other process accepts.

use farthing_core::secret::ServerKey;
use tokio_postgres::Client;

use crate::connect::redacted;

/// Leaves the mark of a key, unless there is one. Without $2 only in a log without events: an earlier release, which left
/// no mark, may have used another key.
const LEAVE: &str = "\
INSERT INTO ledger.server_key_mark (mark)
SELECT $1 WHERE $2 OR NOT EXISTS (SELECT FROM ledger.heads WHERE position > 0)
ON CONFLICT (only_row) DO NOTHING";

const MARK: &str = "SELECT mark FROM ledger.server_key_mark";

/// Why a process cannot work with its key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key is another one than that of the instance.
    #[error(
        "the server key is not the one of this instance. Give the key that its gateways use, in FARTHING_SERVER_KEY or \
         --server-key-file, or leave both out for the key in the database"
    )]
    Another,
    /// Postgres does not answer.
    #[error("cannot check the server key: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
}

/// Whether a process may be the first to use a key on a log with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// A gateway, which callers reach with keys that exist.
    Gateway,
    /// An operator command.
    Operator,
}

/// Fails if the instance uses another key.
pub async fn check(client: &Client, key: &ServerKey, first: First) -> Result<(), Error> {
    let mark = key.mark();
    if let Some(row) = client.query_opt(MARK, &[]).await? {
        return compare(&mark, row.try_get(0)?);
    }
    client.execute(LEAVE, &[&mark, &(first == First::Gateway)]).await?;
    match client.query_opt(MARK, &[]).await? {
        Some(row) => compare(&mark, row.try_get(0)?),
        None => Ok(()),
    }
}

/// Whether the instance uses this key; `None` if no process has left a mark yet. Changes nothing.
pub async fn is_of_instance(client: &Client, key: &ServerKey) -> Result<Option<bool>, tokio_postgres::Error> {
    let row = client.query_opt(MARK, &[]).await?;
    row.map(|row| Ok(row.try_get::<_, &str>(0)? == key.mark())).transpose()
}

fn compare(mark: &str, of_instance: &str) -> Result<(), Error> {
    if mark == of_instance { Ok(()) } else { Err(Error::Another) }
}
