//! Operator commands of a careless operator: another instance's key, commands at the same time or killed, results that
//! cannot be shown.

use std::fs::{File, OpenOptions};
use std::process::{Output, Stdio};

use farthing_tests::client::Request;
use farthing_tests::instance::{Instance, program};
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::tenant::Tenant;
use tokio::process::Command;

/// A key that no instance has.
const ANOTHER_KEY: &str = "abababababababababababababababababababababababababababababababab";

fn command(database_url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(arguments)
        .env("FARTHING_DATABASE_URL", database_url)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn output(database_url: &str, arguments: &[&str]) -> Output {
    command(database_url, arguments).output().await.unwrap()
}

/// The error of a command that must fail with this exit code and print nothing else.
async fn refused(database_url: &str, arguments: &[&str], code: i32) -> String {
    let output = output(database_url, arguments).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

/// The end of a command with its stdout in `file`.
async fn written_to(file: File, mut command: Command) -> Output {
    command.stdout(file).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().await.unwrap()
}

#[test]
fn another_instances_key_leads_nothing_and_issues_nothing() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "another_key", "test").await;
        let url = &tenant.database_url;
        let before = tenant.events().await.len();
        let file = instance.secret_file(ANOTHER_KEY);
        let key = ["--server-key-file", &file];
        let issue = ["key", "issue", "--merchant", &tenant.id];
        let credit = ["wallet", "credit", "--merchant", &tenant.id, "--amount", "1", "--reason", "r"];
        let create = ["merchant", "create"];
        let migrate = ["migrate", "--mode", "test"];
        let gateway = ["gateway", "--listen", "127.0.0.1:0"];
        let commands: [&[&str]; 5] = [&issue, &credit, &create, &migrate, &gateway];
        for arguments in commands {
            let error = refused(url, &[arguments, &key].concat(), 1).await;
            assert!(error.contains("the server key is not the one of this instance"), "{error}");
            assert!(!error.contains(&ANOTHER_KEY[..8]), "{error}");
        }
        assert_eq!(tenant.events().await.len(), before);
        let right: String =
            tenant.log.sql.query_one("SELECT server_key FROM ledger.instance", &[]).await.unwrap().get(0);
        let right = instance.secret_file(&right);
        operate(url, &[&credit[..], &["--server-key-file", &right]].concat()).await;
        let running = tenant.gateway(instance).await;
        refused(url, &[&gateway[..], &key].concat(), 1).await;
        tenant.rest(running.address, Request::new("GET", "/v1/wallet")).await.expect(200);
    });
}

#[test]
fn the_first_use_of_a_key_fixes_it() {
    run(async {
        let instance = Instance::shared().await;
        // A key from outside, which is not in the database.
        let url = instance.create_database("key_from_outside").await;
        operate(&url, &["migrate", "--mode", "test"]).await;
        let flags = ["--server-key-file", &instance.secret_file(ANOTHER_KEY)];
        let create = [&["merchant", "create"][..], &flags].concat();
        operate(&url, &create).await;
        operate(&url, &create).await;
        let error = refused(&url, &["merchant", "create"], 1).await;
        assert!(error.contains("the server key is not the one of this instance"), "{error}");
        // The mark of an instance that an earlier release has used is left by a gateway alone.
        let log = farthing_tests::log::Log::open(&url).await;
        log.sql.batch_execute("DELETE FROM ledger.server_key_mark").await.unwrap();
        operate(&url, &create).await;
        let marks = "SELECT count(*) FROM ledger.server_key_mark";
        assert_eq!(log.sql.query_one(marks, &[]).await.unwrap().get::<_, i64>(0), 0);
        let gateway = farthing_tests::side_gateway::SideGateway::on(instance, &url, &flags).await;
        assert_eq!(log.sql.query_one(marks, &[]).await.unwrap().get::<_, i64>(0), 1);
        drop(gateway);
        refused(&url, &["merchant", "create"], 1).await;
    });
}

#[test]
fn a_command_whose_result_cannot_be_shown_says_that_it_was_done() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "full_disk", "test").await;
        let further = operate(&tenant.database_url, &["key", "issue", "--merchant", &tenant.id]).await;
        let further = further["secret_key_id"].as_str().unwrap();
        let commands: [(&[&str], &str); 4] = [
            (
                &["wallet", "credit", "--merchant", &tenant.id, "--amount", "1.5", "--reason", "r"],
                "was credited with 1.5",
            ),
            (&["merchant", "create"], "was created; its key key_"),
            (&["key", "issue", "--merchant", &tenant.id], "was issued"),
            (&["key", "revoke", further], "was revoked"),
        ];
        for (arguments, done) in commands {
            let before = tenant.log.head().await;
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = written_to(full, command(&tenant.database_url, arguments)).await;
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(error.contains(done) && error.contains("the result cannot be shown"), "{error}");
            assert!(!error.contains("aks_"), "{error}");
            assert!(tenant.log.head().await > before, "{arguments:?}");
        }
        // A list that nobody reads to its end.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let list = written_to(full, command(&tenant.database_url, &["merchant", "list"])).await;
        assert!(String::from_utf8_lossy(&list.stderr).contains("cannot write to stdout"));
    });
}

#[test]
fn commands_at_the_same_time_and_killed_ones_leave_nothing_half_done() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "half_done", "test").await;
        let url = &tenant.database_url;
        // No gateway runs: each command leads the partition in turn.
        let credit =
            ["wallet", "credit", "--merchant", &tenant.id, "--amount", "1", "--reason", "r", "--json"];
        let at_once: Vec<_> = (0..4).map(|_| output(url, &credit)).collect();
        let mut balances: Vec<String> = Vec::new();
        for credited in futures_util::future::join_all(at_once).await {
            assert!(credited.status.success(), "{}", String::from_utf8_lossy(&credited.stderr));
            let credited: serde_json::Value = serde_json::from_slice(&credited.stdout).unwrap();
            balances.push(credited["balance"].as_str().unwrap().to_owned());
        }
        balances.sort();
        assert_eq!(balances, ["1.0000000000", "2.0000000000", "3.0000000000", "4.0000000000"]);
        // Killed once the command has got so far: before, while and after it leads.
        for events in ["0", "0", "1", "1"] {
            let before = tenant.log.head().await;
            let mut killed = command(url, &credit).spawn().unwrap();
            if events == "1" {
                farthing_tests::wait::eventually("the credit is appended", async || {
                    (tenant.log.head().await > before).then_some(())
                })
                .await;
            }
            killed.kill().await.unwrap();
        }
        operate(url, &credit[..credit.len() - 1]).await;
        let credits = tenant.of_kind("wallet.credited").await.len();
        let verified = operate(url, &["log", "verify"]).await;
        assert_eq!(verified["ok"], true, "{verified}");
        assert_eq!(verified["balances"], format!("{credits}.0000000000"), "{verified}");
        // Migrations at the same time, of a database that needs none.
        let migrate = ["migrate", "--mode", "test"];
        for migrated in futures_util::future::join_all((0..3).map(|_| output(url, &migrate))).await {
            assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
        }
        let error = refused(url, &["migrate", "--mode", "live"], 1).await;
        assert!(error.contains("the mode cannot be changed"), "{error}");
        let error = refused(url, &["migrate", "--mode", "test", "--partitions", "3"], 1).await;
        assert!(error.contains("their number cannot be changed"), "{error}");
    });
}

#[test]
fn a_migration_that_is_killed_is_finished_by_the_next() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.create_database("killed_migration").await;
        let sql = farthing_tests::log::Log::open(&url).await.sql;
        let migrate = ["migrate", "--mode", "test"];
        for applied in 0..4_i64 {
            let mut killed = command(&url, &migrate).stdout(Stdio::null()).spawn().unwrap();
            farthing_tests::wait::eventually("some migrations are applied", async || {
                let exists = "SELECT to_regclass('public.refinery_schema_history') IS NOT NULL";
                let exists: bool = sql.query_one(exists, &[]).await.unwrap().get(0);
                let count = "SELECT count(*) FROM public.refinery_schema_history";
                let count: i64 = if exists { sql.query_one(count, &[]).await.unwrap().get(0) } else { 0 };
                (count >= applied).then_some(())
            })
            .await;
            killed.kill().await.unwrap();
        }
        operate(&url, &migrate).await;
        operate(&url, &["merchant", "create"]).await;
        assert_eq!(operate(&url, &["log", "verify"]).await["ok"], true);
    });
}

#[test]
fn commands_on_a_database_without_a_ledger_say_what_to_do_and_show_no_secret() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.create_database("not_a_ledger").await;
        let merchant = "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let commands: [&[&str]; 10] = [
            &["merchant", "create"],
            &["merchant", "list"],
            &["key", "issue", "--merchant", merchant],
            &["key", "list", "--merchant", merchant],
            &["key", "revoke", "key_01ARZ3NDEKTSV4RRFFQ69G5FAV"],
            &["wallet", "credit", "--merchant", merchant, "--amount", "1", "--reason", "r"],
            &["log", "verify"],
            &["partitions"],
            &["projections", "verify", "usage"],
            &["prune"],
        ];
        let (login, _) = url.split_once('@').unwrap();
        let (_, password) = login.rsplit_once(':').unwrap();
        for arguments in commands {
            // Those that judge the ledger end with 1 if it is broken.
            let code = if ["log", "projections"].contains(&arguments[0]) { 2 } else { 1 };
            let error = refused(&url, arguments, code).await;
            assert!(error.contains("farthing migrate"), "{arguments:?}: {error}");
            assert!(!error.contains(password), "{arguments:?}: {error}");
        }
        for unreachable in
            ["postgres://u:pass_word@127.0.0.1:1/x", "postgres://u:pass_word@127.0.0.1:99999/x", "pass_word"]
        {
            let error = refused(unreachable, &["merchant", "list"], 1).await;
            assert!(!error.contains("pass_word"), "{error}");
        }
    });
}
