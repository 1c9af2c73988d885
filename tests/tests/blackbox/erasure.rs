//! The personal data of a deleted customer is nowhere any more, and the log still verifies.

use std::path::Path;

use farthing_tests::client::Request;
use farthing_tests::feed;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{PAYS, Page};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio_postgres::Client;

/// The personal data of two customers: created over REST and changed there, and typed in on a hosted page.
const PERSONAL: [&str; 9] = [
    "Zebedia",
    "Quillfeather",
    "quill@erasure.example",
    "Zephyrine",
    "zephyrine@erasure.example",
    "4915550001",
    "Xanthippe",
    "xanthippe@erasure.example",
    "4915550002",
];

/// The columns of all tables.
const COLUMNS: &str = "\
SELECT format('%I.%I', n.nspname, c.relname), format('%I', a.attname), a.atttypid = 'bytea'::regtype
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2";

/// The columns of the database in which any of `texts` is found. Postgres decompresses what it searches.
async fn found_in(sql: &Client, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for row in sql.query(COLUMNS, &[]).await.unwrap() {
        let (table, column, is_bytea): (&str, &str, bool) = (row.get(0), row.get(1), row.get(2));
        let holds = if is_bytea {
            format!(
                "position(convert_to(lower(searched), 'UTF8') IN {column}) > 0 OR position(convert_to(searched, 'UTF8') IN {column}) > 0"
            )
        } else {
            format!("position(lower(searched) IN lower({column}::text)) > 0")
        };
        let search =
            format!("SELECT count(*) FROM {table} CROSS JOIN unnest($1::text[]) AS searched WHERE {holds}");
        let count: i64 = sql.query_one(&search, &[&texts]).await.unwrap().get(0);
        if count > 0 {
            found.push(format!("{table}.{column}"));
        }
    }
    found
}

/// Whether `bytes` hold any of `texts`.
fn holds(bytes: &[u8], texts: &[&str]) -> bool {
    let bytes = bytes.to_ascii_lowercase();
    texts.iter().any(|text| {
        let text = text.to_ascii_lowercase();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

/// The files of a folder, without those of Postgres and NATS, in which any of `texts` is found.
fn files_with(folder: &Path, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["postgres", "nats"].contains(&name.as_str()) {
            found.extend(files_with(&path, texts));
        } else if path.is_file() && holds(&std::fs::read(&path).unwrap(), texts) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// The number of messages of the feed, none of which holds any of `texts`.
async fn searched_messages(instance: &Instance, texts: &[&str], partitions: usize) -> u64 {
    let mut messages = 0;
    for partition in 0..i16::try_from(partitions).unwrap() {
        let Some(stream) = feed::stream_of(instance, partition).await else { continue };
        let held = stream.get_info().await.unwrap().state.messages;
        if held == 0 {
            continue;
        }
        let config = async_nats::jetstream::consumer::pull::OrderedConfig::default();
        let mut reader = stream.create_consumer(config).await.unwrap().messages().await.unwrap();
        for _ in 0..held {
            let message = reader.next().await.unwrap().unwrap();
            assert!(
                !holds(&message.payload, texts),
                "a message of partition {partition}: {:?}",
                message.payload
            );
            let headers = format!("{:?}", message.headers);
            assert!(!holds(headers.as_bytes(), texts), "{headers}");
        }
        messages += held;
    }
    messages
}

#[test]
fn the_personal_data_of_a_deleted_customer_is_nowhere_and_the_log_still_verifies() {
    run(async {
        let instance = Instance::of_test(2).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("10").await;
        // Its deliveries fail, so they stay in the outbox.
        let fails = instance.provider.endpoint(|_| answer_json(500, &json!({})));
        merchant.post("/v1/webhooks", &json!({"url": fails.url})).await.expect(201);

        let created = json!({
            "reference_id": "a-reference", "name": "Zebedia Quillfeather", "email": "quill@erasure.example",
            "metadata": {"tier": "gold"},
        });
        let create = Request::new("POST", "/v1/customers").header("Idempotency-Key", "once").json(&created);
        let first = merchant.rest(create).await.expect(201)["customer_id"].clone();
        let path = format!("/v1/customers/{}", first.as_str().unwrap());
        let changed = json!({
            "name": "Zephyrine", "email": "zephyrine@erasure.example", "phone": "+4915550001",
        });
        merchant.patch(&path, &changed).await.expect(200);
        let page = Page::of(&merchant, &json!({"checkout_mode": "onboarding"})).await;
        let fields = [
            ("name", "Xanthippe"),
            ("email", "xanthippe@erasure.example"),
            ("phone", "+4915550002"),
            ("price", ""),
            ("card_number", PAYS),
            ("card_expiry", "04/39"),
            ("card_cvc", "123"),
        ];
        let sent = page.post(merchant.hosted_pages(), &fields).await;
        assert_eq!(sent.status, 303, "{}", sent.text());
        let session = merchant.get(&format!("/v1/checkout_sessions/{}", page.session_id)).await.expect(200);
        let second = session["customer_id"].as_str().unwrap().to_owned();
        let shown = merchant.get(&format!("/v1/customers/{second}")).await.expect(200);
        assert_eq!(shown["contact"]["email"], "xanthippe@erasure.example", "{shown}");

        let plan = json!({"name": "free", "period_amount": 0, "included_credit": "3"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let subscription = json!({"customer_id": first, "plan_id": plan["plan_id"]});
        let subscribe = Request::new("POST", "/v1/subscriptions").header("Idempotency-Key", "twice");
        merchant.rest(subscribe.json(&subscription)).await.expect(201);
        let answers = instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})));
        for customer in [first.as_str().unwrap(), second.as_str()] {
            let credential = farthing_tests::merchant::token(
                &json!({"secret_key": merchant.secret_key, "customer_id": customer}),
            );
            merchant.send(&credential, forward("GET", &answers.url)).await.expect(200);
        }
        eventually("a delivery has failed", async || (!fails.calls().is_empty()).then_some(())).await;
        let sql = &merchant.log.sql;
        let columns = ["email", "first_name", "phone"].map(|name| format!("personal.customer.{name}"));
        let before = found_in(sql, &PERSONAL).await;
        assert_eq!(before, columns, "while the customers exist");

        for customer in [first.as_str().unwrap(), second.as_str()] {
            merchant.delete(&format!("/v1/customers/{customer}")).await.expect(200);
            merchant.get(&format!("/v1/customers/{customer}")).await.refused(404, "customer_not_found");
        }
        merchant.log.stored().await;
        assert_eq!(found_in(sql, &PERSONAL).await, [""; 0]);
        assert_eq!(files_with(&instance.data, &PERSONAL), [""; 0], "log files");
        assert!(!holds(instance.output().as_bytes(), &PERSONAL), "the output");
        let last = merchant.events().await.last().unwrap().clone();
        eventually("the feed has the deletion", async || {
            let stream = feed::stream_of(instance, last.partition).await?;
            (feed::end(&stream).await? >= last.position).then_some(())
        })
        .await;
        let partitions = merchant.log.heads().await.len();
        assert!(searched_messages(instance, &PERSONAL, partitions).await > 0);
        // What a delivery says now, it says without them.
        let deliveries = fails.calls().len();
        eventually("a delivery is tried again", async || (fails.calls().len() > deliveries).then_some(()))
            .await;
        for call in &fails.calls()[deliveries..] {
            assert!(!holds(&call.body, &PERSONAL), "{:?}", String::from_utf8_lossy(&call.body));
        }

        // The merchant's own data of the customer stays in the log.
        assert!(!found_in(sql, &["a-reference"]).await.is_empty());
        let report = instance.operate(&["audit", "verify"]).await;
        assert_eq!(report["verdict"], "verified", "{report}");
        for model in ["customers", "connections", "journal"] {
            let rebuilt: Value = instance.operate(&["projections", "rebuild", model]).await;
            assert_eq!(rebuilt["differences"], 0, "{rebuilt}");
        }
        assert_eq!(found_in(sql, &PERSONAL).await, [""; 0], "after rebuilds");
    });
}
