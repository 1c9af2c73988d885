//! The plans that Postgres executes for requests, those of statements that are composed at run time among them. None scans a
//! large table.

use std::collections::BTreeSet;

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::merchant::{encoded, forward};
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::servers;
use farthing_tests::side_gateway::SideGateway;
use serde_json::{Value, json};

use super::{Filled, filled, operate, scans};

/// Makes Postgres log the plan of every statement in this database.
const EXPLAIN_ALL: &str = "\
ALTER DATABASE {database} SET session_preload_libraries = 'auto_explain';
ALTER DATABASE {database} SET auto_explain.log_min_duration = 0;
ALTER DATABASE {database} SET auto_explain.log_nested_statements = on;
ALTER DATABASE {database} SET auto_explain.log_verbose = on;
ALTER DATABASE {database} SET auto_explain.log_format = 'json'";

/// The requests: every list with each of its filters, alone and together. A path without a resource is a 404, which is fine.
fn paths() -> Vec<String> {
    let mut paths = Vec::new();
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let pairs = encoded(r#"[["k","v"]]"#);
    let filters = [
        format!("connection_id=con_{id}"),
        format!("product_id=prd_{id}"),
        format!("metadata_filters={pairs}"),
        format!("reference_id=r-{id}"),
        format!("plan_id=sc_{id}"),
        "status=active".to_owned(),
        "limit=100".to_owned(),
        "start=2026-01-01T00:00:00Z&end=2026-02-01T00:00:00Z".to_owned(),
    ];
    for list in [
        "requests",
        "connections",
        "customers",
        "meters",
        "products",
        "spend_keys",
        "manage/spend_keys",
        "secret_keys",
        "usage",
        "models",
        "wallet",
        "payment_methods",
        "active-subscriptions",
        "webhooks",
        "plans",
        "subscription_configs",
        "credit_bundles",
        "subscriptions",
    ] {
        for chosen in 0..1 << filters.len() {
            let chosen: Vec<_> = filters
                .iter()
                .enumerate()
                .filter(|(at, _)| chosen >> at & 1 == 1)
                .map(|(_, filter)| filter.as_str())
                .collect();
            paths.push(format!("/v1/{list}?{}", chosen.join("&")));
        }
    }
    for one in [
        "requests/req_",
        "connections/con_",
        "customers/con_",
        "customers/r-",
        "meters/prd_",
        "spend_keys/sk_",
        "plans/sc_",
        "subscriptions/sub_",
    ] {
        paths.push(format!("/v1/{one}{id}"));
    }
    paths.push(format!("/v1/webhooks/wh_{id}"));
    for rest in ["entries?", "entries?cursor=7&", "statement?start=2026-01-01T00:00:00Z&"] {
        paths.push(format!("/v1/ledger/{rest}wallet_id=wal_{id}"));
    }
    paths
}

#[test]
fn no_endpoint_scans_a_large_table() {
    if !servers::has_own_postgres("reads the log of Postgres") {
        return;
    }
    run(async {
        let Filled { url, large } = filled().await;
        let instance = Instance::shared().await;
        let explain_all = EXPLAIN_ALL.replace("{database}", &instance.name_of("statements"));
        Log::open(url).await.sql.batch_execute(&explain_all).await.unwrap();
        let merchant = operate(url, &["merchant", "create"]).await;
        let (id, key) = (merchant["merchant_id"].as_str().unwrap(), merchant["secret_key"].as_str().unwrap());
        operate(url, &["wallet", "credit", "--merchant", id, "--amount", "1", "--reason", "a test"]).await;
        let flags =
            ["--allow-address=127.0.0.0/8", "--sweep-after-seconds=5", "--webhook-timeout-seconds=10"];
        let gateway = SideGateway::start_on(instance, url, "nats://127.0.0.1:1", &flags).await;
        let asked = async |request: Request| {
            let response = request.bearer(key).send(gateway.address).await.unwrap();
            assert!(response.status < 500, "{}", response.text());
            response
        };
        let customer = asked(Request::new("POST", "/v1/customers").json(&json!({"reference_id": "r"})))
            .await
            .expect(201);
        asked(Request::new("POST", "/v1/spend_keys").json(&json!({"name": "k"}))).await.expect(201);
        let made = asked(Request::new("POST", "/v1/webhooks").json(&json!({"url": "http://a.example"})));
        let webhook = made.await.expect(201)["webhook_id"].as_str().unwrap().to_owned();
        let deliveries = format!("/v1/webhooks/{webhook}/deliveries");
        asked(Request::new("GET", &deliveries)).await.expect(200);
        asked(Request::new("POST", format!("{deliveries}/evt_01ARZ3NDEKTSV4RRFFQ69G5FAV/resend"))).await;
        let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        asked(forward("GET", &endpoint.url)).await.expect(200);
        for path in paths() {
            asked(Request::new("GET", path)).await;
        }
        asked(Request::new("GET", format!("/v1/customers/{}", customer["customer_id"].as_str().unwrap())))
            .await;
        drop(gateway);

        let log = std::fs::read_to_string(instance.data.join("logs/postgres.log")).unwrap();
        let mut plans = plans(&log);
        // Statements of another test, which uses the same database at the same time.
        plans.retain(|plan| !plan["Query Text"].as_str().unwrap().starts_with("PREPARE looked_at"));
        for seen in [
            "INSERT INTO ledger.batches",
            "INSERT INTO ledger.facts",
            "INSERT INTO ledger.state",
            "FROM requests.requests",
            "metadata @>",
            "FROM connections.connections",
            "FROM webhooks.lane",
            "FROM webhooks.delivery",
        ] {
            assert!(
                plans.iter().any(|plan| plan["Query Text"].as_str().unwrap().contains(seen)),
                "{seen}: no plan"
            );
        }
        let wrong: BTreeSet<_> = plans
            .iter()
            .filter(|plan| !scans(plan, large).is_empty())
            .map(|plan| format!("{:?}: {}", scans(plan, large), plan["Query Text"].as_str().unwrap()))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    });
}

/// The plans in Postgres's log: each follows its duration, every line after a tab.
fn plans(log: &str) -> Vec<Value> {
    let mut plans = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        if line.contains(" ms  plan:") {
            let mut text = String::new();
            while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
                text.push_str(line);
            }
            plans.push(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")));
        }
    }
    plans
}
