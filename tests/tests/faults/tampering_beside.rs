//! What a database role changes beside the events is found, too: batches that nothing leads to, heads, and the rows that say
//! how far a read model has come.

use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use serde_json::{Value, json};

use crate::{put_away, run};

/// The end of the positions.
const LAST: i64 = i64::MAX;

/// The exit code, the report and the errors of a command.
async fn outcome(instance: &Instance, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = instance.command(arguments).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Asserts that `audit verify` has a finding of `check` in a partition, whose text has `said`.
async fn found(instance: &Instance, check: &str, partition: i16, said: &str) {
    let (code, report, errors) = outcome(instance, &["audit", "verify"]).await;
    assert_eq!((code, &report["verdict"]), (Some(1), &json!("broken")), "{said}: {report} {errors}");
    let checks = report["checks"].as_array().unwrap();
    let of_check = checks.iter().find(|of| of["check"] == check).unwrap();
    let findings = of_check["findings"].as_array().unwrap();
    let is_there = |finding: &&Value| {
        finding["partition"] == partition && finding["text"].as_str().unwrap().contains(said)
    };
    assert!(findings.iter().any(|finding| is_there(&finding)), "{said}: {of_check}");
}

async fn sound(instance: &Instance) {
    let (code, report, errors) = outcome(instance, &["audit", "verify"]).await;
    assert_eq!((code, &report["verdict"]), (Some(0), &json!("verified")), "{report} {errors}");
}

#[test]
fn batches_that_nothing_leads_to_heads_and_missing_checkpoints_are_found() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1").await;
        merchant.get(&format!("/v1/ledger/entries?wallet_id={}", merchant.wallet_id)).await.expect(200);
        let partition = merchant.partition().await;
        let sql = async |text: &str| {
            let text = text.replace("{p}", &partition.to_string());
            merchant.log.sql.batch_execute(&text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        };
        sound(instance).await;
        batches(instance, partition, &sql).await;
        heads(instance, &sql).await;
        states_of_an_empty_partition(instance, &merchant, &sql).await;
        states_elsewhere(&merchant, &sql).await;

        // A changed row of a partition that the read model does not seem to have.
        sql("CREATE TEMP TABLE kept AS SELECT * FROM entries.checkpoint WHERE partition = {p};
             UPDATE entries.entries SET balance = balance + 1 WHERE partition = {p};
             DELETE FROM entries.checkpoint WHERE partition = {p}")
        .await;
        found(instance, "read_tables", partition, "entries.checkpoint has no row of it").await;
        sql("INSERT INTO entries.checkpoint SELECT * FROM kept;
             UPDATE entries.entries SET balance = balance - 1 WHERE partition = {p}")
        .await;
        sound(instance).await;
        read_tables(instance, partition, &sql).await;
        put_away(instance).await;
    });
}

/// A partition without events, and without the row that says how far its states have come.
async fn states_of_an_empty_partition(instance: &Instance, merchant: &Merchant, sql: &impl AsyncFn(&str)) {
    let empty = "SELECT partition FROM ledger.heads WHERE position = 0 LIMIT 1";
    let empty: i16 = merchant.log.sql.query_one(empty, &[]).await.unwrap().get(0);
    sql(&format!(
        "CREATE TEMP TABLE kept AS SELECT * FROM ledger.checkpoints WHERE partition = {empty};
         DELETE FROM ledger.checkpoints WHERE partition = {empty};
         UPDATE ledger.state SET partition = {empty} WHERE partition = {{p}}"
    ))
    .await;
    found(instance, "stored_states", empty, "states are stored, although it has no event").await;
    sql(&format!(
        "UPDATE ledger.state SET partition = {{p}} WHERE partition = {empty};
         INSERT INTO ledger.checkpoints SELECT * FROM kept; DROP TABLE kept"
    ))
    .await;
    sound(instance).await;
}

/// A stored state in another partition than its events leads no auditor astray, although a text there has the wallet's id.
async fn states_elsewhere(merchant: &Merchant, sql: &impl AsyncFn(&str)) {
    let (instance, wallet) = (merchant.instance, merchant.wallet_id.as_str());
    let partition = merchant.partition().await;
    let other = Merchant::whose_partition(instance, |its| its != partition).await;
    other.post("/v1/customers", &json!({"reference_id": wallet})).await.expect(201);
    let decoy = other.partition().await;
    merchant.log.stored().await;
    let empty = (0..8).find(|of| ![partition, decoy].contains(of)).unwrap();
    let audits = async || {
        let statement = ["audit", "statement", "--wallet", wallet, "--to", "2100-01-01"];
        let (code, statement, errors) = outcome(instance, &statement).await;
        assert_eq!((code, &statement["ok"]), (Some(0), &json!(true)), "{statement} {errors}");
        assert_eq!(statement["entries"].as_array().map(Vec::len), Some(1), "{statement}");
        let replay = instance.command(&["audit", "replay", wallet]).await;
        assert!(replay.status.success(), "{replay:?}");
        let replay = String::from_utf8(replay.stdout).unwrap();
        let state = replay.lines().next().unwrap().to_owned();
        assert!(state.contains(wallet) && state.contains("\"balance\""), "{replay}");
        (statement, state)
    };
    let before = audits().await;
    for place in [decoy, empty] {
        let moved = |from: i16, to: i16| {
            format!("UPDATE ledger.state SET partition = {to} WHERE partition = {from} AND id = '{wallet}'")
        };
        sql(&moved(partition, place)).await;
        found(instance, "stored_states", partition, wallet).await;
        assert_eq!(audits().await, before);
        sql(&moved(place, partition)).await;
        sound(instance).await;
    }
}

/// Rows that a careless reader would not see, and a table that cannot be compared.
async fn read_tables(instance: &Instance, partition: i16, sql: &impl AsyncFn(&str)) {
    // No floating-point number is so large.
    sql("INSERT INTO usage.quarters VALUES
         ({p}, 'mer_01ARZ3NDEKTSV4RRFFQ69G5FAV', '', '', now(), 1, 1e400, 0, 0, 0, 0, 0, 0)")
    .await;
    found(instance, "read_tables", partition, "of usage.quarters follows from no event").await;
    sql("DELETE FROM usage.quarters WHERE merchant_id = 'mer_01ARZ3NDEKTSV4RRFFQ69G5FAV'").await;
    sound(instance).await;

    // A row without a key would be in no range.
    sql("ALTER TABLE customers.customers DROP CONSTRAINT customers_pkey, ALTER customer_id DROP NOT NULL")
        .await;
    found(instance, "read_tables", partition, "the column customer_id of customers.customers may be null")
        .await;
    sql("ALTER TABLE customers.customers ALTER customer_id SET NOT NULL,
         ADD CONSTRAINT customers_pkey PRIMARY KEY (partition, customer_id)")
    .await;
    sound(instance).await;

    // What cannot be compared takes nothing from the verdict of the others.
    sql("ALTER TABLE meters.meters RENAME TO hidden").await;
    let (code, report, errors) = outcome(instance, &["audit", "verify"]).await;
    assert_eq!((code, &report["verdict"]), (Some(3), &json!("incomplete")), "{report} {errors}");
    let checks = report["checks"].as_array().unwrap();
    let of_rows = checks.iter().find(|of| of["check"] == "read_tables").unwrap();
    assert!(of_rows["skipped"].to_string().contains("meters: it cannot be compared"), "{of_rows}");
    assert!(of_rows["checked"].as_u64() > Some(0), "{of_rows}");
    sql("ALTER TABLE meters.hidden RENAME TO meters").await;
    sound(instance).await;
    let copies = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '_g[0-9]+$'";
    let left: i64 = instance.log().await.sql.query_one(copies, &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "no copy stays behind");
}

/// The role of a gateway may add batches, at any place.
async fn batches(instance: &Instance, partition: i16, sql: &impl AsyncFn(&str)) {
    for (of, first, check, said) in [
        (partition, LAST, "positions", "the events are missing"),
        (partition, LAST - 1, "positions", "the events are missing"),
        (77, 1, "heads", "partition 77 has record batches and no head"),
        (-1, 1, "heads", "partition -1 has record batches and no head"),
        (8, 1, "heads", "partition 8 has no head"),
    ] {
        sql(&format!(
            "SET ROLE farthing_gateway;
             INSERT INTO ledger.batches SELECT {of}, {first}, count, recorded_at, writer, events, hashes
             FROM ledger.batches WHERE partition = {{p}} ORDER BY first_position LIMIT 1;
             RESET ROLE"
        ))
        .await;
        found(instance, check, of, said).await;
        sql(&format!(
            "ALTER TABLE ledger.batches DISABLE TRIGGER ALL;
             DELETE FROM ledger.batches WHERE partition = {of} AND first_position = {first};
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_rows;
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_statements"
        ))
        .await;
        sound(instance).await;
    }
}

/// Without a head, nobody reads a partition, and the others are no longer those of their merchants.
async fn heads(instance: &Instance, sql: &impl AsyncFn(&str)) {
    for (change, missing, mend) in [
        (
            "CREATE TEMP TABLE kept_heads AS SELECT * FROM ledger.heads WHERE partition = 0;
             DELETE FROM ledger.heads WHERE partition = 0",
            0,
            "INSERT INTO ledger.heads SELECT * FROM kept_heads",
        ),
        (
            "INSERT INTO ledger.heads SELECT 9, position, hash, epoch, shape, generation FROM kept_heads",
            8,
            "DELETE FROM ledger.heads WHERE partition = 9",
        ),
    ] {
        sql(change).await;
        found(instance, "heads", missing, &format!("partition {missing} has no head")).await;
        let (code, _, errors) = outcome(instance, &["audit", "trial-balance"]).await;
        assert!(code == Some(2) && errors.contains("has no head"), "{errors}");
        sql(mend).await;
        sound(instance).await;
    }
}
