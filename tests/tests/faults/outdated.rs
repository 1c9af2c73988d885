//! A database whose states and read models have another version's shape: the roles do not start on it, and `farthing migrate`
//! rebuilds them from the log, or changes nothing if the log does not verify.

use std::process::Stdio;

use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::{Customer, Merchant, forward};
use farthing_tests::provider::{Endpoint, json};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::{instance, put_away};

/// Unreadable states, a missing one, and one without events.
const GARBLE_STATES: &str = "\
UPDATE ledger.state SET body = '{\"garbled\":true}' WHERE kind <> 'secret_key';
DELETE FROM ledger.state WHERE kind = 'wallet';
INSERT INTO ledger.state (partition, kind, id, body) VALUES (0, 'wallet', 'wal_nobodys', '{}');
UPDATE ledger.heads SET shape = shape - 1";

/// Read models with other tables, other rows, an unreadable checkpoint, and one from before versions existed.
const GARBLE_READ_MODELS: &str = "\
DROP TABLE requests.ended CASCADE;
ALTER TABLE customers.customers RENAME TO people;
TRUNCATE usage.quarters;
UPDATE meters.meters SET name = 'garbled';
DROP TABLE connections.checkpoint;
UPDATE ledger.shape SET version = version - 1 WHERE name IN ('requests', 'customers', 'usage', 'connections');
DELETE FROM ledger.shape WHERE name = 'meters'";

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

async fn gateway_does_not_start_on_such_states(instance: &Instance) {
    let output = refused(instance, &GATEWAY).await;
    assert!(output.contains("the stored states have the shape of another version"), "{output}");
}

struct Shop {
    merchant: Merchant,
    customer: Customer,
    credential: String,
    endpoint: Endpoint,
}

impl Shop {
    async fn open(instance: &'static Instance) -> Self {
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("10").await;
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("0.5").await;
        merchant.post("/v1/spend_keys", &json!({"name": "a key"})).await.expect(201);
        let credential = merchant.billing(&customer, &meter);
        let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        Self { merchant, customer, credential, endpoint }
    }

    async fn call(&self) {
        let request = forward("POST", &self.endpoint.url).header("x-service-metadata", r#"{"a":"b"}"#);
        self.merchant.send(&self.credential, request.json(&json!({}))).await.expect(200);
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
    let models = log.sql.query("SELECT name FROM ledger.shape", &[]).await.unwrap();
    assert!(models.len() >= 7, "each read model has a version");
    for model in models {
        let report = instance.operate(&["projections", "verify", model.get(0)]).await;
        assert_eq!(report["differences"], 0, "{report}");
    }
}

#[test]
fn migrate_rebuilds_an_instance_in_another_shape() {
    run(async {
        let instance = instance().await;
        let mut shop = Shop::open(instance).await;
        for _ in 0..3 {
            shop.call().await;
        }
        let before = shop.shown().await;
        // Current states and read models are not rebuilt.
        let migrated = instance.operate(&["migrate", "--mode", "test"]).await;
        assert_eq!((&migrated["states_folded"], &migrated["read_models_renewed"]), (&json!(0), &json!([])));

        let sql = &shop.merchant.log.sql;
        sql.batch_execute(GARBLE_READ_MODELS).await.unwrap();
        neither_role_starts(instance).await;
        sql.batch_execute(GARBLE_STATES).await.unwrap();
        gateway_does_not_start_on_such_states(instance).await;
        instance.stop().await;
        instance.launch(2).await;

        shop.merchant.log = instance.log().await;
        is_whole(instance).await;
        assert_eq!(shop.shown().await, before);
        assert_eq!(shop.merchant.balance(&shop.customer).await, "8.5000000000");
        shop.call().await;
        assert_eq!(shop.merchant.balance(&shop.customer).await, "8.0000000000");
        is_whole(instance).await;
        put_away(instance).await;
    });
}

#[test]
fn a_running_gateway_appends_nothing_to_a_log_of_another_shape() {
    run(async {
        let instance = instance().await;
        let shop = Shop::open(instance).await;
        shop.call().await;
        let sql = &shop.merchant.log.sql;
        // As `farthing migrate` of a newer program does: the shape and the epoch move, and states may be written.
        sql.batch_execute("UPDATE ledger.heads SET shape = shape + 1, epoch = epoch + 1").await.unwrap();
        let head = shop.merchant.log.head().await;
        for _ in 0..3 {
            let request = forward("POST", &shop.endpoint.url);
            shop.merchant.send(&shop.credential, request).await.refused(503, "ledger_unavailable");
            shop.merchant.post("/v1/customers", &json!({})).await.refused(503, "ledger_unavailable");
        }
        assert_eq!(shop.merchant.log.head().await, head);
        sql.batch_execute("UPDATE ledger.heads SET shape = shape - 1, epoch = epoch + 1").await.unwrap();
        // The leader tries again after a pause.
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
fn states_are_not_folded_from_a_log_that_does_not_verify() {
    run(async {
        let instance = instance().await;
        let shop = Shop::open(instance).await;
        shop.call().await;
        let sql = &shop.merchant.log.sql;
        let states = "SELECT count(*), sum(hashtext(kind || id || body)) FROM ledger.state";
        let stored = async || {
            let row = sql.query_one(states, &[]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        shop.merchant.log.stored().await;
        let before = stored().await;
        sql.batch_execute(
            "ALTER TABLE ledger.batches DISABLE TRIGGER ALL;
             UPDATE ledger.batches SET recorded_at = recorded_at + interval '1 second'
             WHERE first_position = (SELECT max(first_position) FROM ledger.batches);
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_rows;
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_statements;
             UPDATE ledger.heads SET shape = shape - 1",
        )
        .await
        .unwrap();
        let output = refused(instance, &["migrate", "--mode", "test"]).await;
        assert!(
            output.contains("wrong with the log") && output.contains("the hash does not follow"),
            "{output}"
        );
        assert_eq!(stored().await, before, "nothing was written");
        gateway_does_not_start_on_such_states(instance).await;
        // A database from before versions existed.
        sql.batch_execute("DROP TABLE ledger.shape").await.unwrap();
        neither_role_starts(instance).await;
        put_away(instance).await;
    });
}
