//! Transactions of the projector that fail with rows in them: another writer has moved the checkpoint, or a row collides. The
//! statements of a transaction are sent together, so those after the failed one are on their way: nothing of them is kept, the
//! first error is the one that is reported, and the projection goes on by itself.

use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::process::signal;
use farthing_tests::wait::eventually;

use crate::shop::Shop;
use crate::{put_away, run};

/// The partitions whose checkpoint is not at the head of the log.
const NOT_AT_HEADS: &str = "\
SELECT count(*) FROM {model}.checkpoint AS c JOIN ledger.heads AS h USING (partition) WHERE c.position <> h.position";

/// Puts the checkpoint in partition $1, which is at position $2, at position $3.
const PUT_CHECKPOINT: &str =
    "UPDATE {model}.checkpoint SET position = $3 WHERE partition = $1 AND position = $2";

/// Whether a transaction of the projector waits for a row of the checkpoint. $1 is how its statement begins.
const WAITS: &str = "\
SELECT EXISTS (SELECT FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND starts_with(query, $1))";

/// Makes the pairs of requests unique, each of which has one pair in this test: no index of the pairs themselves is.
const MAKE_PAIRS_UNIQUE: &str =
    "CREATE UNIQUE INDEX one_pair ON requests.metadata_pairs (partition, request_id)";

const LET_PAIRS: &str = "DROP INDEX requests.one_pair";

/// The tables of requests in the order in which they are written, each with a statement that puts a row of the request $2 in
/// partition $1 there.
const COLLISIONS: [(&str, &str); 3] = [
    (
        "opened",
        "INSERT INTO requests.opened (partition, request_id, merchant_id, created_at, charge, provider, \
         provider_key_type, endpoint, service_charge_payer) VALUES ($1, $2, '', now(), '', '', '', '', '')",
    ),
    (
        "metadata_pairs",
        "INSERT INTO requests.metadata_pairs (partition, request_id, pair, created_at) VALUES ($1, $2, '', now())",
    ),
    (
        "ended",
        "INSERT INTO requests.ended (partition, request_id, status, ended_at) VALUES ($1, $2, 'error', now())",
    ),
];

impl Shop {
    /// Makes a call, which is charged; returns its id.
    async fn charged_call(&self) -> String {
        let response = self.call().await;
        self.merchant.charged(&response).await;
        response.request_id()
    }

    /// The position of the last event in the merchant's partition.
    async fn head(&self, partition: i16) -> i64 {
        let heads = self.merchant.log.heads().await;
        heads.iter().find(|head| head.partition == partition).unwrap().position
    }

    /// Waits until the checkpoint of `model` is at the heads of the log: the projector has nothing to write.
    async fn is_at_heads(&self, model: &str) {
        let behind = NOT_AT_HEADS.replace("{model}", model);
        eventually("the checkpoint is at the heads", async || {
            let found = self.merchant.log.sql.query_one(behind.as_str(), &[]).await.unwrap();
            (found.get::<_, i64>(0) == 0).then_some(())
        })
        .await;
    }

    async fn equals_the_log(&self, model: &str) {
        let report = self.merchant.instance.operate(&["projections", "verify", model]).await;
        assert_eq!(report["differences"], 0, "{report}");
    }
}

/// The lines of the projector's log that say why `model` was started again, without one that is not whole yet.
fn restarts(instance: &Instance, model: &str) -> Vec<String> {
    let log = std::fs::read_to_string(instance.data.join("logs/projector-0.log")).unwrap();
    let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let named = format!("\"{model}\"");
    let said = lines.filter(|line| line.contains("projection.restarted") && line.contains(&named));
    said.map(str::to_owned).collect()
}

#[test]
fn a_transaction_with_rows_that_another_writer_fences_out_leaves_none_of_them() {
    run(async {
        let instance = Instance::of_test(1).await;
        let shop = Shop::open(instance).await;
        let partition = shop.merchant.partition().await;
        let other = Log::open(&instance.ready().database_url).await;
        for model in ["requests", "entries"] {
            shop.charged_call().await;
            let before = shop.head(partition).await;
            // It changes no row of these models: a checkpoint may be before it or after it, with the same rows.
            shop.merchant.call_meter("1").await;
            let after = shop.head(partition).await;
            assert!(before < after);
            shop.is_at_heads(model).await;
            let fenced = restarts(instance, model).len();
            other.sql.batch_execute("BEGIN").await.unwrap();
            let put = PUT_CHECKPOINT.replace("{model}", model);
            assert_eq!(other.sql.execute(put.as_str(), &[&partition, &after, &before]).await.unwrap(), 1);
            // The first event changes a row, so whatever the projector has read when it meets the lock, it has rows to write.
            if model == "entries" {
                shop.merchant.credit(&shop.customer, "1").await;
            }
            let mut calls = Vec::new();
            for _ in 0..3 {
                calls.push(shop.charged_call().await);
            }
            let moves = format!("UPDATE {model}.checkpoint AS c ");
            eventually("the projector meets the other writer", async || {
                let found = shop.merchant.log.sql.query_one(WAITS, &[&moves]).await.unwrap();
                found.get::<_, bool>(0).then_some(())
            })
            .await;
            other.sql.batch_execute("COMMIT").await.unwrap();
            let said = eventually("the projector is fenced out", async || {
                let said = restarts(instance, model).split_off(fenced);
                (!said.is_empty()).then_some(said)
            })
            .await;
            assert!(said[0].contains("another projector moved the checkpoint"), "{said:?}");
            shop.is_at_heads(model).await;
            for id in &calls {
                shop.merchant.shown(id, "completed").await;
            }
            // A row that the fenced transaction had left would collide with the same one now, in every attempt.
            assert_eq!(restarts(instance, model).len(), fenced + 1);
            shop.equals_the_log(model).await;
        }
        put_away(instance).await;
    });
}

#[test]
fn a_row_that_collides_in_any_of_the_tables_is_the_error_that_is_reported() {
    run(async {
        let instance = Instance::of_test(1).await;
        let shop = Shop::open(instance).await;
        let partition = shop.merchant.partition().await;
        let sql = &shop.merchant.log.sql;
        let projector = instance.ready().pids.projectors[0];
        sql.batch_execute(MAKE_PAIRS_UNIQUE).await.unwrap();
        for (table, insert) in COLLISIONS {
            shop.is_at_heads("requests").await;
            let before = restarts(instance, "requests").len();
            // The id of a request is known only once it is made: its rows must not be written before the collision is there.
            signal(projector, "STOP");
            let id = shop.charged_call().await;
            assert_eq!(sql.execute(insert, &[&partition, &id]).await.unwrap(), 1, "{table}");
            signal(projector, "CONT");
            eventually("the collision is met", async || {
                (restarts(instance, "requests").len() > before).then_some(())
            })
            .await;
            let delete = format!("DELETE FROM requests.{table} WHERE partition = $1 AND request_id = $2");
            assert_eq!(sql.execute(delete.as_str(), &[&partition, &id]).await.unwrap(), 1, "{table}");
            shop.merchant.shown(&id, "completed").await;
            // Neither what the statements after it say, nor responses that are taken for those of another statement.
            for said in restarts(instance, "requests").split_off(before) {
                assert!(said.contains("duplicate key") && said.contains("SQLSTATE 23505"), "{table}: {said}");
            }
            shop.equals_the_log("requests").await;
        }
        sql.batch_execute(LET_PAIRS).await.unwrap();
        put_away(instance).await;
    });
}
