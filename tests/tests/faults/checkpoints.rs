//! Signed checkpoints of `farthing audit verify`: what a run that begins at one finds, what it does not, and how a run that
//! was killed goes on.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::wait::within;
use serde_json::{Map, Value, json};

use crate::tampering_scene::{Scene, check};
use crate::{Uncompared, put_away, put_away_uncompared, run};

const TIMEOUT: Duration = Duration::from_mins(1);

fn path(instance: &Instance, name: &str) -> String {
    instance.file(name).into_os_string().into_string().expect("a path of a test is UTF-8")
}

/// The files of a new key of the operator: private and public.
pub(crate) fn key(instance: &Instance, name: &str) -> (String, String) {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let (private, public) = (path(instance, &format!("{name}.pem")), path(instance, &format!("{name}.pub")));
    std::fs::write(&private, pair.serialize_pem()).unwrap();
    std::fs::write(&public, pair.public_key_pem()).unwrap();
    (private, public)
}

/// The exit code, the report and the errors of `audit verify`.
async fn verify(instance: &Instance, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = instance.command(&[&["audit", "verify", "--skip-read-tables"], arguments].concat()).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The manifests in a folder.
fn manifests(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names =
        files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
    let mut names: Vec<_> = names.map(|path| path.display().to_string()).collect();
    names.sort();
    names
}

/// What a report says of the whole log, whether this run or an earlier one looked at it.
fn of_the_whole(report: &Value) -> Value {
    let mut whole: Map<String, Value> = report.as_object().unwrap().clone();
    for member in ["milliseconds", "trusted", "checkpoints_written"] {
        assert!(whole.remove(member).is_some(), "{member}: {report}");
    }
    let trusted = whole.remove("trusted_events").unwrap().as_u64().unwrap();
    whole["events"] = json!(whole["events"].as_u64().unwrap() + trusted);
    let checks = whole["checks"].as_array_mut().unwrap();
    checks.retain(|check| check["check"] != "signed_checkpoints");
    for check in checks {
        let trusted = check.as_object_mut().unwrap().remove("trusted").unwrap().as_u64().unwrap();
        check["checked"] = json!(check["checked"].as_u64().unwrap() + trusted);
    }
    whole.into()
}

#[test]
fn a_run_that_is_killed_goes_on_from_its_last_checkpoint_and_says_the_same_in_the_end() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        for _ in 0..30 {
            merchant.credit_own("1").await;
        }
        merchant.log.stored().await;
        let partition = merchant.partition().await.to_string();
        let (private, public) = key(instance, "audit");
        let whole_folder = path(instance, "whole");
        let folder = path(instance, "interrupted");
        let (code, report, errors) = verify(instance, &["--partition", &partition]).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        // Two checkpoints on the way, and one at the end.
        let every = (report["events"].as_u64().unwrap() * 2 / 5).to_string();
        let arguments = |folder: &str| {
            let of = ["--partition", &partition, "--checkpoints", folder, "--checkpoint-every", &every];
            let mut arguments = of.map(ToOwned::to_owned).to_vec();
            arguments.extend(["--key-file".to_owned(), private.clone()]);
            arguments
        };
        let verify = async |arguments: Vec<String>| {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let (code, report, errors) = verify(instance, &arguments).await;
            assert_eq!((code, &report["verdict"]), (Some(0), &json!("verified")), "{report} {errors}");
            report
        };
        let whole = verify(arguments(&whole_folder)).await;
        assert_eq!((&whole["trusted"], &whole["trusted_events"]), (&json!([]), &json!(0)));
        assert_eq!((manifests(&whole_folder).len(), &whole["checkpoints_written"]), (3, &json!(3)));

        // The run waits for the stored states, after its checkpoints on the way to them.
        let mut holder = farthing_tests::log::Log::open(&instance.ready().database_url).await.sql;
        let hold = holder.transaction().await.unwrap();
        hold.batch_execute("LOCK TABLE ledger.state IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let mut killed = tokio::process::Command::new(program())
            .args(["audit", "verify", "--skip-read-tables", "--json", "--database-url"])
            .arg(&instance.ready().database_url)
            .args(arguments(&folder))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        within(TIMEOUT, "the run waits", async || {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND wait_event_type = 'Lock' AND query LIKE '%FROM ledger.state WHERE%'";
            let waits: i64 = merchant.log.sql.query_one(waits, &[]).await.unwrap().get(0);
            (waits > 0).then_some(())
        })
        .await;
        killed.kill().await.unwrap();
        hold.rollback().await.unwrap();
        assert_eq!(manifests(&folder).len(), 2, "{:?}", manifests(&folder));

        let resumed = verify(arguments(&folder)).await;
        let last = resumed["trusted"][0]["position"].as_u64();
        assert!(last > every.parse().ok() && resumed["trusted_events"].as_u64() == last, "{resumed}");
        assert!(resumed["events"].as_u64() > Some(0), "{resumed}");
        assert_eq!(of_the_whole(&resumed), of_the_whole(&whole));
        let names = |folder: &str| {
            manifests(folder)
                .iter()
                .map(|name| name.rsplit('/').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&folder), names(&whole_folder), "the same checkpoints");

        // What only reads needs the public key alone.
        let reads = ["--partition", &partition, "--checkpoints", &folder, "--public-key-file", &public];
        let read = verify(reads.map(ToOwned::to_owned).to_vec()).await;
        assert_eq!(read["trusted_events"].as_u64(), whole["events"].as_u64(), "{read}");
        assert_eq!((&check(&read, "states")["verdict"], &read["events"]), (&json!("skipped"), &json!(0)));
        assert_eq!(check(&read, "stored_states")["verdict"], "verified", "{read}");
        assert_eq!(read["sums"], whole["sums"]);
        assert_eq!(names(&folder).len(), 3, "it writes nothing");
        let recomputed =
            verify([reads.map(ToOwned::to_owned).to_vec(), vec!["--recompute".to_owned()]].concat());
        assert_eq!(of_the_whole(&recomputed.await), of_the_whole(&whole));
        put_away(instance).await;
    });
}

#[test]
fn a_checkpoint_of_another_key_or_with_other_states_is_not_used_and_the_report_says_so() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        for _ in 0..6 {
            merchant.credit_own("1").await;
        }
        merchant.log.stored().await;
        let partition = merchant.partition().await.to_string();
        let (folder, (private, public)) = (path(instance, "checkpoints"), key(instance, "own"));
        let (other_private, other_public) = key(instance, "other");
        let of = ["--partition", &partition, "--checkpoints", &folder];
        let writes = [of.as_slice(), &["--checkpoint-every", "3", "--key-file", &private]].concat();
        let (code, report, errors) = verify(instance, &writes).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        let position = |report: &Value| report["trusted"][0]["position"].as_i64();
        let last = report["events"].as_i64();

        let (code, report, errors) =
            verify(instance, &[of.as_slice(), &["--public-key-file", &other_public]].concat()).await;
        assert_eq!((code, position(&report)), (Some(3), None), "{report} {errors}");
        assert_eq!(report["verdict"], "incomplete", "{report}");
        let passed_over = check(&report, "signed_checkpoints");
        assert_eq!(passed_over["verdict"], "skipped", "{report}");
        assert!(passed_over["skipped"].to_string().contains("signed with another key"), "{report}");

        let reads = [of.as_slice(), &["--public-key-file", &public]].concat();
        let (code, report, errors) = verify(instance, &reads).await;
        assert_eq!((code, position(&report)), (Some(0), last), "{report} {errors}");
        let states =
            Path::new(&folder).join(format!("partition-{partition}-position-{}.states.gz", last.unwrap()));
        std::fs::write(&states, "other states").unwrap();
        let (code, report, errors) = verify(instance, &reads).await;
        let older = position(&report);
        assert!(code == Some(0) && older > Some(0) && older < last, "an older one: {report} {errors}");
        let passed_over = check(&report, "signed_checkpoints");
        assert!(passed_over["skipped"][0].as_str().unwrap().contains("its states"), "{report}");

        for (arguments, why) in [
            (of.to_vec(), "needs --public-key-file or --key-file"),
            ([reads.as_slice(), &["--from", "2"]].concat(), "--from"),
            ([reads.as_slice(), &["--key-file", &other_private]].concat(), "not of one key"),
            (vec!["--recompute"], "--checkpoints"),
            (vec!["--checkpoints", "/nowhere", "--public-key-file", &public], "cannot read"),
        ] {
            let (code, report, errors) = verify(instance, &arguments).await;
            assert_eq!((code, &report), (Some(2), &Value::Null), "{arguments:?}: {errors}");
            assert!(errors.contains(why), "{arguments:?}: {errors}");
        }
        put_away(instance).await;
    });
}

#[test]
fn a_run_from_a_checkpoint_finds_what_comes_after_it_and_a_log_that_was_rewritten_before_it() {
    run(async {
        let mut scene = Scene::set().await;
        let instance = scene.instance;
        let (folder, private) = (path(instance, "checkpoints"), path(instance, "audit.pem"));
        let log = scene.log().await;
        let partition = log.partition.to_string();
        // A checkpoint in the middle, and none at the end.
        let last = i64::try_from(log.len()).unwrap();
        let middle = log.batches[log.batches.len() / 2].first - 1;
        let of = [
            "--skip-read-tables",
            "--partition",
            &partition,
            "--checkpoints",
            &folder,
            "--key-file",
            &private,
        ];
        let to = middle.to_string();
        let (code, report) = scene.verify(&[of.as_slice(), &["--to", &to]].concat()).await;
        assert_eq!(code, Some(0), "{report}");
        assert_eq!(manifests(&folder).len(), 1);
        let reads = &of[..5];
        let public = ["--public-key-file", &path(instance, "audit.pub")].map(ToOwned::to_owned);
        let reads: Vec<&str> = reads.iter().copied().chain(public.iter().map(String::as_str)).collect();
        let recomputes = [reads.as_slice(), &["--recompute"]].concat();
        let place = |position: i64| json!([{"partition": log.partition, "position": position}]);
        let (code, report) = scene.verify(&reads).await;
        assert_eq!((code, report["trusted"][0]["position"].as_i64()), (Some(0), Some(middle)), "{report}");

        // The events up to the checkpoint deleted, and their hashes kept in the batch before them: a hash is no event.
        let batches = &log.batches[..log.batches.len() / 2];
        let [.., kept, hidden] = batches else { panic!("too few batches: {}", batches.len()) };
        let (number, kept, hidden) = (log.partition, kept.first, hidden.first);
        let hides = format!(
            "CREATE TEMP TABLE kept AS
                 SELECT * FROM ledger.batches WHERE partition = {number} AND first_position IN ({kept}, {hidden});
             UPDATE ledger.batches AS b SET count = b.count + h.count, hashes = b.hashes || h.hashes
             FROM kept AS h WHERE b.partition = {number} AND b.first_position = {kept} AND h.first_position = {hidden};
             DELETE FROM ledger.batches WHERE partition = {number} AND first_position = {hidden}"
        );
        scene.sql.batch_execute(&hides).await.unwrap();
        let (code, report) = scene.verify(&reads).await;
        assert_eq!((code, &report["first_broken"]), (Some(1), &place(hidden)), "{report}");
        assert_eq!(check(&report, "signed_checkpoints")["broken"], 1, "{report}");
        assert_eq!(report["trusted"], json!([]), "it begins at the first event: {report}");
        let puts_back = format!(
            "DELETE FROM ledger.batches WHERE partition = {number} AND first_position = {kept};
             INSERT INTO ledger.batches SELECT * FROM kept"
        );
        scene.sql.batch_execute(&puts_back).await.unwrap();
        let (code, report) = scene.verify(&reads).await;
        assert_eq!((code, report["trusted"][0]["position"].as_i64()), (Some(0), Some(middle)), "{report}");

        // A digit of the microseconds: no state depends on it.
        let digit = |line: &str| {
            let at = line.find(r#""occurred_at":""#).unwrap();
            let at = at + line[at..].find('.').unwrap() + 1;
            let other = if &line[at..=at] == "0" { "1" } else { "0" };
            format!("{}{other}{}", &line[..at], &line[at + 1..])
        };
        // After the checkpoint: at its position.
        let mut after = log.clone();
        let line = after.event(middle + 1).0.clone();
        after.event(middle + 1).0 = digit(&line);
        log.change(&mut scene.sql, &after).await;
        let (code, report) = scene.verify(&reads).await;
        assert_eq!((code, &report["first_broken"]), (Some(1), &place(middle + 1)), "{report}");
        after.change(&mut scene.sql, &log).await;

        // Before it, the stored hashes left as they were: a run from the checkpoint does not read it.
        let mut before = log.clone();
        let line = before.event(middle - 1).0.clone();
        before.event(middle - 1).0 = digit(&line);
        log.change(&mut scene.sql, &before).await;
        let (code, report) = scene.verify(&reads).await;
        assert_eq!((code, &report["first_broken"]), (Some(0), &json!([])), "{report}");
        let (code, report) = scene.verify(&recomputes).await;
        assert_eq!((code, &report["first_broken"]), (Some(1), &place(middle - 1)), "{report}");

        // Before it, with all hashes computed again: the log does not have the event of the checkpoint.
        let mut rewritten = before.clone();
        let hash = rewritten.hash_from(middle - 1);
        before.change(&mut scene.sql, &rewritten).await;
        let head = "UPDATE ledger.heads SET position = $2, hash = $3 WHERE partition = $1";
        scene.sql.execute(head, &[&log.partition, &last, &hash]).await.unwrap();
        let (code, report) = scene.verify(&reads).await;
        assert_eq!(
            (code, report["first_broken"][0]["position"].as_i64()),
            (Some(1), Some(middle)),
            "{report}"
        );
        assert_eq!(check(&report, "signed_checkpoints")["broken"], 1, "{report}");
        assert_eq!(report["trusted"], json!([]), "it begins at the first event: {report}");
        let written = scene.verify(&of).await;
        assert_eq!((written.0, manifests(&folder).len()), (Some(1), 1), "nothing is signed: {}", written.1);

        // The end deleted from before it, with the head moved back.
        let mut cut = rewritten.clone();
        let hash = cut.cut_after(middle - 2);
        rewritten.change(&mut scene.sql, &cut).await;
        scene.sql.execute(head, &[&log.partition, &(middle - 2), &hash]).await.unwrap();
        let (code, report) = scene.verify(&reads).await;
        assert_eq!((code, &report["first_broken"]), (Some(1), &place(middle - 1)), "{report}");
        put_away_uncompared(instance, Uncompared::LogIsBroken).await;
    });
}
