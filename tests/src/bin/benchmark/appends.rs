//! Appends per second: calls opened and settled through the appender, beside plain one-row transactions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use farthing_core::command::{
    Billing, Caller, Completeness, CustomerRef, MeterRef, Metered, OpenRequest, RequestSettings,
    SettleRequest, Settled, to_millisecond,
};
use farthing_core::event::ProviderKeyType;
use farthing_core::ids::{GatewayId, Mint, RequestId};
use farthing_core::model_price::ListPrice;
use farthing_core::pricing::SizeHint;
use farthing_core::secret::ServerKey;
use farthing_core::usage::Usage;
use farthing_log::appender::Appender;
use farthing_tests::instance::Instance;
use farthing_tests::leader;
use farthing_tests::merchant::Merchant;
use rust_decimal::Decimal;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::WIDTHS;
use crate::latency::{Latencies, millis, per_second, since};

const PLAIN_TABLE: &str = "DROP TABLE IF EXISTS public.plain; CREATE TABLE public.plain (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)";
const PLAIN_INSERT: &str = "INSERT INTO public.plain (body) VALUES ($1)";
const SERVER_KEY: &str = "SELECT server_key FROM ledger.instance";

/// Measures and returns the results.
pub(crate) async fn measure(instance: &'static Instance, length: Duration) -> String {
    let mut text = "## Appends\n\nPlain: a transaction of one inserted row. Commands: `OpenRequest` (one event) and \
        `SettleRequest` (two) in turn through one appender; a client waits for each to be durable. The projector is \
        paused meanwhile.\n\n| clients | plain rows/s | p50 ms | commands/s | events/s | p50 ms | p99 ms |\n\
        |---|---|---|---|---|---|---|\n"
        .to_owned();
    for clients in WIDTHS {
        let plain = plain(instance, clients, length).await;
        let (commands, events) = commands(instance, clients, length).await;
        let _ = writeln!(
            text,
            "| {clients} | {} | {} | {} | {events} | {} | {} |",
            plain.per_second(),
            millis(plain.percentile(500)),
            commands.per_second(),
            millis(commands.percentile(500)),
            millis(commands.percentile(990)),
        );
    }
    text
}

async fn plain(instance: &'static Instance, clients: usize, length: Duration) -> Latencies {
    instance.log().await.sql.batch_execute(PLAIN_TABLE).await.expect("a table can be made");
    let mut connections = Vec::new();
    for _ in 0..clients {
        let log = instance.log().await;
        let insert = log.sql.prepare(PLAIN_INSERT).await.expect("a plain statement");
        connections.push((log, insert));
    }
    let end = Instant::now() + length;
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|(log, insert)| {
            tokio::spawn(async move {
                let body = "x".repeat(600);
                let mut micros = Vec::new();
                while Instant::now() < end {
                    let start = Instant::now();
                    log.sql.execute(&insert, &[&body]).await.expect("a row can be inserted");
                    micros.push(since(start));
                }
                micros
            })
        })
        .collect();
    Latencies::join(&joined(tasks).await, length)
}

pub(crate) async fn joined<T>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.expect("a client does not panic"));
    }
    results
}

/// Commands, and events per second.
async fn commands(instance: &'static Instance, clients: usize, length: Duration) -> (Latencies, u64) {
    let merchant = Merchant::of(instance).await;
    merchant.credit_own("1000000").await;
    let customer = merchant.customer("1000000").await;
    let meter = merchant
        .meter(json!({"name": "calls", "tier_type": "requests", "tiers": [{"start": 0, "rate": "0.0001"}]}))
        .await;
    let server_key: String = merchant.log.sql.query_one(SERVER_KEY, &[]).await.expect("an instance").get(0);
    let server_key = ServerKey::from_hex(&server_key).expect("a key");
    let mint = Arc::new(Mint::default());
    let open = OpenRequest {
        request_id: RequestId::new(mint.next(Utc::now())),
        gateway_id: GatewayId::new(mint.next(Utc::now())),
        caller: Caller::SecretKey(server_key.hash(&merchant.secret_key)),
        customer: Some(CustomerRef::Id(customer.id.parse().expect("an id"))),
        meter: Some(MeterRef::Id(meter.id.parse().expect("an id"))),
        billing: Billing::Usual,
        provider: "other".to_owned(),
        provider_key_type: ProviderKeyType::Unmanaged,
        endpoint: "POST http://127.0.0.1:9090/v1/chat/completions".to_owned(),
        model: Some("a-model".to_owned()),
        list_price: ListPrice::Nothing,
        metadata: BTreeMap::new(),
        size: SizeHint::default(),
        settings: RequestSettings {
            service_charge_rate: Decimal::new(19, 3),
            default_hold: "0.01".parse().expect("an amount"),
            hold_cap: "1".parse().expect("an amount"),
        },
        now: to_millisecond(Utc::now()),
    };

    let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
    let ready = instance.ready();
    let partition = merchant.log.partition_of(&merchant.id).await;
    let lease = leader::take_lease(&merchant.log.sql, partition).await;
    let config = leader::appender(&ready.database_url, partition);
    let appender = Appender::start(config, lease.subscribe(), &stop, &tracker);
    let before = merchant.log.head().await;
    let end = Instant::now() + length;
    let tasks: Vec<_> = (0..clients)
        .map(|_| tokio::spawn(client(appender.clone(), Arc::clone(&mint), open.clone(), end)))
        .collect();
    let latencies = Latencies::join(&joined(tasks).await, length);
    let events = u64::try_from(merchant.log.head().await - before).unwrap_or(0);
    drop(appender);
    stop.cancel();
    tracker.close();
    tracker.wait().await;
    leader::give_back(&merchant.log.sql, partition).await;
    (latencies, per_second(events, length))
}

async fn client(appender: Appender, mint: Arc<Mint>, open: OpenRequest, end: Instant) -> Vec<u32> {
    let mut micros = Vec::new();
    while Instant::now() < end {
        let now = to_millisecond(Utc::now());
        let request_id = RequestId::new(mint.next(now));
        let start = Instant::now();
        appender.submit(OpenRequest { request_id, now, ..open.clone() }).await.expect("an open request");
        micros.push(since(start));
        let settled = Settled::Metered(Metered {
            http_status: 200,
            usage: Some(Usage::default()),
            ending: Completeness::Whole,
            raw_usage: None,
            response_id: Some("chatcmpl-benchmark".to_owned()),
            model: Some("a-model".to_owned()),
            provider_timestamp: None,
        });
        let start = Instant::now();
        appender.submit(SettleRequest { request_id, settled, now }).await.expect("a settled request");
        micros.push(since(start));
    }
    micros
}
