//! `farthing audit verify` and `audit head` on a running instance: parts of a log, published heads, and exit codes.

use std::collections::BTreeSet;
use std::path::Path;

use farthing_tests::instance::{Instance, program};
use farthing_tests::left_out;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::signal;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use futures_util::future::join_all;
use serde_json::{Value, json};

/// A merchant with six credits, and its partition.
async fn merchant_with_credits() -> (Merchant, String) {
    let merchant = Merchant::new().await;
    for _ in 0..6 {
        merchant.credit_own("1").await;
    }
    merchant.log.stored().await;
    let partition = merchant.partition().await.to_string();
    (merchant, partition)
}

/// The exit code, the report and the errors of a command.
async fn outcome(instance: &Instance, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = instance.command(arguments).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn check<'r>(report: &'r Value, name: &str) -> &'r Value {
    let checks = report["checks"].as_array().unwrap_or_else(|| panic!("{report}"));
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is UTF-8")
}

#[test]
fn a_terminal_shows_the_progress_and_a_file_does_not() {
    run(async {
        let merchant = Merchant::new().await;
        let url = &merchant.instance.ready().database_url;
        let verify = format!("{} audit verify --database-url '{url}'", text(program()));
        // `script` runs a command on a terminal of its own.
        let output = tokio::process::Command::new("script")
            .args(["--quiet", "--return", "--command", &verify, "/dev/null"])
            .stdin(std::process::Stdio::null())
            .output()
            .await;
        let Ok(output) = output else {
            return left_out("audit_verify::a_terminal_shows_the_progress: there is no `script`");
        };
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{shown}");
        let lines: Vec<_> = shown.split("\r\u{1b}[K").collect();
        for (part, what) in [("log:", vec!["log:"]), ("read tables:", vec!["read", "tables:"])] {
            let of_part: Vec<_> = lines.iter().filter(|line| line.starts_with(part)).collect();
            assert!(!of_part.is_empty(), "{part} {shown:?}");
            for line in of_part {
                let words: Vec<_> = line.split_whitespace().collect();
                let (name, rest) = words.split_at(what.len());
                let has_form = matches!(rest, [_, "%", _, "of", _, "events", _, "events/s", ..]);
                assert!(name == what && has_form, "{line:?} of {shown:?}");
            }
        }
        // Each part's line is cleared at its end.
        assert!(lines[lines.len() - 1].contains("verified"), "{shown:?}");
        let quietly = ["audit", "verify", "--skip-read-tables"];
        let (code, _, errors) = outcome(merchant.instance, &quietly).await;
        assert_eq!((code, errors.as_str()), (Some(0), ""));
    });
}

#[test]
fn a_whole_log_is_verified_under_traffic_and_every_check_looks_at_something() {
    run(async {
        let (merchant, _) = merchant_with_credits().await;
        let traffic = async {
            loop {
                merchant.credit_own("0.1").await;
            }
        };
        let verified = outcome(merchant.instance, &["audit", "verify"]);
        let (code, report, errors) = tokio::select! {
            verified = verified => verified,
            () = traffic => unreachable!("it does not end"),
        };
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("verified")), "{report} {errors}");
        for check in report["checks"].as_array().unwrap() {
            // Nothing was archived, and neither a file of heads nor a folder of checkpoints was given.
            let is_left_out = ["archives", "published_heads", "signed_checkpoints"]
                .map(Value::from)
                .contains(&check["check"]);
            let verdict = if is_left_out { "skipped" } else { "verified" };
            assert_eq!(check["verdict"], verdict, "{check}");
            assert_eq!(check["checked"].as_u64() > Some(0), !is_left_out, "{check}");
        }
        assert_eq!(check(&report, "archives")["skipped"], json!(["nothing is archived"]), "{report}");
        assert!(report["events"].as_u64() > Some(6), "{report}");
        assert_eq!(report["first_broken"], json!([]));
    });
}

/// They look at the read models in the same order.
#[test]
fn audits_at_once_wait_for_each_other() {
    run(async {
        let merchant = Merchant::alone(1).await;
        merchant.credit_own("1").await;
        let audits = (0..3).map(|_| merchant.instance.command_beside_others(&["audit", "verify"]));
        for output in join_all(audits).await {
            let report = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(0), "{report}");
        }
    });
}

/// The partitions whose states are stored as of a position within a record batch.
const WITHIN_A_BATCH: &str = "\
SELECT c.partition FROM ledger.checkpoints AS c JOIN ledger.batches AS b USING (partition)
WHERE c.position >= b.first_position AND c.position < b.first_position + b.count - 1";

#[test]
fn states_that_are_stored_as_of_a_position_within_a_record_batch_are_verified() {
    run(async {
        let instance = Instance::of_test(1).await;
        let mut merchants = Vec::new();
        for _ in 0..4 {
            merchants.push(Merchant::of(instance).await);
        }
        let sql = &merchants[0].log.sql;
        let gateway = instance.ready().pids.gateways[0];
        let within = async || -> Option<i16> {
            sql.query_opt(&format!("{WITHIN_A_BATCH} LIMIT 1"), &[]).await.unwrap().map(|row| row.get(0))
        };
        // What is decided while a batch commits joins the next one, and a checkpoint may be due in the middle of it.
        let post = async |merchant: &Merchant| {
            loop {
                // A merchant may come to its rate limit.
                let status = merchant.post("/v1/customers", &json!({})).await.status;
                assert!([201, 429].contains(&status), "{status}");
            }
        };
        let posts = merchants.iter().cycle().take(16).map(post);
        let stopped_within =
            eventually("a checkpoint within a batch, when the gateway stands still", async || {
                within().await?;
                signal(gateway, "STOP");
                let partition = within().await;
                if partition.is_none() {
                    signal(gateway, "CONT");
                }
                partition
            });
        let partition = tokio::select! {
            partition = stopped_within => partition,
            _ = join_all(posts) => unreachable!("they do not end"),
        };
        let (code, report, errors) = outcome(instance, &["audit", "verify", "--skip-read-tables"]).await;
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("verified")), "{report} {errors}");
        let stored = check(&report, "stored_states");
        assert_eq!(stored["verdict"], "verified", "{stored}");
        assert_eq!(stored["skipped"], json!([]), "{stored}");
        // A state that differs is found there, too.
        let state = "UPDATE ledger.state SET body = replace(body, 'reference', 'referred') WHERE (partition, id) = (
            SELECT partition, id FROM ledger.state WHERE partition = $1 AND body LIKE '%reference%' ORDER BY id LIMIT 1)";
        let changed = sql.execute(state, &[&partition]).await.unwrap();
        assert_eq!(changed, 1);
        let (code, report, errors) = outcome(instance, &["audit", "verify", "--skip-read-tables"]).await;
        let is_broken = json!("broken");
        let verdict = &check(&report, "stored_states")["verdict"];
        assert_eq!((code, verdict), (Some(1), &is_broken), "{report} {errors}");
        // So it is if its checkpoint is hidden meanwhile.
        let hide = "UPDATE ledger.checkpoints SET generation = 99 WHERE partition = $1";
        assert_eq!(sql.execute(hide, &[&partition]).await.unwrap(), 1);
        let (code, report, errors) = outcome(instance, &["audit", "verify", "--skip-read-tables"]).await;
        let stored = check(&report, "stored_states");
        assert_eq!((code, &stored["verdict"]), (Some(1), &is_broken), "{report} {errors}");
        assert!(stored["findings"][0]["text"].as_str().unwrap().contains("is missing"), "{stored}");
        signal(gateway, "CONT");
    });
}

#[test]
fn partitions_that_are_verified_at_once_have_the_verdict_of_one_after_the_other() {
    run(async {
        let instance = Instance::of_test(1).await;
        let mut partitions = BTreeSet::new();
        while partitions.len() < 3 {
            let merchant = Merchant::of(instance).await;
            merchant.credit_own("1").await;
            merchant.log.stored().await;
            partitions.insert(merchant.partition().await);
        }
        let verified = async |jobs| {
            let arguments = ["audit", "verify", "--skip-read-tables", "--jobs", jobs];
            let (code, mut report, errors) = outcome(instance, &arguments).await;
            assert!(report["milliseconds"].take().is_number(), "{report} {errors}");
            (code, report)
        };
        let (code, one) = verified("1").await;
        assert_eq!((code, &one["verdict"]), (Some(0), &json!("verified")), "{one}");
        assert_eq!(verified("4").await, (code, one));

        let sql = instance.log().await.sql;
        sql.batch_execute("ALTER TABLE ledger.batches DISABLE TRIGGER ALL").await.unwrap();
        for partition in &partitions {
            let tamper = "UPDATE ledger.batches SET writer = 'x' WHERE partition = $1 AND first_position = 1";
            assert_eq!(sql.execute(tamper, &[partition]).await.unwrap(), 1);
        }
        let (code, one) = verified("1").await;
        let broken: Vec<_> =
            one["first_broken"].as_array().unwrap().iter().map(|place| &place["partition"]).collect();
        assert_eq!((code, json!(broken)), (Some(1), json!(partitions)), "{one}");
        assert_eq!(verified("4").await, (code, one));
    });
}

#[test]
fn a_part_of_a_partition_is_verified_without_the_states() {
    run(async {
        let (merchant, partition) = merchant_with_credits().await;
        let log = |part: &[&'static str]| {
            let arguments = ["audit", "verify", "--partition", &partition].map(ToOwned::to_owned);
            let arguments: Vec<String> =
                arguments.into_iter().chain(part.iter().map(|&part| part.to_owned())).collect();
            async move {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                outcome(merchant.instance, &arguments).await
            }
        };
        let (code, report, errors) = log(&["--from", "2", "--to", "5"]).await;
        assert_eq!((code, &report["events"]), (Some(0), &json!(4)), "{report} {errors}");
        for name in ["states", "balances_after", "balances", "stored_states", "read_tables", "heads"] {
            assert_eq!(check(&report, name)["verdict"], "skipped", "{name}: {report}");
            assert!(check(&report, name)["skipped"][0].is_string(), "{name}: {report}");
        }
        assert_eq!(check(&report, "hash_chain")["checked"], 4, "{report}");
        let (code, report, errors) = log(&["--to", "5"]).await;
        assert_eq!((code, &report["events"]), (Some(0), &json!(5)), "{report} {errors}");
        assert_eq!(check(&report, "states")["checked"], 5, "{report}");
        let (code, report, errors) = log(&["--from", "3"]).await;
        assert_eq!((code, &check(&report, "heads")["verdict"]), (Some(0), &json!("verified")), "{errors}");
    });
}

#[test]
fn a_part_may_begin_and_end_within_a_record_batch() {
    run(async {
        let (merchant, partition) = merchant_with_credits().await;
        let largest = "SELECT first_position, count::bigint FROM ledger.batches
            WHERE partition = $1 AND count > 1 ORDER BY count DESC, first_position LIMIT 1";
        let of = merchant.partition().await;
        let row = merchant.log.sql.query_one(largest, &[&of]).await.unwrap();
        let (first, count): (i64, i64) = (row.get(0), row.get(1));
        let last = first + count - 1;
        for (from, to) in
            [(first, first), (first, last - 1), (first + 1, last), (last, last), (last, last + 1), (1, first)]
        {
            let (from, to) = (from.to_string(), to.to_string());
            let arguments = ["audit", "verify", "--partition", &partition, "--from", &from, "--to", &to];
            let (code, report, errors) = outcome(merchant.instance, &arguments).await;
            assert_eq!((code, &report["verdict"]), (Some(0), &json!("verified")), "{report} {errors}");
            let events = to.parse::<i64>().unwrap() - from.parse::<i64>().unwrap() + 1;
            assert_eq!(report["events"], events, "{from} to {to}: {report}");
            assert_eq!(check(&report, "hash_chain")["checked"], events, "{report}");
        }
    });
}

#[test]
fn a_run_that_cannot_begin_ends_with_exit_code_2_and_says_why() {
    run(async {
        let (merchant, partition) = merchant_with_credits().await;
        let instance = merchant.instance;
        for (arguments, why) in [
            (vec!["--from", "2"], "--partition"),
            (vec!["--partition", "1023"], "no such partition"),
            (vec!["--partition", &partition, "--from", "5", "--to", "4"], "--to is before --from"),
            (vec!["--partition", &partition, "--from", "0"], "--from"),
            (vec!["--partition", &partition, "--to", "9999999"], "has no position 9999999 yet"),
            (vec!["--partition", &partition, "--from", "9999999"], "has no event at position 9999998"),
            (vec!["--head", "/nowhere/heads"], "cannot read"),
            (vec!["--jobs", "0"], "--jobs"),
        ] {
            let arguments = [vec!["audit", "verify"], arguments].concat();
            let (code, report, errors) = outcome(instance, &arguments).await;
            assert_eq!((code, &report), (Some(2), &Value::Null), "{arguments:?}: {errors}");
            assert!(errors.contains(why), "{arguments:?}: {errors}");
        }
        let nowhere = ["audit", "verify", "--database-url", "postgres://nobody@127.0.0.1:1/nothing"];
        let output = tokio::process::Command::new(program()).args(nowhere).output().await.unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    });
}

#[test]
fn a_file_of_heads_holds_only_with_its_key_and_all_of_its_lines() {
    run(async {
        let (merchant, _) = merchant_with_credits().await;
        let instance = merchant.instance;
        let folder = instance.file(&format!("heads of {}", merchant.id));
        std::fs::create_dir(&folder).unwrap();
        let file = |name: &str| folder.join(name);
        for name in ["own", "other"] {
            let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
            std::fs::write(file(&format!("{name}.pem")), pair.serialize_pem()).unwrap();
            std::fs::write(file(&format!("{name}.pub")), pair.public_key_pem()).unwrap();
        }
        let (heads, key, own, other) = (file("heads"), file("own.pem"), file("own.pub"), file("other.pub"));
        for line in 1..=3 {
            merchant.credit_own("1").await;
            let append = ["audit", "head", "--append", text(&heads), "--key-file", text(&key)];
            let (code, report, errors) = outcome(instance, &append).await;
            assert_eq!((code, &report["line"]), (Some(0), &json!(line)), "{errors}");
        }
        let refused = async |with_key: &[&str], why: &str| {
            let before = std::fs::read_to_string(&heads).unwrap();
            let append = [&["audit", "head", "--append", text(&heads)], with_key].concat();
            let (code, _, errors) = outcome(instance, &append).await;
            assert!(code == Some(2) && errors.contains(why), "{errors}");
            assert_eq!(std::fs::read_to_string(&heads).unwrap(), before, "nothing was appended");
        };
        refused(&[], "its lines are signed").await;
        let other_key = file("other.pem");
        refused(&["--key-file", text(&other_key)], "it is signed with another key").await;
        let verify = async |heads: &Path, key: &Path| {
            let quick = ["audit", "verify", "--skip-read-tables"];
            let given = ["--head", text(heads), "--public-key-file", text(key)];
            outcome(instance, &[quick.as_slice(), given.as_slice()].concat()).await
        };
        let (code, report, errors) = verify(&heads, &own).await;
        assert_eq!(
            (code, &check(&report, "published_heads")["verdict"]),
            (Some(0), &json!("verified")),
            "{errors}"
        );
        assert!(check(&report, "published_heads")["checked"].as_u64() >= Some(3), "{report}");
        let last = std::fs::read_to_string(&heads).unwrap().lines().last().unwrap().to_owned();
        let last = serde_json::from_str::<Value>(&last).unwrap()["head"].take();
        let of = merchant.partition().await;
        let own_head = |heads: &Value| {
            let mut heads = heads.as_array().unwrap().iter();
            heads.find(|head| head["partition"] == of).unwrap().clone()
        };
        let (told, published) = (own_head(&report["published"]), own_head(&last["partitions"]));
        assert_eq!((&told["line"], &told["published_at"]), (&json!(3), &last["published_at"]), "{report}");
        for name in ["position", "hash"] {
            assert_eq!(told[name], published[name], "{report}");
        }
        let (code, report, errors) = verify(&heads, &other).await;
        assert_eq!((code, &report), (Some(2), &Value::Null), "{errors}");
        assert!(errors.contains("line 1: it is signed with another key"), "{errors}");
        let whole = std::fs::read_to_string(&heads).unwrap();
        let lines: Vec<_> = whole.lines().collect();
        for (changed, why) in [
            (format!("{}\n{}\n", lines[0], lines[2]), "line 2 does not follow"),
            (whole.replacen("\"position\":", "\"position\":1", 1), "line 1: the signature is not that"),
            ("\n".to_owned(), "line 1 is no published head"),
            (String::new(), "no published head"),
        ] {
            let changed_file = file("changed");
            std::fs::write(&changed_file, &changed).unwrap();
            let (code, _, errors) = verify(&changed_file, &own).await;
            assert!(code == Some(2) && errors.contains(why), "{why}: {errors}");
            if !changed.is_empty() {
                let append = ["audit", "head", "--append", text(&changed_file)];
                let (code, _, errors) = outcome(instance, &append).await;
                assert!(code == Some(2) && errors.contains("nothing was changed"), "{errors}");
                assert_eq!(std::fs::read_to_string(&changed_file).unwrap(), changed, "nothing was appended");
            }
        }
    });
}

#[test]
fn heads_that_are_published_at_once_follow_each_other() {
    run(async {
        let (merchant, _) = merchant_with_credits().await;
        let heads = merchant.instance.file(&format!("heads-at-once-{}", merchant.id));
        let append = ["audit", "head", "--append", text(&heads)];
        let outcomes = join_all([(); 5].map(|()| merchant.instance.command_beside_others(&append))).await;
        let line = |output: &std::process::Output| {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            report["line"].as_i64()
        };
        let mut lines: Vec<_> = outcomes.iter().map(line).collect();
        lines.sort();
        assert_eq!(lines, [1, 2, 3, 4, 5].map(Some), "{outcomes:?}");
        let verify = ["audit", "verify", "--skip-read-tables", "--head", text(&heads)];
        let (code, report, errors) = outcome(merchant.instance, &verify).await;
        assert_eq!(code, Some(0), "{report} {errors}");
    });
}

#[test]
fn a_database_that_no_process_has_used_yet_is_sound() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.create_database("audited_unused").await;
        let operate = async |arguments: &[&str]| {
            let mut command = tokio::process::Command::new(program());
            command.args(arguments).args(["--json", "--database-url", &url]);
            command.stdin(std::process::Stdio::null()).output().await.unwrap()
        };
        assert!(operate(&["migrate", "--mode", "test"]).await.status.success());
        let output = operate(&["audit", "verify"]).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let read_tables = check(&report, "read_tables");
        assert_eq!(
            (&read_tables["verdict"], &read_tables["broken"]),
            (&json!("skipped"), &json!(0)),
            "{report}"
        );
        assert!(read_tables["skipped"].to_string().contains("no projector has opened it"), "{read_tables}");
    });
}

/// A limit of the size of a file fails a write in its middle, as a full disk does.
#[test]
fn a_head_that_is_not_written_whole_leaves_the_file_as_it_was() {
    const LIMITED: &str = r#"trap '' XFSZ; ulimit -f "$1"; shift; exec "$@""#;
    const BLOCK: usize = 512;
    run(async {
        let merchant = Merchant::new().await;
        let instance = merchant.instance;
        let heads = instance.file(&format!("limited heads of {}", merchant.id));
        let append = ["audit", "head", "--append", text(&heads)];
        let (code, _, errors) = outcome(instance, &append).await;
        assert_eq!(code, Some(0), "{errors}");
        let before = std::fs::read_to_string(&heads).unwrap();
        let blocks = before.len() / BLOCK + 1;
        assert!(blocks * BLOCK < 2 * before.len(), "the limit is within the second line");
        let output = tokio::process::Command::new("sh")
            .args(["-c", LIMITED, "sh", &blocks.to_string()])
            .arg(program())
            .args(append)
            .args(["--database-url", &instance.ready().database_url])
            .output()
            .await
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains("cannot write"), "{errors}");
        assert_eq!(std::fs::read_to_string(&heads).unwrap(), before);
        let (code, report, errors) = outcome(instance, &append).await;
        assert_eq!((code, &report["line"]), (Some(0), &json!(2)), "{errors}");
    });
}
