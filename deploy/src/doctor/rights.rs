//! The rights of the two roles, of this login, and of the logins of the running processes.

use std::collections::BTreeSet;

use anyhow::Result;

use super::finding::Finding;
use super::session::Session;

const GATEWAY: &str = "farthing_gateway";
const PROJECTOR: &str = "farthing_projector";

/// The rights that the migrations give: a table, a schema or the database, what the gateway may do there and what the
/// projector may. A test compares them with those of a migrated database.
const GRANTED: [(&str, &str, &str); 31] = [
    ("the database", "", "CREATE"),
    ("ledger", "USAGE", "USAGE"),
    ("personal", "USAGE", ""),
    ("test_processor", "USAGE", ""),
    ("webhooks", "USAGE", "USAGE"),
    ("ledger.archive_restores", "SELECT", "SELECT"),
    ("ledger.archived", "SELECT", "SELECT"),
    ("ledger.archives", "SELECT", "SELECT"),
    ("ledger.batches", "INSERT,SELECT", "SELECT"),
    ("ledger.checkout_attempt", "DELETE,INSERT,SELECT,UPDATE", ""),
    ("ledger.checkpoints", "INSERT,SELECT,UPDATE", ""),
    ("ledger.directory", "INSERT,SELECT", ""),
    ("ledger.events", "SELECT", "SELECT"),
    ("ledger.facts", "INSERT,SELECT", "SELECT"),
    ("ledger.gateway_lease", "DELETE,INSERT,SELECT,UPDATE", ""),
    ("ledger.gateways", "DELETE,INSERT,SELECT,UPDATE", ""),
    ("ledger.heads", "SELECT,UPDATE", "SELECT"),
    ("ledger.idempotency", "DELETE,INSERT,SELECT,UPDATE", ""),
    ("ledger.idle_spans", "SELECT", "INSERT,SELECT,UPDATE"),
    ("ledger.instance", "SELECT", ""),
    ("ledger.leases", "SELECT,UPDATE", ""),
    ("ledger.rate_window", "INSERT,SELECT,UPDATE", ""),
    ("ledger.read_models", "SELECT", "SELECT"),
    ("ledger.server_key_mark", "INSERT,SELECT", ""),
    ("ledger.state", "DELETE,INSERT,SELECT,UPDATE", ""),
    ("personal.customer", "DELETE,INSERT,SELECT,UPDATE", ""),
    ("test_processor.charge", "INSERT,SELECT,UPDATE", ""),
    ("webhooks.cursor", "SELECT", "INSERT,SELECT,UPDATE"),
    ("webhooks.delivery", "DELETE,SELECT,UPDATE", "INSERT,SELECT"),
    ("webhooks.lane", "DELETE,INSERT,SELECT,UPDATE", "INSERT,SELECT,UPDATE"),
    ("webhooks.webhook", "", "DELETE,INSERT,SELECT,UPDATE"),
];

/// What each role may do, by whatever way: as a member, as an owner, or because everybody may.
const RIGHTS: &str = "\
SELECT r.rolname::text, n.nspname || '.' || c.relname, right_name
FROM pg_roles AS r
CROSS JOIN pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS right_name
WHERE r.rolname IN ('farthing_gateway', 'farthing_projector')
    AND n.nspname IN ('ledger', 'personal', 'test_processor', 'webhooks') AND c.relkind IN ('r', 'v', 'p')
    AND has_table_privilege(r.oid, c.oid, right_name)
UNION ALL
SELECT r.rolname::text, n.nspname::text, right_name
FROM pg_roles AS r
CROSS JOIN pg_namespace AS n
CROSS JOIN unnest(ARRAY['USAGE', 'CREATE']) AS right_name
WHERE r.rolname IN ('farthing_gateway', 'farthing_projector')
    AND n.nspname IN ('ledger', 'personal', 'test_processor', 'webhooks')
    AND has_schema_privilege(r.oid, n.oid, right_name)
UNION ALL
SELECT r.rolname::text, 'the database', 'CREATE'
FROM pg_roles AS r
WHERE r.rolname IN ('farthing_gateway', 'farthing_projector')
    AND has_database_privilege(r.oid, current_database(), 'CREATE')";

/// The login of this session.
const LOGIN: &str = "\
SELECT r.rolname::text, r.rolsuper,
       pg_has_role(r.oid, d.datdba, 'MEMBER') AS is_owner,
       coalesce(pg_has_role(r.oid, to_regrole('farthing_gateway')::oid, 'MEMBER'), false) AS is_gateway,
       coalesce(pg_has_role(r.oid, to_regrole('farthing_projector')::oid, 'MEMBER'), false) AS is_projector,
       r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls AS has_more
FROM pg_roles AS r, pg_database AS d
WHERE r.rolname = session_user AND d.datname = current_database()";

/// The logins of the sessions of processes in this database. The name of a session is null to who may not see it.
const PROCESSES: &str = "\
SELECT r.rolname::text, s.application_name,
       r.rolsuper,
       pg_has_role(r.oid, d.datdba, 'MEMBER') AS is_owner,
       coalesce(pg_has_role(r.oid, to_regrole('farthing_gateway')::oid, 'MEMBER'), false) AS is_gateway,
       coalesce(pg_has_role(r.oid, to_regrole('farthing_projector')::oid, 'MEMBER'), false) AS is_projector,
       r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls AS has_more
FROM pg_stat_activity AS s
JOIN pg_database AS d ON d.datname = s.datname
JOIN pg_roles AS r ON r.oid = s.usesysid
WHERE s.datname = current_database() AND s.pid <> pg_backend_pid()
    AND coalesce(s.application_name IN ('farthing_gateway', 'farthing_projector'), true)
GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2";

/// A right of a role: role, object, right.
type Right = (String, String, String);

/// A login and what it is a member of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, as Postgres says it")]
struct Login {
    name: String,
    is_superuser: bool,
    is_owner: bool,
    is_gateway: bool,
    is_projector: bool,
    /// It may create roles or databases, replicate, or pass by row security.
    has_more: bool,
}

impl Login {
    fn read(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            name: row.try_get("rolname")?,
            is_superuser: row.try_get("rolsuper")?,
            is_owner: row.try_get("is_owner")?,
            is_gateway: row.try_get("is_gateway")?,
            is_projector: row.try_get("is_projector")?,
            has_more: row.try_get("has_more")?,
        })
    }

    /// What it has beyond one role; `None` if it has nothing.
    fn excess(&self) -> Option<&'static str> {
        if self.is_superuser {
            Some("is a superuser")
        } else if self.is_owner {
            Some("has the rights of the database's owner")
        } else if self.has_more {
            Some("may create roles or databases, replicate, or pass by row security")
        } else if self.is_gateway && self.is_projector {
            Some("has both roles")
        } else {
            None
        }
    }
}

/// Checks the rights.
pub(super) async fn check(session: &Session) -> Vec<Finding> {
    vec![
        session.check("rights.login", login(session)).await,
        session.check("rights.roles", roles(session)).await,
        session.check("rights.processes", processes(session)).await,
    ]
}

async fn login(session: &Session) -> Result<Finding> {
    let row = session.client.query_one(LOGIN, &[]).await?;
    Ok(judge_login(&Login::read(&row)?))
}

/// A login with all rights is an operator's.
fn judge_login(login: &Login) -> Finding {
    let (check, name) = ("rights.login", &login.name);
    if login.is_superuser || login.is_owner {
        let excess = login.excess().unwrap_or_default();
        if !(login.is_superuser || login.is_gateway && login.is_projector) {
            let found = format!("{name} owns the database and is not a member of both roles");
            return Finding::failed(check, found, format!("GRANT {GATEWAY}, {PROJECTOR} TO {name}"));
        }
        return Finding::ok(check, format!("{name} {excess}: right for operators' commands"));
    }
    if !login.is_gateway && !login.is_projector {
        let advice = format!("GRANT {GATEWAY} TO {name}, or GRANT {PROJECTOR} TO {name}");
        return Finding::failed(
            check,
            format!("{name} is a member of neither role: no process can use it"),
            advice,
        );
    }
    if let Some(excess) = login.excess() {
        return Finding::warning(check, format!("{name} {excess}"), "give each process a login of one role");
    }
    let role = if login.is_gateway { GATEWAY } else { PROJECTOR };
    Finding::ok(check, format!("{name} is a member of {role} alone"))
}

async fn roles(session: &Session) -> Result<Finding> {
    let mut rights = BTreeSet::new();
    for row in session.client.query(RIGHTS, &[]).await? {
        rights.insert((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    Ok(judge_roles(&rights))
}

/// The rights that the migrations give.
fn granted() -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for (object, gateway, projector) in GRANTED {
        for (role, of_role) in [(GATEWAY, gateway), (PROJECTOR, projector)] {
            let all = of_role.split(',').filter(|right| !right.is_empty());
            rights.extend(all.map(|right| (role.to_owned(), object.to_owned(), right.to_owned())));
        }
    }
    rights
}

fn judge_roles(rights: &BTreeSet<Right>) -> Finding {
    let (check, granted) = ("rights.roles", granted());
    if rights.is_empty() {
        return Finding::failed(check, "the roles have no rights here", "run `farthing migrate`");
    }
    let shown = |rights: Vec<&Right>| {
        let shown = rights.into_iter().map(|(role, object, right)| format!("{role}: {right} on {object}"));
        shown.collect::<Vec<_>>().join(", ")
    };
    let missing: Vec<_> = granted.difference(rights).collect();
    if !missing.is_empty() {
        let advice = "GRANT them again, as the migrations do";
        return Finding::failed(check, format!("rights are missing: {}", shown(missing)), advice);
    }
    // Tables that this program does not know belong to another release.
    let is_known = |right: &&Right| granted.iter().any(|(_, object, _)| *object == right.1);
    let excess: Vec<_> = rights.difference(&granted).filter(is_known).collect();
    if !excess.is_empty() {
        let found = format!("the roles may do more than they need: {}", shown(excess));
        return Finding::failed(
            check,
            found,
            "REVOKE it, also from PUBLIC and from roles that they are members of",
        );
    }
    Finding::ok(check, "both roles have the rights of the migrations, and no more")
}

async fn processes(session: &Session) -> Result<Finding> {
    let mut logins = Vec::new();
    for row in session.client.query(PROCESSES, &[]).await? {
        logins.push((Login::read(&row)?, row.try_get("application_name")?));
    }
    Ok(judge_processes(&logins))
}

/// `logins` are those of sessions, with the names of the sessions; those of sessions that cannot be seen have none.
fn judge_processes(logins: &[(Login, Option<String>)]) -> Finding {
    let check = "rights.processes";
    let excessive: Vec<String> = logins
        .iter()
        .filter_map(|(login, process)| {
            Some(format!("{} logs in as {}, which {}", process.as_ref()?, login.name, login.excess()?))
        })
        .collect();
    let hidden = logins.iter().filter(|(_, process)| process.is_none()).count();
    if !excessive.is_empty() {
        let advice = "give each process a login that is a member of one role";
        Finding::warning(check, excessive.join("; "), advice)
    } else if hidden > 0 {
        let reason =
            "this login may not see the names of the sessions of others: GRANT pg_read_all_stats to it";
        Finding::skipped(check, reason)
    } else if logins.is_empty() {
        Finding::skipped(check, "no process is connected to this database")
    } else {
        Finding::ok(check, "each process logs in with the rights of one role")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn login() -> Login {
        Login {
            name: "ada".to_owned(),
            is_superuser: false,
            is_owner: false,
            is_gateway: true,
            is_projector: false,
            has_more: false,
        }
    }

    #[test]
    fn a_login_has_one_role_or_is_an_operators() {
        assert_eq!(judge_login(&login()).verdict, Verdict::Ok);
        let none = Login { is_gateway: false, ..login() };
        assert_eq!(judge_login(&none).verdict, Verdict::Failed);
        let both = Login { is_projector: true, ..login() };
        assert_eq!(judge_login(&both).verdict, Verdict::Warning);
        let more = Login { has_more: true, ..login() };
        assert_eq!(judge_login(&more).verdict, Verdict::Warning);
        let superuser = Login { is_superuser: true, ..login() };
        assert_eq!(judge_login(&superuser).verdict, Verdict::Ok);
        let owner = Login { is_owner: true, is_projector: true, ..login() };
        assert_eq!(judge_login(&owner).verdict, Verdict::Ok);
        let half = Login { is_owner: true, ..login() };
        assert_eq!(judge_login(&half).verdict, Verdict::Failed);
    }

    #[test]
    fn a_right_that_is_missing_or_too_much_is_named() {
        assert_eq!(judge_roles(&granted()).verdict, Verdict::Ok);
        assert_eq!(judge_roles(&BTreeSet::new()).verdict, Verdict::Failed);
        let right =
            |role: &str, object: &str, right: &str| (role.to_owned(), object.to_owned(), right.to_owned());
        let mut less = granted();
        assert!(less.remove(&right(GATEWAY, "ledger.heads", "UPDATE")));
        let found = judge_roles(&less);
        assert_eq!(found.verdict, Verdict::Failed);
        assert!(found.found.contains("farthing_gateway: UPDATE on ledger.heads"), "{}", found.found);
        let mut more = granted();
        more.insert(right(PROJECTOR, "ledger.batches", "TRUNCATE"));
        let found = judge_roles(&more);
        assert_eq!(found.verdict, Verdict::Failed);
        assert!(found.found.contains("farthing_projector: TRUNCATE on ledger.batches"), "{}", found.found);
        let mut later = granted();
        later.insert(right(GATEWAY, "ledger.of_a_later_release", "SELECT"));
        assert_eq!(judge_roles(&later).verdict, Verdict::Ok);
    }

    #[test]
    fn processes_with_more_than_one_role_are_named() {
        let process = |login: Login| (login, Some("farthing_gateway".to_owned()));
        assert_eq!(judge_processes(&[process(login())]).verdict, Verdict::Ok);
        assert_eq!(judge_processes(&[]).verdict, Verdict::Skipped);
        assert_eq!(judge_processes(&[(login(), None)]).verdict, Verdict::Skipped);
        let root = Login { is_superuser: true, ..login() };
        let found = judge_processes(&[process(login()), process(root)]);
        assert_eq!(found.verdict, Verdict::Warning);
        assert_eq!(found.found, "farthing_gateway logs in as ada, which is a superuser");
    }
}
