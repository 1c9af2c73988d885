//! The commands that judge the ledger have one rule for their exit codes: 0, all is sound; 1, something is wrong with the log or
//! differs; 2, the command could not run; 3, it could not look at everything.

use std::process::{Output, Stdio};

use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use serde_json::json;

const NOWHERE: &str = "postgres://nobody@127.0.0.1:1/nothing";

/// Ids that no ledger has.
const NO_WALLET: &str = "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const NO_REQUEST: &str = "req_01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// What somebody with all rights on the database can change of the batch with position $2 of partition $1: its hashes no
/// longer follow, its time is one that no calendar has, the credits of 5 are so high that the wallet's balance is out of
/// range.
const TAMPERINGS: [&str; 3] = [
    "writer = writer || 'x'",
    "recorded_at = 'infinity'",
    "events = convert_to(replace(convert_from(events, 'UTF8'),
        '\"amount\":\"5.0000000000\"', '\"amount\":\"1000000000000.0000000000\"'), 'UTF8')",
];

/// The commands that read the whole log, or the partition of this wallet and this request.
fn readers<'a>(wallet: &'a str, request: &'a str, out: &'a str) -> [Vec<&'a str>; 8] {
    [
        vec!["audit", "verify", "--skip-read-tables"],
        vec!["audit", "trial-balance"],
        vec!["audit", "statement", "--wallet", wallet],
        vec!["audit", "explain", request],
        vec!["audit", "replay"],
        vec!["audit", "reconcile"],
        vec!["export", "--format", "csv", "--out", out],
        vec!["log", "verify"],
    ]
}

async fn ends(database_url: &str, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).args(["--database-url", database_url]).stdin(Stdio::null());
    command.output().await.unwrap()
}

/// Asserts the exit code of a command, and gives what it wrote to stderr.
async fn ends_with(code: i32, database_url: &str, arguments: &[&str]) -> String {
    let output = ends(database_url, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    // What could not run has no result.
    if code == 2 {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
    stderr
}

/// Asserts that figures from a log with errors say so themselves, since whoever files them sees neither stderr nor the exit code.
/// If the events can be read, there are figures.
async fn figures_are_marked(url: &str, wallet: &str, request: &str, are_readable: bool) {
    for command in [
        vec!["audit", "trial-balance"],
        vec!["audit", "trial-balance", "--csv"],
        vec!["audit", "statement", "--wallet", wallet],
        vec!["audit", "statement", "--wallet", wallet, "--csv"],
        vec!["audit", "statement", "--wallet", wallet, "--format", "html"],
        vec!["audit", "explain", request],
        vec!["audit", "replay"],
        vec!["audit", "replay", wallet],
        vec!["audit", "reconcile"],
    ] {
        let shown = String::from_utf8(ends(url, &command).await.stdout).unwrap();
        assert!(!are_readable || !shown.is_empty(), "{command:?}");
        let is_marked = shown.is_empty() || shown.to_lowercase().contains("the log has errors: ");
        assert!(is_marked && !shown.contains("\nverified"), "{command:?}: {shown}");
    }
}

#[test]
fn a_command_without_its_database_or_with_bad_arguments_ends_with_2() {
    run(async {
        let folder = std::env::temp_dir().join(format!("farthing-exit-codes-{}", std::process::id()));
        let (out, archive) = (folder.to_str().unwrap(), format!("file://{}", folder.to_str().unwrap()));
        let others = [
            vec!["audit", "head", "--append", out],
            vec!["archive", "create", "--archive", &archive],
            vec!["archive", "list", "--archive", &archive],
            vec!["archive", "verify", "--archive", &archive],
            vec!["archive", "restore", "--partition", "0", "--archive", &archive],
            vec!["projections", "verify", "requests"],
            vec!["projections", "rebuild", "requests"],
        ];
        for command in readers(NO_WALLET, NO_REQUEST, out).into_iter().chain(others) {
            let stderr = ends_with(2, NOWHERE, &command).await;
            assert!(stderr.contains("cannot connect to the database"), "{command:?}: {stderr}");
            ends_with(2, NOWHERE, &[&command[..], &["--no-such-flag"]].concat()).await;
        }
        assert!(!folder.exists(), "nothing was written");
    });
}

#[test]
fn a_sound_log_ends_with_0_a_broken_one_with_1_what_is_refused_with_2_and_an_incomplete_audit_with_3() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("6").await;
        merchant.credit_own("5").await;
        let (customer, meter) = (merchant.customer("5").await, merchant.call_meter("0.1").await);
        let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})));
        let response = merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await;
        let request = response.request_id();
        merchant.shown(&request, "completed").await;
        let (log, url) = (instance.log().await, instance.ready().database_url);
        let file = |name: &str| instance.file(name).into_os_string().into_string().unwrap();
        let (sound, refused, broken) = (file("sound"), file("refused"), file("broken"));

        for command in readers(&merchant.wallet_id, &request, &sound) {
            ends_with(0, &url, &command).await;
        }
        for (command, why) in [
            (vec!["audit", "statement", "--wallet", NO_WALLET], "names the wallet"),
            (vec!["audit", "explain", NO_REQUEST], "names the request"),
            (vec!["audit", "replay", NO_WALLET], "names wal_"),
            (vec!["audit", "trial-balance", "--at", "999:1"], "no partition 999"),
            (vec!["export", "--format", "csv", "--out", &sound], "exists already"),
            (vec!["export", "--format", "csv", "--out", &refused, "--partition", "999"], "no partition 999"),
            (vec!["projections", "verify", "nothing"], "no read model"),
        ] {
            let stderr = ends_with(2, &url, &command).await;
            assert!(stderr.contains(why), "{command:?}: {stderr}");
        }

        // The leader seems to keep the states of another release: those that are stored are not compared.
        let generation = "UPDATE ledger.heads SET generation = generation + $1";
        let hide = "UPDATE ledger.checkpoints SET generation = generation + $1";
        for (by, code) in [(50_i16, 3), (-50, 0)] {
            for sql in [generation, hide] {
                log.sql.execute(sql, &[&by]).await.unwrap();
            }
            ends_with(code, &url, &["audit", "verify"]).await;
        }

        let (model, wallets) = (["projections", "verify", "connections"], "connections.wallets");
        ends_with(0, &url, &model).await;
        let richer = format!("UPDATE {wallets} SET balance = balance + 1 WHERE wallet_id = $1");
        assert_eq!(log.sql.execute(&richer, &[&merchant.wallet_id]).await.unwrap(), 1);
        ends_with(1, &url, &model).await;

        let (partition, credited) = (merchant.partition().await, merchant.of_kind("wallet.credited").await);
        let credited = credited.iter().find(|event| event.body["amount"] == "5.0000000000").unwrap();
        log.sql.batch_execute("ALTER TABLE ledger.batches DISABLE TRIGGER ALL").await.unwrap();
        log.sql.batch_execute("CREATE TABLE untouched AS TABLE ledger.batches").await.unwrap();
        for tampering in TAMPERINGS {
            let tamper = format!(
                "UPDATE ledger.batches SET {tampering} \
                 WHERE partition = $1 AND first_position <= $2 AND first_position + count > $2"
            );
            let restore = "TRUNCATE ledger.batches; INSERT INTO ledger.batches TABLE untouched";
            log.sql.batch_execute(restore).await.unwrap();
            assert_eq!(log.sql.execute(&tamper, &[&partition, &credited.position]).await.unwrap(), 1);
            for command in readers(&merchant.wallet_id, &request, &broken) {
                ends_with(1, &url, &command).await;
            }
            figures_are_marked(&url, &merchant.wallet_id, &request, tampering == TAMPERINGS[0]).await;
            assert!(!instance.file("broken").exists(), "nothing is exported");
        }
        // In a log with errors, the events of what is unknown may have been removed.
        for command in [
            vec!["audit", "statement", "--wallet", NO_WALLET],
            vec!["audit", "explain", NO_REQUEST],
            vec!["audit", "replay", NO_WALLET],
        ] {
            let stderr = ends_with(1, &url, &command).await;
            assert!(
                stderr.contains("names") && stderr.contains("the hash does not follow"),
                "{command:?}: {stderr}"
            );
        }
        // What cannot run ends with 2 on such a log, too.
        ends_with(2, &url, &["audit", "trial-balance", "--at", "999:1"]).await;
    });
}
