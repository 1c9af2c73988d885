//! Reads over REST: slow ones of one merchant, also the short ones of any call, callers that leave, hostile parameters, unusual
//! methods and headers.

use std::net::SocketAddr;
use std::time::Duration;

use farthing_tests::client::{Connection, Request};
use farthing_tests::document::Document;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::tenant::Tenant;
use farthing_tests::wait::{eventually, settled};
use serde_json::json;
use tokio_postgres::Transaction;
use tokio_util::sync::CancellationToken;

/// Makes every read of requests wait until the end of the transaction, or until its statement's timeout.
const HOLD_UP: &str = "LOCK TABLE requests.opened, requests.ended IN ACCESS EXCLUSIVE MODE";

/// The statements of gateways that are held up, but for those that delete what has expired.
const HELD_UP: &str = "\
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'farthing_gateway' AND wait_event_type = 'Lock'
    AND query NOT LIKE 'DELETE%'";

/// The most reads of one merchant at once.
const PER_MERCHANT: i64 = 2;

/// More than a gateway has connections for reads.
const MANY: usize = 40;

/// The time for which a number must not change.
const CALM: Duration = Duration::from_millis(300);

/// An instance with two merchants and one gateway.
struct Scene {
    tenant: Tenant,
    victims_key: String,
    gateway: SideGateway,
    _projector: SideProjector,
}

impl Scene {
    async fn on(name: &str) -> Self {
        Self::with(name, &[]).await
    }

    /// With further flags of the gateway.
    async fn with(name: &str, flags: &[&str]) -> Self {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, name, "test").await;
        let victim = operate(&tenant.database_url, &["merchant", "create"]).await;
        let projector = SideProjector::on(instance, &tenant.database_url).await;
        let flags = [&["--allow-address=127.0.0.0/8", "--pages-url=https://pay.example"], flags].concat();
        let gateway = SideGateway::on(instance, &tenant.database_url, &flags).await;
        let victims_key = victim["secret_key"].as_str().unwrap().to_owned();
        let scene = Self { tenant, victims_key, gateway, _projector: projector };
        // Both keys are known to the gateway, and the read models have caught up.
        scene.slow().send(scene.at()).await.unwrap().expect(200);
        scene.victim_is_served().await;
        scene
    }

    fn at(&self) -> SocketAddr {
        self.gateway.address
    }

    /// A read that can be held up.
    fn slow(&self) -> Request {
        Request::new("GET", "/v1/requests").bearer(&self.tenant.secret_key)
    }

    async fn victim_is_served(&self) {
        for path in ["/v1/customers", "/v1/meters", "/v1/wallet", "/v1/subscriptions"] {
            let answer = Request::new("GET", path).bearer(&self.victims_key).send(self.at()).await.unwrap();
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            assert_eq!(answer.head.header("x-service-stale"), None, "{path}");
        }
    }

    /// Many calls of the tenant at once, twice, whose short reads `hold` holds up. The first callers leave.
    async fn victim_is_served_beside(
        &self,
        hold: Transaction<'_>,
        to: SocketAddr,
        call: impl Fn(usize) -> Request,
    ) {
        let mut callers = Vec::new();
        for _ in 0..2 {
            callers.clear();
            for number in 0..SHORT_CALLS {
                let mut caller = Connection::open(to).await.unwrap();
                caller.send(&call(number)).await.unwrap();
                callers.push(caller);
            }
            eventually("a short read is held up", async || (held_up(&hold).await > 0).then_some(())).await;
            assert_eq!(held_up_in_the_end(&hold).await, SHORT_READS);
            self.victim_is_served().await;
        }
        hold.rollback().await.unwrap();
        let method = call(0).method;
        for mut caller in callers {
            let status = caller.response(&method).await.unwrap().status;
            assert!([200, 201, 503].contains(&status), "{status}");
        }
    }
}

/// The statements that are held up, seen by the transaction that holds them up.
async fn held_up(hold: &Transaction<'_>) -> i64 {
    // Without this, a transaction sees what it has seen first.
    hold.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
    hold.query_one(HELD_UP, &[]).await.unwrap().get(0)
}

/// The same, once the number does not change any more.
async fn held_up_in_the_end(hold: &Transaction<'_>) -> i64 {
    settled(CALM, async || held_up(hold).await).await
}

#[test]
fn slow_reads_of_one_merchant_do_not_keep_another_out() {
    run(async {
        let mut scene = Scene::on("slow_reads").await;
        let (mut sql, connection) =
            tokio_postgres::connect(&scene.tenant.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let hold = sql.transaction().await.unwrap();
        hold.batch_execute(HOLD_UP).await.unwrap();
        let stop = CancellationToken::new();
        // Each is repeated when the gateway gives it up.
        let slow: Vec<_> = (0..MANY)
            .map(|_| {
                let (request, at, stop) = (scene.slow(), scene.at(), stop.clone());
                tokio::spawn(async move {
                    let mut statuses = Vec::new();
                    while !stop.is_cancelled() {
                        statuses.push(request.send(at).await.unwrap().status);
                    }
                    statuses
                })
            })
            .collect();
        eventually("reads are held up", async || (held_up(&hold).await >= PER_MERCHANT).then_some(())).await;
        assert_eq!(held_up_in_the_end(&hold).await, PER_MERCHANT);
        for _ in 0..5 {
            scene.victim_is_served().await;
        }
        // A key that the gateway has not seen yet, and the keys' counts, need connections too.
        let issued = operate(&scene.tenant.database_url, &["merchant", "create"]).await;
        scene.victims_key = issued["secret_key"].as_str().unwrap().to_owned();
        scene.victim_is_served().await;
        assert!(held_up(&hold).await <= PER_MERCHANT);
        stop.cancel();
        hold.rollback().await.unwrap();
        for statuses in slow {
            for status in statuses.await.unwrap() {
                assert!([200, 429, 503].contains(&status), "{status}");
            }
        }
        scene.slow().send(scene.at()).await.unwrap().expect(200);
    });
}

/// Connections for reads of which a merchant's short reads get three, and the counts of one key two.
const SOME_CONNECTIONS: &str = "--read-connections=12";

/// The calls of a key that are counted at once there.
const COUNTS_AT_ONCE: i64 = 2;

/// Makes every count of calls with the key of the hash $1 wait.
const HOLD_COUNT: &str = "SELECT FROM ledger.rate_window WHERE key_hash = $1 FOR UPDATE";

#[test]
fn the_calls_of_one_key_are_counted_at_few_connections() {
    run(async {
        let scene = Scene::with("counted_calls", &[SOME_CONNECTIONS]).await;
        let issued = scene.tenant.of_kind("secret_key.issued").await.pop().unwrap();
        let (mut sql, connection) =
            tokio_postgres::connect(&scene.tenant.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let hold = sql.transaction().await.unwrap();
        let hash = issued.body["key_hash"].as_str().unwrap();
        assert_eq!(hold.query(HOLD_COUNT, &[&hash]).await.unwrap().len(), 1);
        let mut callers = Vec::new();
        for _ in 0..MANY {
            let mut caller = Connection::open(scene.at()).await.unwrap();
            caller.send(&scene.slow()).await.unwrap();
            callers.push(caller);
        }
        eventually("a count is held up", async || (held_up(&hold).await > 0).then_some(())).await;
        assert_eq!(held_up_in_the_end(&hold).await, COUNTS_AT_ONCE);
        scene.victim_is_served().await;
        hold.rollback().await.unwrap();
        for mut caller in callers {
            let status = caller.response("GET").await.unwrap().status;
            assert!([200, 503].contains(&status), "{status}");
        }
    });
}

/// The connections for reads of a gateway that has few of them, of which a merchant's short reads get one.
const FEW_CONNECTIONS: &str = "--read-connections=4";

/// The short reads of one merchant at once there.
const SHORT_READS: i64 = 1;

/// Calls at once whose short reads are held up, and the keys that they are made with.
const SHORT_CALLS: usize = 60;
const KEYS: usize = 5;

/// Makes every count of calls with a key of these hashes wait.
const HOLD_COUNTS: &str = "SELECT FROM ledger.rate_window WHERE key_hash = ANY($1) FOR UPDATE";

/// Makes every search for an answer under an idempotency key wait.
const HOLD_CLAIMS: &str = "LOCK TABLE ledger.idempotency IN ACCESS EXCLUSIVE MODE";

/// Makes every page of a checkout session wait.
const HOLD_PAGES: &str = "LOCK TABLE ledger.checkout_attempt IN ACCESS EXCLUSIVE MODE";

#[test]
fn short_reads_of_one_merchant_do_not_keep_another_out() {
    run(async {
        let scene = Scene::with("short_reads", &[FEW_CONNECTIONS]).await;
        let tenant = &scene.tenant;
        let mut keys = vec![tenant.secret_key.clone()];
        while keys.len() < KEYS {
            let issued = operate(&tenant.database_url, &["key", "issue", "--merchant", &tenant.id]).await;
            keys.push(issued["secret_key"].as_str().unwrap().to_owned());
        }
        let read = |number: usize| Request::new("GET", "/v1/requests").bearer(&keys[number % KEYS]);
        for number in 0..KEYS {
            read(number).send(scene.at()).await.unwrap().expect(200);
        }
        let mut pages = Vec::new();
        for _ in 0..KEYS {
            pages.push(tenant.page(scene.at(), "topup", &json!({})).await);
        }
        let (mut sql, connection) =
            tokio_postgres::connect(&tenant.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);

        let issued = tenant.of_kind("secret_key.issued").await;
        let hashes: Vec<_> = issued.iter().map(|key| key.body["key_hash"].as_str().unwrap()).collect();
        let hold = sql.transaction().await.unwrap();
        assert_eq!(hold.query(HOLD_COUNTS, &[&hashes]).await.unwrap().len(), KEYS);
        scene.victim_is_served_beside(hold, scene.at(), read).await;

        let hold = sql.transaction().await.unwrap();
        hold.batch_execute(HOLD_CLAIMS).await.unwrap();
        let write = |number: usize| {
            let request = Request::new("POST", "/v1/spend_keys").bearer(&keys[number % KEYS]);
            request.header("Idempotency-Key", number.to_string()).json(&json!({"name": "a laptop"}))
        };
        scene.victim_is_served_beside(hold, scene.at(), write).await;

        let hold = sql.transaction().await.unwrap();
        hold.batch_execute(HOLD_PAGES).await.unwrap();
        let view = |number: usize| Request::new("GET", pages[number % KEYS].clone());
        scene.victim_is_served_beside(hold, scene.gateway.pages, view).await;
    });
}

#[test]
fn callers_that_leave_their_slow_reads_do_not_keep_others_out() {
    run(async {
        let scene = Scene::on("left_reads").await;
        let (mut sql, connection) =
            tokio_postgres::connect(&scene.tenant.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let hold = sql.transaction().await.unwrap();
        hold.batch_execute(HOLD_UP).await.unwrap();
        for _ in 0..4 {
            let mut callers = Vec::new();
            for _ in 0..MANY / 4 {
                let mut caller = Connection::open(scene.at()).await.unwrap();
                caller.send(&scene.slow()).await.unwrap();
                callers.push(caller);
            }
            eventually("reads are held up", async || (held_up(&hold).await > 0).then_some(())).await;
            let held_up = held_up_in_the_end(&hold).await;
            assert!(held_up <= PER_MERCHANT, "{held_up} statements run, most of which nobody waits for");
            drop(callers);
        }
        scene.victim_is_served().await;
        hold.rollback().await.unwrap();
        scene.slow().send(scene.at()).await.unwrap().expect(200);
    });
}

#[test]
fn a_write_is_answered_while_the_merchants_slow_reads_have_all_its_turns() {
    run(async {
        let scene = Scene::on("writes_beside_reads").await;
        let made =
            scene.tenant.post(scene.at(), "/v1/spend_keys", &json!({"name": "before"})).await.expect(201);
        let path = format!("/v1/spend_keys/{}", made["spend_key_id"].as_str().unwrap());
        let (mut sql, connection) =
            tokio_postgres::connect(&scene.tenant.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let hold = sql.transaction().await.unwrap();
        hold.batch_execute(HOLD_UP).await.unwrap();
        let mut callers = Vec::new();
        for _ in 0..MANY {
            let mut caller = Connection::open(scene.at()).await.unwrap();
            caller.send(&scene.slow()).await.unwrap();
            callers.push(caller);
        }
        eventually("reads are held up", async || (held_up(&hold).await >= PER_MERCHANT).then_some(())).await;
        let change = Request::new("PUT", path).json(&json!({"name": "after"}));
        let changed = scene.tenant.rest(scene.at(), change).await.expect(200);
        assert_eq!(changed["name"], "after");
        assert!(held_up(&hold).await > 0, "the reads still have turns");
        drop(callers);
        hold.rollback().await.unwrap();
    });
}

#[test]
fn hostile_parameters_of_reads_are_refused_or_find_nothing() {
    run(async {
        let merchant = Merchant::new().await;
        let mut key = merchant.secret_key.clone();
        let deep = "[".repeat(2_000);
        let long = "x".repeat(5_000);
        let values = [
            "\0",
            "'",
            "\"",
            "%",
            "_",
            "\\",
            "';--",
            "$1",
            "{customers}",
            "../x",
            "\u{202e}x",
            "\u{feff}",
            "-1",
            "0",
            "99999999999999999999999",
            "NaN",
            "1e309",
            "null",
            "[]",
            "{}",
            r#"[["a","b"]]"#,
            r#"[["a\u0000","b"]]"#,
            r#"[["\ud800","b"]]"#,
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "+262143-12-31T23:59:59Z",
            "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            &deep,
            &long,
        ];
        let mut sent = 0;
        for operation in Document::served().await.standard() {
            if operation.method != "GET" {
                continue;
            }
            let mut targets = Vec::new();
            let required = |name: &str| match name {
                "start" => "&end=2026-12-31T00:00:00Z",
                _ if operation.query.iter().any(|name| name == "start") => {
                    "&start=2026-01-01T00:00:00Z&end=2026-12-31T00:00:00Z"
                }
                _ => "",
            };
            for value in values {
                if !operation.path_parameters().is_empty() {
                    targets.push(operation.target(|_| encoded(value)));
                }
                let plain = operation.target(|_| "x".to_owned());
                let filters = operation.query.iter();
                targets.extend(
                    filters.map(|name| format!("{plain}?{name}={}{}", encoded(value), required(name))),
                );
            }
            for target in targets {
                if sent % 900 == 899 {
                    let issued =
                        merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id]).await;
                    key = issued["secret_key"].as_str().unwrap().to_owned();
                }
                sent += 1;
                let request = Request::new("GET", target.clone()).bearer(&key);
                let answer = request.send(merchant.gateway()).await.unwrap();
                if answer.status != 200 {
                    assert!((400..500).contains(&answer.status), "{target}: {}", answer.text());
                    operation.refuses(&answer, &target);
                }
            }
        }
        assert!(sent > 1_000, "{sent}");
    });
}

#[test]
fn unusual_methods_and_headers_of_reads_change_nothing() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let operations = Document::served().await.standard();
        let offered = |target: &str, method: &str| {
            operations
                .iter()
                .any(|other| other.method == method && other.target(|_| "x".to_owned()) == target)
        };
        for operation in &operations {
            let target = operation.target(|_| "x".to_owned());
            for method in ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "PUT", "PATCH", "DELETE"] {
                if offered(&target, method) {
                    continue;
                }
                let answer = merchant.rest(Request::new(method, target.clone())).await;
                answer.refused(405, "method_not_allowed");
                assert!(answer.head.header("allow").is_some(), "{method} {target}");
            }
        }
        let plain = merchant.get("/v1/wallet").await.expect(200);
        let head = merchant.rest(Request::new("HEAD", "/v1/wallet")).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        Request::new("GET", "/v1/wallet")
            .send(merchant.gateway())
            .await
            .unwrap()
            .refused(401, "auth_header_missing");
        let before = merchant.events().await.len();
        for (name, value) in [
            ("Accept", "text/html;q=0"),
            ("Content-Type", "text/plain"),
            ("Transfer-Encoding", "chunked"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("X-Original-URL", "/v1/customers"),
            ("X-Forwarded-Host", "evil.example"),
            ("Connection", "authorization"),
            ("Range", "bytes=0-1"),
            ("If-None-Match", "*"),
            ("Upgrade", "h2c"),
        ] {
            let mut request = Request::new("GET", "/v1/wallet").header(name, value);
            if name == "Transfer-Encoding" {
                request =
                    Request::new("GET", "/v1/wallet").body(farthing_tests::client::Body::Chunks(vec![]));
            }
            let answer = merchant.rest(request).await;
            assert_eq!(answer.expect(200), plain, "{name}");
        }
        assert_eq!(merchant.events().await.len(), before);
    });
}
