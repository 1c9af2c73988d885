//! What Postgres and the command refuse: to delete what is not archived, to add what is, and to write to another archive.

use serde_json::json;
use tokio_postgres::{Client, NoTls};

use super::{Archived, check, forces, outcome, put};
use crate::run;

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
        archived.put_away().await;
    });
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
        let (code, _, errors) = archived.run(&["archive", "restore", "--partition", of]).await;
        let says = "position 2: the table has other events than ";
        assert!(code == Some(1) && errors.contains(says), "{code:?} {errors}");
        assert!(errors.contains("its range still counts as archived"), "{errors}");
        assert!(archived.last().await >= Some(2), "the range of the other batch is not restored");
        forces(sql, &format!("DELETE FROM ledger.batches WHERE partition = {of} AND first_position = 2"))
            .await;
        archived.verified().await;
        drop(gateway);
        sql.batch_execute(&format!("DROP ROLE {name}")).await.unwrap();
        archived.put_away().await;
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
            assert!(code == Some(2) && errors.contains("does not have") && errors.contains(name), "{errors}");
        }
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0, "nothing was written");

        let whole = std::fs::read(&file).unwrap();
        put(&file, Some(&whole[1..]));
        let (code, _, errors) = archived.run(&["archive", "create"]).await;
        let says = format!("it has {} bytes", whole.len() - 1);
        assert!(code == Some(1) && errors.contains(name) && errors.contains(&says), "{errors}");
        assert_eq!(archived.last().await, last, "nothing was archived");
        put(&file, Some(&whole));
        let (code, report, errors) = archived.run(&["archive", "create"]).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        // No log of a test has the 200,000 events that stay by default.
        for created in report["partitions"].as_array().unwrap() {
            assert_eq!(created["limit_position"], 0, "{created}");
        }
        archived.put_away().await;
    });
}
