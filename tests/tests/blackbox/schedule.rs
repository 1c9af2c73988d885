//! The scheduler of subscriptions: its statements read few rows, however many subscriptions there are, and no merchant's
//! renewals wait for all of another's.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::statements;
use farthing_tests::wait::{eventually, within};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio_postgres::{Client, SimpleQueryMessage};

const DAY: i64 = 86_400;

/// The time of the statements below, in Unix milliseconds.
const NOW: i64 = 2_000_000_000_000;

/// 99 merchants with subscriptions and one without; the clocks of ten are ten days ahead. The first has 50,000 subscriptions,
/// long overdue; each other has about 500: a little overdue, due within those ten days, or due later.
const FILL: &str = "
    INSERT INTO ledger.state (partition, generation, shape, kind, id, body)
    SELECT 3, h.generation, h.shape, 'merchant', 'mer_' || lpad(m::text, 26, '0'),
           '{\"wallet_id\":\"w\"' || CASE WHEN m % 10 = 7 THEN ',\"clock_ahead_seconds\":864000' ELSE '' END || '}'
    FROM generate_series(1, 100) AS m JOIN ledger.heads AS h ON h.partition = 3;
    INSERT INTO ledger.state (partition, generation, shape, kind, id, body)
    SELECT 3, h.generation, h.shape, 'subscription', 'sub_' || lpad(n::text, 26, '0'),
           '{\"merchant_id\":\"mer_' || lpad((CASE WHEN n <= 50000 THEN 1 ELSE 2 + n % 98 END)::text, 26, '0')
           || '\",\"due_ms\":' || (2000000000000 + CASE WHEN n <= 50000 THEN -1000000000 - n
                                   ELSE (n % 3 - 1) * 500000000 + n END) || '}'
    FROM generate_series(1, 100000) AS n JOIN ledger.heads AS h ON h.partition = 3;";

/// The statement of this name in the scheduler.
fn statement(name: &str) -> String {
    let name = format!("gateway/worker/src/payments/schedule.rs {name}");
    let mut all = statements::of_the_program().statements.into_iter();
    all.find(|statement| statement.name == name).unwrap_or_else(|| panic!("there is no {name}")).sql
}

/// A migrated database with those subscriptions.
async fn filled() -> Client {
    let instance = Instance::shared().await;
    let url = instance.create_database("schedule").await;
    let mut command = tokio::process::Command::new(program());
    command.args(["migrate", "--mode", "test", "--json", "--database-url", &url]).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let sql = Log::open(&url).await.sql;
    sql.batch_execute(FILL).await.unwrap();
    sql.batch_execute("VACUUM ANALYZE ledger.state").await.unwrap();
    sql
}

/// The rows of the states that a statement reads; panics if it scans the table.
async fn rows_read(sql: &Client, name: &str, arguments: &str) -> Decimal {
    sql.batch_execute(&format!("PREPARE look AS {}", statement(name))).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE look ({arguments})");
    let rows = sql.simple_query(&explain).await.unwrap();
    sql.batch_execute("DEALLOCATE look").await.unwrap();
    let plan = rows.iter().find_map(|row| match row {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    let plan: Value = serde_json::from_str(&plan.unwrap()).unwrap();
    let mut read = Decimal::ZERO;
    add_up(&plan, name, &mut read);
    read
}

fn add_up(plan: &Value, name: &str, read: &mut Decimal) {
    match plan {
        Value::Array(parts) => parts.iter().for_each(|part| add_up(part, name, read)),
        // The row of the partition.
        Value::Object(node) if node.get("Relation Name").is_some_and(|name| name == "heads") => {}
        Value::Object(node) => {
            let kind = node.get("Node Type").and_then(Value::as_str).unwrap_or_default();
            assert_ne!(kind, "Seq Scan", "{name}: {plan}");
            if kind.contains("Index") || kind.contains("Bitmap") {
                let count = |field: &str| -> Decimal {
                    node.get(field).map_or(Decimal::ZERO, |count| count.to_string().parse().unwrap())
                };
                *read += (count("Actual Rows") + count("Rows Removed by Filter")) * count("Actual Loops");
            }
            node.values().for_each(|part| add_up(part, name, read));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The number of each merchant's rows in the result of a statement.
async fn by_merchant(sql: &Client, query: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::<String, usize>::new();
    for row in sql.query(query, &[]).await.unwrap() {
        *found.entry(row.get(0)).or_default() += 1;
    }
    found
}

#[test]
fn a_round_reads_a_few_hundred_rows_of_a_hundred_thousand_subscriptions_and_is_fair() {
    run(async {
        let sql = filled().await;
        for mode in ["force_custom_plan", "force_generic_plan"] {
            sql.batch_execute(&format!("SET plan_cache_mode = {mode}")).await.unwrap();
            for (name, arguments, most) in [
                ("DUE", format!("3, {NOW}, 100"), 100),
                // Ten merchants, ten rows each; each merchant is found from the previous one.
                ("DUE_BY_MERCHANT", format!("3, '', {NOW}, 10, 10"), 150),
                // Ten merchants, ten rows each.
                ("DUE_BY_CLOCKS_AHEAD", format!("3, {NOW}, 100, 10"), 150),
            ] {
                let read = rows_read(&sql, name, &arguments).await;
                assert!(
                    (Decimal::ONE..=Decimal::from(most)).contains(&read),
                    "{name} reads {read} rows with {mode}"
                );
            }
        }

        // The oldest hundred are all the first merchant's. The merchants whose turn it is follow, with ten each.
        let of = "SELECT merchant_id FROM ledger.state WHERE kind = 'subscription' AND id IN";
        let literal = |name: &str, arguments: &[&str]| {
            let mut sql = statement(name);
            for (number, argument) in arguments.iter().enumerate() {
                sql = sql.replace(&format!("${}", number + 1), argument);
            }
            sql
        };
        let now = NOW.to_string();
        let oldest = by_merchant(&sql, &format!("{of} ({})", literal("DUE", &["3", &now, "100"]))).await;
        assert_eq!(oldest.values().collect::<Vec<_>>(), [&100]);
        let mut turns = BTreeMap::<String, usize>::new();
        let mut after = String::new();
        for _ in 0..10 {
            let quoted = format!("'{after}'");
            for row in
                sql.query(&literal("DUE_BY_MERCHANT", &["3", &quoted, &now, "10", "10"]), &[]).await.unwrap()
            {
                after = row.get(0);
                *turns.entry(after.clone()).or_default() += 1;
            }
        }
        assert_eq!(turns.len(), 99, "every merchant with a subscription has had a turn");
        assert!(turns.values().all(|rows| *rows == 10), "{turns:?}");
        let last = literal("DUE_BY_MERCHANT", &["3", &format!("'{after}'"), &now, "10", "10"]);
        assert!(sql.query(&last, &[]).await.unwrap().is_empty(), "then the next pass begins");
        let ahead = literal("DUE_BY_CLOCKS_AHEAD", &["3", &now, "35", "10"]);
        let ahead = by_merchant(&sql, &format!("{of} ({ahead})")).await;
        assert_eq!(ahead.len(), 10, "{ahead:?}");
        assert!(ahead.values().all(|rows| (3..=4).contains(rows)), "{ahead:?}");
    });
}

#[test]
fn years_of_daily_cycles_of_one_merchant_do_not_delay_another() {
    run(async {
        let busy = Merchant::new().await;
        let plan = |interval: &str| json!({"name": "free", "period_amount": 0, "included_credit": "1", "billing_interval": interval});
        let daily = busy.post("/v1/plans", &plan("day")).await.expect(201);
        let mut customers = Vec::new();
        // More than one round handles.
        for _ in 0..110 {
            let customer = busy.post("/v1/customers", &json!({})).await.expect(201);
            let body = json!({"customer_id": customer["customer_id"], "plan_id": daily["plan_id"]});
            busy.post("/v1/subscriptions", &body).await.expect(201);
            customers.push(customer["customer_id"].as_str().unwrap().to_owned());
        }
        let other = Merchant::new().await;
        let monthly = other.post("/v1/plans", &plan("month")).await.expect(201);
        let customer = other.customer("0").await;
        let body = json!({"customer_id": customer.id, "plan_id": monthly["plan_id"]});
        other.post("/v1/subscriptions", &body).await.expect(201);

        busy.post("/v1/test_clock", &json!({"advance_seconds": 20 * 365 * DAY})).await.expect(200);
        eventually("the scheduler is busy", async || {
            busy.events().await.iter().any(|event| event.kind == "subscription.renewed").then_some(())
        })
        .await;
        other.post("/v1/test_clock", &json!({"advance_seconds": 32 * DAY})).await.expect(200);
        within(Duration::from_mins(2), "the other's renewal", async || {
            other.events().await.iter().any(|event| event.kind == "subscription.renewed").then_some(())
        })
        .await;
        // It did not wait until all of those cycles had passed.
        let states = busy.log.states("subscription").await;
        let far = states.iter().filter(|(_, body)| body["merchant_id"] == busy.id.as_str());
        let behind = far.filter(|(_, body)| body["cycle"]["number"].as_u64().unwrap() < 20 * 365 - 100);
        assert_eq!(behind.count(), 110, "all of those cycles had passed before");
        for customer in customers {
            busy.delete(&format!("/v1/customers/{customer}")).await.expect(200);
        }
    });
}
