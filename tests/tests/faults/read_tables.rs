//! The read tables after a fault: each one, built again from the log, has the SHA-256 of the live one.

use std::collections::BTreeMap;
use std::time::Duration;

use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::wait::within;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

/// The names of all read models.
const READ_MODELS: &str = "SELECT DISTINCT name FROM ledger.read_models";

/// The timeout for the database to be back.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);

/// Read models that are built again at once.
const AT_ONCE: usize = 4;

/// The least number of tables with rows: the demo's merchant has a key, a customer, a meter and a spend key.
const MIN_FILLED: usize = 8;

/// Asserts that every read table, built again from the log, has the same SHA-256 as the live one. `flags` name the archive, if
/// there is one.
pub(crate) async fn equal_their_rebuild(instance: &Instance, flags: &[&str]) {
    let log = within(RECOVERY_TIMEOUT, "the database is back", async || {
        Log::try_open(&instance.ready().database_url).await.ok()
    })
    .await;
    let models = log.sql.query(READ_MODELS, &[]).await.unwrap();
    let reports = stream::iter(models.iter().map(|model| report(instance, model.get(0), flags)));
    let reports: Vec<Value> = reports.buffer_unordered(AT_ONCE).collect().await;
    let mut rows: BTreeMap<String, u64> = BTreeMap::new();
    for report in &reports {
        assert_eq!(report["differences"], 0, "{report}");
        for table in report["tables"].as_array().unwrap_or_else(|| panic!("{report}")) {
            assert_eq!(table["live"], table["rebuilt"], "{report}");
            assert_eq!(table["live"].as_str().map(str::len), Some(64), "{report}");
            let of = format!("{}.{}", report["name"], table["table"]);
            rows.insert(of, table["rows"].as_u64().unwrap());
        }
    }
    assert!(rows.values().filter(|rows| **rows > 0).count() >= MIN_FILLED, "{rows:?}");
}

/// The report on a read model.
async fn report(instance: &Instance, model: &str, flags: &[&str]) -> Value {
    let verify = [&["projections", "verify", model, "--sha256"], flags].concat();
    let output = instance.command_beside_others(&verify).await;
    assert!(output.status.success(), "{model}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
