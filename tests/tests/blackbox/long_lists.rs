//! Long lists: every page and every filter is read from an index in the list's order, at any depth.

use std::collections::BTreeMap;

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::encoded;
use farthing_tests::run;
use farthing_tests::scratch::Scratch;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use tokio_postgres::Client;

const REQUESTS: u64 = 30_000;

/// Scans of each table and each index of the requests, by Postgres's statistics.
const SCANS: &str = "
    SELECT relname::text, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'requests'
    UNION ALL SELECT indexrelname::text, idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'requests'";

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
