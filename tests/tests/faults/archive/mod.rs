//! Archives: old ranges of the log move to files under traffic, by a command that is killed between its steps, and come back.
//! At every moment all of the log is in the table, in files, or in both.

mod damage;
mod refusals;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::process::{is_running, kill};
use farthing_tests::provider::json;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::{put_away_with, run};

/// The exact content of the record batches of partition $1 up to position $2.
const CONTENT: &str = "\
SELECT count(*), coalesce(md5(string_agg(md5(b::text), '' ORDER BY b.first_position)), '')
FROM ledger.batches AS b WHERE b.partition = $1 AND b.first_position <= $2";

/// The sessions that wait for this one.
const WAITING: &str = "\
SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)) AND query LIKE '%' || $1 || '%'";

/// Ends the session that waits for this one.
const END_WAITING: &str = "\
SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)) AND query LIKE '%' || $1 || '%'";

/// An instance with a merchant whose partition has old events, and the folder of its archive.
struct Archived {
    merchant: Merchant,
    folder: PathBuf,
    location: String,
    partition: String,
    /// The id of a metered request.
    request: String,
    /// All positions up to this one can be archived.
    position: i64,
}

impl Archived {
    async fn start(credits: usize) -> Self {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("5").await;
        let customer = merchant.customer("5").await;
        let meter = merchant.call_meter("0.1").await;
        let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let response = merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await;
        let request = response.request_id();
        merchant.shown(&request, "completed").await;
        for _ in 0..credits {
            merchant.credit_own("0.01").await;
        }
        let folder = instance.file("the archive");
        std::fs::create_dir(&folder).unwrap();
        let location = format!("file://{}", folder.to_str().unwrap().replace(' ', "%20"));
        let of = merchant.partition().await;
        let position = head(&merchant.log.sql, of).await - 2;
        // One more commit, since the last one stays.
        merchant.credit_own("0.01").await;
        Self { partition: of.to_string(), merchant, folder, location, request, position }
    }

    /// The exit code, the report and the errors of a command that knows the archive.
    async fn run(&self, arguments: &[&str]) -> (Option<i32>, Value, String) {
        let named = [arguments, &["--archive", self.location.as_str()]].concat();
        outcome(self.merchant.instance, &named).await
    }

    /// The arguments of a command that archives the partition up to `to`, in files of so many events.
    fn create<'a>(&'a self, to: &'a str, events: &'a str) -> Vec<&'a str> {
        let of = self.partition.as_str();
        let file = ["--keep-events", "0", "--events-per-file", events];
        [["archive", "create", "--partition", of, "--to", to].as_slice(), &file].concat()
    }

    /// Archives the partition up to the position, once nothing needs it any more.
    async fn create_up_to_the_position(&self, events: &str) {
        let to = self.position.to_string();
        eventually("the range is archived", async || {
            let (code, report, errors) = self.run(&self.create(&to, events)).await;
            assert_eq!(code, Some(0), "{report} {errors}");
            self.last().await.is_some_and(|last| last >= self.position - 2).then_some(())
        })
        .await;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for file in self.files() {
            let modes = (mode(file.parent().unwrap()), mode(&file));
            assert_eq!(modes, (0o700, 0o600), "others of the machine read {}", file.display());
        }
    }

    /// Waits until nothing needs the events up to the position any more.
    async fn unneeded(&self) {
        eventually("nothing needs the range any more", async || {
            let limit = "SELECT min(reached) FROM ledger.archive_limits($1)";
            let reached: i64 =
                self.merchant.log.sql.query_one(limit, &[&self.number()]).await.unwrap().get(0);
            (reached >= self.position).then_some(())
        })
        .await;
    }

    /// The number of the partition.
    fn number(&self) -> i16 {
        self.partition.parse().unwrap()
    }

    /// The exit code, the report and the errors of an audit of the partition.
    async fn audit(&self, arguments: &[&str]) -> (Option<i32>, Value, String) {
        let audit = ["audit", "verify", "--skip-read-tables", "--partition", self.partition.as_str()];
        self.run(&[audit.as_slice(), arguments].concat()).await
    }

    /// The last archived position of the partition.
    async fn last(&self) -> Option<i64> {
        let last = "SELECT max(last_position) FROM ledger.archived WHERE partition = $1";
        let of: i16 = self.partition.parse().unwrap();
        self.merchant.log.sql.query_one(last, &[&of]).await.unwrap().get(0)
    }

    async fn content(&self) -> (i64, String) {
        let of: i16 = self.partition.parse().unwrap();
        let row = self.merchant.log.sql.query_one(CONTENT, &[&of, &self.position]).await.unwrap();
        (row.get(0), row.get(1))
    }

    /// What an auditor sees of the events up to the position.
    async fn seen(&self) -> Vec<Value> {
        let at = format!("{}:{}", self.partition, self.position);
        let wallet = self.merchant.wallet_id.as_str();
        let mut seen = Vec::new();
        for audit in [
            vec!["audit", "trial-balance", "--at", &at],
            vec!["audit", "statement", "--wallet", wallet, "--to", "2100-01-01"],
            vec!["audit", "explain", &self.request],
            vec!["audit", "reconcile"],
        ] {
            let (code, report, errors) = self.run(&audit).await;
            assert_eq!(code, Some(0), "{audit:?}: {report} {errors}");
            let Value::Object(mut report) = report else { panic!("{audit:?}: {report}") };
            // They grow with the log.
            report.retain(|name, _| !["head", "heads"].contains(&name.as_str()));
            seen.push(Value::Object(report));
        }
        let replay = ["audit", "replay", "--at", &at, "--archive", &self.location];
        let replay = self.merchant.instance.command(&replay).await;
        assert!(replay.status.success(), "{replay:?}");
        seen.push(String::from_utf8(replay.stdout).unwrap().into());
        seen.push(self.exported().await);
        seen
    }

    /// The rows of the events up to the position that an export has, which must not be there before.
    async fn exported(&self) -> Value {
        let books = self.merchant.instance.file("books");
        let out = books.to_str().unwrap();
        let export = [
            "export",
            "--format",
            "ndjson",
            "--table",
            "requests,entries,events",
            "--partition",
            &self.partition,
        ];
        let (code, report, errors) = self.run(&[export.as_slice(), &["--out", out]].concat()).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        let rows = ["requests", "entries", "events"].map(|table| {
            let text = std::fs::read_to_string(books.join(format!("{table}.ndjson"))).unwrap();
            let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let rows: Vec<_> =
                rows.filter(|row| row["position"].as_i64().unwrap() <= self.position).collect();
            assert!(rows.len() > if table == "requests" { 0 } else { 10 }, "{table}: {text}");
            Value::Array(rows)
        });
        std::fs::remove_dir_all(&books).unwrap();
        Value::Array(rows.to_vec())
    }

    async fn put_away(&self) {
        put_away_with(self.merchant.instance, &["--archive", &self.location]).await;
    }

    async fn verified(&self) -> Value {
        let (code, report, errors) = self.run(&["audit", "verify"]).await;
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("verified")), "{report} {errors}");
        report
    }

    /// Starts a command that is going to be killed.
    fn start_command(&self, arguments: &[&str]) -> tokio::process::Child {
        let mut command = tokio::process::Command::new(program());
        command.args(arguments).args(["--archive", &self.location]);
        command.args(["--database-url", &self.merchant.instance.ready().database_url]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// Kills a command when it waits for the lock that `locks` takes, in a statement with the text `at`.
    async fn kill_at(&self, locks: &str, at: &str, arguments: &[&str]) {
        let holder = self.merchant.instance.log().await.sql;
        holder.batch_execute(&format!("BEGIN; {locks}")).await.unwrap();
        let mut command = self.start_command(arguments);
        eventually("the command waits", async || {
            assert!(command.try_wait().unwrap().is_none(), "the command ended before {at}");
            // A transaction sees the sessions as they were when it first looked.
            holder.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
            (holder.query_one(WAITING, &[&at]).await.unwrap().get::<_, i64>(0) > 0).then_some(())
        })
        .await;
        kill(command.id().unwrap());
        command.wait().await.unwrap();
        // Postgres would still carry the statement out: it does not notice the end of a session that waits.
        let ended = holder.query_one(END_WAITING, &[&at]).await.unwrap().get::<_, i32>(0);
        holder.batch_execute("ROLLBACK").await.unwrap();
        let left = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
        eventually("the session of the command ends", async || {
            (holder.query_one(left, &[&ended]).await.unwrap().get::<_, i64>(0) == 0).then_some(())
        })
        .await;
    }

    /// The archived files, without their manifests.
    fn files(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.to_str().unwrap().ends_with(".ndjson.zst"));
        files.sort();
        files
    }
}

async fn outcome(instance: &Instance, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = instance.command(arguments).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn head(sql: &Client, partition: i16) -> i64 {
    let head = "SELECT position FROM ledger.heads WHERE partition = $1";
    sql.query_one(head, &[&partition]).await.unwrap().get(0)
}

fn check<'r>(report: &'r Value, name: &str) -> &'r Value {
    let checks = report["checks"].as_array().unwrap_or_else(|| panic!("{report}"));
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

/// Lets the owner of the log change it as if its triggers were not there.
async fn forces(sql: &Client, change: &str) {
    let triggers = ["not_archived", "append_only_rows", "append_only_statements"];
    let each = |what: &str| {
        triggers.map(|name| format!("ALTER TABLE ledger.batches {what} TRIGGER {name};")).concat()
    };
    let forced = format!("BEGIN; {} {change}; {} COMMIT", each("DISABLE"), each("ENABLE ALWAYS"));
    sql.batch_execute(&forced).await.unwrap();
}

fn put(file: &Path, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            std::fs::write(file, bytes).unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        None => std::fs::remove_file(file).unwrap(),
    }
}

#[test]
fn an_archive_under_traffic_changes_no_answer_and_no_role_needs_it_every_day() {
    run(async {
        let archived = Archived::start(60).await;
        let (merchant, instance) = (&archived.merchant, archived.merchant.instance);
        let before = archived.content().await;
        // The statement would show the credits of the traffic.
        let other = Merchant::of(instance).await;
        let (seen, whole) = (archived.seen().await, archived.verified().await);
        let of_files = check(&whole, "archives");
        assert_eq!(
            (&of_files["checked"], &of_files["verdict"], &of_files["skipped"]),
            (&json!(0), &json!("skipped"), &json!(["nothing is archived"])),
            "{whole}"
        );
        let is_over = AtomicBool::new(false);
        let traffic = async {
            let mut credits = 0;
            while !is_over.load(Ordering::SeqCst) {
                other.credit_own("0.1").await;
                credits += 1;
            }
            (credits, other.own_balance().await)
        };
        let archiving = async {
            archived.create_up_to_the_position("40").await;
            is_over.store(true, Ordering::SeqCst);
        };
        let ((credits, balance), ()) = tokio::join!(traffic, archiving);
        assert_eq!(balance, format!("{}.{}000000000", credits / 10, credits % 10), "no credit is lost");
        assert!(archived.content().await.0 < before.0 / 4, "the range has left the table");
        assert!(archived.files().len() > 1, "{:?}", archived.files());
        assert_eq!(archived.seen().await, seen);
        let after = archived.verified().await;
        assert!(check(&after, "archives")["checked"].as_u64() > Some(1), "{after}");
        assert!(after["events"].as_u64() > whole["events"].as_u64(), "{after}");
        let (code, report, errors) = archived.run(&["archive", "verify"]).await;
        assert_eq!((code, &report["ok"]), (Some(0), &json!(true)), "{report} {errors}");
        for (verb, model) in [("rebuild", "requests"), ("verify", "entries")] {
            let (code, report, errors) = archived.run(&["projections", verb, model]).await;
            assert_eq!((code, &report["differences"]), (Some(0), &json!(0)), "{report} {errors}");
        }
        // A part that begins within the archive, and one that begins behind it.
        for from in ["5", &(archived.last().await.unwrap() + 1).to_string()] {
            let part = ["audit", "verify", "--partition", &archived.partition, "--from", from];
            let (code, report, errors) = archived.run(&part).await;
            assert_eq!(
                (code, &report["verdict"]),
                (Some(0), &json!("verified")),
                "{from}: {report} {errors}"
            );
        }
        let behind = (archived.last().await.unwrap() + 1).to_string();
        let (_, report, errors) = archived.audit(&["--from", &behind]).await;
        let of_files = check(&report, "archives");
        assert_eq!((&of_files["checked"], &of_files["verdict"]), (&json!(0), &json!("skipped")), "{errors}");
        without_the_archive(&archived).await;
        // A new leader needs no archive.
        let gateway = instance.ready().pids.gateways[0];
        kill(gateway);
        eventually("another gateway serves", async || {
            let now = instance.try_ready()?.pids.gateways[0];
            (now != gateway && is_running(now)).then_some(())
        })
        .await;
        let credit = ["wallet", "credit", "--merchant", &merchant.id, "--amount", "1", "--reason", "a test"];
        eventually("a new leader appends", async || {
            (outcome(instance, &credit).await.0 == Some(0)).then_some(())
        })
        .await;
        merchant.customer_called("a customer after the archive", "1").await;
        merchant.shown(&archived.request, "completed").await;
        archived.verified().await;
        archived.put_away().await;
    });
}

/// Commands that read the log from its beginning name the archive that they need.
async fn without_the_archive(archived: &Archived) {
    for command in [
        vec!["audit", "verify"],
        vec!["audit", "statement", "--wallet", &archived.merchant.wallet_id],
        vec!["audit", "replay"],
        vec!["audit", "reconcile"],
        vec!["export", "--format", "csv", "--out", "books without the archive"],
        vec!["projections", "verify", "customers"],
    ] {
        let (found, _, errors) = outcome(archived.merchant.instance, &command).await;
        let says = format!("of partition {} are archived at {}", archived.partition, archived.location);
        assert!(found == Some(2) && errors.contains(&says), "{command:?}: {found:?} {errors}");
    }
}

#[test]
fn a_run_finishes_the_deletion_of_every_range_that_is_in_the_table() {
    run(async {
        let archived = Archived::start(60).await;
        let sql = &archived.merchant.log.sql;
        let (before, of) = (archived.content().await, &archived.partition);
        let saves = format!("CREATE TEMP TABLE saved AS SELECT * FROM ledger.batches WHERE partition = {of}");
        sql.batch_execute(&saves).await.unwrap();
        archived.create_up_to_the_position("20").await;
        let (files, last) = (archived.files().len(), archived.last().await.unwrap());
        assert!(files > 2, "{files}");
        // All ranges are there but for the first batch of the first one.
        let back =
            "INSERT INTO ledger.batches SELECT * FROM saved WHERE first_position > 1 AND first_position";
        forces(sql, &format!("{back} <= {last}")).await;
        assert!(archived.content().await.0 >= before.0 - 1);
        archived.verified().await;
        let to = last.to_string();
        let (code, report, errors) = archived.run(&archived.create(&to, "20")).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        assert_eq!(report["partitions"][0]["finished"].as_array().map(Vec::len), Some(files), "{report}");
        assert!(archived.content().await.0 <= 2, "{:?}", archived.content().await);
        archived.verified().await;
        archived.put_away().await;
    });
}

#[test]
fn a_range_that_is_restored_between_two_looks_of_an_audit_is_no_gap() {
    run(async {
        let archived = Archived::start(30).await;
        let (instance, of) = (archived.merchant.instance, &archived.partition);
        archived.unneeded().await;
        let holder = instance.log().await.sql;
        let saves = format!("CREATE TEMP TABLE saved AS SELECT * FROM ledger.batches WHERE partition = {of}");
        holder.batch_execute(&saves).await.unwrap();
        let to = archived.position.to_string();
        let (code, report, errors) = archived.run(&archived.create(&to, "100000")).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        assert_eq!(archived.files().len(), 1, "{:?}", archived.files());
        let last = archived.last().await.unwrap();

        holder
            .batch_execute("BEGIN; LOCK TABLE ledger.archive_restores IN ACCESS EXCLUSIVE MODE")
            .await
            .unwrap();
        let audit = ["audit", "verify", "--skip-read-tables", "--partition", of.as_str()];
        let mut audit = archived.start_command(&audit);
        eventually("the audit has seen the table, and asks for the archive", async || {
            assert!(audit.try_wait().unwrap().is_none(), "the audit ended");
            holder.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
            let waiting = holder.query_one(WAITING, &[&"FROM ledger.archived"]).await.unwrap();
            (waiting.get::<_, i64>(0) > 0).then_some(())
        })
        .await;
        let restored = format!(
            "SELECT ledger.restore_archived({of}::smallint, 1, array_agg(s.first_position), array_agg(s.count),
                 array_agg(s.recorded_at), array_agg(s.writer), array_agg(s.events), array_agg(s.hashes))
             FROM saved AS s WHERE s.first_position <= {last};
             INSERT INTO ledger.archive_restores (partition, number) VALUES ({of}, 1); COMMIT"
        );
        holder.batch_execute(&restored).await.unwrap();
        assert_eq!(audit.wait().await.unwrap().code(), Some(0), "it found no gap");
        assert_eq!(archived.last().await, None);
        archived.put_away().await;
    });
}

#[test]
fn a_command_that_is_killed_between_its_steps_leaves_the_log_whole() {
    run(async {
        // More batches than one transaction deletes.
        let archived = Archived::start(120).await;
        let to = archived.position.to_string();
        let create = archived.create(&to, "100000");
        let (before, seen) = (archived.content().await, archived.seen().await);
        archived.unneeded().await;
        let whole = async |what: &str| {
            assert_eq!(archived.seen().await, seen, "{what}");
            archived.verified().await;
        };

        archived
            .kill_at(
                "LOCK TABLE ledger.archives IN SHARE ROW EXCLUSIVE MODE",
                "INSERT INTO ledger.archives",
                &create,
            )
            .await;
        assert_eq!((archived.files().len(), archived.last().await), (1, None), "written, not recorded");
        assert_eq!(archived.content().await, before);
        whole("written, not recorded").await;

        let last = format!(
            "SELECT FROM ledger.batches WHERE partition = {0} AND first_position <= {1}
             ORDER BY first_position DESC OFFSET 3 LIMIT 1 FOR UPDATE",
            archived.partition, archived.position
        );
        archived.kill_at(&last, "delete_archived", &create).await;
        assert!(archived.last().await.is_some(), "recorded");
        let left = archived.content().await.0;
        assert!(left > 0 && left < before.0, "half deleted: {left} of {}", before.0);
        whole("recorded, half deleted").await;
        let (_, listed, _) = archived.run(&["archive", "list"]).await;
        assert_eq!(listed["archives"][0]["is_in_table"], true, "{listed}");
        let [file] = archived.files().try_into().unwrap();
        let original = std::fs::read(&file).unwrap();
        let half = archived.content().await;
        for damaged in [Some(damage::flipped(&original)), Some(original[..original.len() / 2].to_vec()), None]
        {
            put(&file, damaged.as_deref());
            let (code, report, errors) = archived.run(&create).await;
            assert!(matches!(code, Some(1 | 2)), "{report} {errors}");
            assert!(errors.contains(file.file_name().unwrap().to_str().unwrap()), "{errors}");
            assert_eq!(archived.content().await, half, "nothing is deleted that is in no whole file");
        }
        put(&file, Some(&original));

        let (code, report, errors) = archived.run(&create).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        assert_eq!(report["partitions"][0]["finished"].as_array().map(Vec::len), Some(1), "{report}");
        assert_eq!(archived.files().len(), 1, "the first run's file was the same");
        assert!(archived.content().await.0 <= 2);
        whole("archived").await;

        let restore = ["archive", "restore", "--partition", &archived.partition];
        let lock = "LOCK TABLE ledger.archive_restores IN SHARE ROW EXCLUSIVE MODE";
        archived.kill_at(lock, "INSERT INTO ledger.archive_restores", &restore).await;
        assert_eq!(archived.content().await, before, "loaded, not recorded");
        whole("loaded, not recorded").await;
        let (code, report, errors) = archived.run(&restore).await;
        assert_eq!(
            (code, report["restored"].as_array().map(Vec::len)),
            (Some(0), Some(1)),
            "{report} {errors}"
        );
        assert_eq!((archived.content().await, archived.last().await), (before, None));
        let (code, report, errors) = outcome(archived.merchant.instance, &["audit", "verify"]).await;
        assert_eq!(code, Some(0), "no archive is needed any more: {report} {errors}");

        archived.create_up_to_the_position("40").await;
        whole("archived again").await;
        archived.put_away().await;
    });
}
