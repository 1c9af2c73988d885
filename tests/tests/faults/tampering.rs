//! Tampering by a privileged database role is detected in the read models, in the states, and in the log.

use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use serde_json::{Value, json};

use crate::{put_away, run};

async fn verdict(instance: &Instance, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = instance.command(arguments).await;
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), report)
}

/// The commands that verify the log. The first one also compares the stored states.
const VERIFIERS: [&[&str]; 2] = [&["log", "verify"], &["audit", "trial-balance"]];

/// Asserts that the audits find nothing.
async fn sound(instance: &Instance) {
    for verifier in VERIFIERS {
        let (code, report) = verdict(instance, verifier).await;
        assert!(code == Some(0) && report["ok"] == true && report["findings_count"] == 0, "{report}");
    }
}

/// Asserts that the audit fails with each of `named` among its findings.
async fn unsound(instance: &Instance, named: &[String]) {
    unsound_by(VERIFIERS[0], instance, named).await;
}

async fn unsound_by(verifier: &[&str], instance: &Instance, named: &[String]) {
    let (code, report) = verdict(instance, verifier).await;
    assert!(code == Some(1) && report["ok"] == false, "{report}");
    let findings: Vec<_> = report["findings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in named {
        assert!(
            findings.iter().any(|finding| finding.contains(name.as_str())),
            "{name} is not in {findings:?}"
        );
    }
}

#[test]
fn tampering_is_detected_everywhere() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1").await;
        let customer = merchant.customer("1").await;
        let meter = merchant.call_meter("0.1").await;
        let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let response = merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await;
        let id = response.request_id();
        merchant.shown(&id, "completed").await;
        // A read waits for its read model, so nothing repairs the tampering after this.
        merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
        read_models(&merchant, &id).await;
        state(&merchant).await;
        log(&merchant, &id).await;
        put_away(instance).await;
    });
}

async fn read_models(merchant: &Merchant, id: &str) {
    let worse = "UPDATE requests.ended SET response_id = 'another' WHERE request_id = $1";
    assert_eq!(merchant.log.sql.execute(worse, &[&id]).await.unwrap(), 1);
    let richer = "UPDATE connections.wallets SET balance = balance + 1 WHERE wallet_id = $1";
    assert_eq!(merchant.log.sql.execute(richer, &[&merchant.wallet_id]).await.unwrap(), 1);
    for model in ["connections", "requests"] {
        let (code, report) = verdict(merchant.instance, &["projections", "verify", model]).await;
        assert!(code == Some(1) && report["differences"].as_u64() > Some(0), "{model}: {report}");
        let (_, report) = verdict(merchant.instance, &["projections", "rebuild", model]).await;
        assert!(report["differences"].as_u64() > Some(0), "{model}: {report}");
        let (code, report) = verdict(merchant.instance, &["projections", "verify", model]).await;
        assert!(code == Some(0) && report["differences"] == 0, "{model} after the rebuild: {report}");
    }
    merchant.shown(id, "completed").await;
}

async fn state(merchant: &Merchant) {
    let sql = &merchant.log.sql;
    let wallet = merchant.wallet_id.as_str();
    let partition = merchant.partition().await;
    merchant.log.stored().await;
    let row = "kind = 'wallet' AND id = $1";
    let body: String = sql
        .query_one(&format!("SELECT body FROM ledger.state WHERE {row}"), &[&wallet])
        .await
        .unwrap()
        .get(0);
    let richer = body.replace("\"balance\":\"0", "\"balance\":\"9");
    assert_ne!(richer, body);
    let put = "INSERT INTO ledger.state (partition, generation, kind, id, shape, body)
        SELECT partition, generation, 'wallet', $1, shape, $2 FROM ledger.heads WHERE partition = $3
        ON CONFLICT (partition, generation, kind, id) DO UPDATE SET body = excluded.body";
    sql.execute(put, &[&wallet, &richer, &partition]).await.unwrap();
    unsound(merchant.instance, &[format!("the stored wallet {wallet} is not the fold of its events")]).await;
    sql.execute(&format!("DELETE FROM ledger.state WHERE {row}"), &[&wallet]).await.unwrap();
    unsound(merchant.instance, &[format!("the wallet {wallet} is not stored")]).await;
    sql.execute(put, &[&wallet, &body, &partition]).await.unwrap();
    let nobody = "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    sql.execute(put, &[&nobody, &body, &partition]).await.unwrap();
    unsound(merchant.instance, &[format!("the stored wallet {nobody} follows from no event")]).await;
    sql.execute(&format!("DELETE FROM ledger.state WHERE {row}"), &[&nobody]).await.unwrap();
    sound(merchant.instance).await;
}

/// The record batch of an event: its first position, the number of its events, and the first position of the next batch.
async fn batch_of(merchant: &Merchant, position: i64) -> (i64, i64, i64) {
    let batch = "SELECT first_position, count::bigint FROM ledger.batches
        WHERE partition = $2 AND first_position <= $1 AND first_position + count > $1";
    let row = merchant.log.sql.query_one(batch, &[&position, &merchant.partition().await]).await.unwrap();
    let (first, count): (i64, i64) = (row.get(0), row.get(1));
    (first, count, first + count)
}

/// The owner of the tables can remove the triggers; the hash chain still detects the change and its position.
async fn log(merchant: &Merchant, id: &str) {
    let sql = &merchant.log.sql;
    // A batch follows that of the call.
    merchant.credit_own("1").await;
    let partition = merchant.partition().await;
    let heads = merchant.log.heads().await;
    let head = heads.iter().find(|head| head.partition == partition).unwrap().position;
    let here = merchant.log.event(&format!("{id}/metered")).await.unwrap().position;
    let (first, count, next) = batch_of(merchant, here).await;
    assert!(first > 1 && count > 1 && here < next - 1 && next <= head, "{first} {count} {here} {head}");
    let chain = |position: i64| format!("position {position}: the hash does not follow");
    let within = format!("partition = {partition}");
    let column = |change: &str| {
        format!("UPDATE ledger.batches SET {change} WHERE {within} AND first_position = {first}")
    };
    let lines = |change: &str| column(&format!("events = convert_to({change}, 'UTF8')"));
    let text = "convert_from(events, 'UTF8')";
    let at = here - first;
    for (change, named) in [
        (lines(&format!("replace({text}, '\"http_status\":200', '\"http_status\":201')")), vec![chain(here)]),
        (
            lines(&format!("regexp_replace({text}, '\"merchant\":\"mer_.', '\"merchant\":\"mer_7')")),
            vec![chain(first)],
        ),
        (
            lines(&format!(
                "(SELECT string_agg(line, E'\\n' ORDER BY n % {count}, n)
                  FROM string_to_table({text}, E'\\n') WITH ORDINALITY AS l(line, n))"
            )),
            vec![chain(first)],
        ),
        (column("recorded_at = recorded_at + interval '1 microsecond'"), vec![chain(first)]),
        (column("writer = writer || 'x'"), vec![chain(first)]),
        (
            column(&format!("hashes = overlay(hashes PLACING sha256('') FROM {})", 32 * at + 1)),
            vec![chain(here), chain(here + 1)],
        ),
        (
            lines(&format!("regexp_replace({text}, '[^\\n]*\\n', '')")),
            vec![format!("position {first}: the record batch is damaged: {} events", count - 1)],
        ),
        (
            format!("DELETE FROM ledger.batches WHERE {within} AND first_position = {first}"),
            vec![format!("positions {first} to {}: the events are missing", next - 1), chain(next)],
        ),
        (
            format!("DELETE FROM ledger.batches WHERE {within} AND first_position > {}", first - 1),
            vec![format!("the head is at position {head}, the last event at {}", first - 1)],
        ),
        (
            format!(
                "UPDATE ledger.batches SET first_position = CASE first_position WHEN {first} THEN {next} ELSE {first} END
                 WHERE {within} AND first_position IN ({first}, {next})"
            ),
            vec![chain(first)],
        ),
        (
            format!(
                "INSERT INTO ledger.batches
                 SELECT partition, first_position + 1, 1, recorded_at, writer,
                        convert_to(split_part({text}, E'\\n', 2), 'UTF8'), substring(hashes FROM 33 FOR 32)
                 FROM ledger.batches WHERE {within} AND first_position = {first}"
            ),
            vec![format!("position {}: a record batch begins before the one before it ends", first + 1)],
        ),
        (
            format!("UPDATE ledger.heads SET position = position + 1 WHERE {within}"),
            vec![format!("the head is at position {}, the last event at {head}", head + 1)],
        ),
        (
            format!("UPDATE ledger.heads SET hash = sha256('') WHERE {within}"),
            vec![format!("the head's hash is not that of the last event, at position {head}")],
        ),
    ] {
        sql.batch_execute(
            "ALTER TABLE ledger.batches DISABLE TRIGGER ALL;
             ALTER TABLE ledger.batches DROP CONSTRAINT batches_pkey;
             CREATE TEMP TABLE kept AS SELECT * FROM ledger.batches;
             CREATE TEMP TABLE kept_heads AS SELECT * FROM ledger.heads",
        )
        .await
        .unwrap();
        assert!(sql.execute(&change, &[]).await.unwrap() > 0, "{change}");
        for verifier in VERIFIERS {
            unsound_by(verifier, merchant.instance, &named).await;
        }
        sql.batch_execute(
            "TRUNCATE ledger.batches;
             INSERT INTO ledger.batches SELECT * FROM kept;
             UPDATE ledger.heads AS h SET position = k.position, hash = k.hash FROM kept_heads AS k
             WHERE k.partition = h.partition;
             ALTER TABLE ledger.batches ADD PRIMARY KEY (partition, first_position);
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_rows;
             ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_statements;
             DROP TABLE kept, kept_heads",
        )
        .await
        .unwrap();
        sound(merchant.instance).await;
    }
}
