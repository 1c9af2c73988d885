//! The operator's address: metrics that count exactly what was done, and the state of the process. No key is in them or in
//! the logs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use farthing_tests::client::Request;
use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Gate, Step, json};
use farthing_tests::run;
use farthing_tests::scrape::{Scrape, get, scrape};
use farthing_tests::wait::{eventually, eventually_ok};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const BATCHES: &str = "SELECT count(*) FROM ledger.batches";

/// The terms that have begun: each raises the epoch of its partition, which is 0 at first.
const TERMS: &str = "SELECT sum(epoch)::bigint FROM ledger.heads";

/// Holds up the checkpoints of all states.
const HOLD_UP_CHECKPOINTS: &str = "BEGIN; SELECT position FROM ledger.checkpoints FOR UPDATE";

/// The events behind the checkpoint of a partition's states.
const BEHIND_CHECKPOINT: &str = "\
SELECT h.position - c.position FROM ledger.heads AS h JOIN ledger.checkpoints AS c USING (partition, generation)
WHERE partition = $1";

/// Holds up the writer of a read model.
const HOLD_UP: &str = "BEGIN; LOCK TABLE customers.customers IN EXCLUSIVE MODE";

/// The list of the metrics, in the documents.
const LIST: &str = include_str!("../../../docs/operations/metrics.md");

/// What is watched, for Prometheus and Grafana.
const ALERTS: &str = include_str!("../../../deploy/prometheus/alerts.yml");
const DASHBOARD: &str = include_str!("../../../deploy/grafana/farthing.json");

type Labels = &'static [(&'static str, &'static str)];

/// The metrics of both gateways.
struct Gateways([Scrape; 2]);

impl Gateways {
    async fn of(instance: &Instance) -> Self {
        Self([scrape(instance.operator(0)).await, scrape(instance.operator(1)).await])
    }

    fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.0.iter().map(|scrape| scrape.count(name, labels)).sum()
    }
}

/// The number of record batches and events in the log.
async fn logged(merchant: &Merchant) -> (u64, u64) {
    let batches: i64 = merchant.log.sql.query_one(BATCHES, &[]).await.unwrap().get(0);
    let events: i64 = merchant.log.heads().await.iter().map(|head| head.position).sum();
    (u64::try_from(batches).unwrap(), u64::try_from(events).unwrap())
}

#[test]
fn counters_move_by_exactly_what_was_done() {
    run(async {
        let instance = Instance::of_test_with(2, &["--log-format=json"]).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("0.01").await;
        let credential = merchant.billing(&customer, &meter);
        let good = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 5}})));
        let missing = instance.provider.endpoint(|_| json(404, &json!({"error": "no"})));
        let openai = instance.openai.endpoint(|_| json(200, &json!({"usage": {"tokens": 5}})));
        // The first card pays, and the newest, which is the default, is declined.
        let mut cards = Vec::new();
        for number in ["4242424242424242", "4000000000000341"] {
            let card = json!({"card": {"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"}});
            let added = merchant.post("/v1/payment_methods", &card).await.expect(201);
            cards.push(added["payment_method_id"].clone());
        }
        let (before, log_before) = (Gateways::of(instance).await, logged(&merchant).await);
        let projected_before = caught_up(instance, log_before.1).await;

        for _ in 0..5 {
            merchant.call(&credential, &good.url).await.expect(200);
        }
        for _ in 0..2 {
            let call =
                forward("POST", &openai.url).header("x-api-key", &credential).bearer("sk-a-callers-own");
            call.json(&json!({"input": "hello"})).send(instance.gateway(1)).await.unwrap().expect(200);
        }
        assert_eq!(merchant.call(&credential, &missing.url).await.status, 404);
        let mut unknown = merchant.secret_key.clone();
        let last = unknown.pop();
        unknown.push(if last == Some('A') { 'B' } else { 'A' });
        for _ in 0..3 {
            merchant.call(&unknown, &good.url).await.refused(401, "secret_key_invalid");
        }

        let funding = json!({"amount": "10", "payment_method_id": cards[0]});
        merchant.post("/v1/wallet/fund", &funding).await.expect(200);
        let declined = merchant.post("/v1/wallet/fund", &json!({"amount": "10"})).await;
        declined.refused(402, "payment_declined");

        let appended = |after: &Gateways| {
            let count = |name| after.count(name, &[]) - before.count(name, &[]);
            (count("farthing_appends_total"), count("farthing_appended_events_total"))
        };
        let after = eventually_ok("all appends are counted", async || {
            let (after, log) = (Gateways::of(instance).await, logged(&merchant).await);
            let written = (log.0 - log_before.0, log.1 - log_before.1);
            if appended(&after) == written {
                Ok(after)
            } else {
                Err(format!("{:?} {written:?}", appended(&after)))
            }
        })
        .await;
        let moves: [(&str, Labels, u64); 13] = [
            ("farthing_calls_total", &[("provider", "other"), ("status", "2xx"), ("metered", "yes")], 5),
            ("farthing_calls_total", &[("provider", "openai"), ("status", "2xx"), ("metered", "yes")], 2),
            ("farthing_calls_total", &[("provider", "other"), ("status", "4xx"), ("metered", "no")], 1),
            ("farthing_calls_total", &[], 8),
            ("farthing_call_duration_seconds_count", &[], 8),
            ("farthing_call_added_seconds_count", &[], 8),
            ("farthing_forward_errors_total", &[("status", "401")], 3),
            ("farthing_forward_errors_total", &[], 3),
            ("farthing_calls_unsettled_total", &[], 0),
            ("farthing_append_failures_total", &[], 0),
            ("farthing_payments_total", &[("outcome", "succeeded")], 1),
            ("farthing_payments_total", &[("outcome", "declined")], 1),
            ("farthing_payments_total", &[], 2),
        ];
        for (name, labels, moved) in moves {
            let counted = after.count(name, labels) - before.count(name, labels);
            assert_eq!(counted, moved, "{name} {labels:?}");
        }
        for name in ["farthing_append_batch_commands_count", "farthing_append_duration_seconds_count"] {
            assert_eq!(after.count(name, &[]), after.count("farthing_appends_total", &[]), "{name}");
        }
        // Each append was in a transaction of the group commit, of one partition or several.
        let grouped = eventually_ok("the transactions are counted", async || {
            let after = Gateways::of(instance).await;
            let count = |name| after.count(name, &[]);
            let batches =
                after.0.iter().flat_map(|scrape| scrape.values("farthing_group_commit_batches_sum", &[]));
            let batches = format!("{:?}", batches.sum::<f64>());
            let counts = (batches, format!("{}.0", count("farthing_appends_total")));
            let transactions = count("farthing_group_commit_batches_count");
            let is_whole =
                counts.0 == counts.1 && transactions == count("farthing_group_commit_duration_seconds_count");
            if is_whole { Ok(transactions) } else { Err(format!("{counts:?} {transactions}")) }
        })
        .await;
        assert!(grouped > 0);
        assert_eq!(after.count("farthing_open_calls", &[]), 0);
        let led = after.0.iter().flat_map(|scrape| scrape.values("farthing_partitions_led", &[]));
        assert_eq!(format!("{:?}", led.sum::<f64>()), "8.0");
        eventually_ok("the terms are counted", async || {
            let terms: i64 = merchant.log.sql.query_one(TERMS, &[]).await.unwrap().get(0);
            let begun = Gateways::of(instance).await.count("farthing_terms_begun_total", &[]);
            if u64::try_from(terms) == Ok(begun) && begun >= 8 {
                Ok(())
            } else {
                Err(format!("{terms} {begun}"))
            }
        })
        .await;
        for name in
            ["farthing_terms_not_begun_total", "farthing_leases_given_up_total", "farthing_leases_lost_total"]
        {
            assert_eq!(Gateways::of(instance).await.count(name, &[]), 0, "{name}");
        }

        // The projector has folded what was appended, and shows all of it.
        let (_, events) = logged(&merchant).await;
        let projector = caught_up(instance, events).await;
        let folded =
            |scrape: &Scrape| scrape.count("farthing_projected_events_total", &[("read_model", "requests")]);
        assert_eq!(folded(&projector) - folded(&projected_before), events - log_before.1);
        assert_eq!(projector.count("farthing_projection_restarts_total", &[]), 0);
        eventually("the relay has published all", async || {
            let lags = scrape(instance.projector_operator()).await.values("farthing_relay_lag_events", &[]);
            (lags.len() == 8 && lags.iter().all(|lag| *lag <= 0.0)).then_some(())
        })
        .await;

        a_read_model_that_is_held_up_lags(&merchant).await;
        nothing_secret_is_shown(&merchant, &[&credential, &unknown]).await;
        drop((good, missing, openai));
        instance.stop().await;
        instance.clear();
    });
}

/// The metrics of the projector once every read model, and the webhook outbox, shows so many events.
async fn caught_up(instance: &Instance, events: u64) -> Scrape {
    eventually_ok("the read models have caught up", async || {
        let projector = scrape(instance.projector_operator()).await;
        let lags = projector.values("farthing_projection_lag_events", &[]);
        let positions = projector.values("farthing_projection_position", &[]);
        let is_all = positions.iter().all(|position| format!("{position}") == events.to_string());
        let is_done = lags.len() == 14 && lags.iter().all(|lag| *lag <= 0.0) && is_all;
        if is_done { Ok(projector) } else { Err(format!("{lags:?} {positions:?} {events}")) }
    })
    .await
}

/// A read model whose rows cannot be written shows how many events it lacks, and for how long; the others go on.
async fn a_read_model_that_is_held_up_lags(merchant: &Merchant) {
    let instance = merchant.instance;
    let holder = instance.log().await;
    holder.sql.batch_execute(HOLD_UP).await.unwrap();
    let (_, before) = logged(merchant).await;
    merchant.post("/v1/customers", &json!({"reference_id": "unseen"})).await.expect(201);
    let (_, events) = logged(merchant).await;
    let expected = [events.to_string(), (events - before).to_string(), "0".to_owned(), "0".to_owned()];
    eventually_ok("it lags", async || {
        let shown = scrape(instance.projector_operator()).await;
        let of = |name: &str, read_model: &str| shown.values(name, &[("read_model", read_model)])[0];
        let seconds = of("farthing_projection_lag_seconds", "customers");
        let counts = [
            shown.values("farthing_log_events", &[])[0],
            of("farthing_projection_lag_events", "customers"),
            of("farthing_projection_lag_events", "meters"),
            of("farthing_projection_lag_seconds", "meters"),
        ];
        let counts = counts.map(|count| count.to_string());
        if counts == expected && seconds >= 1.0 { Ok(()) } else { Err(format!("{counts:?} {seconds}")) }
    })
    .await;
    holder.sql.batch_execute("COMMIT").await.unwrap();
    let caught_up = caught_up(instance, events).await;
    assert!(caught_up.values("farthing_projection_lag_seconds", &[]).iter().all(|lag| *lag <= 0.0));
    assert_eq!(caught_up.values("farthing_log_events", &[])[0].to_string(), events.to_string());
}

/// Every log line is a JSON object, and neither logs nor metrics hold a key.
async fn nothing_secret_is_shown(merchant: &Merchant, credentials: &[&str]) {
    let (instance, ready) = (merchant.instance, merchant.instance.ready());
    let mut texts = Vec::new();
    for operator in [instance.operator(0), instance.operator(1), instance.projector_operator()] {
        texts.push(get(operator, "/metrics").await.text());
    }
    for name in ["gateway-0", "gateway-1", "projector-0"] {
        let log = std::fs::read_to_string(instance.data.join(format!("logs/{name}.log"))).unwrap();
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        for line in &lines {
            // Lines of libraries have no event.
            let is_ours = line["target"].as_str().is_some_and(|target| target.starts_with("farthing"));
            for field in ["timestamp", "level", "target", "message", "event"] {
                assert!(line[field].is_string() || (field == "event" && !is_ours), "{field}: {line}");
            }
        }
        assert!(lines.iter().any(|line| line["event"] == "role.ready"), "{log}");
        texts.push(log);
    }
    let key = merchant.log.sql.query_one("SELECT server_key FROM ledger.instance", &[]).await.unwrap();
    let key: String = key.get(0);
    let secrets = [&merchant.secret_key, &ready.secret_key, &ready.spend_key, &ready.product_secret, &key];
    let secrets = secrets.into_iter().map(String::as_str).chain(credentials.iter().copied());
    for secret in secrets.chain(["sk-a-callers-own"]) {
        for text in &texts {
            assert!(!text.contains(secret), "{secret} is shown: {text}");
        }
    }
    for text in &texts[..3] {
        assert!(!text.contains(&merchant.id[4..]), "a metric names a merchant: {text}");
    }
}

#[test]
fn the_lag_of_the_stored_states_is_the_number_of_events_behind_their_checkpoint() {
    run(async {
        // A separate instance: its checkpoints are held up.
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1").await;
        let (partition, gate) = (merchant.partition().await, Gate::default());
        let label = partition.to_string();
        let lag = async || {
            let lag = scrape(instance.operator(0))
                .await
                .values("farthing_state_checkpoint_lag_events", &[("partition", &label)]);
            let stored: i64 =
                merchant.log.sql.query_one(BEHIND_CHECKPOINT, &[&partition]).await.unwrap().get(0);
            (lag, stored)
        };
        let waits = gate.clone();
        let endpoint = instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(waits.clone())];
            steps.extend(json(200, &json!({"usage": {"tokens": 5}})));
            steps
        });
        let call = tokio::spawn({
            let request = forward("GET", &endpoint.url).bearer(&merchant.secret_key);
            let gateway = instance.gateway(0);
            async move { request.send(gateway).await.unwrap() }
        });
        eventually("the provider is called", async || (!endpoint.calls().is_empty()).then_some(())).await;
        let is_stored = async || {
            let (shown, stored) = lag().await;
            if shown == [0.0] && stored == 0 { Ok(()) } else { Err(format!("{shown:?} {stored}")) }
        };
        eventually_ok("the opening is stored", is_stored).await;

        // The states that the settlement changes are in memory, so it waits for no checkpoint.
        let sql = farthing_tests::log::Log::open(&instance.ready().database_url).await.sql;
        sql.batch_execute(HOLD_UP_CHECKPOINTS).await.unwrap();
        gate.open();
        assert_eq!(call.await.unwrap().status, 200);
        eventually_ok("the settlement is behind the checkpoint", async || {
            let (shown, stored) = lag().await;
            let is_shown = stored > 0 && shown.iter().map(|lag| format!("{lag}")).eq([stored.to_string()]);
            if is_shown { Ok(()) } else { Err(format!("{shown:?} {stored}")) }
        })
        .await;
        sql.batch_execute("COMMIT").await.unwrap();
        eventually_ok("the settlement is stored", is_stored).await;
    });
}

#[test]
fn the_documents_list_exactly_the_metrics_that_exist() {
    run(async {
        let instance = Instance::shared().await;
        let mut listed: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        let is_row = |line: &&str| line.starts_with("| `farthing_") || line.starts_with("| `process_");
        for row in LIST.lines().filter(is_row) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [name, kind, roles, _labels, meaning] = cells[..] else { panic!("five columns: {row}") };
            assert!(!meaning.is_empty(), "{row}");
            let name = name.trim_matches('`').to_owned();
            for role in ["gateway", "projector"] {
                if roles == "both" || roles == role {
                    let of_role = listed.entry(role).or_default();
                    assert!(of_role.insert(name.clone(), kind.to_owned()).is_none(), "twice: {name}");
                }
            }
        }
        let shown = [
            ("gateway", scrape(instance.operator(0)).await.kinds),
            ("projector", scrape(instance.projector_operator()).await.kinds),
        ];
        assert_eq!(listed, shown.into_iter().collect());
    });
}

#[test]
fn alerts_and_dashboard_name_only_metrics_that_exist() {
    run(async {
        let instance = Instance::shared().await;
        let mut known = scrape(instance.operator(0)).await.kinds;
        known.extend(scrape(instance.projector_operator()).await.kinds);
        serde_json::from_str::<Value>(DASHBOARD).unwrap();
        for text in [ALERTS, DASHBOARD] {
            let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            let named: BTreeSet<&str> =
                words.filter(|word| word.starts_with("farthing_") || word.starts_with("process_")).collect();
            assert!(named.len() > 10, "{named:?}");
            for name in named {
                let of_histogram = ["_bucket", "_sum", "_count"].into_iter();
                let mut of_histogram = of_histogram.filter_map(|end| name.strip_suffix(end));
                let is_histogram = |family| known.get(family).is_some_and(|kind| kind == "histogram");
                let is_known = known.get(name).is_some_and(|kind| kind != "histogram");
                assert!(is_known || of_histogram.any(is_histogram), "{name} does not exist");
            }
        }
    });
}

#[test]
fn labels_are_bounded_and_well_known() {
    run(async {
        let instance = Instance::shared().await;
        let gateway = scrape(instance.operator(0)).await;
        let set = |values: &[&str]| -> BTreeSet<String> {
            values.iter().map(|value| (*value).to_owned()).collect()
        };
        let providers = set(&[
            "openai",
            "anthropic",
            "google",
            "deepseek",
            "mistral",
            "xai",
            "groq",
            "together",
            "fireworks",
            "cohere",
            "cerebras",
            "perplexity",
            "openrouter",
            "deepinfra",
            "nebius",
            "sambanova",
            "hyperbolic",
            "moonshot",
            "zai",
            "dashscope",
            "nvidia",
            "github",
            "huggingface",
            "vercel",
            "azure",
            "bedrock",
            "other",
        ]);
        assert_eq!(gateway.label_values("farthing_calls_total", "provider"), providers);
        let statuses = set(&["2xx", "3xx", "4xx", "5xx", "none"]);
        assert_eq!(gateway.label_values("farthing_calls_total", "status"), statuses);
        assert_eq!(
            gateway.label_values("farthing_connections", "listener"),
            set(&["api", "pages", "gateways"])
        );
        assert_eq!(
            gateway.label_values("farthing_pool_connections", "pool"),
            set(&["reads", "webhooks", "payments"])
        );
        for (name, least) in [
            ("process_resident_memory_bytes", 1e6),
            ("process_open_fds", 5.0),
            ("process_start_time_seconds", 1e9),
            ("farthing_build_info", 1.0),
            ("farthing_pool_max_connections", 1.0),
        ] {
            let values = gateway.values(name, &[]);
            assert!(!values.is_empty() && values.iter().all(|value| *value >= least), "{name}: {values:?}");
        }
    });
}

#[test]
fn a_running_process_is_alive_and_ready_at_its_operators_address_alone() {
    run(async {
        let instance = Instance::shared().await;
        for operator in [instance.operator(0), instance.operator(1), instance.projector_operator()] {
            assert_eq!(get(operator, "/livez").await.status, 200);
            eventually_ok("it is ready", async || {
                let response = get(operator, "/readyz").await;
                let is_ready =
                    response.status == 200 && response.json() == json!({"ready": true, "failing": []});
                if is_ready { Ok(()) } else { Err(response.text()) }
            })
            .await;
            assert_eq!(get(operator, "/").await.status, 404);
            assert_eq!(get(operator, "/v1/requests").await.status, 404);
            let refused = Request::new("POST", "/metrics").send(operator).await.unwrap();
            assert_eq!((refused.status, refused.head.header("allow")), (405, Some("GET, HEAD")));
        }
        for address in [instance.gateway(0), instance.hosted_pages(0)] {
            for path in ["/metrics", "/livez", "/readyz", "/v1/metrics", "/v1/readyz"] {
                let request = Request::new("GET", path).bearer(&instance.ready().secret_key);
                assert_eq!(request.send(address).await.unwrap().status, 404, "{address}{path}");
            }
        }
    });
}

#[test]
fn a_projector_that_waits_for_postgres_says_so() {
    run(async {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let operator: SocketAddr = free.local_addr().unwrap();
        drop(free);
        let mut projector = tokio::process::Command::new(program())
            .args(["projector", "--database-url=postgres://nobody:a-password@127.0.0.1:1/none"])
            .args([format!("--operator-listen={operator}"), "--log-format=json".to_owned()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        eventually("it serves its state", async || Request::new("GET", "/livez").send(operator).await.ok())
            .await;
        assert_eq!(get(operator, "/livez").await.status, 200);
        let waiting = get(operator, "/readyz").await;
        assert_eq!(waiting.status, 503);
        let failing = json!([{"check": "started", "reason": "waits for Postgres"}]);
        assert_eq!(waiting.json(), json!({"ready": false, "failing": failing}));
        assert!(scrape(operator).await.kinds.contains_key("farthing_build_info"));
        let mut lines = BufReader::new(projector.stderr.take().unwrap()).lines();
        let said = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("it goes on");
                let line: Value =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert!(!line.to_string().contains("a-password"), "{line}");
                if line["event"] == "projector.database_unreachable" {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_mins(1), said).await.expect("it says what it waits for");
        projector.kill().await.unwrap();
    });
}
