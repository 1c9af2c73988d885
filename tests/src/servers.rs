//! The servers of an instance: its own, which `farthing dev` starts, or ones that somebody else has started
//! (`FARTHING_TEST_DATABASE_URL`, `FARTHING_TEST_NATS_URL`). On the latter each instance has databases, roles, streams and
//! subjects whose names begin with its own.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use async_nats::jetstream;
use futures_util::TryStreamExt as _;

use crate::instance::nats;
use crate::left_out_on_given_servers;
use crate::log::Log;

/// The variable with the login at a Postgres server that may create databases and roles. The host is an IP address.
pub const DATABASE_URL: &str = "FARTHING_TEST_DATABASE_URL";
/// The variable with the URLs of NATS servers with JetStream.
pub const NATS_URL: &str = "FARTHING_TEST_NATS_URL";

/// The databases of an instance.
const DATABASES: &str = "\
SELECT quote_ident(datname) FROM pg_database WHERE datname = $1 OR starts_with(datname, $1 || '_')";
/// The roles that its tests have created.
const ROLES: &str = "SELECT quote_ident(rolname) FROM pg_roles WHERE starts_with(rolname, $1 || '_')";

/// The Postgres server that was given.
fn given_database() -> Option<String> {
    std::env::var(DATABASE_URL).ok().filter(|url| !url.is_empty())
}

/// The NATS servers that were given.
fn given_nats() -> Option<String> {
    std::env::var(NATS_URL).ok().filter(|url| !url.is_empty())
}

/// Whether instances have a Postgres of their own. If not, this says that the test is left out because it needs one.
pub fn has_own_postgres(why: &str) -> bool {
    is_own(given_database().as_ref(), "Postgres", why)
}

/// Whether instances have a NATS server of their own. If not, this says that the test is left out because it needs one.
pub fn has_own_nats(why: &str) -> bool {
    is_own(given_nats().as_ref(), "NATS", why)
}

fn is_own(given: Option<&String>, server: &str, why: &str) -> bool {
    if given.is_some() {
        left_out_on_given_servers(&format!("{why}, and {server} was given"));
    }
    given.is_none()
}

/// The variables and flags that make `farthing dev` use the given servers for the instance `name`. Its database is created
/// if it does not exist.
pub(crate) async fn of_instance(name: &str) -> (Vec<(&'static str, String)>, Vec<String>) {
    let (mut variables, mut flags) = (Vec::new(), Vec::new());
    if let Some(server) = given_database() {
        let log = Log::open(&server).await;
        let exists = log.sql.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name]).await;
        if exists.expect("databases can be listed").is_none() {
            create_database(&log, name).await;
        }
        variables.push(("FARTHING_DEV_DATABASE_URL", with_database(&server, name)));
    }
    if let Some(nats_url) = given_nats() {
        variables.push(("FARTHING_DEV_NATS_URL", nats_url));
        flags.push(format!("--nats-prefix={name}"));
    }
    (variables, flags)
}

/// Creates a database. Postgres refuses while another session uses the template, and copies one template at a time.
pub(crate) async fn create_database(server: &Log, name: &str) {
    server.sql.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database can be made");
}

/// The URL of another database of the same server.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    assert!(!url.contains('?'), "the URL of a test's database has no parameters");
    let (server, _) = url.rsplit_once('/').expect("a database URL names its database");
    format!("{server}/{name}")
}

/// The program that removes an instance from the given servers, if any were given.
pub(crate) fn remover() -> Option<PathBuf> {
    given_database().or_else(given_nats)?;
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.ancestors().skip(1).find(|folder| folder.join("remove_instance").is_file());
    let folder = folder.expect("remove_instance is missing: run `cargo build -p farthing-tests` first");
    Some(folder.join("remove_instance"))
}

/// Removes an instance from the given servers, in a process of its own.
pub(crate) fn remove(name: &str) {
    let Some(remover) = remover() else { return };
    let ended = Command::new(remover).arg(name).stdin(Stdio::null()).status();
    if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
        let _ = writeln!(std::io::stderr(), "{name} was not removed from the servers: {ended:?}");
    }
}

/// Whether the server was built with lz4.
pub async fn has_lz4(log: &Log) -> bool {
    let methods = "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'";
    log.sql.query_one(methods, &[]).await.expect("a setting of every server").get(0)
}

/// Drops what an instance has left on the given servers: its databases, roles and streams.
pub async fn drop_all_of(name: &str) {
    assert!(name.starts_with("farthing_test_"), "{name} is no instance of a test");
    if let Some(server) = given_database() {
        let sql = Log::open(&server).await.sql;
        for database in sql.query(DATABASES, &[&name]).await.expect("databases can be listed") {
            let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", database.get::<_, String>(0));
            sql.batch_execute(&drop).await.expect("a database can be dropped");
        }
        for role in sql.query(ROLES, &[&name]).await.expect("roles can be listed") {
            let drop = format!("DROP ROLE IF EXISTS {}", role.get::<_, String>(0));
            sql.batch_execute(&drop).await.expect("a role can be dropped");
        }
    }
    if let Some(urls) = given_nats() {
        let context = jetstream::new(nats(&urls).await.expect("NATS can be reached"));
        let streams: Vec<String> = context.stream_names().try_collect().await.expect("streams can be listed");
        let is_its =
            |stream: &&String| stream.strip_prefix(name).is_some_and(|rest| rest.starts_with(['-', '_']));
        for stream in streams.iter().filter(is_its) {
            context.delete_stream(stream).await.expect("a stream can be deleted");
        }
    }
}
