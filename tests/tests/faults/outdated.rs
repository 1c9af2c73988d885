//! A database whose states and read models are of another version: a program of this version builds its own from the log,
//! unless the log does not verify, and one that is older than the log appends nothing and leads nothing.

use std::process::Stdio;

use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::forward;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::shop::Shop;
use crate::{instance, put_away, run};

/// States of an earlier generation, which this program cannot read.
const GARBLE_STATES: &str = "\
UPDATE ledger.state SET body = '{\"garbled\":true}', generation = generation - 1, shape = shape - 1;
UPDATE ledger.checkpoints SET generation = generation - 1;
UPDATE ledger.heads SET generation = generation - 1, shape = shape - 1, epoch = epoch + 1";

/// Read models with other tables, other rows, an unreadable checkpoint, and one from before versions existed.
const GARBLE_READ_MODELS: &str = "\
DROP TABLE requests.ended CASCADE;
ALTER TABLE customers.customers RENAME TO people;
TRUNCATE usage.quarters;
UPDATE meters.meters SET name = 'garbled';
DROP TABLE connections.checkpoint;
UPDATE ledger.read_models SET version = version - 1 WHERE name IN ('requests', 'customers', 'usage', 'connections');
DELETE FROM ledger.read_models WHERE name = 'meters'";

/// Runs the program on the instance's database, asserts that it fails, and returns its error output.
async fn refused(instance: &Instance, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).args(["--database-url", &instance.ready().database_url]).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    assert!(!output.status.success(), "{arguments:?} ran");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const GATEWAY: [&str; 2] = ["gateway", "--listen=127.0.0.1:0"];

async fn neither_role_starts(instance: &Instance) {
    for arguments in [&GATEWAY[..], &["projector"]] {
        let output = refused(instance, arguments).await;
        assert!(output.contains("run `farthing migrate`"), "{arguments:?}: {output}");
    }
}

impl Shop {
    /// Opens it with a spend key, so that every list has something to show.
    async fn with_a_spend_key(instance: &'static Instance) -> Self {
        let shop = Self::open(instance).await;
        shop.merchant.post("/v1/spend_keys", &json!({"name": "a key"})).await.expect(201);
        shop
    }

    /// Everything that the API shows.
    async fn shown(&self) -> Vec<Value> {
        let mut shown = Vec::new();
        for path in [
            "/v1/customers",
            "/v1/connections",
            "/v1/meters",
            "/v1/spend_keys",
            "/v1/requests",
            "/v1/secret_keys",
        ] {
            let page = self.merchant.get(path).await.expect(200);
            assert!(!page["data"].as_array().unwrap().is_empty(), "{path}");
            shown.push(page);
        }
        let usage = "/v1/usage?start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z";
        shown.push(self.merchant.get(usage).await.expect(200));
        shown
    }
}

async fn is_whole(instance: &Instance) {
    let report = instance.operate(&["log", "verify"]).await;
    assert_eq!(report["ok"], true, "{report}");
    let log = instance.log().await;
    let models = log.sql.query("SELECT DISTINCT name FROM ledger.read_models", &[]).await.unwrap();
    assert!(models.len() >= 7, "each read model has a version");
    for model in models {
        let report = instance.operate(&["projections", "verify", model.get(0)]).await;
        assert_eq!(report["differences"], 0, "{report}");
    }
}

#[test]
fn an_instance_of_another_version_builds_its_states_and_read_models_anew() {
    run(async {
        let instance = instance().await;
        let mut shop = Shop::with_a_spend_key(instance).await;
        for _ in 0..3 {
            shop.call().await;
        }
        let before = shop.shown().await;
        // Those of this version are not built again.
        let migrated = instance.operate(&["migrate", "--mode", "test"]).await;
        assert_eq!((&migrated["migrations"], &migrated["read_models"]), (&json!([]), &json!([])));

        shop.merchant.log.stored().await;
        let sql = &shop.merchant.log.sql;
        sql.batch_execute(GARBLE_READ_MODELS).await.unwrap();
        neither_role_starts(instance).await;
        sql.batch_execute(GARBLE_STATES).await.unwrap();
        instance.stop().await;
        instance.launch(2).await;

        shop.merchant.log = instance.log().await;
        is_whole(instance).await;
        assert_eq!(shop.shown().await, before);
        assert_eq!(shop.merchant.balance(&shop.customer).await, "8.5000000000");
        shop.call().await;
        assert_eq!(shop.merchant.balance(&shop.customer).await, "8.0000000000");
        is_whole(instance).await;
        let garbled = "SELECT count(*) FROM ledger.state WHERE body = '{\"garbled\":true}'";
        let garbled = async || shop.merchant.log.sql.query_one(garbled, &[]).await.unwrap().get::<_, i64>(0);
        assert!(garbled().await > 0, "the earlier generation is left");
        let report = instance.operate(&["prune"]).await;
        assert_eq!(garbled().await, 0);
        let pruned = json!(["customers", "connections", "requests", "usage"]);
        assert_eq!(report["read_models"], pruned, "{report}");
        is_whole(instance).await;
        assert_eq!(shop.shown().await[0], before[0]);
        put_away(instance).await;
    });
}

/// The number of leases that a gateway has.
const LEASES: &str = "SELECT count(*) FROM ledger.leases WHERE gateway IS NOT NULL";

#[test]
fn a_running_gateway_appends_and_leads_nothing_once_the_log_is_newer() {
    run(async {
        let instance = instance().await;
        let shop = Shop::with_a_spend_key(instance).await;
        shop.call().await;
        let sql = &shop.merchant.log.sql;
        // The first leader of a newer program also begins an epoch, which would stop the old one by itself.
        sql.batch_execute("UPDATE ledger.heads SET shape = shape + 1").await.unwrap();
        let head = shop.merchant.log.head().await;
        let request = forward("POST", &shop.endpoint.url);
        shop.merchant.send(&shop.credential, request).await.refused(503, "ledger_unavailable");
        eventually("the gateways give their leases back", async || {
            (sql.query_one(LEASES, &[]).await.unwrap().get::<_, i64>(0) == 0).then_some(())
        })
        .await;
        shop.merchant.post("/v1/customers", &json!({})).await.refused(503, "ledger_unavailable");
        assert_eq!(sql.query_one(LEASES, &[]).await.unwrap().get::<_, i64>(0), 0, "nobody claims one again");
        assert_eq!(shop.merchant.log.head().await, head);
        let output = refused(instance, &GATEWAY).await;
        assert!(output.contains("the log belongs to a newer version of this program"), "{output}");
        for number in 0..2 {
            let log = std::fs::read_to_string(instance.data.join(format!("logs/gateway-{number}.log")));
            assert!(log.unwrap().contains("leases.outdated"), "gateway {number}");
        }
        sql.batch_execute("UPDATE ledger.heads SET shape = shape - 1, epoch = epoch + 1").await.unwrap();
        eventually("the gateway appends again", async || {
            let answer = shop.merchant.post("/v1/customers", &json!({})).await;
            (answer.status == 201).then_some(())
        })
        .await;
        shop.call().await;
        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        put_away(instance).await;
    });
}

#[test]
fn states_are_not_built_from_a_log_that_does_not_verify() {
    run(async {
        let instance = instance().await;
        let shop = Shop::with_a_spend_key(instance).await;
        shop.call().await;
        let sql = &shop.merchant.log.sql;
        shop.merchant.log.stored().await;
        let partition = shop.merchant.partition().await;
        let tamper = format!(
            "ALTER TABLE ledger.batches DISABLE TRIGGER ALL;
             UPDATE ledger.batches SET recorded_at = recorded_at + interval '1 second'
             WHERE partition = {partition} AND first_position =
                 (SELECT max(first_position) FROM ledger.batches WHERE partition = {partition});
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_rows;
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_statements;
             {GARBLE_STATES}"
        );
        sql.batch_execute(&tamper).await.unwrap();
        let file = instance.file("builder.log");
        let mut gateway = tokio::process::Command::new(program());
        gateway.args(GATEWAY).args(["--database-url", &instance.ready().database_url]).stdin(Stdio::null());
        let mut gateway =
            gateway.stderr(std::fs::File::create(&file).unwrap()).kill_on_drop(true).spawn().unwrap();
        eventually("the build fails", async || {
            let output = std::fs::read_to_string(&file).ok()?;
            let names_it = output.contains(&format!("partition {partition}, position "));
            (names_it && output.contains("the hash does not follow")).then_some(())
        })
        .await;
        let of_partition =
            "SELECT h.generation < c.generation, h.position > c.position FROM ledger.heads AS h
            JOIN ledger.checkpoints AS c USING (partition)
            WHERE partition = $1 AND c.epoch < 0";
        let row = sql.query_one(of_partition, &[&partition]).await.unwrap();
        assert!(row.get(0) && row.get(1), "the generation is neither whole nor live");
        gateway.start_kill().unwrap();
        gateway.wait().await.unwrap();
        put_away(instance).await;
    });
}
