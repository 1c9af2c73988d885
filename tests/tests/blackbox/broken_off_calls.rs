//! Calls that are broken off at random, by the caller or the provider, through forward, a model endpoint, a conversion and
//! rewrite: each ends once, each hold is settled and released, and nothing of them is left. `FARTHING_BROKEN_CALLS` sets
//! their number, and `FARTHING_BROKEN_SEED` the choices; the seed is printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farthing_tests::books::decimal;
use farthing_tests::client::{Connection, Request};
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::resident_kib;
use farthing_tests::provider::{
    Call, Endpoint, Provider, Step, chunk, event_stream, json as answer, last_chunk,
};
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

/// The bytes of a call's body, at least.
const BODY_BYTES: usize = 64 * 1024;

/// Resident memory that may be added: what the allocator keeps of the busiest moment, and a fraction of a body for each
/// call. Without the variable, bodies that are left behind exceed it as well.
const KIB_PER_CALL: u64 = 4;
const KIB_IN_ALL: u64 = 8 * 1024;

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

/// The endpoint of the gateway that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `/v1/forward`.
    Forward,
    /// `/v1/chat/completions`, to a provider of the same format.
    Model,
    /// `/v1/messages`, to a provider of another format.
    Converted,
    /// `/v1/rewrite/anthropic/{url}`.
    Rewritten,
}

impl Way {
    /// A call of a stream, which goes to `endpoint`.
    fn request(self, endpoint: &Endpoint, max_tokens: u64) -> Request {
        let model = match self {
            Self::Forward | Self::Rewritten => "m",
            Self::Model => "openai/m",
            Self::Converted => "deepseek/m",
        };
        let body = json!({
            "model": model, "stream": true, "max_tokens": max_tokens,
            "messages": [{"role": "user", "content": "x".repeat(BODY_BYTES)}],
        });
        let request = match self {
            Self::Forward => forward("POST", &endpoint.url),
            Self::Model => Request::new("POST", "/v1/chat/completions"),
            Self::Converted => Request::new("POST", "/v1/messages"),
            Self::Rewritten => Request::new("POST", format!("/v1/rewrite/anthropic/{}", endpoint.url)),
        };
        request.json(&body)
    }
}

/// The gateway with its provider, and the ways to call it.
struct Scene {
    merchant: Merchant,
    gateway: SideGateway,
    endpoints: Vec<(Way, Endpoint)>,
    credentials: Vec<String>,
    /// The keys of calls that are converted, whose shape is Anthropic's.
    anthropic_credentials: Vec<String>,
    spend_keys: Vec<String>,
}

impl Scene {
    async fn new() -> Self {
        let merchant = Merchant::funded("1000").await;
        let customer = merchant.customer("1000").await;
        let meter = merchant.call_meter("0.01").await;
        let key = async |shape: &str| {
            let limit = json!({"amount": "900", "cycle": "total"});
            let limits = json!({"name": "limited", "request_shape": shape, "spend_limit": limit});
            let key = merchant.post("/v1/spend_keys", &limits).await.expect(201);
            ["key", "spend_key_id"].map(|name| key[name].as_str().unwrap().to_owned())
        };
        let [[openai_key, openai_key_id], [anthropic_key, anthropic_key_id]] =
            [key("openai").await, key("anthropic").await];
        let provider = Box::leak(Box::new(Provider::start().await));
        let other = Box::leak(Box::new(Provider::start().await));
        let instance = merchant.instance;
        let prices = instance.file("broken-off.json");
        let models = ["openai", "deepseek"].map(|name| {
            json!({
                "provider": name, "model": "m", "input_per_1m": "1", "output_per_1m": "10", "max_output_tokens": 4096,
            })
        });
        let catalogue =
            json!({"source": "a test", "licence": "none", "taken": "2026-11-20", "models": models});
        std::fs::write(&prices, catalogue.to_string()).unwrap();
        let flags = [
            format!("--prices={}", prices.display()),
            format!("--provider-host=openai={}", provider.authority()),
            format!("--provider-host=deepseek={}", other.authority()),
            instance.provider_key("openai", "sk-managed"),
            instance.provider_key("deepseek", "sk-managed"),
            "--allow-address=127.0.0.0/8".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let gateway = SideGateway::start(instance, &flags).await;
        let with = |spend_key: String| {
            vec![merchant.secret_key.clone(), merchant.billing(&customer, &meter), spend_key]
        };
        let (credentials, anthropic_credentials) = (with(openai_key), with(anthropic_key));
        let endpoints = vec![
            (Way::Forward, provider.endpoint(streams())),
            (Way::Forward, provider.endpoint(late())),
            (Way::Forward, provider.endpoint(breaks_off())),
            (Way::Model, provider.endpoint_at("/v1/chat/completions", in_turns())),
            (Way::Converted, other.endpoint_at("/v1/chat/completions", in_turns())),
            (Way::Rewritten, provider.endpoint_ending("/chat/completions", in_turns())),
        ];
        let spend_keys = vec![openai_key_id, anthropic_key_id];
        Self { merchant, gateway, endpoints, credentials, anthropic_credentials, spend_keys }
    }

    /// Makes `count` calls and breaks them off.
    async fn break_off(&self, count: u64, random: &mut Random) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut calls = Vec::new();
        for _ in 0..count {
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            let of =
                |random: &mut Random, length: usize| usize::try_from(random.below(length as u64)).unwrap();
            let (way, endpoint) = &self.endpoints[of(random, self.endpoints.len())];
            let credentials = match way {
                Way::Converted => &self.anthropic_credentials,
                Way::Forward | Way::Model | Way::Rewritten => &self.credentials,
            };
            let credential = &credentials[of(random, credentials.len())];
            let request = way.request(endpoint, 1 + random.below(1_000)).bearer(credential);
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

/// A chunk of a completion.
fn piece(text: &str) -> Step {
    let data = json!({"id": "c-1", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]});
    chunk(format!("data: {data}\n\n"))
}

/// A stream whose last piece reports the usage; the `number`th.
fn stream(number: u64) -> Vec<Step> {
    let mut steps = vec![event_stream()];
    for part in 1..PIECES {
        steps.push(piece(&part.to_string()));
        steps.push(Step::Pause(Duration::from_millis(number % 4)));
    }
    let end =
        json!({"id": "c-1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({
        "id": "c-1", "model": "m", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6},
    });
    steps.push(chunk(format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n")));
    steps.push(last_chunk());
    steps
}

/// An answer that comes whole, after a while.
fn whole_answer() -> Vec<Step> {
    let message = json!({"role": "assistant", "content": "Hello."});
    let completion = json!({
        "id": "c-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 8, "total_tokens": 15},
    });
    let mut steps = vec![Step::Pause(Duration::from_millis(10))];
    steps.extend(answer(200, &completion));
    steps
}

/// A stream that the provider breaks off, sometimes before its head; the `number`th.
fn broken_stream(number: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    if !number.is_multiple_of(5) {
        steps.push(event_stream());
    }
    steps.extend((0..number % 5).map(|_| piece("x")));
    steps.push(Step::Pause(Duration::from_millis(number % 7)));
    steps.push(Step::Close);
    steps
}

fn streams() -> impl Fn(&Call) -> Vec<Step> {
    let made = AtomicU64::new(0);
    move |_| stream(made.fetch_add(1, Ordering::SeqCst))
}

fn late() -> impl Fn(&Call) -> Vec<Step> {
    |_| whole_answer()
}

fn breaks_off() -> impl Fn(&Call) -> Vec<Step> {
    let made = AtomicU64::new(0);
    move |_| broken_stream(made.fetch_add(1, Ordering::SeqCst))
}

/// All three in turns.
fn in_turns() -> impl Fn(&Call) -> Vec<Step> {
    let made = AtomicU64::new(0);
    move |_| {
        let number = made.fetch_add(1, Ordering::SeqCst);
        match number % 3 {
            0 => stream(number / 3),
            1 => whole_answer(),
            _ => broken_stream(number / 3),
        }
    }
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

/// The number in a variable; `None` without the variable.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a whole number")))
}

#[test]
fn calls_that_are_broken_off_at_random_leave_nothing_behind() {
    run(async {
        let count = number("FARTHING_BROKEN_CALLS").unwrap_or(CALLS);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let seed = number("FARTHING_BROKEN_SEED").unwrap_or_else(now);
        let mut random = Random(seed);
        eprintln!("FARTHING_BROKEN_SEED={seed} makes the same choices");
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
        for (way, endpoint) in &scene.endpoints {
            let called = json!(format!("POST {}", endpoint.url));
            let mut opened = events.iter().filter(|event| event.kind == "request.opened");
            assert!(opened.any(|event| event.body["endpoint"] == called), "{way:?}");
            assert!(!endpoint.calls().is_empty(), "{way:?}");
        }
        for spend_key in &scene.spend_keys {
            let of_key = merchant.log.state("spending", spend_key).await.unwrap();
            assert_eq!(of_key["total"]["held"], "0.0000000000", "{of_key}");
        }

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
