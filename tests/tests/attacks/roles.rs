//! Logins with the rights of one process: what they can do beyond it, and how they could come by more.

use farthing_log::connect::{Role, connect};
use farthing_tests::client::Request;
use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::tenant::Tenant;
use serde_json::json;
use tokio::process::Command;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// A login that is a member of `role`, or of none. Its name at the server is [`Instance::name_of`] `name`.
async fn login(instance: &Instance, tenant: &Tenant, name: &str, role: &str) -> Client {
    let name = instance.name_of(name);
    let membership = if role.is_empty() { String::new() } else { format!("GRANT {role} TO {name};") };
    let sql = format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'; {membership}");
    tenant.log.sql.batch_execute(&sql).await.unwrap();
    let (_, server) = tenant.database_url.split_once('@').unwrap();
    let url = format!("postgres://{name}:secret@{server}");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// What no process may do. The owner of the database is `{owner}`.
const FORBIDDEN: [&str; 26] = [
    "UPDATE ledger.batches SET writer = 'x'",
    "DELETE FROM ledger.batches",
    "TRUNCATE ledger.batches",
    "SET session_replication_role = replica",
    "ALTER TABLE ledger.batches DISABLE TRIGGER ALL",
    "DROP TRIGGER append_only_rows ON ledger.batches",
    "DROP TABLE ledger.batches",
    "ALTER FUNCTION ledger.refuse_change() RENAME TO other",
    "CREATE OR REPLACE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE FUNCTION ledger.other() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE TABLE ledger.other (a integer)",
    "CREATE TABLE public.other (a integer)",
    "UPDATE ledger.instance SET mode = 'live'",
    "UPDATE ledger.server_key_mark SET mark = 'x'",
    "DELETE FROM ledger.server_key_mark",
    "UPDATE ledger.read_models SET schema_name = 'other'",
    "COPY ledger.batches TO PROGRAM 'true'",
    "COPY ledger.batches TO '/tmp/farthing-batches'",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "ALTER SYSTEM SET archive_command = 'true'",
    "CREATE ROLE other",
    "SET ROLE {owner}",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{owner}'",
    "SELECT * FROM pg_authid",
];

#[test]
fn no_login_of_a_process_can_change_the_log_or_come_by_more_rights() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "roles_of_logins", "test").await;
        let gateway = login(instance, &tenant, "only_a_gateway", "farthing_gateway").await;
        let projector = login(instance, &tenant, "only_a_projector", "farthing_projector").await;
        let finance = login(instance, &tenant, "only_a_reader", "").await;
        let reader = instance.name_of("only_a_reader");
        let schemas =
            format!("GRANT USAGE ON SCHEMA ledger TO {reader}; GRANT SELECT ON ledger.events TO {reader};");
        tenant.log.sql.batch_execute(&schemas).await.unwrap();
        let owner: String = tenant.log.sql.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
        for (name, sql) in [("gateway", &gateway), ("projector", &projector), ("reader", &finance)] {
            for forbidden in FORBIDDEN {
                let forbidden = forbidden.replace("{owner}", &owner);
                assert!(sql.batch_execute(&forbidden).await.is_err(), "{name}: {forbidden}");
            }
        }
        let server_key = "SELECT server_key FROM ledger.instance";
        let personal = "SELECT * FROM personal.customer";
        for (sql, forbidden) in [
            (&gateway, "SET ROLE farthing_projector"),
            (&gateway, "CREATE SCHEMA other"),
            (&projector, "SET ROLE farthing_gateway"),
            (&projector, server_key),
            (&projector, personal),
            (&projector, "UPDATE ledger.heads SET position = 0"),
            (&projector, "INSERT INTO ledger.facts VALUES (0, 'x', 1)"),
            (&finance, server_key),
            (&finance, personal),
            (&finance, "SELECT * FROM ledger.batches"),
            (&finance, "CREATE SCHEMA other"),
        ] {
            assert!(sql.batch_execute(forbidden).await.is_err(), "{forbidden}");
        }
        finance.batch_execute("SELECT * FROM ledger.events").await.unwrap();
        // Append-only for the owner too, even where triggers of replicas do not fire.
        for change in [
            "UPDATE ledger.batches SET writer = 'x'",
            "DELETE FROM ledger.batches",
            "TRUNCATE ledger.batches",
        ] {
            for as_replica in
                ["SET session_replication_role = origin", "SET session_replication_role = replica"]
            {
                tenant.log.sql.batch_execute(as_replica).await.unwrap();
                assert!(tenant.log.sql.batch_execute(change).await.is_err(), "{as_replica}: {change}");
            }
        }
        let verified = operate(&tenant.database_url, &["log", "verify"]).await;
        assert_eq!(verified["ok"], true, "{verified}");
    });
}

/// A batch far behind the head, as a login of a gateway can write it.
const STRAY: &str = "\
INSERT INTO ledger.batches
SELECT partition, 1000000, 1, now(), 'stray', '{}', sha256('') FROM ledger.heads";

#[test]
fn a_stray_batch_behind_the_head_is_found_and_stops_nothing() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "stray_batch", "test").await;
        let projector = SideProjector::on(instance, &tenant.database_url).await;
        let gateway = tenant.gateway(instance).await;
        let sql = login(instance, &tenant, "a_stray_gateway", "farthing_gateway").await;
        sql.batch_execute(STRAY).await.unwrap();
        let body = json!({"reference_id": "ada"});
        tenant.post(gateway.address, "/v1/customers", &body).await.expect(201);
        let shown = tenant.rest(gateway.address, Request::new("GET", "/v1/customers/ada")).await;
        shown.expect(200);
        assert_eq!(shown.head.header("x-service-stale"), None);
        drop((gateway, projector));
        let verified = Command::new(program())
            .args(["log", "verify", "--json", "--database-url", &tenant.database_url])
            .output()
            .await
            .unwrap();
        assert_eq!(verified.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&verified.stdout).contains("the events are missing"));
    });
}

/// Takes the rights of whoever runs it.
const TAKE: &str = "
    CREATE SCHEMA {schema};
    CREATE FUNCTION {schema}.take() RETURNS SETOF record LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
            ALTER ROLE {climber} SUPERUSER;
        END IF;
        RETURN QUERY SELECT 1, 'log'::varchar, '2026-01-01T00:00:00Z'::varchar, '0'::varchar;
    END $$;
    CREATE VIEW {schema}.refinery_schema_history AS
        SELECT * FROM {schema}.take() AS t(version integer, name varchar, applied_on varchar, checksum varchar);
    GRANT USAGE ON SCHEMA {schema} TO PUBLIC;
    GRANT SELECT ON {schema}.refinery_schema_history TO PUBLIC;";

#[test]
fn a_projector_cannot_put_its_own_functions_in_the_way_of_a_migration() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "climbing", "test").await;
        let projector = login(instance, &tenant, "a_climber", "farthing_projector").await;
        // Postgres looks first in the schema that has the name of the role.
        let owner: String = tenant.log.sql.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
        let climber = instance.name_of("a_climber");
        let take = TAKE.replace("{schema}", &owner).replace("{climber}", &climber);
        projector.batch_execute(&take).await.unwrap();
        let mut migrate = Command::new(program());
        migrate.args(["migrate", "--mode", "test", "--database-url", &tenant.database_url]);
        let migrated = migrate.output().await.unwrap();
        let has_climbed = "SELECT rolsuper FROM pg_roles WHERE rolname = $1";
        let has_climbed = tenant.log.sql.query_one(has_climbed, &[&climber]).await.unwrap();
        assert!(!has_climbed.get::<_, bool>(0), "it is a superuser");
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    });
}

#[test]
fn names_without_a_schema_are_looked_up_where_no_other_role_may_create_them() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "search_paths", "test").await;
        let projector = login(instance, &tenant, "a_squatter", "farthing_projector").await;
        for schema in ["farthing", "farthing_gateway", "farthing_projector"] {
            let squat = format!(
                "CREATE SCHEMA {schema}; GRANT USAGE ON SCHEMA {schema} TO PUBLIC;
                 CREATE FUNCTION {schema}.whose() RETURNS text LANGUAGE sql AS 'SELECT current_user::text'"
            );
            projector.batch_execute(&squat).await.unwrap();
        }
        for role in [Role::Owner, Role::Gateway, Role::Projector] {
            let sql = connect(&tenant.database_url, role).await.unwrap();
            let squatted = sql.batch_execute("SELECT whose()").await.unwrap_err();
            assert_eq!(squatted.code(), Some(&SqlState::UNDEFINED_FUNCTION), "{role:?}: {squatted}");
        }
    });
}

#[test]
fn the_projector_reads_neither_the_server_key_nor_personal_data() {
    run(async {
        let sql = Merchant::new().await.log.sql;
        let as_projector = async |statement: &str| {
            let statement = format!("BEGIN; SET LOCAL ROLE farthing_projector; {statement}; COMMIT");
            let done = sql.batch_execute(&statement).await;
            sql.batch_execute("ROLLBACK").await.unwrap();
            done
        };
        as_projector("SELECT position FROM ledger.heads").await.unwrap();
        for statement in ["SELECT server_key FROM ledger.instance", "SELECT * FROM personal.customer"] {
            let refused = as_projector(statement).await.unwrap_err();
            let code = refused.code().unwrap().code().to_owned();
            assert_eq!(code, "42501", "{statement}: {refused}");
        }
    });
}
