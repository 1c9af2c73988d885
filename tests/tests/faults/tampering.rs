//! Tampering by a privileged database role is detected in the read models, in the states, and in the log.

use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::{Value, json};

use crate::put_away;

async fn verdict(instance: &Instance, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = instance.command(arguments).await;
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), report)
}

/// Asserts that the audit finds nothing.
async fn sound(instance: &Instance) {
    let (code, report) = verdict(instance, &["log", "verify"]).await;
    assert!(code == Some(0) && report["ok"] == true && report["findings_count"] == 0, "{report}");
}

/// Asserts that the audit fails with each of `named` among its findings.
async fn unsound(instance: &Instance, named: &[String]) {
    let (code, report) = verdict(instance, &["log", "verify"]).await;
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
        let instance: &'static Instance = Box::leak(Box::new(Instance::start(1).await));
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
    let row = "kind = 'wallet' AND id = $1";
    let body: String = sql
        .query_one(&format!("SELECT body FROM ledger.state WHERE {row}"), &[&wallet])
        .await
        .unwrap()
        .get(0);
    let richer = body.replace("\"balance\":\"0", "\"balance\":\"9");
    assert_ne!(richer, body);
    let put = "INSERT INTO ledger.state (kind, id, body) VALUES ('wallet', $1, $2)
        ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body";
    sql.execute(put, &[&wallet, &richer]).await.unwrap();
    unsound(merchant.instance, &[format!("the stored wallet {wallet} is not the fold of its events")]).await;
    sql.execute(&format!("DELETE FROM ledger.state WHERE {row}"), &[&wallet]).await.unwrap();
    unsound(merchant.instance, &[format!("the wallet {wallet} is not stored")]).await;
    sql.execute(put, &[&wallet, &body]).await.unwrap();
    let nobody = "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    sql.execute(put, &[&nobody, &body]).await.unwrap();
    unsound(merchant.instance, &[format!("the stored wallet {nobody} follows from no event")]).await;
    sql.execute(&format!("DELETE FROM ledger.state WHERE {row}"), &[&nobody]).await.unwrap();
    sound(merchant.instance).await;
}

/// The owner of the tables can remove the triggers; the hash chain still detects the change and its position.
async fn log(merchant: &Merchant, id: &str) {
    let sql = &merchant.log.sql;
    let head = merchant.log.head().await;
    let event = merchant.log.event(&format!("{id}/metered")).await.unwrap();
    let (here, after) = (event.position, event.position + 1);
    assert!(here > 1 && after <= head);
    let chain = |position: i64| format!("position {position}: the hash does not follow");
    let exchange = format!(
        "UPDATE ledger.events SET position = CASE position WHEN {here} THEN {after} ELSE {here} END
         WHERE position IN ({here}, {after})"
    );
    let column = |change: &str| format!("UPDATE ledger.events SET {change} WHERE position = {here}");
    for (change, named) in [
        (
            column("body = replace(body::text, '\"http_status\":200', '\"http_status\":201')::json"),
            vec![chain(here)],
        ),
        (column("merchant_id = 'mer_01ARZ3NDEKTSV4RRFFQ69G5FAV'"), vec![chain(here)]),
        (column("recorded_at = recorded_at + interval '1 microsecond'"), vec![chain(here)]),
        (column("hash = sha256('')"), vec![chain(here), chain(after)]),
        (
            format!("DELETE FROM ledger.events WHERE position = {here}"),
            vec![format!("position {here}: the event is missing"), chain(after)],
        ),
        (
            format!("DELETE FROM ledger.events WHERE position > {}", here - 1),
            vec![format!("the head is at position {head}, the last event at {}", here - 1)],
        ),
        (exchange, vec![chain(here), chain(after)]),
        (
            "UPDATE ledger.head SET position = position + 1".to_owned(),
            vec![format!("the head is at position {}, the last event at {head}", head + 1)],
        ),
        (
            "UPDATE ledger.head SET hash = sha256('')".to_owned(),
            vec![format!("the head's hash is not that of the last event, at position {head}")],
        ),
    ] {
        sql.batch_execute(
            "ALTER TABLE ledger.events DISABLE TRIGGER ALL;
             ALTER TABLE ledger.events DROP CONSTRAINT events_pkey;
             CREATE TEMP TABLE kept AS SELECT * FROM ledger.events;
             CREATE TEMP TABLE kept_head AS SELECT * FROM ledger.head",
        )
        .await
        .unwrap();
        assert!(sql.execute(&change, &[]).await.unwrap() > 0, "{change}");
        unsound(merchant.instance, &named).await;
        sql.batch_execute(
            "TRUNCATE ledger.events;
             INSERT INTO ledger.events SELECT * FROM kept;
             UPDATE ledger.head AS h SET position = k.position, hash = k.hash FROM kept_head AS k;
             ALTER TABLE ledger.events ADD PRIMARY KEY (position);
             ALTER TABLE ledger.events ENABLE ALWAYS TRIGGER append_only_rows;
             ALTER TABLE ledger.events ENABLE ALWAYS TRIGGER append_only_statements;
             DROP TABLE kept, kept_head",
        )
        .await
        .unwrap();
        sound(merchant.instance).await;
    }
}
