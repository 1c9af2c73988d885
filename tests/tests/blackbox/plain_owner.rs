//! A database whose owner is no superuser, as a managed Postgres has it: the owner migrates and operates, and each process has
//! a login of its own.

use std::process::Stdio;

use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Log;
use farthing_tests::postgres_server::PostgresServer;
use farthing_tests::run;
use farthing_tests::scrape::get;
use farthing_tests::scratch::operate;
use farthing_tests::shop::Shop;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::eventually_ok;

/// What an administrator gives an owner who may create roles.
const OWNER: &str = "\
CREATE ROLE app_owner LOGIN CREATEROLE PASSWORD 'of-the-owner';
CREATE DATABASE app OWNER app_owner TEMPLATE template0 ENCODING 'UTF8'";

/// And one who may not: then the administrator creates the roles and the logins.
const OTHER_OWNER: &str = "\
CREATE ROLE other_owner LOGIN PASSWORD 'of-the-owner';
CREATE DATABASE other OWNER other_owner TEMPLATE template0 ENCODING 'UTF8';
GRANT farthing_gateway, farthing_projector TO other_owner WITH ADMIN OPTION";

/// The logins of processes.
const LOGINS: &str = "\
CREATE ROLE app_gateway LOGIN PASSWORD 'of-a-process';
CREATE ROLE app_projector LOGIN PASSWORD 'of-a-process';
GRANT farthing_gateway TO app_gateway;
GRANT farthing_projector TO app_projector";

/// The owners, the logins and the roles, with what none of them may be.
const ATTRIBUTES: &str = "\
SELECT rolname::text, rolsuper OR rolreplication OR rolbypassrls OR rolcreatedb FROM pg_roles
WHERE rolname ~ '^(app|other|farthing)_' ORDER BY 1";

const ROLES: [&str; 6] =
    ["app_gateway", "app_owner", "app_projector", "farthing_gateway", "farthing_projector", "other_owner"];

/// Runs several statements one after the other: a database is created outside of a transaction.
async fn each(log: &Log, statements: &str) {
    for statement in statements.split(';') {
        log.sql.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
}

/// A call is charged and shown, and what the owner does from day to day works.
async fn works(instance: &Instance, server: &str, database: &str, owner: &str) {
    let url = |login: &str, password: &str| format!("postgres://{login}:{password}@{server}/{database}");
    let of_owner = url(owner, "of-the-owner");
    let (of_gateway, of_projector) =
        (url("app_gateway", "of-a-process"), url("app_projector", "of-a-process"));
    let projector = SideProjector::on(instance, &of_projector).await;
    let flags = ["--allow-address=127.0.0.0/8", "--webhook-timeout-seconds=9"];
    let gateway = SideGateway::with(instance, &["--database-url", &of_gateway], &flags).await;
    let shop = Shop::open(instance, &of_owner, gateway.address).await;
    let called = shop.call(gateway.address).await.unwrap();
    assert_eq!(called.status, 200, "{}", called.text());
    shop.is_charged(gateway.address, &called.request_id()).await;
    eventually_ok("the projector is ready", async || {
        let ready = get(projector.operator, "/readyz").await;
        if ready.status == 200 { Ok(()) } else { Err(ready.text()) }
    })
    .await;
    assert!(!gateway.logged().contains("permission denied"), "{}", gateway.logged());
    assert!(!projector.logged().contains("permission denied"), "{}", projector.logged());

    for command in [
        &["partitions"][..],
        &["merchant", "list"],
        &["log", "verify"],
        &["audit", "verify"],
        &["audit", "trial-balance"],
        &["projections", "verify", "requests"],
        &["projections", "rebuild", "requests"],
    ] {
        succeeds(&of_owner, command).await;
    }
    for (login, url) in
        [("the owner", &of_owner), ("the gateway", &of_gateway), ("the projector", &of_projector)]
    {
        let report = doctor(url).await;
        let checks = report["checks"].as_array().unwrap();
        let wrong = checks.iter().filter(|check| {
            let name = check["check"].as_str().unwrap();
            name.starts_with("rights.") || name.starts_with("database.")
        });
        let wrong: Vec<_> =
            wrong.filter(|check| check["verdict"] == "failed" || check["verdict"] == "warning").collect();
        assert!(wrong.is_empty(), "{login}: {wrong:?}");
    }
    drop((gateway, projector));
    // As with the next release.
    operate(&of_owner, &["migrate", "--mode", "test"]).await;
    succeeds(&of_owner, &["prune"]).await;
}

/// Runs a command of the owner's.
async fn succeeds(database_url: &str, command: &[&str]) {
    let mut process = tokio::process::Command::new(program());
    process.args(command).args(["--database-url", database_url]).stdin(Stdio::null());
    let ended = process.output().await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&ended.stdout));
}

async fn doctor(database_url: &str) -> serde_json::Value {
    let mut process = tokio::process::Command::new(program());
    process.args(["doctor", "--json", "--database-url", database_url]).stdin(Stdio::null());
    serde_json::from_slice(&process.output().await.unwrap().stdout).unwrap()
}

/// Migrates and serves two databases, of an owner who may create roles and of one who may not.
async fn serve(instance: &Instance, postgres: &PostgresServer) {
    let administrator = Log::open(&postgres.database_url).await;
    each(&administrator, OWNER).await;
    let (_, server) = postgres.database_url.split_once('@').unwrap();
    let (server, _) = server.split_once('/').unwrap();
    let of_owner = format!("postgres://app_owner:of-the-owner@{server}/app");
    operate(&of_owner, &["migrate", "--mode", "test", "--partitions", "2"]).await;
    each(&Log::open(&of_owner).await, LOGINS).await;
    works(instance, server, "app", "app_owner").await;

    each(&administrator, OTHER_OWNER).await;
    let of_other = format!("postgres://other_owner:of-the-owner@{server}/other");
    operate(&of_other, &["migrate", "--mode", "test", "--partitions", "2"]).await;
    works(instance, server, "other", "other_owner").await;

    let roles = administrator.sql.query(ATTRIBUTES, &[]).await.unwrap();
    let roles: Vec<(String, bool)> = roles.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(roles, ROLES.map(|role| (role.to_owned(), false)));
}

#[test]
fn an_owner_who_is_no_superuser_migrates_operates_and_serves() {
    run(async {
        let instance = Instance::shared().await;
        let Some(postgres) = PostgresServer::start(instance).await else { return };
        serve(instance, &postgres).await;
    });
}

#[test]
fn so_does_one_on_the_newest_release_where_a_member_needs_more_to_act_as_a_role() {
    run(async {
        let instance = Instance::shared().await;
        let Some(postgres) = PostgresServer::start_release(instance, "18").await else { return };
        serve(instance, &postgres).await;
    });
}
