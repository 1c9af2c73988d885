//! `farthing export`: every format has the rows and the sums of the log, incremental exports have every row once, and a damaged
//! log is not exported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use farthing_core::secret::hex;
use farthing_tests::books::decimal;
use farthing_tests::instance::Instance;
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{Means, PAYS};
use farthing_tests::run;
use rust_decimal::Decimal;
use serde_json::{Value, json};

const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The folder of an export.
struct Export {
    folder: PathBuf,
    manifest: Value,
}

/// Exports into a new folder of the instance.
async fn export(instance: &Instance, name: &str, arguments: &[&str]) -> Export {
    let folder = instance.file(name);
    let out = folder.to_str().unwrap();
    let shown = instance.operate(&[&["export", "--out", out], arguments].concat()).await;
    let text = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(shown, manifest);
    let export = Export { folder, manifest };
    for file in export.manifest["files"].as_array().unwrap() {
        let bytes = std::fs::read(export.folder.join(file["file"].as_str().unwrap())).unwrap();
        assert_eq!(file["bytes"], json!(bytes.len()), "{file}");
        assert_eq!(file["sha256"], json!(hex(&<sha2::Sha256 as sha2::Digest>::digest(&bytes)[..])), "{file}");
    }
    export
}

/// Asserts that an export is refused with this exit code, says why, and leaves nothing behind.
async fn refused(instance: &Instance, folder: &Path, arguments: &[&str], code: i32, why: &str) {
    let out = folder.to_str().unwrap();
    let output = instance.command(&[&["export", "--out", out], arguments].concat()).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    let name = folder.file_name().unwrap().to_str().unwrap();
    let left = std::fs::read_dir(folder.parent().unwrap()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|other| other.contains(&format!("{name}.partial"))), "{left:?}");
}

impl Export {
    fn file(&self, table: &str) -> &Value {
        let files = self.manifest["files"].as_array().unwrap();
        files.iter().find(|file| file["table"] == table).unwrap_or_else(|| panic!("{table}"))
    }

    fn text(&self, table: &str) -> String {
        let file = self.folder.join(self.file(table)["file"].as_str().unwrap());
        String::from_utf8(std::fs::read(file).unwrap()).unwrap()
    }

    /// The rows of an NDJSON file.
    fn rows(&self, table: &str) -> Vec<Value> {
        let rows: Vec<Value> =
            self.text(table).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(self.file(table)["rows"], json!(rows.len()), "{table}");
        for (name, sum) in self.file(table)["sums"].as_object().unwrap() {
            assert_eq!(decimal(sum), sum_of(&rows, name), "{table}.{name}");
        }
        rows
    }

    fn manifest_file(&self) -> String {
        self.folder.join("manifest.json").to_str().unwrap().to_owned()
    }

    /// The sums of all tables, and the numbers of rows.
    fn totals(&self) -> BTreeMap<String, Decimal> {
        let mut totals = BTreeMap::new();
        for file in self.manifest["files"].as_array().unwrap() {
            let table = file["table"].as_str().unwrap();
            totals.insert(format!("{table} rows"), file["rows"].as_u64().unwrap().into());
            for (name, sum) in file["sums"].as_object().unwrap() {
                totals.insert(format!("{table}.{name}"), decimal(sum));
            }
        }
        totals
    }
}

fn sum_of(rows: &[Value], name: &str) -> Decimal {
    rows.iter().map(|row| decimal(&row[name])).sum()
}

/// A merchant with a plan, a bundle, calls that succeed and fail, and reports with names that spreadsheets take for formulas.
struct Story {
    instance: &'static Instance,
    merchant: Merchant,
    credential: String,
    endpoint: String,
    failing: String,
    customer_reference: String,
    meter_slug: String,
}

impl Story {
    async fn begin(instance: &'static Instance) -> Self {
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("5").await;
        let plan = json!({
            "name": "Two", "period_amount": "10", "included_credit": "0.5", "rollover_type": "none",
            "bundle_rollover_type": "none",
            "credit_bundles": [{"name": "Four", "cost": "5", "credit_amount": "0.4"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let (customer, meter) = (merchant.customer("10").await, merchant.call_meter("0.3000000001").await);
        merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        merchant.buy(&customer, &plan["credit_bundles"][0], Means::Known).await;
        let story = Self {
            instance,
            credential: merchant.billing(&customer, &meter),
            endpoint: instance.provider.endpoint(|_| answer_json(200, &json!({}))).url,
            failing: instance.provider.endpoint(|_| answer_json(500, &json!({}))).url,
            customer_reference: customer.reference_id.clone(),
            meter_slug: meter.slug.clone(),
            merchant,
        };
        story.go_on(4).await;
        story
    }

    /// So many calls that succeed, one that fails, and a report.
    async fn go_on(&self, calls: u32) {
        for _ in 0..calls {
            self.merchant.fetch(&self.credential, &self.endpoint).await.expect(200);
        }
        self.merchant.fetch(&self.credential, &self.failing).await.expect(500);
        let report = json!({
            "request_id": format!("report {calls}"), "customer_id": self.customer_reference,
            "meter_slug": self.meter_slug, "provider": "openai", "model": "=HYPERLINK(\"x\"),1\n+2",
            "usage": {"input_tokens": 7, "output_tokens": 3}, "metadata": {"formula": "@SUM(A1), \"ü\""},
        });
        self.merchant.post("/v1/requests", &report).await.expect(201);
        self.merchant.nothing_is_held().await;
    }

    async fn of_kind(&self, kind: &str) -> Vec<Logged> {
        self.merchant.events().await.into_iter().filter(|event| event.kind == kind).collect()
    }
}

#[test]
fn every_format_has_the_rows_and_the_sums_of_the_log_and_of_the_api() {
    run(async {
        let instance = Instance::of_test(1).await;
        let story = Story::begin(instance).await;
        let merchant_id = story.merchant.id.as_str();
        let rows = export(instance, "ndjson", &["--format", "ndjson", "--merchant", merchant_id]).await;
        events(&story, &rows.rows("events")).await;
        requests(&story, &rows.rows("requests")).await;
        entries(&story, &rows.rows("entries")).await;
        other_formats(&story, &rows).await;
        whole_log(&story).await;
        a_damaged_log_is_refused(&story).await;
    });
}

async fn events(story: &Story, rows: &[Value]) {
    let logged = story.merchant.events().await;
    assert_eq!(rows.len(), logged.len());
    for (row, event) in rows.iter().zip(&logged) {
        for (name, value) in [
            ("partition", json!(event.partition)),
            ("position", json!(event.position)),
            ("kind", json!(event.kind)),
            ("version", json!(event.schema_version)),
            ("key", json!(event.key)),
            ("merchant_id", json!(event.merchant_id)),
            ("writer", json!(event.writer)),
            ("hash", json!(hex(&event.hash))),
            ("body", event.body.clone()),
            ("occurred_at", json!(micros(event.occurred_at))),
            ("recorded_at", json!(micros(event.recorded_at))),
        ] {
            assert_eq!(row[name], value, "{name}: {row}");
        }
    }
}

fn micros(at: chrono::DateTime<chrono::Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true)
}

async fn requests(story: &Story, rows: &[Value]) {
    let metered = story.of_kind("request.metered").await;
    let failed = story.of_kind("request.failed").await;
    assert_eq!((metered.len(), failed.len(), rows.len()), (5, 1, 6), "{rows:?}");
    let of_log = |pointer: &str| -> Decimal {
        metered.iter().map(|event| decimal(event.body.pointer(pointer).unwrap())).sum()
    };
    for (name, pointer) in [
        ("model_cost", "/model_cost/total"),
        ("input_cost", "/model_cost/input"),
        ("output_cost", "/model_cost/output"),
        ("fee", "/fee/amount"),
        ("service_charge", "/service_charge/amount"),
        ("total_request_cost", "/total_request_cost"),
        ("total_wallet_cost", "/total_wallet_cost"),
        ("total_merchant_cost", "/total_merchant_cost"),
        ("overrun", "/overrun"),
        ("units", "/units"),
    ] {
        assert_eq!(sum_of(rows, name), of_log(pointer), "{name}");
    }
    assert!(sum_of(rows, "fee") > Decimal::ONE);
    // The API shows the same requests, and calls a reported one by its merchant's name.
    let shown = story.merchant.pages("/v1/requests", 100).await;
    assert_eq!(shown.len(), rows.len());
    for row in rows {
        let id = row["reported_id"].as_str().or(row["request_id"].as_str()).unwrap();
        let shown = story.merchant.get(&format!("/v1/requests/{}", encoded(id))).await.expect(200);
        for name in ["status", "provider", "provider_key_type", "model", "endpoint", "metadata"] {
            assert_eq!(row[name], shown[name], "{name}: {row} {shown}");
        }
        for name in ["total_request_cost", "total_wallet_cost", "total_merchant_cost"] {
            assert_eq!(row[name], shown[name], "{name}: {row} {shown}");
        }
        assert_eq!(row["customer_id"], shown["customer_id"], "{row}");
    }
    let failed = rows.iter().find(|row| row["status"] == "error").unwrap();
    assert_eq!((&failed["failure_reason"], &failed["http_status"]), (&json!("provider_status"), &json!(500)));
    assert_eq!((&failed["fee"], &failed["marks"]), (&json!("0.0000000000"), &Value::Null));
    let reported = rows.iter().find(|row| row["reported_id"] == "report 4").unwrap();
    assert_eq!(reported["model"], "=HYPERLINK(\"x\"),1\n+2");
    assert_eq!((&reported["input_tokens"], &reported["output_tokens"]), (&json!(7), &json!(3)));
}

async fn entries(story: &Story, rows: &[Value]) {
    let wallets: BTreeSet<_> = rows.iter().map(|row| row["wallet_id"].as_str().unwrap()).collect();
    assert_eq!(wallets.len(), 2, "the customer's and the merchant's own");
    for wallet in wallets {
        let of_wallet: Vec<_> = rows.iter().filter(|row| row["wallet_id"] == wallet).collect();
        let mut shown = story.merchant.pages(&format!("/v1/ledger/entries?wallet_id={wallet}"), 100).await;
        shown.reverse();
        assert_eq!(shown.len(), of_wallet.len());
        for (row, shown) in of_wallet.into_iter().zip(&shown) {
            entry(row, shown);
        }
    }
    let debited = story.of_kind("wallet.debited").await;
    let debits: Vec<_> = rows.iter().filter(|row| row["kind"] == "debit").collect();
    let sources: Vec<_> = debited.iter().map(|event| &event.body["sources"]).collect();
    assert_eq!(debits.iter().map(|row| &row["sources"]).collect::<Vec<_>>(), sources);
    let drawn: Decimal = debited.iter().map(|event| decimal(&event.body["amount"])).sum();
    assert_eq!(debits.iter().map(|row| decimal(&row["change"])).sum::<Decimal>(), -drawn);
    // The plan's credit was drawn, then the bundle's, then the balance.
    for part in ["balance", "plan_credit", "bundle_credit"] {
        let name = format!("{part}_change");
        assert!(debits.iter().any(|row| decimal(&row[&name]) < Decimal::ZERO), "{part}: {debits:?}");
    }
}

/// Asserts that a row says what the API shows.
fn entry(row: &Value, shown: &Value) {
    assert_eq!(json!(row["position"].to_string()), shown["id"], "{row} {shown}");
    for name in ["wallet_id", "customer_id", "kind", "reference"] {
        assert_eq!(row[name], shown[name], "{name}: {row} {shown}");
    }
    for part in ["balance", "plan_credit", "bundle_credit"] {
        assert_eq!(row[format!("{part}_change")], shown["change"][part], "{part}: {row} {shown}");
        assert_eq!(row[format!("{part}_after")], shown["after"][part], "{part}: {row} {shown}");
    }
}

/// CSV and Parquet have the same sums, and FOCUS those of the metered calls.
async fn other_formats(story: &Story, rows: &Export) {
    let merchant = ["--merchant", story.merchant.id.as_str()];
    for format in ["csv", "parquet"] {
        let other = export(story.instance, format, &[["--format", format], merchant].concat()).await;
        assert_eq!(other.totals(), rows.totals(), "{format}");
        assert_eq!(
            (&other.manifest["log"], &other.manifest["format"]),
            (&rows.manifest["log"], &json!(format))
        );
        if format == "csv" {
            let text = other.text("requests");
            assert!(text.starts_with("partition,position,request_id,merchant_id,"), "{text}");
            // The formula is text, the line break within it is quoted, and every record ends with CR LF.
            assert!(text.contains(",\"'=HYPERLINK(\"\"x\"\"),1\n+2\","), "{text}");
            assert_eq!(text.matches("\r\n").count(), 1 + 6, "{text}");
        }
    }
    let focus = export(story.instance, "focus", &[["--format", "focus"], merchant].concat()).await;
    let sums = &focus.file("focus")["sums"];
    let expected = rows.file("requests")["sums"]["total_request_cost"].clone();
    for name in ["BilledCost", "EffectiveCost", "ListCost", "ContractedCost"] {
        assert_eq!(sums[name], expected, "{name}");
    }
    assert_eq!((&focus.file("focus")["rows"], &focus.manifest["focus_version"]), (&json!(5), &json!("1.2")));
    let why = "takes no --table";
    let out = story.instance.file("no");
    refused(story.instance, &out, &["--format", "focus", "--table", "events"], 2, why).await;
}

/// Without filters, every partition is covered up to its head.
async fn whole_log(story: &Story) {
    let log = story.instance.log().await;
    let before = log.heads().await;
    let whole = export(story.instance, "whole", &["--format", "ndjson", "--table", "events"]).await;
    let events = whole.rows("events");
    assert_eq!(whole.manifest["files"].as_array().unwrap().len(), 1);
    let spans = whole.manifest["log"].as_array().unwrap();
    assert_eq!(spans.len(), before.len());
    for (span, head) in spans.iter().zip(&before) {
        assert_eq!(span["partition"], head.partition);
        assert_eq!(span["after"], json!({"position": 0, "hash": GENESIS}));
        let of_partition: Vec<_> =
            events.iter().filter(|event| event["partition"] == head.partition).collect();
        assert_eq!(span["last"]["position"], json!(of_partition.len()), "{span}");
        assert!(of_partition.len() >= usize::try_from(head.position).unwrap());
        if let Some(last) = of_partition.last() {
            assert_eq!(span["last"]["hash"], last["hash"], "{span}");
        }
    }
}

/// An event is changed as somebody with all rights on the database would change it.
async fn a_damaged_log_is_refused(story: &Story) {
    let log = story.instance.log().await;
    let partition = story.merchant.partition().await;
    let opened = &story.of_kind("request.opened").await[0];
    log.sql.batch_execute("ALTER TABLE ledger.batches DISABLE TRIGGER ALL").await.unwrap();
    let changed = log
        .sql
        .execute(
            "UPDATE ledger.batches SET writer = writer || 'x'
             WHERE partition = $1 AND first_position <= $2 AND first_position + count > $2",
            &[&partition, &opened.position],
        )
        .await
        .unwrap();
    assert_eq!(changed, 1);
    let why = format!(
        "partition {partition}, position {}: the hash does not follow from the event and the previous hash",
        opened.position
    );
    for format in ["csv", "parquet", "ndjson", "focus"] {
        let out = story.instance.file("damaged");
        refused(story.instance, &out, &["--format", format], 1, &why).await;
        refused(story.instance, &out, &["--format", format], 1, "nothing was exported").await;
        assert!(!out.exists());
    }
}

#[test]
fn incremental_exports_have_every_row_once() {
    run(async {
        let instance = Instance::shared().await;
        let story = Story::begin(instance).await;
        let name = |part: &str| format!("export-{}-{part}", story.merchant.id);
        let full = ["--format", "ndjson", "--merchant", &story.merchant.id];
        let mut parts = vec![export(instance, &name("0"), &full).await];
        for calls in 1..3 {
            story.go_on(calls).await;
            let since = parts.last().unwrap().manifest_file();
            let part =
                export(instance, &name(&calls.to_string()), &["--format", "ndjson", "--since", &since]).await;
            assert_eq!(part.manifest["merchant_id"], json!(story.merchant.id));
            parts.push(part);
        }
        // Nothing is new. Another format goes on from the same manifest.
        let since = parts.last().unwrap().manifest_file();
        for format in ["ndjson", "parquet", "csv"] {
            let none =
                export(instance, &name(&format!("none-{format}")), &["--format", format, "--since", &since])
                    .await;
            assert!(none.totals().values().all(Decimal::is_zero), "{format}: {:?}", none.totals());
            parts.extend((format == "ndjson").then_some(none));
        }
        let whole = export(instance, &name("whole"), &full).await;
        for table in ["requests", "entries", "events"] {
            let joined: Vec<Value> = parts.iter().flat_map(|part| part.rows(table)).collect();
            assert_eq!(joined, whole.rows(table), "{table}");
        }
        for pair in parts.windows(2) {
            let (before, after) = (&pair[0].manifest, &pair[1].manifest);
            assert_eq!(before["log"][0]["last"], after["log"][0]["after"]);
            assert_eq!(before["log"].as_array().unwrap().len(), 1);
        }
        unusable_manifests(&story, &parts[0], &name("refused")).await;
    });
}

async fn unusable_manifests(story: &Story, previous: &Export, name: &str) {
    let instance = story.instance;
    let (out, altered) = (instance.file(name), instance.file(&format!("{name}.json")));
    let since = altered.to_str().unwrap();
    let base = ["--format", "csv", "--since", since];
    let alter = |change: &dyn Fn(&mut Value)| {
        let mut manifest = previous.manifest.clone();
        change(&mut manifest);
        std::fs::write(&altered, manifest.to_string()).unwrap();
    };
    alter(&|manifest| manifest["log"][0]["last"]["hash"] = json!("00"));
    let why = "the event is not the one that the previous export ended with";
    refused(instance, &out, &base, 1, why).await;
    alter(&|manifest| manifest["log"][0]["last"]["position"] = json!(99_999_999));
    let why = "the previous export ended at position 99999999, the last event is at";
    refused(instance, &out, &base, 1, why).await;
    for (position, hash) in [(-3, "00".repeat(32)), (0, "01".repeat(32))] {
        alter(&|manifest| manifest["log"][0]["last"] = json!({"position": position, "hash": hash}));
        refused(instance, &out, &base, 2, "the previous export is of another log").await;
    }
    alter(&|manifest| manifest["log"] = json!([]));
    refused(instance, &out, &base, 2, "the previous export is of another log").await;
    alter(&|manifest| manifest["schema_version"] = json!(99));
    refused(instance, &out, &base, 2, "has the schema version 99").await;
    alter(&|manifest| manifest["files"] = json!([]));
    refused(instance, &out, &base, 2, "the previous export has no table requests").await;
    std::fs::write(&altered, "{}").unwrap();
    refused(instance, &out, &base, 2, "is no manifest of an export").await;
    refused(instance, &out, &["--format", "csv", "--since", "/nowhere/m.json"], 2, "cannot read").await;
    refused(instance, &out, &["--format", "csv", "--since", "/dev/zero"], 2, "has more than").await;
    let backwards = ["--format", "csv", "--from", "2026-12-01", "--to", "2026-11-01"];
    refused(instance, &out, &backwards, 2, "--to is not after --from").await;
    let both = ["--format", "csv", "--since", since, "--from", "2026-01-01"];
    refused(instance, &out, &both, 2, "cannot be used with").await;
    refused(instance, &out, &["--format", "xls"], 2, "invalid value").await;
    refused(instance, &out, &["--format", "csv", "--partition", "999"], 2, "no partition 999").await;
    let nobody = "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let why = format!("no event of the log is of the merchant {nobody}");
    refused(instance, &out, &["--format", "csv", "--merchant", nobody], 2, &why).await;
    assert!(!out.exists());
    // An export is not overwritten.
    let why = "exists already";
    refused(instance, &previous.folder, &["--format", "csv"], 2, why).await;
    assert!(!previous.rows("events").is_empty());
}

#[test]
fn an_empty_period_gives_files_with_their_headers_and_periods_that_meet_have_every_row_once() {
    run(async {
        let instance = Instance::shared().await;
        let story = Story::begin(instance).await;
        let name = |part: &str| format!("period-{}-{part}", story.merchant.id);
        let merchant = ["--merchant", story.merchant.id.as_str()];
        let never = [["--from", "2020-01-01"], ["--to", "2020-01-02"], merchant].concat();
        for format in ["csv", "parquet", "ndjson", "focus"] {
            let empty = export(instance, &name(format), &[&["--format", format], &*never].concat()).await;
            assert!(empty.totals().values().all(Decimal::is_zero), "{:?}", empty.totals());
            assert!(empty.totals().len() > 9, "{format}");
            match format {
                "csv" => assert_eq!(empty.text("entries").lines().count(), 1),
                "focus" => assert!(empty.text("focus").starts_with("BilledCost,BillingAccountId,")),
                "parquet" => assert!(empty.file("requests")["bytes"].as_u64() > Some(1_000)),
                _ => assert_eq!(empty.text("entries"), ""),
            }
        }
        // A call is in the period in which it ended.
        let cut = story.of_kind("request.metered").await[2].occurred_at.to_rfc3339();
        let ndjson = [["--format", "ndjson"], merchant].concat();
        let before = export(instance, &name("before"), &[&*ndjson, &["--to", &cut]].concat()).await;
        let after = export(instance, &name("after"), &[&*ndjson, &["--from", &cut]].concat()).await;
        let whole = export(instance, &name("whole"), &ndjson).await;
        for table in ["requests", "entries", "events"] {
            let mut joined = [before.rows(table), after.rows(table)].concat();
            joined.sort_by_key(|row| row["position"].as_i64());
            assert_eq!(joined, whole.rows(table), "{table}");
        }
        assert_eq!(after.rows("requests")[0]["ended_at"], json!(micros(cut.parse().unwrap())));
    });
}
