//! Appends per second: calls opened and settled through the appender, beside plain one-row transactions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use farthing_core::command::{
    Billing, Caller, Completeness, CreateCustomer, CreditTarget, CreditWallet, CustomerRef, MeterRef,
    Metered, OpenRequest, PersonalData, RequestSettings, SettleRequest, Settled, to_millisecond,
};
use farthing_core::event::ProviderKeyType;
use farthing_core::ids::{CreditId, CustomerId, GatewayId, Mint, RequestId, WalletId};
use farthing_core::model_price::ListPrice;
use farthing_core::partition::Partition;
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

/// The clients of the measurement of wallets.
const CLIENTS: usize = 64;

/// The many wallets.
const WALLETS: usize = 10_000;

/// How often one wallet and many are measured, in turns.
const WALLET_ROUNDS: usize = 3;

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

/// Commands, and events per second, of calls that one wallet pays.
async fn commands(instance: &'static Instance, clients: usize, length: Duration) -> (Latencies, u64) {
    let ledger = Ledger::lead(instance).await;
    let customers = ledger.customers(1).await;
    let measured = ledger.serve(&customers, clients, length).await;
    ledger.leave().await;
    measured
}

/// Calls of one wallet beside those of many, in turns.
pub(crate) async fn wallets(instance: &'static Instance, length: Duration) -> String {
    let mut text = format!(
        "## Wallets\n\nCommands as above, {CLIENTS} clients, each call of the next of so many customers.\n\n\
        | wallets | commands/s | events/s | p50 ms | p99 ms |\n|---|---|---|---|---|\n"
    );
    let ledger = Ledger::lead(instance).await;
    let customers = ledger.customers(WALLETS).await;
    for _ in 0..WALLET_ROUNDS {
        for customers in [&customers[..1], &customers[..]] {
            let (commands, events) = ledger.serve(customers, CLIENTS, length).await;
            let _ = writeln!(
                text,
                "| {} | {} | {events} | {} | {} |",
                customers.len(),
                commands.per_second(),
                millis(commands.percentile(500)),
                millis(commands.percentile(990)),
            );
        }
    }
    ledger.leave().await;
    text
}

/// A merchant's partition, led by the benchmark.
struct Ledger {
    merchant: Merchant,
    partition: Partition,
    mint: Arc<Mint>,
    open: OpenRequest,
    appender: Appender,
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Ledger {
    async fn lead(instance: &'static Instance) -> Self {
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1000000").await;
        let meter = merchant
            .meter(
                json!({"name": "calls", "tier_type": "requests", "tiers": [{"start": 0, "rate": "0.0001"}]}),
            )
            .await;
        let server_key: String =
            merchant.log.sql.query_one(SERVER_KEY, &[]).await.expect("an instance").get(0);
        let server_key = ServerKey::from_hex(&server_key).expect("a key");
        let mint = Arc::new(Mint::default());
        let open = OpenRequest {
            request_id: RequestId::new(mint.next(Utc::now())),
            gateway_id: GatewayId::new(mint.next(Utc::now())),
            merchant_id: merchant.id.parse().expect("an id"),
            caller: Caller::SecretKey(server_key.hash(&merchant.secret_key)),
            customer: None,
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
        let partition = merchant.log.partition_of(&merchant.id).await;
        let lease = leader::take_lease(&merchant.log.sql, partition).await;
        let config = leader::appender(&instance.ready().database_url, partition);
        let appender = Appender::start(config, lease.subscribe(), &stop, &tracker);
        Self { merchant, partition, mint, open, appender, stop, tracker }
    }

    /// New customers with money.
    async fn customers(&self, count: usize) -> Vec<CustomerId> {
        let mut customers = Vec::with_capacity(count);
        while customers.len() < count {
            let some = (count - customers.len()).min(CLIENTS);
            let tasks = (0..some).map(|_| tokio::spawn(self.customer()));
            customers.extend(joined(tasks.collect()).await);
        }
        customers
    }

    fn customer(&self) -> impl Future<Output = CustomerId> + Send + use<> {
        let (appender, now) = (self.appender.clone(), to_millisecond(Utc::now()));
        let owner = Some(self.open.merchant_id);
        let customer_id = CustomerId::new(self.mint.next(now));
        let create = CreateCustomer {
            merchant_id: self.merchant.id.parse().expect("an id"),
            customer_id,
            wallet_id: WalletId::new(self.mint.next(now)),
            reference_id: None,
            metadata: BTreeMap::new(),
            metadata_literals: std::collections::BTreeSet::new(),
            personal: PersonalData::default(),
            now,
        };
        let credit = CreditWallet {
            credit_id: CreditId::new(self.mint.next(now)),
            target: CreditTarget::Customer(customer_id),
            amount: "1000000".parse().expect("an amount"),
            reason: "a benchmark".to_owned(),
            now,
        };
        async move {
            appender.submit(owner, create).await.expect("a customer");
            appender.submit(owner, credit).await.expect("a credit");
            customer_id
        }
    }

    /// Calls of these customers in turn.
    async fn serve(&self, customers: &[CustomerId], clients: usize, length: Duration) -> (Latencies, u64) {
        let before = self.merchant.log.head().await;
        let end = Instant::now() + length;
        let customers: Arc<[CustomerId]> = customers.into();
        let tasks: Vec<_> = (0..clients)
            .map(|number| {
                let first = number * customers.len() / clients;
                let (customers, open) = (Arc::clone(&customers), self.open.clone());
                tokio::spawn(client(
                    self.appender.clone(),
                    Arc::clone(&self.mint),
                    open,
                    customers,
                    first,
                    end,
                ))
            })
            .collect();
        let latencies = Latencies::join(&joined(tasks).await, length);
        let events = u64::try_from(self.merchant.log.head().await - before).unwrap_or(0);
        (latencies, per_second(events, length))
    }

    async fn leave(self) {
        drop(self.appender);
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        leader::give_back(&self.merchant.log.sql, self.partition).await;
    }
}

async fn client(
    appender: Appender,
    mint: Arc<Mint>,
    open: OpenRequest,
    customers: Arc<[CustomerId]>,
    first: usize,
    end: Instant,
) -> Vec<u32> {
    let mut micros = Vec::new();
    for next in first.. {
        if Instant::now() >= end {
            break;
        }
        let customer = Some(CustomerRef::Id(customers[next % customers.len()]));
        let now = to_millisecond(Utc::now());
        let request_id = RequestId::new(mint.next(now));
        let start = Instant::now();
        appender
            .submit(Some(open.merchant_id), OpenRequest { request_id, customer, now, ..open.clone() })
            .await
            .expect("an open request");
        micros.push(since(start));
        let settled = Settled::Metered(Metered {
            http_status: 200,
            usage: Some(Usage::default()),
            ending: Completeness::Whole,
            counted: None,
            raw_usage: None,
            response_id: Some("chatcmpl-benchmark".to_owned()),
            model: Some("a-model".to_owned()),
            provider_timestamp: None,
        });
        let start = Instant::now();
        appender
            .submit(Some(open.merchant_id), SettleRequest { request_id, settled, now })
            .await
            .expect("a settled request");
        micros.push(since(start));
    }
    micros
}
