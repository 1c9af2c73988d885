//! How a session begins: its settings and its role are set by statements after it is opened. A pooler of connections does
//! not pass on the options that a client sends while it connects, and a session without them would have the rights of its
//! login.
//!
//! A session belongs to one connection: it has locks, prepared statements and settings. So a pooler must work in session
//! mode and reset a session before it gives it to the next client.

use std::time::Duration;

use deadpool_postgres::Connect;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};

use super::hosts::Hosts;
use super::{PostgresTls, Role, redacted, settings_of};

/// The compiler of plans costs up to a second for a statement that runs in a millisecond, and is on by default.
const PLANS: &str = "SET jit = off;";

/// The price of a random read on a solid-state disk. The default is that of a spinning disk, at which a page of a long list
/// reads a table from end to end instead of an index.
const RANDOM_READS: &str = "SET random_page_cost = 1.1;";

/// Settings for a session whose statements find a few rows by their keys. They make the planner use the index even while
/// tables are small and their statistics are old, and plan each statement once. Citus must know the partition when it
/// plans, and then keeps the plan of its node.
pub(crate) const BY_KEYS: &str = "\
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT set_config('plan_cache_mode', CASE WHEN to_regclass('pg_catalog.pg_dist_partition') IS NULL
    THEN 'force_generic_plan' ELSE 'auto' END, false);";

/// TCP keepalives. With them, Postgres frees the locks of a client whose machine is gone within half a minute; by
/// default that takes two hours. They have no effect on a Unix socket.
const KEEPALIVES: &str =
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;";

/// A session that holds a lock is idle for most of its life.
const IDLE: &str = "SET idle_session_timeout = 0;";

/// Where names without a schema are looked up: among Postgres's own alone, after which come the session's temporary tables.
/// Otherwise a role that may create schemas could put functions in the way of a role with more rights.
const SEARCH_PATH: &str = "SET search_path = pg_catalog, pg_temp;";

/// Without it a backslash in the text of a statement is an escape: a migration would store another expression.
const PLAIN_STRINGS: &str = "SET standard_conforming_strings = on;";

/// The time zone of the server or of the login has no effect: a day is 24 hours, and times have one text.
const TIME_ZONE: &str = "SET TimeZone = 'UTC';";

/// The mark that a connection leaves in its session. `DISCARD ALL`, with which a pooler resets a session, removes it.
const MARK: &str = "farthing.session";

/// Refuses a session that has the mark of another connection.
const REFUSE_USED: &str = "\
DO $$ BEGIN
    IF coalesce(pg_catalog.current_setting('farthing.session', true), '') <> '' THEN
        RAISE EXCEPTION 'the session was not reset after another connection of Farthing, or belongs to it: a pooler of \
connections must work in session mode, with server_reset_query = DISCARD ALL'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;";

/// The mark of this session, if it has one.
const READ_MARK: &str = "SELECT pg_catalog.current_setting('farthing.session', true)";

/// How long the check of the sessions may take. A pooler lets a client wait whose pool is full.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the sessions of a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// Postgres, or the pooler before it.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] Error),
    /// A pooler gives a session to several connections.
    #[error(
        "several connections share a session: the pooler before Postgres works in transaction or statement mode. Farthing \
         needs session mode, because it holds locks of sessions, prepares statements and sets its role by session"
    )]
    Shared,
    /// The second connection waits.
    #[error(
        "two connections at once are not served in time: is the pool of the pooler before Postgres too small?"
    )]
    Timeout,
}

/// Opens sessions of one kind: under one role, with the same settings.
#[derive(Debug, Clone)]
pub struct Sessions {
    hosts: Hosts,
    tls: PostgresTls,
    /// The statements that a session begins with. They are one message.
    begin: String,
}

impl Sessions {
    /// Sessions of the database under `role`.
    pub fn of(database_url: &str, role: Role) -> Result<Self, Error> {
        let (mut config, tls) = settings_of(database_url)?;
        let begin = beginning(role, config.get_options().unwrap_or_default());
        if let Some(role) = role.name() {
            config.application_name(role);
        }
        Ok(Self { hosts: Hosts::of(&config), tls, begin })
    }

    /// The same, with a further setting (`name = value`).
    #[must_use]
    pub fn with(mut self, setting: &str) -> Self {
        self.begin = format!("{} SET {setting};", self.begin);
        self
    }

    /// The same, for statements that find a few rows by their keys.
    #[must_use]
    pub fn by_keys(mut self) -> Self {
        self.begin = format!("{} {BY_KEYS}", self.begin);
        self
    }

    /// Opens a session. The task drives its connection.
    ///
    /// Few join the task, as tokio-postgres intends: it ends when the client is dropped, after it has sent the
    /// statements still queued and closed the session, or when the server goes away. Aborting it with the client would lose
    /// those statements, such as the rollback of a dropped transaction.
    pub(crate) async fn open(&self) -> Result<(Client, JoinHandle<()>), Error> {
        self.hosts.open(&self.tls, &self.begin).await
    }
}

/// For pools.
impl Connect for Sessions {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        Box::pin(self.open())
    }
}

/// Looks that a session belongs to one connection. Of two connections at once, each marks its session and finds its own
/// mark there; in the other modes of a pooler one finds the other's, or none.
pub async fn check_sessions(database_url: &str) -> Result<(), SessionsError> {
    let check = async {
        let (config, tls) = settings_of(database_url)?;
        let hosts = Hosts::of(&config);
        let (first, _) = hosts.open(&tls, &mark("first")).await?;
        let (second, _) = hosts.open(&tls, "").await?;
        let is_shared = are_shared(&first, &second).await?;
        for client in [&first, &second] {
            client.batch_execute(&format!("RESET {MARK}")).await?;
        }
        if is_shared { Err(SessionsError::Shared) } else { Ok(()) }
    };
    tokio::time::timeout(CHECK_TIMEOUT, check).await.unwrap_or(Err(SessionsError::Timeout))
}

/// Whether the connections, of which the first has marked its session, share sessions.
async fn are_shared(first: &Client, second: &Client) -> Result<bool, Error> {
    if !read_mark(second).await?.is_empty() {
        return Ok(true);
    }
    second.batch_execute(&mark("second")).await?;
    // Also in transaction mode a transaction has a session of its own: the first connection has another one meanwhile.
    second.batch_execute("BEGIN").await?;
    let marks = (read_mark(first).await?, read_mark(second).await?);
    second.batch_execute("COMMIT").await?;
    Ok(marks != ("first".to_owned(), "second".to_owned()))
}

/// The statements that a session under `role` begins with. `given` are options of the URL, which come before ours only
/// for what is a matter of taste.
fn beginning(role: Role, given: &str) -> String {
    let plans = if given.contains("jit") { "" } else { PLANS };
    let reads = if given.contains("random_page_cost") { "" } else { RANDOM_READS };
    let name = role.name().unwrap_or("login");
    let role = role.name().map(|role| format!("SET ROLE {role};")).unwrap_or_default();
    // The path comes first: what follows names functions and operators.
    format!(
        "{SEARCH_PATH} {PLAIN_STRINGS} {TIME_ZONE} {REFUSE_USED} {plans} {reads} {KEEPALIVES} {IDLE} {role} {}",
        mark(name)
    )
}

fn mark(name: &str) -> String {
    format!("SET {MARK} = '{name}';")
}

async fn read_mark(client: &Client) -> Result<String, Error> {
    let rows = client.simple_query(READ_MARK).await?;
    let mark = rows.iter().find_map(|row| match row {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(mark.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_its_role_and_nobody_elses_path_whatever_the_url_says() {
        let url = "postgres://u@h/d?options=-c%20search_path%3Devil%20-c%20role%3Downer";
        for (role, sets_role) in [(Role::Owner, None), (Role::Gateway, Some("SET ROLE farthing_gateway;"))] {
            let sessions = Sessions::of(url, role).unwrap().with("statement_timeout = '5s'");
            let begin = &sessions.begin;
            assert!(begin.starts_with(SEARCH_PATH) && begin.contains(TIME_ZONE), "{begin}");
            assert_eq!(begin.contains("SET ROLE"), sets_role.is_some(), "{begin}");
            assert!(sets_role.is_none_or(|set| begin.contains(set)), "{begin}");
            assert!(begin.contains(PLANS) && begin.ends_with(" SET statement_timeout = '5s';"), "{begin}");
        }
    }

    #[test]
    fn the_compiler_of_plans_is_off_unless_the_url_says_otherwise() {
        assert!(!beginning(Role::Owner, "-c jit=on").contains("jit"));
        assert!(beginning(Role::Owner, "-c lock_timeout=1s").contains("SET jit = off;"));
        assert!(!beginning(Role::Owner, "-c random_page_cost=4").contains("random_page_cost"));
        assert!(beginning(Role::Owner, "-c jit=on").contains(RANDOM_READS));
    }
}
