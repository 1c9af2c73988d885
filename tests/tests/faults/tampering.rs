//! Whoever has the rights to tamper is found out: in the read models, in the states, in the log itself.

use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::{Value, json};

use crate::put_away;

async fn verdict(instance: &Instance, arguments: &[&str]) -> (bool, Value) {
    let output = instance.command(arguments).await;
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.success(), report)
}

#[test]
fn tampering_is_found_wherever_it_happens() {
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
        // A read waits for its read model: from here on nothing sets right what is tampered with.
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
        let (ok, report) = verdict(merchant.instance, &["projections", "verify", model]).await;
        assert!(!ok && report["differences"].as_u64() > Some(0), "{model}: {report}");
        let (_, report) = verdict(merchant.instance, &["projections", "rebuild", model]).await;
        assert!(report["differences"].as_u64() > Some(0), "{model}: {report}");
        let (ok, report) = verdict(merchant.instance, &["projections", "verify", model]).await;
        assert!(ok && report["differences"] == 0, "{model} after the rebuild: {report}");
    }
    merchant.shown(id, "completed").await;
}

async fn state(merchant: &Merchant) {
    let sql = &merchant.log.sql;
    let body: String = sql
        .query_one("SELECT body FROM ledger.state WHERE kind = 'wallet' AND id = $1", &[&merchant.wallet_id])
        .await
        .unwrap()
        .get(0);
    let update = "UPDATE ledger.state SET body = $2 WHERE kind = 'wallet' AND id = $1";
    let richer = body.replace("\"balance\":\"0", "\"balance\":\"9");
    assert_ne!(richer, body);
    sql.execute(update, &[&merchant.wallet_id, &richer]).await.unwrap();
    let (ok, report) = verdict(merchant.instance, &["log", "verify"]).await;
    assert!(!ok && report["ok"] == false, "{report}");
    sql.execute(update, &[&merchant.wallet_id, &body]).await.unwrap();
    let (ok, report) = verdict(merchant.instance, &["log", "verify"]).await;
    assert!(ok && report["ok"] == true, "{report}");
}

async fn log(merchant: &Merchant, id: &str) {
    let sql = &merchant.log.sql;
    // The owner of the table can take the triggers off; the chain still tells.
    for change in [
        "UPDATE ledger.events SET body = replace(body::text, '\"http_status\":200', '\"http_status\":201')::json",
        "UPDATE ledger.events SET merchant_id = 'mer_01ARZ3NDEKTSV4RRFFQ69G5FAV'",
        "UPDATE ledger.events SET recorded_at = recorded_at + interval '1 microsecond'",
        "DELETE FROM ledger.events",
    ] {
        sql.batch_execute("BEGIN; CREATE TEMP TABLE kept AS SELECT * FROM ledger.events").await.unwrap();
        sql.batch_execute("COMMIT; ALTER TABLE ledger.events DISABLE TRIGGER ALL").await.unwrap();
        let changed =
            sql.execute(&format!("{change} WHERE key = $1"), &[&format!("{id}/metered")]).await.unwrap();
        assert_eq!(changed, 1);
        let (ok, report) = verdict(merchant.instance, &["log", "verify"]).await;
        assert!(!ok && report["ok"] == false, "{change}: {report}");
        sql.execute("DELETE FROM ledger.events WHERE key = $1", &[&format!("{id}/metered")]).await.unwrap();
        sql.execute(
            "INSERT INTO ledger.events SELECT * FROM kept WHERE key = $1",
            &[&format!("{id}/metered")],
        )
        .await
        .unwrap();
        sql.batch_execute("DROP TABLE kept").await.unwrap();
        let (ok, report) = verdict(merchant.instance, &["log", "verify"]).await;
        assert!(ok, "put back as it was: {report}");
    }
}
