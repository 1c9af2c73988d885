//! Read models equal a fold of the log, and are rebuilt under traffic without readers noticing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::json;

const READ_MODELS: [&str; 11] = [
    "customers",
    "connections",
    "meters",
    "spend_keys",
    "secret_keys",
    "requests",
    "usage",
    "plans",
    "subscriptions",
    "entries",
    "journal",
];

#[test]
fn every_read_model_is_verified_and_rebuilt_under_traffic_without_a_difference() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::funded("100").await));
        let customer = merchant.customer("100").await;
        let meter = merchant.call_meter("0.001").await;
        merchant.post("/v1/spend_keys", &json!({"name": "x"})).await.expect(201);
        let plan = json!({
            "name": "free", "period_amount": 0, "included_credit": "1", "meter_ids": [meter.id],
            "credit_bundles": [{"name": "one", "cost": "1", "credit_amount": "1"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let subscription = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
        merchant.post("/v1/subscriptions", &subscription).await.expect(201);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let stop = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicU64::new(0));
        let request = forward("GET", &endpoint.url).bearer(&merchant.billing(&customer, &meter));
        let traffic: Vec<_> = (0..4)
            .map(|number| {
                let (request, stop, calls) = (request.clone(), Arc::clone(&stop), Arc::clone(&calls));
                tokio::spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        let response = request.send(merchant.instance.gateway(number)).await.unwrap();
                        response.expect(200);
                        calls.fetch_add(1, Ordering::SeqCst);
                        let shown = Merchant::get(merchant, "/v1/customers/nobody").await;
                        assert!(matches!(shown.status, 404 | 429), "{}", shown.text());
                    }
                })
            })
            .collect();
        for name in READ_MODELS {
            let report = merchant.instance.operate(&["projections", "verify", name]).await;
            assert_eq!(report["differences"], 0, "verify {name}: {report}");
            let report = merchant.instance.operate(&["projections", "rebuild", name]).await;
            assert_eq!(report["differences"], 0, "rebuild {name}: {report}");
        }
        stop.store(true, Ordering::SeqCst);
        for task in traffic {
            task.await.unwrap();
        }
        assert!(calls.load(Ordering::SeqCst) > 0);
        for name in READ_MODELS {
            let report = merchant.instance.operate(&["projections", "verify", name]).await;
            assert_eq!(report["differences"], 0, "verify {name} after the swap: {report}");
        }
        let response = request.send(merchant.gateway()).await.unwrap();
        merchant.shown(&response.request_id(), "completed").await;
    });
}

#[test]
fn no_read_model_holds_personal_data() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer("1").await;
        for command in ["verify", "rebuild"] {
            let unknown = merchant.instance.command(&["projections", command, "nothing"]).await;
            assert_eq!(unknown.status.code(), Some(2));
        }
        merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
        let columns = merchant
            .log
            .sql
            .query(
                "SELECT table_schema::text, table_name::text, column_name::text FROM information_schema.columns
                 WHERE table_schema = ANY($1)",
                &[&READ_MODELS.as_slice()],
            )
            .await
            .unwrap();
        assert!(!columns.is_empty());
        for row in columns {
            let column: &str = row.get(2);
            assert!(!["first_name", "last_name", "email", "phone"].contains(&column), "{row:?}");
        }
    });
}
