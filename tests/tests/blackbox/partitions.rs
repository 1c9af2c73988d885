//! Partitions: the first migration fixes their number, and everything of a merchant happens in the merchant's own.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Output, Stdio};

use farthing_core::partition::Partition;
use farthing_tests::client::{Request, Response};
use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Log;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::json as json_answer;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use futures_util::future::join_all;
use serde_json::{Value, json};

/// The URL of a new, empty database on the shared instance's server.
async fn new_database(name: &str) -> String {
    Instance::shared().await.create_database(name).await
}

async fn migrate(url: &str, flags: &[&str]) -> Output {
    migrate_without_mode(url, &[&["--mode", "test"], flags].concat()).await
}

async fn migrate_without_mode(url: &str, flags: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(["migrate", "--json", "--database-url", url]).args(flags);
    command.env_remove("FARTHING_PARTITIONS").stdin(Stdio::null()).output().await.unwrap()
}

#[test]
fn the_first_migration_fixes_the_number_of_partitions() {
    run(async {
        let url = new_database("three_partitions").await;
        for number in ["0", "1025", "x"] {
            assert_eq!(migrate(&url, &["--partitions", number]).await.status.code(), Some(2), "{number}");
        }
        for flags in [["--partitions", "3"].as_slice(), &["--partitions=3"], &[]] {
            let output = migrate(&url, flags).await;
            assert!(output.status.success(), "{output:?}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["partitions"], 3, "{report}");
        }
        let refused = migrate(&url, &["--partitions", "4"]).await;
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{refused:?}");
        assert!(message.contains("the log has 3 partitions, not 4"), "{message}");
        let sql = Log::open(&url).await.sql;
        for table in ["heads", "checkpoints", "leases"] {
            let partitions = format!("SELECT array_agg(partition ORDER BY partition) FROM ledger.{table}");
            let partitions: Vec<i16> = sql.query_one(&partitions, &[]).await.unwrap().get(0);
            assert_eq!(partitions, [0, 1, 2], "{table}");
        }

        let url = new_database("default_partitions").await;
        let output = migrate(&url, &[]).await;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["partitions"], 8, "{report}");
    });
}

#[test]
fn the_first_migration_needs_a_mode_and_later_ones_find_it() {
    run(async {
        let url = new_database("migrations_and_their_mode").await;
        let refused = migrate_without_mode(&url, &[]).await;
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{refused:?}");
        assert!(message.contains("its first migration needs a mode"), "{message}");
        let sql = Log::open(&url).await.sql;
        let has_log: bool =
            sql.query_one("SELECT to_regnamespace('ledger') IS NOT NULL", &[]).await.unwrap().get(0);
        assert!(!has_log, "nothing was changed");
        assert!(migrate(&url, &[]).await.status.success());
        let output = migrate_without_mode(&url, &[]).await;
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["mode"], "test", "{report}");
        let refused = migrate_without_mode(&url, &["--mode", "live"]).await;
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{refused:?}");
        assert!(message.contains("its mode is test, not live"), "{message}");
    });
}

#[test]
fn an_operator_command_without_a_gateway_leads_one_partition_alone() {
    run(async {
        let url = new_database("without_a_gateway").await;
        let output = migrate(&url, &[]).await;
        assert!(output.status.success(), "{output:?}");
        let made = operate(&url, &["merchant", "create"]).await;
        let log = Log::open(&url).await;
        let partition = log.partition_of(made["merchant_id"].as_str().unwrap()).await.number();
        let led = "SELECT array_agg(partition) FROM ledger.heads WHERE epoch > 0";
        let led: Vec<i16> = log.sql.query_one(led, &[]).await.unwrap().get(0);
        assert_eq!(led, [partition]);
    });
}

#[test]
fn merchants_and_keys_are_made_in_all_partitions_at_once() {
    run(async {
        let instance = Instance::shared().await;
        let partitions = instance.log().await.heads().await.len();
        let mut merchants = Vec::new();
        let mut covered = BTreeSet::new();
        while covered.len() < partitions {
            for merchant in join_all((0..8).map(|_| Merchant::of(instance))).await {
                covered.insert(merchant.partition().await);
                merchants.push(merchant);
            }
        }
        let bodies: Vec<Value> = (0..10).map(|number| json!({"name": format!("number {number}")})).collect();
        let made = merchants
            .iter()
            .flat_map(|merchant| bodies.iter().map(async |body| merchant.post("/v1/spend_keys", body).await));
        let made = join_all(made).await;
        let url = instance.provider.endpoint(|_| json_answer(200, &json!({}))).url;
        for answer in &made {
            let key = answer.expect(201)["key"].as_str().unwrap().to_owned();
            // The other gateway looks it up in the directory.
            let called = forward("GET", &url).bearer(&key).send(instance.gateway(1)).await.unwrap();
            called.expect(200);
        }
        assert_eq!(made.len(), 10 * merchants.len());
    });
}

/// A database of four partitions, with a gateway.
struct Partitioned {
    url: String,
    log: Log,
    gateway: SideGateway,
}

/// A merchant, with its partition.
struct Tenant<'a> {
    on: &'a Partitioned,
    id: String,
    secret_key: String,
    partition: Partition,
}

impl Partitioned {
    async fn start(name: &str) -> Self {
        let url = new_database(name).await;
        let output = migrate(&url, &["--partitions", "4"]).await;
        assert!(output.status.success(), "{output:?}");
        let flags = ["--allow-address=127.0.0.0/8"];
        let gateway = SideGateway::on(Instance::shared().await, &url, &flags).await;
        Self { log: Log::open(&url).await, url, gateway }
    }

    /// A new merchant in another partition than `not`.
    async fn tenant(&self, not: Option<Partition>) -> Tenant<'_> {
        loop {
            let made = operate(&self.url, &["merchant", "create"]).await;
            let text = |name: &str| made[name].as_str().unwrap().to_owned();
            let id = text("merchant_id");
            let partition = self.log.partition_of(&id).await;
            if Some(partition) != not {
                return Tenant { on: self, id, secret_key: text("secret_key"), partition };
            }
        }
    }

    /// The partitions that have rows of `table` with `id` in `column`.
    async fn partitions_with(&self, table: &str, column: &str, id: &str) -> Vec<i16> {
        let query = format!("SELECT DISTINCT partition FROM {table} WHERE {column} = $1");
        self.log.sql.query(&query, &[&id]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }
}

impl Tenant<'_> {
    async fn rest(&self, request: Request) -> Response {
        request.bearer(&self.secret_key).send(self.on.gateway.address).await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        self.rest(Request::new("POST", path).json(body)).await.expect(201)
    }

    async fn credit(&self, target: [&str; 2], amount: &str) {
        let reason = ["--amount", amount, "--reason", "a test"];
        operate(&self.on.url, &[&["wallet", "credit"], &target[..], &reason].concat()).await;
    }

    /// Everything from a customer to calls, a checkout page and a renewal.
    async fn walk(&self, url: &str) {
        let address = self.on.gateway.address;
        let made = self.post("/v1/customers", &json!({"reference_id": "same", "first_name": "Ada"})).await;
        let customer = made["customer_id"].as_str().unwrap();
        assert_eq!(
            self.on.partitions_with("personal.customer", "customer_id", customer).await,
            [self.partition.number()]
        );
        self.credit(["--connection", customer], "2").await;
        self.credit(["--merchant", &self.id], "2").await;
        let meter = self
            .post(
                "/v1/meters",
                &json!({
                    "name": "per call", "meter_slug": "same", "rate_type": "fixed", "tier_type": "requests",
                    "tiers": [{"start": 0, "rate": "0.5"}], "service_charge_payer": "merchant",
                }),
            )
            .await;

        let billing = token(&json!({
            "secret_key": self.secret_key, "customer_id": "same", "meter_slug": meter["meter_slug"],
        }));
        let call = forward("POST", url).json(&json!({"input": "hello"})).bearer(&billing);
        let call = call.header("Idempotency-Key", "one call");
        let first = call.send(address).await.unwrap();
        assert_eq!(first.status, 200, "{}", first.text());
        let again = call.send(address).await.unwrap();
        assert_eq!((again.status, again.head.header("idempotency-replayed")), (200, Some("true")));
        let wallet = self.rest(Request::new("GET", format!("/v1/customers/{customer}/wallet"))).await;
        assert_eq!(wallet.expect(200)["balance"], "1.5000000000", "one call was charged");

        let spend_key = self.post("/v1/spend_keys", &json!({"name": "k"})).await;
        let raw = spend_key["key"].as_str().unwrap();
        let called = forward("GET", url).bearer(raw).send(address).await.unwrap();
        assert_eq!(called.status, 200, "{}", called.text());
        let rotate = format!("/v1/spend_keys/{}/rotate", spend_key["spend_key_id"].as_str().unwrap());
        let rotated = self.rest(Request::new("POST", rotate)).await.json();
        let refused = forward("GET", url).bearer(raw).send(address).await.unwrap();
        refused.refused(401, "spend_key_invalid");
        let raw = rotated["key"].as_str().unwrap();
        assert_eq!(forward("GET", url).bearer(raw).send(address).await.unwrap().status, 200, "{rotated}");

        let body =
            json!({"checkout_mode": "topup", "origin_url": "https://app.example", "customer_id": customer});
        let session = self.post("/v1/checkout_sessions", &body).await;
        let page = session["url"].as_str().unwrap();
        let page = &page[page.find("/embed/").unwrap()..];
        let shown = Request::new("GET", page).send(self.on.gateway.pages).await.unwrap();
        assert_eq!(shown.status, 200, "{}", shown.text());
        assert!(shown.text().contains("card_number"), "{}", shown.text());

        let plan =
            json!({"name": "free", "period_amount": 0, "included_credit": "1", "billing_interval": "day"});
        let plan = self.post("/v1/plans", &plan).await;
        let subscription = json!({"customer_id": customer, "plan_id": plan["plan_id"]});
        self.post("/v1/subscriptions", &subscription).await;
        let advance = Request::new("POST", "/v1/test_clock").json(&json!({"advance_seconds": 86_400}));
        self.rest(advance).await.expect(200);
        eventually("the scheduler renews the subscription", async || {
            let events = self.on.log.of_merchant(&self.id, 0).await;
            events.iter().any(|event| event.kind == "subscription.renewed").then_some(())
        })
        .await;

        let further = operate(&self.on.url, &["key", "issue", "--merchant", &self.id]).await;
        let wallet = || {
            let wallet = Request::new("GET", "/v1/wallet").bearer(further["secret_key"].as_str().unwrap());
            async move { wallet.send(address).await.unwrap() }
        };
        wallet().await.expect(200);
        let key = further["secret_key_id"].as_str().unwrap();
        let revoked = operate(&self.on.url, &["key", "revoke", key]).await;
        assert_eq!(revoked["merchant_id"], self.id.as_str());
        wallet().await.refused(401, "secret_key_invalid");
        for id in [key, session["checkout_session_id"].as_str().unwrap()] {
            assert_eq!(
                self.on.partitions_with("ledger.directory", "id", id).await,
                [self.partition.number()],
                "{id}"
            );
        }
    }
}

#[test]
fn merchants_in_different_partitions_do_not_share_one_and_each_has_positions_without_a_gap() {
    run(async {
        let partitioned = Partitioned::start("two_tenants").await;
        let endpoint = Instance::shared()
            .await
            .provider
            .endpoint(|_| json_answer(200, &json!({"usage": {"tokens": 1}})));
        let first = partitioned.tenant(None).await;
        let second = partitioned.tenant(Some(first.partition)).await;
        tokio::join!(first.walk(&endpoint.url), second.walk(&endpoint.url));
        assert_eq!(endpoint.calls().len(), 6, "three calls of each; the repeated one was replayed");

        let sql = &partitioned.log.sql;
        let events =
            "SELECT partition, position, merchant_id FROM ledger.events ORDER BY partition, position";
        let mut heads = BTreeMap::<i16, i64>::new();
        for event in sql.query(events, &[]).await.unwrap() {
            let (partition, position, merchant): (i16, i64, String) =
                (event.get(0), event.get(1), event.get(2));
            assert_eq!(partitioned.log.partition_of(&merchant).await.number(), partition, "{merchant}");
            let head = heads.entry(partition).or_default();
            *head += 1;
            assert_eq!(position, *head, "partition {partition} has a gap");
        }
        for head in sql.query("SELECT partition, position FROM ledger.heads", &[]).await.unwrap() {
            let (partition, position): (i16, i64) = (head.get(0), head.get(1));
            assert_eq!(position, heads.get(&partition).copied().unwrap_or(0), "partition {partition}");
        }
        for tenant in [&first, &second] {
            assert!(heads[&tenant.partition.number()] >= 15, "{heads:?}");
            let stored = format!("{}/same", tenant.id);
            assert_eq!(
                partitioned.partitions_with("ledger.state", "id", &stored).await,
                [tenant.partition.number()]
            );
        }
        let claims = "SELECT array_agg(DISTINCT partition ORDER BY partition) FROM ledger.idempotency";
        let claims: Vec<i16> = sql.query_one(claims, &[]).await.unwrap().get(0);
        let mut partitions = [first.partition.number(), second.partition.number()];
        partitions.sort_unstable();
        assert_eq!(claims, partitions);
    });
}

#[test]
fn partitions_are_listed_with_their_leaders_and_what_is_behind() {
    run(async {
        let instance = Instance::shared().await;
        let merchant = Merchant::funded("1").await;
        let partition = merchant.log.partition_of(&merchant.id).await;
        let position = merchant.events().await.last().unwrap().position;
        eventually("every partition is led and its readers have come to the merchant", async || {
            let listed = instance.operate(&["partitions"]).await;
            let rows = listed["data"].as_array()?;
            let numbers: Vec<_> = rows.iter().map(|row| row["partition"].as_i64().unwrap()).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
            let own = &rows[partition.index()];
            let read = |lag: &str| Some(own["position"].as_i64()? - own[lag].as_i64()? >= position);
            let is_led = |row: &Value| {
                row["leader"].as_str().is_some_and(|leader| leader.starts_with("gw_"))
                    && row["address"].as_str().is_some_and(|address| address.starts_with("http://127.0.0.1:"))
                    && row["lease_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0)
                    && row["epoch"].as_i64() > Some(0)
            };
            let all_read = read("state_lag")? && read("read_model_lag")? && read("webhook_lag")?;
            (rows.iter().all(is_led) && all_read).then_some(())
        })
        .await;
    });
}
