//! An instance with a log worth tampering with, and what the owner of its database can do to it.

use farthing_tests::instance::Instance;
use farthing_tests::log::Head;
use farthing_tests::merchant::{Customer, Merchant, Meter, forward};
use farthing_tests::provider::json;
use farthing_tests::recurring::Means;
use serde_json::{Value, json};

use crate::stored_log::StoredLog;

const HEAD: &str = "SELECT position, hash FROM ledger.heads WHERE partition = $1";

const SET_HEAD: &str = "UPDATE ledger.heads SET position = $2, hash = $3 WHERE partition = $1";

/// Hides the stored states of partition $1.
const COVER: &str = "\
WITH hidden AS (UPDATE ledger.state SET generation = -1 WHERE partition = $1)
UPDATE ledger.checkpoints AS c SET position = 0 FROM ledger.checkpoints AS b
WHERE c.partition = $1 AND b.partition = $1 AND c.generation = b.generation RETURNING b.generation, b.position";

const UNCOVER: &str = "\
WITH shown AS (UPDATE ledger.state SET generation = $2 WHERE partition = $1)
UPDATE ledger.checkpoints SET position = $3 WHERE partition = $1 AND generation = $2";

fn seed() -> u64 {
    let given = std::env::var("FARTHING_FAULT_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("repeat with FARTHING_FAULT_SEED={seed}");
    seed
}

/// Gives the merchant something in every read table that calls for its customer do not fill.
async fn furnish(merchant: &Merchant, customer: &Customer, meter: &Meter, provider: &str) {
    let made = merchant.post("/v1/spend_keys", &json!({"name": "a laptop"})).await.expect(201);
    let call =
        forward("POST", provider).json(&json!({"input": "hello"})).bearer(made["key"].as_str().unwrap());
    call.send(merchant.gateway()).await.unwrap().expect(200);
    let call = forward("POST", provider).json(&json!({"input": "hello"}));
    let call = call.header("x-service-metadata", json!({"team": "blue"}).to_string());
    merchant.send(&merchant.billing(customer, meter), call).await.expect(200);
    let plan = json!({
        "name": "free", "period_amount": 0, "included_credit": "0.1", "meter_ids": [meter.id],
        "credit_bundles": [{"name": "one", "cost": "1", "credit_amount": "1"}],
    });
    let plan = merchant.post("/v1/plans", &plan).await.expect(201);
    let subscription = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
    merchant.post("/v1/subscriptions", &subscription).await.expect(201);
    merchant.buy(customer, &plan["credit_bundles"][0], Means::Card("4242424242424242")).await;
}

/// An instance with a log worth tampering with, which is idle.
pub(crate) struct Scene {
    pub(crate) instance: &'static Instance,
    pub(crate) sql: tokio_postgres::Client,
    pub(crate) random: fastrand::Rng,
    /// The arguments that name the published heads and the key.
    head: [String; 4],
    /// The heads that were published, in their order.
    pub(crate) published: Vec<Vec<Head>>,
}

impl Scene {
    pub(crate) async fn set() -> Self {
        let seed = seed();
        let instance = Instance::of_test(1).await;
        let path = |name: &str| instance.file(name).into_os_string().into_string().unwrap();
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let (file, key, public) = (path("heads.ndjson"), path("audit.pem"), path("audit.pub"));
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        std::fs::write(&public, pair.public_key_pem()).unwrap();
        let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let mut published = Vec::new();
        let mut merchants = Vec::new();
        for _ in 0..3 {
            let merchant = Merchant::of(instance).await;
            merchant.credit_own("10").await;
            let (customer, meter) = (merchant.customer("5").await, merchant.call_meter("0.1").await);
            furnish(&merchant, &customer, &meter, &endpoint.url).await;
            merchants.push((merchant, customer, meter));
        }
        for round in 0..4 {
            for (merchant, customer, meter) in &merchants {
                let token = merchant.billing(customer, meter);
                for _ in 0..4 {
                    let response = merchant.call(&token, &endpoint.url).await;
                    merchant.shown(&response.request_id(), "completed").await;
                }
            }
            let log = instance.log().await;
            let report = instance.operate(&["audit", "head", "--append", &file, "--key-file", &key]).await;
            assert_eq!((&report["line"], &report["signed"]), (&json!(round + 1), &json!(true)), "{report}");
            published.push(log.heads().await);
        }
        for (merchant, customer, _) in &merchants {
            merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
        }
        let log = instance.log().await;
        log.stored().await;
        log.sql.batch_execute("ALTER TABLE ledger.batches DISABLE TRIGGER ALL").await.unwrap();
        let head = ["--head".to_owned(), file, "--public-key-file".to_owned(), public];
        let random = fastrand::Rng::with_seed(seed);
        Self { instance, sql: log.sql, random, head, published }
    }

    /// Runs `audit verify`: its exit code and its report.
    pub(crate) async fn verify(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let arguments = [&["audit", "verify"], arguments].concat();
        let output = self.instance.command(&arguments).await;
        let report = serde_json::from_slice(&output.stdout);
        (output.status.code(), report.unwrap_or_else(|error| panic!("{error}: {output:?}")))
    }

    /// The same without the read tables and with the published heads.
    pub(crate) async fn verify_log(&self) -> (Option<i32>, Value) {
        let head: Vec<&str> = self.head.iter().map(String::as_str).collect();
        self.verify(&[&["--skip-read-tables"], head.as_slice()].concat()).await
    }

    /// The log of a random partition that has one.
    pub(crate) async fn log(&mut self) -> StoredLog {
        let heads = &self.published[self.published.len() - 1];
        let used: Vec<_> = heads.iter().filter(|head| head.position > 10).collect();
        let partition = used[self.random.usize(..used.len())].partition;
        StoredLog::read(&self.sql, partition).await
    }

    pub(crate) fn position(&mut self, log: &StoredLog) -> i64 {
        self.random.i64(1..=i64::try_from(log.len()).unwrap())
    }

    /// Changes a random digit of `text`.
    pub(crate) fn another_digit(&mut self, text: &str) -> String {
        let digits: Vec<_> = text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).collect();
        let (at, digit) = digits[self.random.usize(..digits.len())];
        let other = char::from(b'0' + (digit - b'0' + self.random.u8(1..10)) % 10);
        format!("{}{other}{}", &text[..at], &text[at + 1..])
    }

    pub(crate) async fn sound(&self) {
        let head: Vec<&str> = self.head.iter().map(String::as_str).collect();
        let (code, report) = self.verify(&head).await;
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("verified")), "{report}");
        for check in report["checks"].as_array().unwrap() {
            // No folder of checkpoints is given, and nothing was archived.
            let is_left_out = ["archives", "signed_checkpoints"].map(Value::from).contains(&check["check"]);
            assert_eq!(check["verdict"], if is_left_out { "skipped" } else { "verified" }, "{check}");
            assert_eq!(check["checked"].as_u64() > Some(0), !is_left_out, "{check}");
        }
    }

    /// Changes the log as the owner of the database can, whose last position and hash are then `end`: the head follows, and no
    /// states are stored, as of the position 0.
    pub(crate) async fn rewrite(
        &mut self,
        before: &StoredLog,
        after: &StoredLog,
        (end, hash): (i64, Vec<u8>),
    ) -> CoveredUp {
        let partition = before.partition;
        let head = self.sql.query_one(HEAD, &[&partition]).await.unwrap();
        before.change(&mut self.sql, after).await;
        self.sql.execute(SET_HEAD, &[&partition, &end, &hash]).await.unwrap();
        let states = self.sql.query_one(COVER, &[&partition]).await.unwrap();
        CoveredUp { head: (head.get(0), head.get(1)), states: (states.get(0), states.get(1)) }
    }

    /// Brings the log back to what it was.
    pub(crate) async fn put_back(&mut self, after: &StoredLog, before: &StoredLog, covered: &CoveredUp) {
        let (partition, (end, hash), (generation, stored)) =
            (before.partition, &covered.head, &covered.states);
        after.change(&mut self.sql, before).await;
        self.sql.execute(SET_HEAD, &[&partition, end, hash]).await.unwrap();
        self.sql.execute(UNCOVER, &[&partition, generation, stored]).await.unwrap();
    }
}

/// What a rewritten log had before: its head, and the generation and the position of its stored states.
pub(crate) struct CoveredUp {
    head: (i64, Vec<u8>),
    states: (i16, i64),
}

pub(crate) fn check<'r>(report: &'r Value, name: &str) -> &'r Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}
