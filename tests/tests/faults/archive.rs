//! Archives: old ranges of the log move to files under traffic, by a command that is killed between its steps, and come back.
//! At every moment all of the log is in the table, in files, or in both.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::instance::{Instance, is_running, kill, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use crate::checkpoints::key;
use crate::put_away;

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
        let instance: &'static Instance = Box::leak(Box::new(Instance::start(1).await));
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
        ] {
            let (code, report, errors) = self.run(&audit).await;
            assert_eq!(code, Some(0), "{audit:?}: {report} {errors}");
            let Value::Object(mut report) = report else { panic!("{audit:?}: {report}") };
            // They grow with the log.
            report.retain(|name, _| !["head", "heads"].contains(&name.as_str()));
            seen.push(Value::Object(report));
        }
        seen
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
        put_away(instance).await;
    });
}

/// Commands that read the log from its beginning name the archive that they need.
async fn without_the_archive(archived: &Archived) {
    for (command, code) in [
        (vec!["audit", "verify"], 2),
        (vec!["audit", "statement", "--wallet", &archived.merchant.wallet_id], 1),
        (vec!["projections", "verify", "customers"], 1),
    ] {
        let (found, _, errors) = outcome(archived.merchant.instance, &command).await;
        let says = format!("of partition {} are archived at {}", archived.partition, archived.location);
        assert!(found == Some(code) && errors.contains(&says), "{command:?}: {found:?} {errors}");
    }
}

#[test]
fn only_an_archived_range_can_leave_the_log() {
    run(async {
        let archived = Archived::start(5).await;
        let sql = &archived.merchant.log.sql;
        let refused = async |statement: &str, why: &str| {
            let error = sql.batch_execute(&format!("BEGIN; {statement}; COMMIT")).await.unwrap_err();
            let message = error.as_db_error().unwrap().message().to_owned();
            assert!(message.contains(why), "{statement}: {message}");
            sql.batch_execute("ROLLBACK").await.unwrap();
        };
        let of = &archived.partition;
        let yes = "SET LOCAL farthing.deletes_archived = 'yes'";
        let row = |number: i64, first: i64, last: i64, hash: &str| {
            format!(
                "INSERT INTO ledger.archives (partition, number, first_position, last_position, batches, previous_hash,
                     last_hash, first_recorded_at, last_recorded_at, location, object, bytes, text_bytes, sha256)
                 SELECT {of}, {number}, {first}, {last}, count(*), decode(repeat('00', 32), 'hex'), {hash},
                     min(recorded_at), max(recorded_at), '', '', 1, 1, decode(repeat('00', 32), 'hex')
                 FROM ledger.batches WHERE partition = {of} AND first_position BETWEEN {first} AND {last}"
            )
        };
        let ends =
            "SELECT first_position + count - 1, encode(substring(hashes FROM 32 * count - 31 FOR 32), 'hex')
            FROM ledger.batches WHERE partition = $1 ORDER BY first_position";
        let of_number: i16 = of.parse().unwrap();
        let rows = sql.query(ends, &[&of_number]).await.unwrap();
        let end = |row: &tokio_postgres::Row| {
            (row.get::<_, i64>(0), format!("decode('{}', 'hex')", row.get::<_, &str>(1)))
        };
        let ((early, early_hash), (last, last_hash)) = (end(&rows[2]), end(&rows[rows.len() - 1]));
        for prelude in ["SELECT 1", "SET LOCAL session_replication_role = replica"] {
            refused(&format!("{prelude}; DELETE FROM ledger.batches"), "append-only").await;
            refused(&format!("{prelude}; {yes}; DELETE FROM ledger.batches"), "is not archived").await;
            refused(&format!("{prelude}; {yes}; UPDATE ledger.batches SET writer = 'x'"), "append-only")
                .await;
            refused(&format!("{prelude}; {yes}; TRUNCATE ledger.batches"), "append-only").await;
            refused(
                &format!("{prelude}; SELECT ledger.delete_archived({of}::smallint, 1, 9)"),
                "does not exist",
            )
            .await;
            for (row, why) in [
                (row(2, 1, early, &early_hash), "does not follow"),
                (row(1, 2, early, &early_hash), "does not follow"),
                (row(1, 1, early + 1, &early_hash), "the archive"),
                (row(1, 1, early, &last_hash), "ends with another event"),
                (row(1, 1, last, &last_hash), "is still needed"),
            ] {
                refused(&format!("{prelude}; {row}"), why).await;
            }
        }
        for role in ["farthing_gateway", "farthing_projector"] {
            for statement in [
                format!("{yes}; DELETE FROM ledger.batches"),
                row(1, 1, early, &early_hash),
                format!("INSERT INTO ledger.archive_restores (partition, number) VALUES ({of}, 1)"),
            ] {
                refused(&format!("SET LOCAL ROLE {role}; {statement}"), "permission denied").await;
            }
        }
        archived.unneeded().await;
        // The builder of a generation of states compares the event at its checkpoint.
        let keeps =
            "SELECT l.reached < (SELECT min(c.position) FROM ledger.checkpoints AS c WHERE c.partition = $1)
            FROM ledger.archive_limits($1) AS l WHERE l.what = 'stored states'";
        assert!(sql.query_one(keeps, &[&of_number]).await.unwrap().get::<_, bool>(0));
        archived.create_up_to_the_position("40").await;
        refused("DELETE FROM ledger.batches WHERE false", "append-only").await;
        refused("DELETE FROM ledger.archives", "append-only").await;
        refused("UPDATE ledger.archives SET sha256 = previous_hash", "append-only").await;
        refused("TRUNCATE ledger.archive_restores", "append-only").await;
        refused(&format!("{yes}; DELETE FROM ledger.batches WHERE partition = {of}"), "is not archived")
            .await;
        refused(
            &format!("INSERT INTO ledger.archive_restores (partition, number) VALUES ({of}, 1)"),
            if archived.files().len() > 1 { "is not the last one" } else { "is not back" },
        )
        .await;
        archived.verified().await;
        put_away(archived.merchant.instance).await;
    });
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

#[test]
fn no_record_batch_can_be_added_at_an_archived_position_and_an_audit_finds_one_that_is_there() {
    run(async {
        let archived = Archived::start(40).await;
        let (instance, sql, of) =
            (archived.merchant.instance, &archived.merchant.log.sql, &archived.partition);
        archived.create_up_to_the_position("20").await;
        let last = archived.last().await.unwrap();
        let row = |position: i64| {
            format!("INSERT INTO ledger.batches VALUES ({of}, {position}, 1, now(), 'x', '{{}}', sha256(''))")
        };
        let restored = format!(
            "SELECT ledger.restore_archived({of}::smallint, (SELECT max(number) FROM ledger.archived
                 WHERE partition = {of}), ARRAY[{last}::bigint], ARRAY[1], ARRAY[now()], ARRAY['x'],
                 ARRAY['{{}}'::bytea], ARRAY[sha256('')])"
        );
        let name = instance.name_of("a_forger");
        let role = format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'; GRANT farthing_gateway TO {name}");
        sql.batch_execute(&role).await.unwrap();
        let owner = instance.ready().database_url.clone();
        let (_, server) = owner.split_once('@').unwrap();
        let url = format!("postgres://{name}:secret@{server}");
        let (gateway, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let is_archived = async |login: &Client, statement: &str| {
            let error = login.batch_execute(statement).await.unwrap_err();
            let message = error.as_db_error().unwrap_or_else(|| panic!("{statement}: {error}")).message();
            assert!(message.contains("is archived"), "{statement}: {message}");
        };
        let forged: Vec<_> = [1, 2, last / 2, last].into_iter().map(row).collect();
        for parameter in ["SELECT 1", "SET farthing.restores_archived = 'yes'"] {
            gateway.batch_execute(parameter).await.unwrap();
            for statement in forged.iter().chain([&restored]) {
                is_archived(&gateway, statement).await;
            }
        }
        for setting in ["origin", "replica"] {
            sql.batch_execute(&format!("SET session_replication_role = {setting}")).await.unwrap();
            for statement in &forged {
                is_archived(sql, statement).await;
            }
        }
        sql.batch_execute("SET session_replication_role = origin").await.unwrap();
        // What follows the archived ranges is not looked at by the trigger.
        gateway.batch_execute(&format!("BEGIN; {}; ROLLBACK", row(last + 1_000_000))).await.unwrap();
        archived.verified().await;

        let place = json!([{"partition": archived.number(), "position": 2}]);
        forces(sql, &row(2)).await;
        let (code, report, errors) = archived.audit(&[]).await;
        assert_eq!((code, &report["first_broken"]), (Some(1), &place), "{report} {errors}");
        let positions = check(&report, "positions");
        assert_eq!(positions["broken"], 1, "{positions}");
        assert!(positions["findings"][0]["text"].to_string().contains("another record batch"), "{positions}");
        assert_eq!(check(&report, "archives")["verdict"], "verified", "{report}");
        let (code, report, errors) =
            archived.run(&["audit", "statement", "--wallet", &archived.merchant.wallet_id]).await;
        assert!(code == Some(1) && report.to_string().contains("another record batch"), "{report} {errors}");
        let (code, _, errors) = archived.run(&["archive", "create"]).await;
        assert!(code == Some(1) && errors.contains("another record batch"), "nothing is deleted: {errors}");
        forces(sql, &format!("DELETE FROM ledger.batches WHERE partition = {of} AND first_position = 2"))
            .await;
        archived.verified().await;
        drop(gateway);
        sql.batch_execute(&format!("DROP ROLE {name}")).await.unwrap();
        put_away(instance).await;
    });
}

#[test]
fn an_archive_goes_to_no_folder_that_lacks_the_files_before_it() {
    run(async {
        let archived = Archived::start(40).await;
        let instance = archived.merchant.instance;
        archived.create_up_to_the_position("100000").await;
        let last = archived.last().await;
        let file = archived.files().pop().unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        // As an empty mount point is.
        let other = instance.file("another folder");
        std::fs::create_dir(&other).unwrap();
        let location = format!("file://{}", other.to_str().unwrap().replace(' ', "%20"));
        let partitions: i64 = archived
            .merchant
            .log
            .sql
            .query_one("SELECT count(*) FROM ledger.heads", &[])
            .await
            .unwrap()
            .get(0);
        for partition in 0..partitions {
            let partition = partition.to_string();
            let create = ["archive", "create", "--keep-events", "0", "--partition", &partition];
            let (code, _, errors) =
                outcome(instance, &[create.as_slice(), &["--archive", &location]].concat()).await;
            assert!(code == Some(1) && errors.contains(name) && errors.contains("it is missing"), "{errors}");
        }
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0, "nothing was written");

        let whole = std::fs::read(&file).unwrap();
        put(&file, Some(&whole[1..]));
        let (code, _, errors) = archived.run(&["archive", "create"]).await;
        let says = format!("there it has {} bytes", whole.len() - 1);
        assert!(code == Some(1) && errors.contains(name) && errors.contains(&says), "{errors}");
        assert_eq!(archived.last().await, last, "nothing was archived");
        put(&file, Some(&whole));
        let (code, report, errors) = archived.run(&["archive", "create"]).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        put_away(instance).await;
    });
}

#[test]
fn a_damaged_file_is_found_wherever_an_audit_begins() {
    run(async {
        let mut archived = Archived::start(30).await;
        let instance = archived.merchant.instance;
        let (private, public) = key(instance, "audit");
        let path = |name: &str| instance.file(name).into_os_string().into_string().unwrap();
        let (heads, early, late) = (path("heads"), path("early checkpoints"), path("late checkpoints"));
        let merchant = &archived.merchant;
        let position = head(&merchant.log.sql, archived.number()).await;
        let (code, report, errors) =
            outcome(instance, &["audit", "head", "--append", &heads, "--key-file", &private]).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        for _ in 0..10 {
            merchant.credit_own("0.01").await;
        }
        archived.position = head(&merchant.log.sql, archived.number()).await - 2;
        merchant.credit_own("0.01").await;
        merchant.log.stored().await;
        let to = position.to_string();
        let writes = ["--key-file", &private, "--checkpoints"];
        for rest in [vec![early.as_str(), "--to", &to], vec![late.as_str()]] {
            let (code, report, errors) = archived.audit(&[writes.as_slice(), &rest].concat()).await;
            assert_eq!(code, Some(0), "{report} {errors}");
        }
        archived.create_up_to_the_position("100000").await;
        let end = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            name.split('-').nth(1).unwrap().parse::<i64>().unwrap()
        };
        let file =
            archived.files().into_iter().find(|file| end(file) >= position).expect("a file with the head");
        let name = file.file_name().unwrap().to_str().unwrap();
        let original = std::fs::read(&file).unwrap();
        let from = (position + 1).to_string();
        let reads = ["--public-key-file", public.as_str()];
        let audits = [
            ("--from", vec!["--from", &from], "hash_chain"),
            ("a checkpoint", [reads.as_slice(), &["--checkpoints", &early]].concat(), "signed_checkpoints"),
            (
                "a published head before the checkpoint",
                [reads.as_slice(), &["--checkpoints", &late, "--head", &heads]].concat(),
                "published_heads",
            ),
        ];
        for (what, arguments, _) in &audits {
            let (code, report, errors) = archived.audit(arguments).await;
            assert_eq!(code, Some(0), "{what}: {report} {errors}");
        }
        for bytes in [Some(flipped(&original)), None] {
            put(&file, bytes.as_deref());
            for (what, arguments, skipped) in &audits {
                let (code, report, errors) = archived.audit(arguments).await;
                assert_eq!(
                    (code, &report["verdict"]),
                    (Some(1), &json!("broken")),
                    "{what}: {report} {errors}"
                );
                let of_files = check(&report, "archives");
                assert_eq!(of_files["broken"], 1, "{what}: {report}");
                assert!(
                    of_files["findings"][0]["text"].as_str().unwrap().contains(name),
                    "{what}: {of_files}"
                );
                let skipped = check(&report, skipped);
                assert_eq!(skipped["broken"], 0, "{what}: {skipped}");
                assert!(skipped["skipped"].to_string().contains(name), "{what}: {skipped}");
            }
        }
        put(&file, Some(&original));
        archived.verified().await;
        put_away(instance).await;
    });
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
        put_away(archived.merchant.instance).await;
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
        put_away(instance).await;
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
        put_away(archived.merchant.instance).await;
    });
}

#[test]
fn a_changed_cut_off_or_missing_file_is_found_and_nothing_is_loaded_from_it() {
    run(async {
        let archived = Archived::start(60).await;
        archived.create_up_to_the_position("100000").await;
        // An amount of an event: a quote within the text of an event is escaped.
        let (amount, more) = (r#"\"0.01"#, r#"\"9.01"#);
        // The line of a batch with an amount, with lines before it and after it.
        let (file, original, text, line) = archived
            .files()
            .into_iter()
            .find_map(|file| {
                let original = std::fs::read(&file).unwrap();
                let text = String::from_utf8(zstd::stream::decode_all(&*original).unwrap()).unwrap();
                let line = text.lines().skip(1).find(|line| line.contains(amount))?.to_owned();
                (!text.ends_with(&format!("{line}\n"))).then_some((file, original, text, line))
            })
            .expect("a file with an amount in the middle");
        let (file, line) = (file.as_path(), line.as_str());
        let batch: Value = serde_json::from_str(line).unwrap();
        let (first, events) =
            (batch["first_position"].as_i64().unwrap(), batch["events"].as_array().unwrap());
        let index = events.iter().position(|event| event.as_str().unwrap().contains("\"0.01")).unwrap();
        let position = first + i64::try_from(index).unwrap();
        let changed_line = line.replacen(amount, more, 1);
        let compress = |text: &str| zstd::stream::encode_all(text.as_bytes(), 3).unwrap();
        let changed = compress(&text.replacen(line, &changed_line, 1));
        let without = compress(&text.replacen(&format!("{line}\n"), "", 1));
        let last = text.lines().last().unwrap();
        let cut: Value = serde_json::from_str(last).unwrap();
        let cut_position = cut["first_position"].as_i64().unwrap();
        let shorter = compress(&text[..text.len() - last.len() - 1]);
        for (what, bytes, position) in [
            ("an event is changed", Some(changed), Some(position)),
            ("a batch is missing", Some(without), Some(first)),
            ("the last batch is missing", Some(shorter), Some(cut_position)),
            ("a byte is changed", Some(flipped(&original)), None),
            ("it is cut off", Some(original[..original.len() / 2].to_vec()), None),
            ("it is gone", None, None),
        ] {
            put(file, bytes.as_deref());
            is_broken(&archived, file, what, position).await;
        }
        put(file, Some(&original));
        archived.verified().await;
        let (code, report, errors) = archived.run(&["archive", "verify"]).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        put_away(archived.merchant.instance).await;
    });
}

fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    bytes
}

fn put(file: &Path, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => std::fs::write(file, bytes).unwrap(),
        None => std::fs::remove_file(file).unwrap(),
    }
}

/// Asserts that the file is named as broken, at the position if it is known, and that it is not restored.
async fn is_broken(archived: &Archived, file: &Path, what: &str, position: Option<i64>) {
    let name = file.file_name().unwrap().to_str().unwrap();
    let (code, report, errors) = archived.run(&["archive", "verify"]).await;
    let findings = report["findings"].as_array().unwrap_or_else(|| panic!("{what}: {report} {errors}"));
    assert_eq!(code, Some(1), "{what}: {report}");
    assert!(
        findings.iter().all(|finding| finding["object"].as_str().unwrap().ends_with(name)),
        "{what}: {report}"
    );
    let (code, report, errors) = archived.run(&["audit", "verify", "--skip-read-tables"]).await;
    assert_eq!(code, Some(1), "{what}: {report} {errors}");
    let checked = check(&report, "archives");
    assert_eq!(checked["broken"], 1, "{what}: {checked}");
    assert!(checked["findings"][0]["text"].as_str().unwrap().contains(name), "{what}: {checked}");
    if let Some(position) = position {
        assert_eq!(report["first_broken"][0]["position"], position, "{what}: {report}");
        assert!(findings.iter().any(|finding| finding["position"] == position), "{what}: {findings:?}");
    }
    let before = archived.content().await;
    let restore = ["archive", "restore", "--partition", archived.partition.as_str()];
    let (code, _, errors) = archived.run(&restore).await;
    assert!(code == Some(1) && errors.contains("nothing was deleted or loaded"), "{what}: {errors}");
    assert_eq!(archived.content().await, before, "{what}");
}
