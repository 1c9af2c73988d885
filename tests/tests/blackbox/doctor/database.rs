//! A database with one fault after another: each is found by its check, and mended again.

use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::servers;
use farthing_tests::wait::eventually;

use super::{doctor, migrated};

/// A fault: the statement that makes it, the check that finds it, its verdict, what it says, and the statement that mends it.
/// The database is `{database}`, a login `{login}`.
type Fault = (&'static str, &'static str, &'static str, &'static str, &'static str);

const FAULTS: [Fault; 24] = [
    (
        "ALTER DATABASE {database} SET default_transaction_read_only = on",
        "postgres.transactions",
        "failed",
        "default_transaction_read_only is on",
        "ALTER DATABASE {database} RESET default_transaction_read_only",
    ),
    (
        "ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'",
        "postgres.transactions",
        "failed",
        "default_transaction_isolation is serializable",
        "ALTER DATABASE {database} RESET default_transaction_isolation",
    ),
    (
        "ALTER DATABASE {database} SET statement_timeout = '30s'",
        "postgres.timeouts",
        "warning",
        "statement_timeout is 30",
        "ALTER DATABASE {database} RESET statement_timeout",
    ),
    (
        "ALTER ROLE {login} IN DATABASE {database} SET lock_timeout = '1s'",
        "postgres.timeouts",
        "warning",
        "lock_timeout is 1s for the login {login}",
        "ALTER ROLE {login} IN DATABASE {database} RESET lock_timeout",
    ),
    (
        "ALTER TABLE ledger.batches ALTER COLUMN events SET COMPRESSION pglz",
        "postgres.compression",
        "warning",
        "not compressed with lz4",
        "ALTER TABLE ledger.batches ALTER COLUMN events SET COMPRESSION lz4",
    ),
    (
        "ALTER DATABASE {database} CONNECTION LIMIT 6",
        "postgres.connections",
        "warning",
        "the database allows 6",
        "ALTER DATABASE {database} CONNECTION LIMIT -1",
    ),
    (
        "REVOKE UPDATE ON ledger.heads FROM farthing_gateway",
        "rights.roles",
        "failed",
        "rights are missing: farthing_gateway: UPDATE on ledger.heads",
        "GRANT UPDATE ON ledger.heads TO farthing_gateway",
    ),
    (
        "REVOKE USAGE ON SCHEMA webhooks FROM farthing_projector",
        "rights.roles",
        "failed",
        "farthing_projector: USAGE on webhooks",
        "GRANT USAGE ON SCHEMA webhooks TO farthing_projector",
    ),
    (
        "GRANT TRUNCATE ON ledger.batches TO farthing_projector",
        "rights.roles",
        "failed",
        "may do more than they need: farthing_projector: TRUNCATE on ledger.batches",
        "REVOKE TRUNCATE ON ledger.batches FROM farthing_projector",
    ),
    (
        "GRANT SELECT ON personal.customer TO PUBLIC",
        "rights.roles",
        "failed",
        "farthing_projector: SELECT on personal.customer",
        "REVOKE SELECT ON personal.customer FROM PUBLIC",
    ),
    (
        "UPDATE public.refinery_schema_history SET version = 1009 WHERE version = 9",
        "database.migrations",
        "failed",
        "migrations are missing: V9__server_key_mark",
        "UPDATE public.refinery_schema_history SET version = 9 WHERE version = 1009",
    ),
    (
        "UPDATE public.refinery_schema_history SET checksum = 'x' || checksum WHERE version = 2",
        "database.migrations",
        "failed",
        "migrations differ from those of this version: V2__roles",
        "UPDATE public.refinery_schema_history SET checksum = substr(checksum, 2) WHERE version = 2",
    ),
    (
        "INSERT INTO public.refinery_schema_history (version, name, applied_on, checksum)
         VALUES (1000, 'later', '2026-01-01T00:00:00Z', '1')",
        "database.migrations",
        "warning",
        "a newer version has migrated the database: V1000__later",
        "DELETE FROM public.refinery_schema_history WHERE version = 1000",
    ),
    (
        "ALTER TABLE ledger.batches DISABLE TRIGGER append_only_rows",
        "database.append_only",
        "failed",
        "the trigger append_only_rows does not always fire",
        "ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_rows",
    ),
    (
        "ALTER TABLE ledger.batches ENABLE TRIGGER append_only_statements",
        "database.append_only",
        "failed",
        "the trigger append_only_statements does not always fire",
        "ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_statements",
    ),
    (
        "ALTER TABLE ledger.batches DISABLE TRIGGER not_archived",
        "database.append_only",
        "failed",
        "the trigger not_archived does not always fire",
        "ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER not_archived",
    ),
    (
        "UPDATE ledger.heads SET shape = shape + 1 WHERE partition = 3",
        "database.shape",
        "failed",
        "of a newer version",
        "UPDATE ledger.heads SET shape = shape - 1 WHERE partition = 3",
    ),
    (
        "UPDATE ledger.heads SET generation = generation - 1 WHERE partition = 3",
        "database.shape",
        "warning",
        "the states are of the generation",
        "UPDATE ledger.heads SET generation = generation + 1 WHERE partition = 3",
    ),
    (
        "UPDATE ledger.read_models SET built = false WHERE name = 'plans'",
        "database.read_models",
        "warning",
        "not built yet: plans",
        "UPDATE ledger.read_models SET built = true WHERE name = 'plans'",
    ),
    (
        "UPDATE ledger.read_models SET version = version + 1 WHERE name = 'plans'",
        "database.read_models",
        "failed",
        "plans has no generation of this version",
        "UPDATE ledger.read_models SET version = version - 1 WHERE name = 'plans'",
    ),
    (
        "INSERT INTO ledger.server_key_mark (mark) VALUES ('of another key')",
        "database.server_key",
        "failed",
        "not the one that the instance uses",
        "DELETE FROM ledger.server_key_mark",
    ),
    (
        "INSERT INTO ledger.gateways (gateway, shape, expires_at)
         SELECT 'gw_dead', max(shape), now() - interval '1 hour' FROM ledger.heads
         UNION ALL SELECT 'gw_alive', max(shape), now() + interval '1 hour' FROM ledger.heads",
        "processes.gateways",
        "warning",
        "requests of dead gateways were not ended: gw_dead",
        "DELETE FROM ledger.gateways",
    ),
    (
        "INSERT INTO ledger.gateways (gateway, shape, expires_at)
         SELECT 'gw_newer', max(shape) + 1, now() + interval '1 hour' FROM ledger.heads",
        "processes.gateways",
        "warning",
        "gateways of another version run: gw_newer",
        "DELETE FROM ledger.gateways",
    ),
    (
        "INSERT INTO webhooks.lane (partition, webhook_id, lane, due_at)
         VALUES (2, 'wh_1', 'x', now() - interval '1 hour')",
        "lag.deliveries",
        "failed",
        "a delivery of partition 2 has been due for",
        "DELETE FROM webhooks.lane",
    ),
];

/// A batch of a gateway whose clock is an hour ahead, which no reader has seen. It cannot be taken back.
const UNSEEN: &str = "
INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
SELECT partition, 1, 3, now() + interval '1 hour', 'gw_fast', '{}', decode(repeat('00', 96), 'hex')
FROM ledger.heads WHERE partition = 0;
UPDATE ledger.heads SET position = 3 WHERE partition = 0";

/// The same of a partition whose gateway is ten minutes behind.
const LONG_UNSEEN: &str = "
INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
SELECT partition, 1, 1, now() - interval '10 minutes', 'gw_slow', '{}', decode(repeat('00', 32), 'hex')
FROM ledger.heads WHERE partition = 1;
UPDATE ledger.heads SET position = 1 WHERE partition = 1";

#[test]
fn each_fault_of_a_database_is_found_by_its_check() {
    run(async {
        let instance = Instance::shared().await;
        let url = migrated(instance, "doctor_faults").await;
        let (name, login) = (instance.name_of("doctor_faults"), instance.name_of("doctor_limited"));
        let log = Log::open(&url).await;
        let sql = async |statement: &str| {
            let statement = statement.replace("{database}", &name).replace("{login}", &login);
            log.sql.batch_execute(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        };
        sql("CREATE ROLE {login} LOGIN").await;
        let before = doctor(&url, &[]).await;
        let has_lz4 = servers::has_lz4(&log).await;
        if !has_lz4 {
            before.expect("postgres.compression", "warning", "not compressed with lz4");
        }
        for (fault, check, verdict, said, mend) in FAULTS {
            if check == "postgres.compression" && !has_lz4 {
                continue;
            }
            let (_, found) = before.of(check);
            assert!(!found.contains(said), "{check}: {found}");
            sql(fault).await;
            doctor(&url, &[]).await.expect(check, verdict, &said.replace("{login}", &login));
            sql(mend).await;
        }
        // All of it was mended: what the checks of faults say comes again.
        let after = doctor(&url, &[]).await;
        for (_, check, ..) in FAULTS.iter().filter(|(_, check, ..)| *check != "postgres.connections") {
            assert_eq!(after.of(check), before.of(check));
        }

        let define = "SELECT pg_get_functiondef('ledger.refuse_change()'::regprocedure)";
        let original: String = log.sql.query_one(define, &[]).await.unwrap().get(0);
        sql("CREATE OR REPLACE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql
             AS 'BEGIN RETURN NEW; END'")
        .await;
        doctor(&url, &[]).await.expect("database.append_only", "failed", "the function of the trigger");
        sql(&original).await;
        doctor(&url, &[]).await.expect("database.append_only", "ok", "");

        sql(UNSEEN).await;
        let unseen = doctor(&url, &[]).await;
        unseen.expect("clock.gateways", "warning", "gw_fast has recorded an event");
        unseen.expect("lag.read_models", "warning", "plans is 3 events behind");
        unseen.expect("lag.webhook_outbox", "warning", "webhook_outbox is 3 events behind");
        sql(LONG_UNSEEN).await;
        let unseen_for_long = doctor(&url, &[]).await;
        unseen_for_long.expect("lag.read_models", "failed", "plans is 4 events behind");
        unseen_for_long.expect("lag.webhook_outbox", "failed", "");
    });
}

/// The doctor's session while it waits for a lock.
const WAITING: &str = "\
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'farthing_doctor' AND wait_event_type = 'Lock'";

#[test]
fn a_check_that_has_to_wait_fails_alone_when_its_time_is_over() {
    run(async {
        let instance = Instance::shared().await;
        let url = migrated(instance, "doctor_locks").await;
        let (holder, watcher) = (Log::open(&url).await, Log::open(&url).await);
        let lock = "BEGIN; LOCK TABLE public.refinery_schema_history IN ACCESS EXCLUSIVE MODE";
        holder.sql.batch_execute(lock).await.unwrap();
        let seen = eventually("the doctor waits", async || {
            let waiting: i64 = watcher.sql.query_one(WAITING, &[]).await.unwrap().get(0);
            (waiting == 1).then_some(())
        });
        let (report, ()) = tokio::join!(doctor(&url, &["--timeout-seconds=4"]), seen);
        report.expect("database.migrations", "failed", "canceling statement due to");
        report.expect("database.append_only", "ok", "");
        report.expect("database.shape", "ok", "8 partitions");
        holder.sql.batch_execute("COMMIT").await.unwrap();
    });
}

/// The rights on tables that the migrations gave the roles.
const GRANTED: &str = "\
SELECT grantee.rolname || ': ' || acl.privilege_type || ' on ' || n.nspname || '.' || c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL aclexplode(c.relacl) AS acl
JOIN pg_roles AS grantee ON grantee.oid = acl.grantee
WHERE grantee.rolname IN ('farthing_gateway', 'farthing_projector') AND acl.grantee <> c.relowner
    AND n.nspname IN ('ledger', 'personal', 'test_processor', 'webhooks')";

#[test]
fn every_right_that_the_migrations_give_is_missed() {
    run(async {
        let instance = Instance::shared().await;
        let url = migrated(instance, "doctor_rights").await;
        doctor(&url, &[]).await.expect("rights.roles", "ok", "and no more");
        let sql = Log::open(&url).await.sql;
        let granted: Vec<String> =
            sql.query(GRANTED, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert!(granted.len() > 50, "{granted:?}");
        let revoke = "REVOKE ALL ON ALL TABLES IN SCHEMA ledger, personal, test_processor, webhooks
                      FROM farthing_gateway, farthing_projector";
        sql.batch_execute(revoke).await.unwrap();
        let report = doctor(&url, &[]).await;
        for right in granted {
            report.expect("rights.roles", "failed", &right);
        }
    });
}

#[test]
fn a_database_that_is_not_migrated_fails_and_nothing_is_created_in_it() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.create_database("doctor_empty").await;
        let report = doctor(&url, &[]).await;
        assert_eq!(report.exit_code, Some(2));
        report.expect("postgres.reached", "ok", "");
        report.expect("database.migrations", "failed", "there is no log");
        for check in ["database.shape", "processes.leaders", "lag.read_models"] {
            report.expect(check, "failed", "");
        }
        let tables = "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                      WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')";
        let tables: i64 = Log::open(&url).await.sql.query_one(tables, &[]).await.unwrap().get(0);
        assert_eq!(tables, 0);
    });
}

#[test]
fn the_doctor_leaves_no_mark_of_a_key_and_compares_the_one_that_is_given() {
    run(async {
        let instance = Instance::shared().await;
        let url = migrated(instance, "doctor_keys").await;
        let log = Log::open(&url).await;
        let file = instance.secret_file(&"ab".repeat(32));
        let other = format!("--server-key-file={file}");
        doctor(&url, &[&other]).await.expect("database.server_key", "skipped", "no process has used a key");
        let marks = "SELECT count(*) FROM ledger.server_key_mark";
        assert_eq!(log.sql.query_one(marks, &[]).await.unwrap().get::<_, i64>(0), 0);

        operate(&url, &["merchant", "create"]).await;
        doctor(&url, &[]).await.expect("database.server_key", "ok", "");
        let another = doctor(&url, &[&other]).await;
        another.expect("database.server_key", "failed", "not the one");
        assert!(!another.json.to_string().contains("abab"), "the key is shown");
        let malformed = format!("--server-key-file={}", instance.secret_file("abcdef"));
        doctor(&url, &[&malformed]).await.expect("database.server_key", "failed", "64 hexadecimal digits");
    });
}

#[test]
fn logins_have_one_role_or_are_an_operators() {
    run(async {
        let instance = Instance::shared().await;
        let url = migrated(instance, "doctor_logins").await;
        let log = Log::open(&url).await;
        let (_, server) = url.split_once('@').unwrap();
        for (name, roles, verdict, said) in [
            ("doctor_no_role", "", "failed", "is a member of neither role"),
            ("doctor_two_roles", "farthing_gateway, farthing_projector", "warning", "has both roles"),
            ("doctor_a_gateway", "farthing_gateway", "ok", "is a member of farthing_gateway alone"),
        ] {
            let login = instance.name_of(name);
            let grant = if roles.is_empty() { String::new() } else { format!("GRANT {roles} TO {login}") };
            let create = format!("CREATE ROLE {login} LOGIN PASSWORD 'secret'; {grant}");
            log.sql.batch_execute(&create).await.unwrap();
            let report = doctor(&format!("postgres://{login}:secret@{server}"), &[]).await;
            report.expect("rights.login", verdict, said);
            // What it may not read is skipped, and says so.
            report.expect("database.migrations", "skipped", "may not read");
            report.expect("database.append_only", if roles.is_empty() { "skipped" } else { "ok" }, "");
        }
        doctor(&url, &[]).await.expect("rights.login", "ok", "right for operators' commands");
        let wrong = format!("postgres://{}:wrong@{server}", instance.name_of("doctor_a_gateway"));
        doctor(&wrong, &[]).await.expect("postgres.reached", "failed", "password authentication failed");
    });
}

#[test]
fn a_database_in_another_encoding_fails() {
    run(async {
        let instance = Instance::shared().await;
        let (log, name) = (instance.log().await, instance.name_of("doctor_ascii"));
        let create = format!(
            "CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C' \
             TEMPLATE template0"
        );
        log.sql.batch_execute(&create).await.unwrap();
        let url = instance.ready().database_url;
        let (server, _) = url.rsplit_once('/').unwrap();
        let report = doctor(&format!("{server}/{name}"), &[]).await;
        report.expect("postgres.encoding", "failed", "SQL_ASCII");
    });
}

#[test]
fn a_server_that_may_lose_commits_fails() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let instance = Instance::start(1).await;
        let (log, url) = (instance.log().await, instance.ready().database_url);
        let set = async |setting: &str, value: &str| {
            log.sql.batch_execute(&format!("ALTER SYSTEM SET {setting} = {value}")).await.unwrap();
            log.sql.batch_execute("SELECT pg_reload_conf()").await.unwrap();
            eventually("the setting is changed", async || {
                let row = log.sql.query_one(&format!("SHOW {setting}"), &[]).await.unwrap();
                (row.get::<_, String>(0) == value).then_some(())
            })
            .await;
        };
        for (setting, check, verdict) in [
            ("fsync", "postgres.durability", "failed"),
            ("full_page_writes", "postgres.durability", "failed"),
            ("autovacuum", "postgres.autovacuum", "warning"),
        ] {
            set(setting, "off").await;
            doctor(&url, &[]).await.expect(check, verdict, &format!("{setting} is off"));
            set(setting, "on").await;
        }
        // The launcher's processes log in as the owner, and it is a superuser.
        doctor(&url, &[]).await.expect("rights.processes", "warning", "which is a superuser");
    });
}
