//! Whether the connections of a process fit into the server, checked at its start: without it, a process that runs well
//! for days fails under load.

use tokio_postgres::Client;

use crate::connect::redacted;

/// The server's limit, what it keeps for superusers and other roles, and the connections in use. Whose sessions they are is
/// all that a login without further rights sees of others.
const COUNT: &str = "\
SELECT current_setting('max_connections')::bigint,
       current_setting('superuser_reserved_connections')::bigint
           + COALESCE(current_setting('reserved_connections', true)::bigint, 0),
       (SELECT count(*) FROM pg_stat_activity
        WHERE usesysid IS NOT NULL AND COALESCE(backend_type, 'client backend') = 'client backend'
            AND pid <> pg_backend_pid())";

/// Why a process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The server is too small for the process, also without any other one.
    #[error(
        "this process needs up to {needed} connections, and Postgres allows {allowed}: raise `max_connections`, or lower \
         the sizes of the process's pools"
    )]
    Impossible {
        /// What the process needs, without the partitions that it leads.
        needed: i64,
        /// What the server allows, without the reserved ones.
        allowed: i64,
    },
}

/// The connections that a process opens at most.
#[derive(Debug, Clone, Copy)]
pub struct Needed {
    /// In any case.
    pub always: usize,
    /// For the partitions that it leads if it is alone.
    pub alone: usize,
}

/// The connections that the server allows, those in use included.
pub async fn allowed(client: &Client) -> Result<usize, Error> {
    let Counted { max_connections, reserved, .. } = count(client).await?;
    Ok(usize::try_from(max_connections - reserved).unwrap_or_default())
}

/// Warns with numbers if the connections of this process do not fit beside those in use. Fails if they never can.
pub async fn check(client: &Client, needed: Needed) -> Result<(), Error> {
    let Counted { max_connections, reserved, used } = count(client).await?;
    let (always, alone) = (connections(needed.always), connections(needed.alone));
    let allowed = max_connections - reserved;
    if always > allowed {
        return Err(Error::Impossible { needed: always, allowed });
    }
    let (needed, free) = (always + alone, allowed - used);
    if needed > free {
        tracing::warn!(
            event = "postgres.connections_do_not_fit",
            needed,
            free,
            max_connections,
            reserved,
            used,
            "Postgres has fewer free connections than this process opens at most: raise its `max_connections`, or lower \
             the sizes of pools"
        );
    }
    Ok(())
}

/// The connections of a server.
struct Counted {
    max_connections: i64,
    reserved: i64,
    used: i64,
}

async fn count(client: &Client) -> Result<Counted, Error> {
    let row = client.query_one(COUNT, &[]).await?;
    Ok(Counted { max_connections: row.try_get(0)?, reserved: row.try_get(1)?, used: row.try_get(2)? })
}

fn connections(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
