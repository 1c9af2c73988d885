//! Long lists: every page and every filter is read from an index in the list's order, at any depth. A whole array reads each row once.

use std::collections::BTreeMap;

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::encoded;
use farthing_tests::run;
use farthing_tests::scratch::Scratch;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio_postgres::Client;

const REQUESTS: u64 = 30_000;

/// Scans of each table and each index of the requests, by Postgres's statistics.
const SCANS: &str = "
    SELECT relname::text, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'requests'
    UNION ALL SELECT indexrelname::text, idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'requests'";

/// Subscriptions of one customer, of which all but the newest have ended.
const SUBSCRIPTIONS: usize = 5_000;

const FILL_SUBSCRIPTIONS: &str = "
    INSERT INTO plans.plans (partition, plan_id, merchant_id, terms, created_at)
    VALUES ({partition}, 'sc_{id}', '{merchant}', '{terms}', now());
    INSERT INTO connections.connections (partition, connection_id, merchant_id, wallet_id, created_at)
    VALUES ({partition}, 'con_{id}', '{merchant}', 'wal_{id}', now());
    INSERT INTO connections.wallets (partition, wallet_id, merchant_id, connection_id, balance, credit, autopay)
    VALUES ({partition}, 'wal_{id}', '{merchant}', 'con_{id}', 1, 2.5, false);
    INSERT INTO subscriptions.subscriptions
        (partition, subscription_id, merchant_id, customer_id, wallet_id, plan_id, terms, status, anchor, cycle_start,
         cycle_end, credit, started_at, cancelled_at)
    SELECT {partition}, 'sub_01' || lpad(n::text, 24, '0'), '{merchant}', 'con_{id}', 'wal_{id}', 'sc_{id}', '{terms}',
           CASE WHEN n < {count} THEN 'cancelled' ELSE 'active' END, now(), now(), now(),
           CASE WHEN n < {count} THEN 0 ELSE 2.5 END, now() - make_interval(secs => {count} - n),
           CASE WHEN n < {count} THEN now() END
    FROM generate_series(1, {count}) AS n;";

/// Rows of subscriptions that were read, by Postgres's statistics.
const ROWS_READ: &str = "
    SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
    WHERE schemaname = 'subscriptions' AND relname = 'subscriptions'";

/// Other sessions. One reports what it has read before it ends.
const SESSIONS: &str = "
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

async fn scans(sql: &Client) -> BTreeMap<String, i64> {
    sql.query(SCANS, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
fn no_page_of_a_long_list_scans_a_table() {
    run(async {
        let instance = Instance::shared().await;
        let scratch = Scratch::filled(instance, "long_lists", REQUESTS).await;
        let gateway = SideGateway::on(instance, &scratch.database_url, &[]).await;
        let page = async |query: String| {
            let request = Request::new("GET", format!("/v1/requests?limit=100&{query}"));
            let page = request.bearer(&scratch.secret_key).send(gateway.address).await.unwrap().expect(200);
            let ids = page["data"].as_array().unwrap().iter().map(|item| item["request_id"].clone());
            ids.map(|id| id.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let filter = |pairs: &str| format!("metadata_filters={}", encoded(pairs));
        let mut uses: BTreeMap<&str, i64> = BTreeMap::new();
        let before = scans(&scratch.sql).await;
        let cursor = Scratch::request(20_007);
        for (filter, step, remainder, index) in [
            (String::new(), 1, 0, "opened_by_merchant"),
            (filter(r#"[["env","production"]]"#), 1, 0, "metadata_pairs_in_order"),
            (filter(r#"[["team","team 7"]]"#), 100, 7, "metadata_pairs_in_order"),
            (filter(r#"[["env","production"],["team","team 7"]]"#), 100, 7, "metadata_pairs_in_order"),
            ("customer_id=con_01000000000000000000000007".to_owned(), 100, 7, "opened_by_connection"),
            ("meter_id=prd_01000000000000000000000002".to_owned(), 5, 2, "opened_by_product"),
            (
                format!("{}&customer_id=con_01000000000000000000000007", filter(r#"[["env","production"]]"#)),
                100,
                7,
                "metadata_pairs_of_connection",
            ),
            (
                format!("{}&meter_id=prd_01000000000000000000000002", filter(r#"[["env","production"]]"#)),
                5,
                2,
                "metadata_pairs_of_product",
            ),
        ] {
            for (from, after) in [(REQUESTS, String::new()), (20_006, format!("&cursor={cursor}"))] {
                let wanted: Vec<_> = (1..=from)
                    .rev()
                    .filter(|number| number % step == remainder)
                    .take(100)
                    .map(Scratch::request)
                    .collect();
                assert_eq!(page(format!("{filter}{after}")).await, wanted, "{filter}{after}");
                *uses.entry(index).or_default() += 1;
            }
        }
        assert_eq!(page(filter(r#"[["rare","yes"]]"#)).await, [Scratch::request(1)]);
        assert_eq!(page(filter(r#"[["rare","no"]]"#)).await, [""; 0]);
        // This customer has no request on this meter; finding that must not scan the other requests of either.
        let nothing = "customer_id=con_01000000000000000000000007&meter_id=prd_01000000000000000000000004";
        assert_eq!(page(format!("{}&{nothing}", filter(r#"[["env","production"]]"#))).await, [""; 0]);
        uses.insert("metadata_pairs_of_connection", uses["metadata_pairs_of_connection"] + 1);
        // Connections report their scans with a delay.
        let after = eventually("every page used the index of its filter", async || {
            let now = scans(&scratch.sql).await;
            uses.iter().all(|(index, uses)| now[*index] >= before[*index] + uses).then_some(now)
        })
        .await;
        for table in ["opened", "ended", "metadata_pairs"] {
            assert_eq!(after[table], before[table], "{table} was scanned from end to end");
        }
    });
}

#[test]
fn a_whole_array_reads_each_row_once() {
    run(async {
        let instance = Instance::shared().await;
        let scratch = Scratch::filled(instance, "long_arrays", 0).await;
        let terms = json!({
            "name": "Free", "period_amount": "0.0000000000", "included_credit": "2.5000000000",
            "billing_interval": "month", "rollover_type": "none", "bundle_rollover_type": "none", "meter_ids": [],
            "default_auto_top_up_bundle_id": null,
        });
        let fill = FILL_SUBSCRIPTIONS
            .replace("{partition}", &scratch.partition().await.to_string())
            .replace("{merchant}", &scratch.merchant_id)
            .replace("{terms}", &terms.to_string())
            .replace("{id}", "01000000000000000000000001")
            .replace("{count}", &SUBSCRIPTIONS.to_string());
        scratch.sql.batch_execute(&fill).await.unwrap();
        let gateway = SideGateway::on(instance, &scratch.database_url, &[]).await;
        let request = Request::new("GET", "/v1/active-subscriptions").bearer(&scratch.secret_key);
        let listed = request.send(gateway.address).await.unwrap().expect(200);
        let shown = listed.as_array().unwrap().iter().map(|item| {
            assert_eq!(item["wallet"]["active_balance"], "3.5000000000");
            item["subscription_id"].as_str().unwrap().to_owned()
        });
        let wanted: Vec<_> = (1..=SUBSCRIPTIONS).rev().map(|number| format!("sub_01{number:024}")).collect();
        assert_eq!(shown.collect::<Vec<_>>(), wanted);
        drop(gateway);
        eventually("the gateway's sessions end", async || {
            let sessions: i64 = scratch.sql.query_one(SESSIONS, &[]).await.unwrap().get(0);
            (sessions == 0).then_some(())
        })
        .await;
        let read: i64 = scratch.sql.query_one(ROWS_READ, &[]).await.unwrap().get(0);
        let read = usize::try_from(read).unwrap();
        assert!((SUBSCRIPTIONS..2 * SUBSCRIPTIONS).contains(&read), "{read} rows were read");
    });
}
