//! The budget of connections: what the running processes may open at most against what the server allows.

use anyhow::Result;

use super::finding::Finding;
use super::session::Session;

/// The connections of a gateway beside its pools and those of its partitions (docs/running.md, Connections to Postgres).
const FIXED_OF_GATEWAY: i64 = 5;
/// Those of the test payment processor, in test mode.
const PAYING: i64 = 4;
/// The connections of a projector.
const OF_PROJECTOR: i64 = 15;

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

/// The sizes of a gateway's pools.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pools {
    pub(super) reads: u32,
    pub(super) deliveries: u32,
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
pub(super) async fn check(session: &Session, pools: Pools) -> Finding {
    session.check("postgres.connections", read(session, pools)).await
}

async fn read(session: &Session, pools: Pools) -> Result<Finding> {
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
            Some(needed(gateways, partitions, row.try_get::<_, Option<bool>>(2)?.unwrap_or(true), pools))
        }
        Err(_) => None,
    };
    Ok(judge(found, needed))
}

/// The connections that so many gateways and a projector open at most.
fn needed(gateways: i64, partitions: i64, is_test: bool, pools: Pools) -> i64 {
    let paying = if is_test { PAYING } else { 0 };
    let of_gateway = i64::from(pools.reads) + i64::from(pools.deliveries) + FIXED_OF_GATEWAY + paying;
    let of_partitions = if gateways > 0 { partitions } else { 0 };
    gateways * of_gateway + of_partitions + OF_PROJECTOR
}

fn judge(
    Use { max_connections, reserved, used, elsewhere, of_database }: Use,
    needed: Option<i64>,
) -> Finding {
    let check = "postgres.connections";
    let allowed = max_connections - reserved;
    let mut found = format!("{used} of {allowed} connections are in use");
    let advice = "raise `max_connections`, or lower the sizes of the gateways' pools";
    if used >= allowed {
        return Finding::failed(check, found, advice);
    }
    if let Some(needed) = needed {
        found = format!("{found}; the running gateways and a projector open up to {needed}");
        if elsewhere > 0 {
            found = format!("{found}, beside {elsewhere} in other databases");
        }
        if needed + elsewhere > allowed {
            return Finding::warning(check, found, advice);
        }
        if of_database >= 0 && needed > of_database {
            let found = format!("{found}, and the database allows {of_database}");
            return Finding::warning(check, found, "raise its CONNECTION LIMIT");
        }
    }
    if used * 10 >= allowed * 9 {
        return Finding::warning(check, found, advice);
    }
    Finding::ok(check, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    const POOLS: Pools = Pools { reads: 8, deliveries: 4 };

    #[test]
    fn the_connections_needed_are_those_of_the_documents() {
        assert_eq!(needed(4, 8, false, POOLS), 4 * 17 + 8 + 15);
        assert_eq!(needed(3, 8, true, POOLS), 3 * 21 + 8 + 15);
        assert_eq!(needed(6, 8, false, Pools { reads: 4, deliveries: 2 }), 6 * 11 + 8 + 15);
        assert_eq!(needed(0, 8, false, POOLS), 15);
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
