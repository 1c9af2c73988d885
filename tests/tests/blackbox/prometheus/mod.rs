//! The metrics, the alert rules and the dashboard, as a real Prometheus reads them.

mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use farthing_tests::client::Connection;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::signal;
use farthing_tests::prometheus::{Prometheus, is_installed, promtool};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, json, last_chunk};
use farthing_tests::scrape::get;
use farthing_tests::servers;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, eventually_ok};
use farthing_tests::{left_out, run};
use serde_json::{Value, json};

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/prometheus/alerts.yml");
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus/alerts_test.yml");
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/grafana/farthing.json");
const DRAW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus/draw.py");

/// The exit code of the script that draws, if it cannot.
const NO_MATPLOTLIB: i32 = 3;

/// What Grafana puts in the place of this, with a scrape twice a second.
const RATE_INTERVAL: (&str, &str) = ("$__rate_interval", "4s");

/// The queries of the dashboard, by panel and target, that are zero after the load and the trouble, and why.
const ZERO: [(&str, &str); 2] = [
    (
        "2/B",
        "a call is left unsettled by a gateway that stops while Postgres is away, and then it is scraped no more",
    ),
    ("6/C", "a response waits for its decoder while others hold all threads, and no response is compressed"),
];

/// A query that need not rise above zero where NATS belongs to somebody else: nothing stops that server.
const LAG_OF_FEED: &str = "15/A";

/// The most commands in the queue of a partition of the side gateway. The load alone has one at a time.
const MAX_QUEUED: usize = 16;

/// Whether the test can run; says so if not.
fn has_prometheus(test: &str) -> bool {
    let is_installed = is_installed();
    if !is_installed {
        left_out(&format!("{test}: prometheus and promtool are not installed"));
    }
    is_installed
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    if !has_prometheus("each_alert_fires_when_it_should_and_only_then") {
        return;
    }
    promtool(&["check", "rules", ALERTS], "");
    promtool(&["test", "rules", CASES], "");
    // The cases name each alert, once firing and once quiet.
    let text = |file: &str| std::fs::read_to_string(file).unwrap();
    let (alerts, cases) = (text(ALERTS), text(CASES));
    let alerts: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        let end = format!("- alertname: {alert}\n");
        let of_alert: Vec<&str> = cases.split("- name: ").filter(|case| case.contains(&end)).collect();
        let quiet = of_alert.iter().filter(|case| case.contains("exp_alerts: []")).count();
        assert_eq!((of_alert.len(), quiet), (2, 1), "{alert} has one case that fires and one that does not");
    }
}

/// The metrics as Prometheus's older text has them, which the linter reads: `OpenMetrics` names a family of counters without
/// `_total`.
fn as_older_text(text: &str) -> String {
    let counters: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut older = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", what, name, rest] if counters.contains(name) => {
                writeln!(older, "# {what} {name}_total {rest}").unwrap();
            }
            _ => writeln!(older, "{line}").unwrap(),
        }
    }
    older
}

/// An instance with a merchant, and what its load needs.
struct Scene {
    instance: &'static Instance,
    /// A gateway with a short queue.
    side: SideGateway,
    rounds: AtomicU32,
    merchant: Merchant,
    credential: String,
    good: Endpoint,
    missing: Endpoint,
    stream: Endpoint,
    openai: Endpoint,
}

impl Scene {
    async fn start() -> Self {
        let flags = &["--webhook-retry-ms=1000"];
        let instance = Instance::of_test_with(2, flags).await;
        let queue = format!("--max-queued-commands={}", 2 * MAX_QUEUED);
        let side = SideGateway::start(instance, &["--allow-address=127.0.0.0/8", &queue]).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        let customer = merchant.customer("100").await;
        let meter = merchant.call_meter("0.01").await;
        let credential = merchant.billing(&customer, &meter);
        let provider = &instance.provider;
        let usage = || json(200, &json!({"usage": {"tokens": 5}}));
        let stream = provider.endpoint(|_| {
            let tokens = chunk("data: {\"usage\":{\"tokens\":7}}\n\n");
            vec![event_stream(), chunk("data: {}\n\n"), tokens, last_chunk()]
        });
        let missing = provider.endpoint(|_| json(404, &json!({"error": "no"})));
        for receiver in
            [provider.endpoint(|_| json(200, &json!({}))), provider.endpoint(|_| json(500, &json!({})))]
        {
            let webhook = json!({"url": receiver.url});
            merchant.post("/v1/webhooks", &webhook).await.expect(201);
        }
        for number in ["4242424242424242", "4000000000000341"] {
            let card = json!({"card": {"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"}});
            merchant.post("/v1/payment_methods", &card).await.expect(201);
        }
        let (good, openai) =
            (provider.endpoint(move |_| usage()), instance.openai.endpoint(move |_| usage()));
        let rounds = AtomicU32::default();
        Self { instance, side, rounds, merchant, credential, good, missing, stream, openai }
    }

    /// Calls, streams, refused calls, replays, callers who leave, reads and payments, each of them once or a few times.
    async fn load(&self) {
        let Self { merchant, credential, .. } = self;
        let round = self.rounds.fetch_add(1, Ordering::SeqCst);
        for _ in 0..5 {
            merchant.call(credential, &self.good.url).await.expect(200);
            assert_eq!(merchant.fetch(credential, &self.stream.url).await.status, 200);
        }
        let own_key =
            forward("POST", &self.openai.url).header("x-api-key", credential).bearer("sk-of-a-caller");
        let own_key = own_key.json(&json!({"input": "hello"})).send(self.instance.gateway(1)).await;
        own_key.unwrap().expect(200);
        assert_eq!(merchant.call(credential, &self.missing.url).await.status, 404);
        merchant.call("aks_test_nobodys", &self.good.url).await.refused(401, "secret_key_invalid");
        let keyed = forward("POST", &self.good.url).json(&json!({"input": "hello"}));
        let keyed = keyed.header("Idempotency-Key", format!("number {round}"));
        for _ in 0..2 {
            merchant.send(credential, keyed.clone()).await.expect(200);
        }
        self.leave().await.open();
        merchant.get("/v1/requests").await.expect(200);
        // The first card pays, and the newest, which is the default, is declined.
        let cards = merchant.get("/v1/payment_methods").await.expect(200);
        let pays = cards["data"].as_array().unwrap().last().unwrap()["payment_method_id"].clone();
        merchant
            .post("/v1/wallet/fund", &json!({"amount": "10", "payment_method_id": pays}))
            .await
            .expect(200);
        assert_eq!(merchant.post("/v1/wallet/fund", &json!({"amount": "10"})).await.status, 402);
    }

    /// A caller who leaves a response that goes on until the gate is opened.
    async fn leave(&self) -> Gate {
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = self.instance.provider.endpoint(move |_| {
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(waits.clone()), last_chunk()]
        });
        let mut call = Connection::open(self.instance.gateway(0)).await.unwrap();
        call.send(&forward("GET", &endpoint.url).bearer(&self.credential)).await.unwrap();
        call.head("GET").await.unwrap();
        drop(call);
        gate
    }
}

#[test]
fn every_alert_and_every_panel_can_be_evaluated_by_a_prometheus_that_scrapes_an_instance_under_load() {
    if !has_prometheus("every_alert_and_every_panel_can_be_evaluated") {
        return;
    }
    run(async {
        let scene = Scene::start().await;
        let instance = scene.instance;
        let targets =
            [instance.operator(0), instance.operator(1), scene.side.operator, instance.projector_operator()];
        let watch = Watch {
            began: now(),
            prometheus: Prometheus::start(instance, &targets, Path::new(ALERTS)).await,
        };
        for target in targets {
            promtool(&["check", "metrics"], &as_older_text(&get(target, "/metrics").await.text()));
        }
        all_are_scraped(&watch.prometheus).await;
        every_alert_is_evaluated(&watch.prometheus).await;
        a_process_that_hangs_is_down(&watch.prometheus, instance).await;

        trouble::all(&scene, &watch).await;
        let zero = ZERO.map(|(name, _)| name);
        let mut free = zero.to_vec();
        if !servers::has_own_nats("stops the NATS server for the panel of its lag") {
            free.push(LAG_OF_FEED);
        }
        let others: Vec<_> = queries().into_keys().filter(|name| !free.contains(&name.as_str())).collect();
        let others: Vec<_> = others.iter().map(String::as_str).collect();
        eventually_ok("every panel shows data", async || {
            scene.load().await;
            watch.are_above_zero(&others).await
        })
        .await;
        let answers = watch.answers().await;
        assert!(!values(&answers[LAG_OF_FEED]).is_empty(), "{LAG_OF_FEED} has no data");
        for name in zero {
            let values = values(&answers[name]);
            assert!(!values.is_empty(), "{name} has no data");
            assert!(values.iter().all(|value| *value == 0.0), "{name} needs no exception: {values:?}");
        }
        draw(instance, &answers);
        let Scene { side, .. } = scene;
        drop((watch, side));
        instance.stop().await;
        instance.clear();
    });
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Prometheus takes every sample of every process: it reads `OpenMetrics` strictly.
async fn all_are_scraped(prometheus: &Prometheus) {
    eventually_ok("every process is scraped", async || {
        let up = prometheus.query("up == 1").await.len();
        let taken = prometheus.query("scrape_samples_scraped > 50").await.len();
        if (up, taken) == (4, 4) { Ok(()) } else { Err(prometheus.ask("/api/v1/targets").await.to_string()) }
    })
    .await;
}

/// Prometheus evaluates every rule without an error, and none of them fires.
async fn every_alert_is_evaluated(prometheus: &Prometheus) {
    eventually_ok("every rule is evaluated and quiet", async || {
        let groups = prometheus.ask("/api/v1/rules").await["groups"].clone();
        let rules = groups[0]["rules"].as_array().cloned().unwrap_or_default();
        assert!(rules.len() > 10, "{groups}");
        assert!(rules.iter().all(|rule| rule["health"] != "err"), "{groups}");
        let is_quiet = |rule: &&Value| rule["health"] == "ok" && rule["state"] == "inactive";
        let others: Vec<_> = rules.iter().filter(|rule| !is_quiet(rule)).collect();
        if others.is_empty() { Ok(()) } else { Err(format!("{others:?}")) }
    })
    .await;
}

/// A projector that hangs cannot be scraped, which an alert waits for.
async fn a_process_that_hangs_is_down(prometheus: &Prometheus, instance: &Instance) {
    let projector = instance.ready().pids.projectors[0];
    signal(projector, "STOP");
    eventually("an alert waits", async || {
        let alerts = prometheus.query("ALERTS{alertname=\"FarthingProcessDown\"}").await;
        (alerts.len() == 1).then_some(())
    })
    .await;
    signal(projector, "CONT");
    all_are_scraped(prometheus).await;
}

type Answers = BTreeMap<String, Vec<Value>>;

/// A Prometheus, and since when it has been asked to look.
struct Watch {
    prometheus: Prometheus,
    began: f64,
}

impl Watch {
    /// Waits until each of these queries has shown more than zero.
    async fn until_above_zero(&self, names: &[&str]) {
        let what = format!("the dashboard shows {names:?}");
        eventually_ok(&what, async || self.are_above_zero(names).await).await;
    }

    /// Whether each of these queries has shown more than zero.
    async fn are_above_zero(&self, names: &[&str]) -> Result<(), String> {
        let queries = queries();
        let mut lacking = Vec::new();
        for name in names {
            let shown = values(&self.answer(&queries[*name]).await);
            if !shown.iter().any(|value| *value > 0.0) {
                lacking.push(*name);
            }
        }
        if lacking.is_empty() { Ok(()) } else { Err(format!("nothing above zero in {lacking:?}")) }
    }

    /// The answers to all queries of the dashboard.
    async fn answers(&self) -> Answers {
        let mut answers = Answers::new();
        for (name, query) in queries() {
            answers.insert(name, self.answer(&query).await);
        }
        answers
    }

    async fn answer(&self, query: &str) -> Vec<Value> {
        self.prometheus.range(query, (self.began, now())).await
    }
}

/// The queries of the dashboard, by panel and target.
fn queries() -> BTreeMap<String, String> {
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(DASHBOARD).unwrap()).unwrap();
    let mut queries = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let name = format!("{}/{}", panel["id"], target["refId"].as_str().unwrap());
            let expression = target["expr"].as_str().unwrap().replace(RATE_INTERVAL.0, RATE_INTERVAL.1);
            assert!(!expression.contains('$'), "an unknown variable: {expression}");
            assert!(queries.insert(name, expression).is_none(), "two targets have one name");
        }
    }
    queries
}

/// The finite values of an answer.
fn values(series: &[Value]) -> Vec<f64> {
    let values = series.iter().flat_map(|series| series["values"].as_array().unwrap());
    let values = values.map(|value| value[1].as_str().unwrap().parse::<f64>().unwrap());
    values.filter(|value| value.is_finite()).collect()
}

/// Draws the panels to `target/screenshots/dashboard.png`.
fn draw(instance: &Instance, answers: &Answers) {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let folder = target.join("screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    let file = instance.file("answers.json");
    std::fs::write(&file, serde_json::to_vec(answers).unwrap()).unwrap();
    let picture = folder.join("dashboard.png");
    // The first Python on the path may not be the one that the system's packages are for.
    for python in ["python3", "/usr/bin/python3"] {
        let drawn = Command::new(python).arg(DRAW).arg(DASHBOARD).arg(&file).arg(&picture).output();
        match drawn {
            Ok(drawn) if drawn.status.success() => return,
            Ok(drawn) if drawn.status.code() == Some(NO_MATPLOTLIB) => {}
            Ok(drawn) => panic!("{}", String::from_utf8_lossy(&drawn.stderr)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{python}: {error}"),
        }
    }
    left_out("the picture of the dashboard: there is no Python with matplotlib");
}
