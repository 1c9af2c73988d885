//! The Postgres server and its settings: those of the server, of the database and of logins.

use anyhow::Result;
use farthing_schema::OLDEST_POSTGRES;

use super::finding::Finding;
use super::session::Session;

const VERSION: &str = "\
SELECT current_setting('server_version_num')::integer, current_setting('server_version'), pg_is_in_recovery(),
       current_setting('server_encoding')";

/// The settings $1 as a new session has them: those of the server, under those of the database and of the login.
const SETTINGS: &str =
    "SELECT name, concat(reset_val, unit) FROM pg_settings WHERE name = ANY($1::text[]) ORDER BY name";

/// What was set for this database, or for logins, as `name=value`.
const OVERRIDES: &str = "\
SELECT r.rolname::text, entry
FROM pg_db_role_setting AS s
LEFT JOIN pg_roles AS r ON r.oid = s.setrole
CROSS JOIN LATERAL unnest(s.setconfig) AS entry
WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
ORDER BY 1 NULLS FIRST, 2";

/// How the log compresses its events: `l` is lz4. No row if there is no log yet.
const COMPRESSION: &str = "\
SELECT attcompression::text FROM pg_attribute
WHERE attrelid = to_regclass('ledger.batches') AND attname = 'events'";

/// Settings without which a commit can be lost or torn.
const DURABILITY: [&str; 2] = ["fsync", "full_page_writes"];
/// What a transaction is by default. Farthing takes Postgres's own defaults for granted.
const TRANSACTIONS: [(&str, &str); 3] = [
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("session_replication_role", "origin"),
];
/// Settings that end a statement or a session of a process from outside.
const TIMEOUTS: [&str; 5] = [
    "statement_timeout",
    "lock_timeout",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
];
const AUTOVACUUM: [&str; 2] = ["autovacuum", "track_counts"];

/// The value of a setting, and for whom it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    name: String,
    value: String,
    /// The login that it was set for; `None` for all sessions of this database.
    login: Option<String>,
}

/// Checks the server.
pub(super) async fn check(session: &Session) -> Vec<Finding> {
    let mut findings = vec![
        session.check("postgres.version", version(session)).await,
        session.check("postgres.primary", primary(session)).await,
        session.check("postgres.encoding", encoding(session)).await,
    ];
    let settings = session.facts(settings(session)).await;
    let judge = |name: &'static str, verdict: fn(&[Setting]) -> Finding| match &settings {
        Ok(settings) => verdict(settings),
        Err(error) => Finding::failed(name, error.to_string(), "see the message, and the log of Postgres"),
    };
    findings.push(judge("postgres.durability", durability));
    findings.push(judge("postgres.transactions", transactions));
    findings.push(judge("postgres.timeouts", timeouts));
    findings.push(judge("postgres.autovacuum", autovacuum));
    findings.push(session.check("postgres.compression", compression(session)).await);
    findings
}

async fn version(session: &Session) -> Result<Finding> {
    let row = session.client.query_one(VERSION, &[]).await?;
    Ok(judge_version(row.try_get(0)?, row.try_get(1)?))
}

fn judge_version(number: i32, shown: &str) -> Finding {
    let found = format!("Postgres {shown}");
    if number < OLDEST_POSTGRES {
        return Finding::failed("postgres.version", found, "upgrade the server to Postgres 15 or newer");
    }
    Finding::ok("postgres.version", found)
}

async fn primary(session: &Session) -> Result<Finding> {
    let is_standby: bool = session.client.query_one(VERSION, &[]).await?.try_get(2)?;
    Ok(judge_primary(is_standby))
}

fn judge_primary(is_standby: bool) -> Finding {
    if is_standby {
        let advice = "give the URL of the primary; with several hosts, add `target_session_attrs=read-write`";
        return Finding::failed("postgres.primary", "the server is a standby: it takes no writes", advice);
    }
    Finding::ok("postgres.primary", "the server takes writes")
}

async fn encoding(session: &Session) -> Result<Finding> {
    let row = session.client.query_one(VERSION, &[]).await?;
    Ok(judge_encoding(row.try_get(3)?))
}

fn judge_encoding(encoding: &str) -> Finding {
    if encoding != "UTF8" {
        let advice = "create the database with `ENCODING 'UTF8' TEMPLATE template0`";
        return Finding::failed("postgres.encoding", format!("the database is in {encoding}"), advice);
    }
    Finding::ok("postgres.encoding", "the database is in UTF8")
}

async fn settings(session: &Session) -> Result<Vec<Setting>> {
    let names: Vec<&str> = names().collect();
    let mut settings = Vec::new();
    for row in session.client.query(SETTINGS, &[&names]).await? {
        settings.push(Setting { name: row.try_get(0)?, value: row.try_get(1)?, login: None });
    }
    for row in session.client.query(OVERRIDES, &[]).await? {
        let (login, entry): (Option<String>, String) = (row.try_get(0)?, row.try_get(1)?);
        let Some((name, value)) = entry.split_once('=') else { continue };
        let is_known = settings.iter().any(|known| {
            known.login.is_none() && known.name == name && (known.value == value || login.is_none())
        });
        if !is_known {
            settings.push(Setting { name: name.to_owned(), value: value.to_owned(), login });
        }
    }
    Ok(settings)
}

fn names() -> impl Iterator<Item = &'static str> {
    let transactions = TRANSACTIONS.iter().map(|(name, _)| *name);
    DURABILITY.into_iter().chain(transactions).chain(TIMEOUTS).chain(AUTOVACUUM)
}

/// The settings of these names that are `wrong`, for people; `None` if there are none.
fn wrong(settings: &[Setting], names: &[&str], wrong: impl Fn(&Setting) -> bool) -> Option<String> {
    let found = settings.iter().filter(|setting| names.contains(&setting.name.as_str()) && wrong(setting));
    let shown: Vec<String> = found
        .map(|Setting { name, value, login }| match login {
            Some(login) => format!("{name} is {value} for the login {login}"),
            None => format!("{name} is {value}"),
        })
        .collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn durability(settings: &[Setting]) -> Finding {
    let name = "postgres.durability";
    match wrong(settings, &DURABILITY, |setting| setting.value == "off") {
        Some(found) => {
            let advice = "switch it on: a crash of the server can lose or tear committed events";
            Finding::failed(name, found, advice)
        }
        // The leader of a partition sets `synchronous_commit` itself.
        None => Finding::ok(name, "fsync and full_page_writes are on"),
    }
}

fn transactions(settings: &[Setting]) -> Finding {
    let name = "postgres.transactions";
    let names = TRANSACTIONS.map(|(name, _)| name);
    let differs = |setting: &Setting| {
        let expected = TRANSACTIONS.iter().find(|(name, _)| *name == setting.name);
        expected.is_some_and(|(_, value)| setting.value != *value)
    };
    match wrong(settings, &names, differs) {
        Some(found) => {
            let advice =
                "reset it for the database and its logins (`ALTER DATABASE … RESET`, `ALTER ROLE … RESET`)";
            Finding::failed(name, found, advice)
        }
        None => Finding::ok(name, "transactions are read committed and may write"),
    }
}

fn timeouts(settings: &[Setting]) -> Finding {
    let name = "postgres.timeouts";
    match wrong(settings, &TIMEOUTS, |setting| !is_zero(&setting.value)) {
        Some(found) => {
            let advice = "reset it for the database and its logins: processes have their own, and migrations, rebuilds \
                          and idle leaders would be cut off";
            Finding::warning(name, found, advice)
        }
        None => Finding::ok(name, "no timeout is set from outside"),
    }
}

/// Whether a time is zero, with or without a unit.
fn is_zero(value: &str) -> bool {
    value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == ' ') == "0"
}

fn autovacuum(settings: &[Setting]) -> Finding {
    let name = "postgres.autovacuum";
    match wrong(settings, &AUTOVACUUM, |setting| setting.value == "off") {
        Some(found) => Finding::warning(
            name,
            found,
            "switch it on: tables of few rows that change often grow without it",
        ),
        None => Finding::ok(name, "autovacuum is on"),
    }
}

async fn compression(session: &Session) -> Result<Finding> {
    let name = "postgres.compression";
    let Some(row) = session.client.query_opt(COMPRESSION, &[]).await? else {
        return Ok(Finding::skipped(name, "there is no log yet"));
    };
    Ok(match row.try_get(0)? {
        "l" => Finding::ok(name, "the log is compressed with lz4"),
        _ => Finding::warning(
            name,
            "the log is not compressed with lz4",
            "use a server with lz4, then `ALTER TABLE ledger.batches ALTER COLUMN events SET COMPRESSION lz4`",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn setting(name: &str, value: &str) -> Setting {
        Setting { name: name.to_owned(), value: value.to_owned(), login: None }
    }

    #[test]
    fn the_version_the_role_and_the_encoding_of_the_server_count() {
        assert_eq!(judge_version(140_012, "14.12").verdict, Verdict::Failed);
        assert_eq!(judge_version(150_000, "15.0").verdict, Verdict::Ok);
        assert_eq!(judge_primary(true).verdict, Verdict::Failed);
        assert_eq!(judge_primary(false).verdict, Verdict::Ok);
        assert_eq!(judge_encoding("SQL_ASCII").verdict, Verdict::Failed);
        assert_eq!(judge_encoding("UTF8").verdict, Verdict::Ok);
    }

    #[test]
    fn defaults_are_right_and_each_setting_that_differs_is_named() {
        let defaults = [
            setting("fsync", "on"),
            setting("full_page_writes", "on"),
            setting("default_transaction_isolation", "read committed"),
            setting("default_transaction_read_only", "off"),
            setting("session_replication_role", "origin"),
            setting("statement_timeout", "0"),
            setting("autovacuum", "on"),
        ];
        for verdict in [durability, transactions, timeouts, autovacuum] {
            assert_eq!(verdict(&defaults).verdict, Verdict::Ok);
        }
        for (verdict, name, value, expected) in [
            (durability as fn(&[Setting]) -> Finding, "fsync", "off", Verdict::Failed),
            (durability, "full_page_writes", "off", Verdict::Failed),
            (transactions, "default_transaction_isolation", "serializable", Verdict::Failed),
            (transactions, "default_transaction_read_only", "on", Verdict::Failed),
            (timeouts, "statement_timeout", "30s", Verdict::Warning),
            (timeouts, "idle_session_timeout", "60000", Verdict::Warning),
            (autovacuum, "autovacuum", "off", Verdict::Warning),
        ] {
            let finding = verdict(&[setting(name, value)]);
            assert_eq!(finding.verdict, expected, "{name}");
            assert_eq!(finding.found, format!("{name} is {value}"));
        }
        let of_login = Setting { login: Some("ada".to_owned()), ..setting("lock_timeout", "1s") };
        assert_eq!(timeouts(&[of_login]).found, "lock_timeout is 1s for the login ada");
    }

    #[test]
    fn a_timeout_of_zero_is_none() {
        for zero in ["0", "0s", "0 ms"] {
            assert!(is_zero(zero), "{zero}");
        }
        for some in ["1", "10", "10s", "1min"] {
            assert!(!is_zero(some), "{some}");
        }
    }
}
