//! Makes the saved database of a release: runs an instance, gives it something of every kind, and writes the dump of its
//! database and what later releases must find in it. `tests/saved/make` calls it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool of the tests")]

use std::path::Path;

use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::json;
use farthing_tests::recurring::{Means, PAYS};
use farthing_tests::run;
use farthing_tests::saved::{Facts, KnownCustomer};
use serde_json::json;

/// A customer who has made calls on a meter with this rate per call.
async fn caller(merchant: &Merchant, name: &str, rate: &str, calls: usize) -> KnownCustomer {
    let customer = merchant.customer_called(name, "10").await;
    let meter = merchant.call_meter(rate).await;
    let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 7}})));
    let credential = merchant.billing(&customer, &meter);
    for _ in 0..calls {
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
    }
    let balance = merchant.balance(&customer).await;
    let Customer { id, reference_id } = customer;
    KnownCustomer { id, reference_id, balance, credential }
}

/// Things of the other kinds: a key with calls, a plan with a subscriber, a webhook, a checkout session, a deleted customer.
async fn others(merchant: &Merchant) {
    merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id, "--name", "another"]).await;
    merchant.post("/v1/webhooks", &json!({"url": "http://receiver.example/hook"})).await.expect(201);
    let key = merchant.post("/v1/spend_keys", &json!({"name": "a key"})).await.expect(201);
    let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 7}})));
    merchant.fetch(key["key"].as_str().unwrap(), &endpoint.url).await.expect(200);
    let plan = json!({
        "name": "monthly", "period_amount": "20", "billing_interval": "month", "rollover_type": "none",
        "credit_bundles": [{"name": "Four", "cost": "5", "credit_amount": "4"}],
    });
    let plan = merchant.post("/v1/plans", &plan).await.expect(201);
    let subscriber = merchant.customer_called("a subscriber", "1").await;
    merchant.subscribe(&subscriber, &plan, Means::Card(PAYS)).await;
    let open = json!({
        "checkout_mode": "subscription", "plan_id": plan["plan_id"], "origin_url": "https://app.example",
    });
    merchant.post("/v1/checkout_sessions", &open).await.expect(201);
    let gone = merchant.customer_called("a customer who left", "0").await;
    merchant.delete(&format!("/v1/customers/{}", gone.id)).await.expect(200);
}

/// Dumps the database with `pg_dump` of the running server.
fn dump(instance: &Instance, file: &Path) {
    let pid = instance.ready().pids.postgres.expect("the instance has a Postgres of its own");
    let server = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let mut command = std::process::Command::new(server.with_file_name("pg_dump"));
    // Statements alone, which a client can execute.
    command.args(["--inserts", "--rows-per-insert=100", "--compress=9", "--file"]).arg(file);
    let status = command.args(["--dbname", &instance.ready().database_url]).status().unwrap();
    assert!(status.success(), "pg_dump: {status}");
}

fn main() {
    let folder = std::env::args().nth(1).expect("usage: save_database FOLDER");
    run(async move {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        let mut customers = Vec::new();
        for (name, rate, calls) in [("first", "0.25", 3), ("second", "0.001", 5), ("third", "1", 0)] {
            customers.push(caller(&merchant, name, rate, calls).await);
        }
        others(&merchant).await;
        merchant.nothing_is_held().await;
        let facts = Facts {
            merchant_id: merchant.id.clone(),
            secret_key: merchant.secret_key.clone(),
            events: merchant.log.head().await,
            customers,
        };
        let folder = Path::new(&folder);
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("facts.json"), serde_json::to_string_pretty(&facts).unwrap() + "\n")
            .unwrap();
        dump(instance, &folder.join("database.sql.gz"));
        println!("saved {} events in {}", facts.events, folder.display());
        instance.stop().await;
        instance.clear();
    });
}
