//! The budget of connections: what the running processes may open at most against what the server allows.

use anyhow::Result;
use farthing_api::{PAYING_CONNECTIONS, connection_share};
use farthing_projector::FIXED_CONNECTIONS;
use tokio_postgres::error::SqlState;

use super::finding::Finding;
use super::session::Session;

/// The limits, and the sessions of clients. Whose sessions they are is all that a login without further rights sees.
const USE: &str = "\
SELECT current_setting('max_connections')::bigint,
       current_setting('superuser_reserved_connections')::bigint
           + coalesce(current_setting('reserved_connections', true)::bigint, 0),
       count(*) FILTER (WHERE s.pid <> pg_backend_pid()),
       count(*) FILTER (WHERE s.datname IS DISTINCT FROM current_database()),
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database())::bigint
FROM pg_stat_activity AS s
WHERE s.usesysid IS NOT NULL AND coalesce(s.backend_type, 'client backend') = 'client backend'";

/// The gateways that run, the partitions, and whether the instance is in test mode.
const PROCESSES: &str = "\
SELECT (SELECT count(*) FROM ledger.gateways WHERE expires_at > clock_timestamp()),
       (SELECT count(*) FROM ledger.heads),
       (SELECT mode = 'test' FROM ledger.instance)";

/// The settings of the processes about their connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    /// Those of each gateway. Without a setting it follows the server.
    pub(super) of_gateway: Option<u32>,
    /// Those of a projector for rows.
    pub(super) for_rows: u16,
}

/// The connections of the server.
#[derive(Debug, Clone, Copy)]
struct Use {
    max_connections: i64,
    /// Kept for superusers and other roles.
    reserved: i64,
    used: i64,
    /// Used in other databases.
    elsewhere: i64,
    /// The limit of the database; below zero without one.
    of_database: i64,
}

/// Checks the budget.
pub(super) async fn check(session: &Session, given: Given) -> Finding {
    session.check("postgres.connections", read(session, given)).await
}

async fn read(session: &Session, given: Given) -> Result<Finding> {
    let row = session.client.query_one(USE, &[]).await?;
    let found = Use {
        max_connections: row.try_get(0)?,
        reserved: row.try_get(1)?,
        used: row.try_get(2)?,
        elsewhere: row.try_get(3)?,
        of_database: row.try_get(4)?,
    };
    // A login of a projector may not read what the gateways are: then the connections in use count alone.
    let needed = match session.client.query_one(PROCESSES, &[]).await {
        Ok(row) => {
            let (gateways, partitions): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let is_test = row.try_get::<_, Option<bool>>(2)?.unwrap_or(true);
            Some(needed(gateways, partitions, is_test, found.allowed(), given))
        }
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(judge(found, needed))
}

impl Use {
    /// What the server allows.
    const fn allowed(&self) -> i64 {
        self.max_connections - self.reserved
    }
}

/// The connections that so many gateways and a projector open at most (docs/running.md, Connections to Postgres).
fn needed(gateways: i64, partitions: i64, is_test: bool, allowed: i64, given: Given) -> i64 {
    let count = |connections: usize| i64::try_from(connections).unwrap_or(i64::MAX);
    let share = || count(connection_share(usize::try_from(allowed).unwrap_or_default()));
    let paying = if is_test { count(PAYING_CONNECTIONS) } else { 0 };
    let of_gateway = given.of_gateway.map_or_else(share, i64::from) + paying;
    let of_partitions = if gateways > 0 { partitions } else { 0 };
    let of_projector = i64::from(given.for_rows) + count(FIXED_CONNECTIONS);
    gateways * of_gateway + of_partitions + of_projector
}

fn judge(found: Use, needed: Option<i64>) -> Finding {
    let check = "postgres.connections";
    let (allowed, Use { used, elsewhere, of_database, .. }) = (found.allowed(), found);
    let mut text = format!("{used} of {allowed} connections are in use");
    let advice = "raise `max_connections`, or lower --postgres-connections of the gateways";
    if used >= allowed {
        return Finding::failed(check, text, advice);
    }
    if let Some(needed) = needed {
        text = format!("{text}; the running gateways and a projector open up to {needed}");
        if elsewhere > 0 {
            text = format!("{text}, beside {elsewhere} in other databases");
        }
        if needed + elsewhere > allowed {
            return Finding::warning(check, text, advice);
        }
        if of_database >= 0 && needed > of_database {
            let text = format!("{text}, and the database allows {of_database}");
            return Finding::warning(check, text, "raise its CONNECTION LIMIT");
        }
    }
    if used * 10 >= allowed * 9 {
        return Finding::warning(check, text, advice);
    }
    Finding::ok(check, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn the_connections_needed_are_those_of_the_documents() {
        let usual = Given { of_gateway: None, for_rows: 4 };
        assert_eq!(needed(10, 8, false, 97, usual), 10 * 8 + 8 + 7);
        assert_eq!(needed(6, 8, true, 97, usual), 6 * 12 + 8 + 7);
        assert_eq!(needed(4, 8, false, 97, Given { of_gateway: Some(16), for_rows: 4 }), 4 * 16 + 8 + 7);
        assert_eq!(needed(0, 8, false, 97, usual), 7);
    }

    #[test]
    fn the_budget_is_what_the_server_allows_without_other_databases() {
        let stock = Use { max_connections: 100, reserved: 3, used: 40, elsewhere: 0, of_database: -1 };
        assert_eq!(judge(stock, Some(91)).verdict, Verdict::Ok);
        assert_eq!(judge(stock, Some(98)).verdict, Verdict::Warning);
        assert_eq!(judge(Use { elsewhere: 10, ..stock }, Some(91)).verdict, Verdict::Warning);
        assert_eq!(judge(Use { of_database: 50, ..stock }, Some(91)).verdict, Verdict::Warning);
        assert_eq!(judge(Use { used: 88, ..stock }, None).verdict, Verdict::Warning);
        assert_eq!(judge(Use { used: 97, ..stock }, None).verdict, Verdict::Failed);
        assert_eq!(judge(stock, None).verdict, Verdict::Ok);
    }
}
