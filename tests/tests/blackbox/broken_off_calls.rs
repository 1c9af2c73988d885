//! Calls that are broken off at random, by the caller or the provider: each ends once, each hold is settled and released,
//! and nothing of them is left. `FARTHING_BROKEN_CALLS` sets their number; the seed is printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farthing_tests::books::decimal;
use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::resident_kib;
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Provider, Step, chunk, event_stream, json as answer, last_chunk};
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::within;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Calls without the variable.
const CALLS: u64 = 200;

/// Calls at once. All of them fit into the drain slots of a merchant.
const AT_ONCE: usize = 50;

/// The limit for everything to end, on a slow machine that also compiles.
const QUIET: Duration = Duration::from_mins(2);

/// Resident memory that may be added: what each call may leave, and what the allocator keeps of the busiest moment.
const KIB_PER_CALL: u64 = 8;
const KIB_IN_ALL: u64 = 24 * 1024;

/// Pieces of a streamed answer; the last one reports the usage.
const PIECES: u64 = 6;

/// Pseudo-random numbers by `SplitMix64`.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// When a caller leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// After the head of its request, before the body.
    BeforeTheBody,
    /// So many milliseconds after its request, whatever has come.
    After(u64),
    /// After the head of the response and so many pieces.
    AfterPieces(u64),
    /// Not before the end.
    Never,
}

impl Leaves {
    fn drawn(random: &mut Random) -> Self {
        match random.below(10) {
            0 => Self::BeforeTheBody,
            1..=3 => Self::After(random.below(30)),
            4..=8 => Self::AfterPieces(random.below(PIECES)),
            _ => Self::Never,
        }
    }
}

/// The gateway with its provider, and the ways to call it.
struct Scene {
    merchant: Merchant,
    gateway: SideGateway,
    endpoints: Vec<Endpoint>,
    credentials: Vec<String>,
    spend_key: String,
}

impl Scene {
    async fn new() -> Self {
        let merchant = Merchant::funded("1000").await;
        let customer = merchant.customer("1000").await;
        let meter = merchant.call_meter("0.01").await;
        let limits = json!({"name": "limited", "spend_limit": {"amount": "900", "cycle": "total"}});
        let key = merchant.post("/v1/spend_keys", &limits).await.expect(201);
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        let provider = Box::leak(Box::new(Provider::start().await));
        let instance = merchant.instance;
        let prices = instance.file("broken-off.json");
        let entry = json!({
            "provider": "openai", "model": "m", "input_per_1m": "1", "output_per_1m": "10", "max_output_tokens": 4096,
        });
        let catalogue =
            json!({"source": "a test", "licence": "none", "taken": "2026-11-20", "models": [entry]});
        std::fs::write(&prices, catalogue.to_string()).unwrap();
        let flags = [
            format!("--prices={}", prices.display()),
            format!("--provider-host=openai={}", provider.authority()),
            instance.provider_key("openai", "sk-managed"),
            "--allow-address=127.0.0.0/8".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let gateway = SideGateway::start(instance, &flags).await;
        let credentials = vec![merchant.secret_key.clone(), merchant.billing(&customer, &meter), text("key")];
        let spend_key = text("spend_key_id");
        let endpoints = vec![streams(provider), late(provider), breaks_off(provider)];
        Self { merchant, gateway, endpoints, credentials, spend_key }
    }

    /// Makes `count` calls and breaks them off.
    async fn break_off(&self, count: u64, random: &mut Random) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut calls = Vec::new();
        for _ in 0..count {
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            let of =
                |random: &mut Random, length: usize| usize::try_from(random.below(length as u64)).unwrap();
            let endpoint = &self.endpoints[of(random, self.endpoints.len())];
            let credential = &self.credentials[of(random, self.credentials.len())];
            let mut body = json!({"model": "m", "stream": true, "messages": []});
            if random.below(2) == 0 {
                body["max_tokens"] = json!(1 + random.below(1_000));
            }
            let request = forward("POST", &endpoint.url).json(&body).bearer(credential);
            let (leaves, to) = (Leaves::drawn(random), self.gateway.address);
            calls.push(tokio::spawn(async move {
                // A connection that breaks is what is tested.
                let _ = call(&request, leaves, to).await;
                drop(place);
            }));
        }
        for call in calls {
            call.await.unwrap();
        }
    }

    /// Waits until the gateway has nothing of any call.
    async fn is_quiet(&self) {
        let operator = self.gateway.operator;
        within(QUIET, "nothing is under way", async || {
            let shown = scrape(operator).await;
            let api = [("listener", "api")];
            let counts = [
                ("farthing_open_calls", &[][..]),
                ("farthing_drain_slots_taken", &[]),
                ("farthing_connections", &api),
                ("farthing_requests_in_flight", &api),
            ];
            let is_zero = |(name, labels): &(&str, &[(&str, &str)])| {
                assert!(shown.kinds.contains_key(*name), "there is no metric {name}");
                shown.values(name, labels).iter().all(|value| *value < 1.0)
            };
            counts.iter().all(is_zero).then_some(())
        })
        .await;
        self.merchant.nothing_is_held().await;
    }

    /// The sockets of the gateway.
    fn sockets(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.gateway.pid())).unwrap();
        let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    }
}

/// A call that is broken off as `leaves` says.
async fn call(request: &Request, leaves: Leaves, to: std::net::SocketAddr) -> std::io::Result<()> {
    let mut connection = Connection::open(to).await?;
    if leaves == Leaves::BeforeTheBody {
        return connection.send_head(request).await;
    }
    connection.send(request).await?;
    match leaves {
        Leaves::BeforeTheBody => {}
        Leaves::After(ms) => {
            let _ = tokio::time::timeout(Duration::from_millis(ms), connection.response("POST")).await;
        }
        Leaves::AfterPieces(pieces) => {
            connection.head("POST").await?;
            for _ in 0..pieces {
                connection.read.piece().await?;
            }
        }
        Leaves::Never => {
            connection.response("POST").await?;
        }
    }
    Ok(())
}

/// A stream whose last piece reports the usage.
fn streams(provider: &Provider) -> Endpoint {
    let made = AtomicU64::new(0);
    provider.endpoint(move |_| {
        let number = made.fetch_add(1, Ordering::SeqCst);
        let mut steps = vec![event_stream()];
        for piece in 1..PIECES {
            steps.push(chunk(format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n")));
            steps.push(Step::Pause(Duration::from_millis(number % 4)));
        }
        steps.push(chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\ndata: [DONE]\n\n"));
        steps.push(last_chunk());
        steps
    })
}

/// An answer that comes whole, after a while.
fn late(provider: &Provider) -> Endpoint {
    provider.endpoint(|_| {
        let mut steps = vec![Step::Pause(Duration::from_millis(10))];
        steps.extend(answer(200, &json!({"usage": {"prompt_tokens": 7, "completion_tokens": 8}})));
        steps
    })
}

/// A stream that the provider breaks off, sometimes before its head.
fn breaks_off(provider: &Provider) -> Endpoint {
    let made = AtomicU64::new(0);
    provider.endpoint(move |_| {
        let number = made.fetch_add(1, Ordering::SeqCst);
        let mut steps = Vec::new();
        if !number.is_multiple_of(5) {
            steps.push(event_stream());
        }
        for _ in 0..number % 5 {
            steps.push(chunk("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"));
        }
        steps.push(Step::Pause(Duration::from_millis(number % 7)));
        steps.push(Step::Close);
        steps
    })
}

fn sum(amounts: impl Iterator<Item = Decimal>) -> Decimal {
    amounts.sum()
}

fn held(event: &Value) -> Decimal {
    decimal(&event["hold"]["wallet"]) + decimal(&event["hold"]["merchant"])
}

/// Checks that each call that was opened has ended once with its own hold, and returns how many were opened, metered and
/// failed, and what was held and what of it was settled and released.
fn books(events: &[Logged]) -> (usize, usize, usize, [Decimal; 3]) {
    let of_kind = |kind: &str| -> BTreeMap<String, Value> {
        let found = events.iter().filter(|event| event.kind == kind);
        found
            .map(|event| (event.body["request_id"].as_str().unwrap().to_owned(), event.body.clone()))
            .collect()
    };
    let [opened, metered, failed] = ["request.opened", "request.metered", "request.failed"].map(of_kind);
    let ends: Vec<(&String, &Value)> = metered.iter().chain(&failed).collect();
    assert_eq!(ends.len(), opened.len(), "each call ends once");
    for (id, end) in &ends {
        assert_eq!(end["hold"], opened[*id]["hold"], "{id} releases what it held");
        assert_eq!(end["spend_key"], opened[*id]["spend_key"], "{id}");
    }
    let cost = |end: &Value| end.get("total_request_cost").map_or(Decimal::ZERO, decimal);
    let settled = sum(ends.iter().map(|(_, end)| cost(end).min(held(end))));
    let released = sum(ends.iter().map(|(_, end)| held(end) - cost(end).min(held(end))));
    (opened.len(), metered.len(), failed.len(), [sum(opened.values().map(held)), settled, released])
}

#[test]
fn calls_that_are_broken_off_at_random_leave_nothing_behind() {
    run(async {
        let count = std::env::var("FARTHING_BROKEN_CALLS").ok().and_then(|count| count.parse().ok());
        let count: u64 = count.unwrap_or(CALLS);
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut random = Random(seed);
        eprintln!("seed {seed}");
        let scene = Scene::new().await;
        let merchant = &scene.merchant;
        // The caches, the pools and the connections that are kept are filled first.
        scene.break_off(AT_ONCE as u64 * 2, &mut random).await;
        scene.is_quiet().await;
        let (sockets, kib) = (scene.sockets(), resident_kib(scene.gateway.pid()));

        let started = Instant::now();
        scene.break_off(count, &mut random).await;
        let took = started.elapsed();
        scene.is_quiet().await;
        let quiet = started.elapsed();

        let events = merchant.events().await;
        let (opened, metered, failed, [held, settled, released]) = books(&events);
        assert_eq!(settled + released, held, "settled + released = held");
        assert!(metered > 0 && failed > 0, "{metered} metered, {failed} failed");
        let debited = events.iter().filter(|event| event.kind == "wallet.debited");
        let debited = sum(debited.map(|event| decimal(&event.body["amount"])));
        let charged = events.iter().filter(|event| event.kind == "request.metered");
        let charged = sum(charged.map(|event| decimal(&event.body["total_request_cost"])));
        assert_eq!(debited, charged, "what is charged is debited, once");
        let of_key = merchant.log.state("spending", &scene.spend_key).await.unwrap();
        assert_eq!(of_key["total"]["held"], "0.0000000000", "{of_key}");

        within(QUIET, "no socket is left", async || (scene.sockets() <= sockets).then_some(())).await;
        let after = resident_kib(scene.gateway.pid());
        let allowed = KIB_IN_ALL + KIB_PER_CALL * count;
        assert!(after <= kib + allowed, "{kib} KiB before and {after} KiB after {count} calls");
        eprintln!(
            "{count} calls in {took:?}, all ended after {quiet:?}; with the {} before: {opened} opened, {metered} \
             metered, {failed} failed; held {held}, settled {settled}, released {released}; sockets {sockets} before \
             and {} after; resident {kib} KiB before and {after} KiB after",
            AT_ONCE * 2,
            scene.sockets(),
        );
    });
}
