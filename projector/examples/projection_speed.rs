//! Measures how many events per second the read models and the feed process, on a log of generated calls. It migrates
//! the given database and writes to it: use an empty one.
//!
//! `cargo run --release -p farthing-projector --example projection_speed -- DATABASE_URL CALLS [NATS_URL]`

#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use farthing_core::event::{
    Charge, CustomerCreated, Event, Fact, Hold, MerchantRegistered, Parties, ProviderKeyType, RequestMetered,
    RequestOpened, ServiceCharge, Source, WalletCredited, WalletDebited, WalletSource,
};
use farthing_core::ids::{CreditId, CustomerId, GatewayId, MerchantId, MeterId, Mint, RequestId, WalletId};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Terms, Tier, TierType, Tiers, TokenBasis};
use farthing_core::money::Amount;
use farthing_core::partition::Partition;
use farthing_core::pricing::ModelCost;
use farthing_core::pricing::{Fee, FeeLine};
use farthing_core::usage::{Split, Usage};
use farthing_log::chain::{GENESIS, Link, hash};
use farthing_log::connect::{Role, connect};
use farthing_log::nats::NatsConfig;
use farthing_log::nats_names::NatsNames;
use farthing_log::{reader, record, relay};
use farthing_projector::query::PartitionClient;
use farthing_projector::{Config, Digests, ReadModel, Schemas, checkpoint};
use farthing_telemetry::Telemetry;
use rust_decimal::Decimal;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;

/// The partition of the generated merchant: the database has one.
const PARTITION: Partition = Partition::new(0);

const CUSTOMERS: usize = 1_000;

const WRITER: &str = "a benchmark";

/// As in commits under load.
const EVENTS_PER_BATCH: usize = 64;

/// The generated customers and calls.
struct Workload {
    mint: Mint,
    now: DateTime<Utc>,
    merchant_id: MerchantId,
    merchant_wallet: WalletId,
    customers: Vec<(CustomerId, WalletId)>,
    terms: Terms,
}

fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

impl Workload {
    fn new() -> Self {
        let mint = Mint::default();
        let now = DateTime::from_timestamp_millis(Utc::now().timestamp_millis()).unwrap();
        let tiers = vec![Tier { start: Decimal::ZERO, rate: amount("0.10") }];
        let terms = Terms {
            meter_id: MeterId::new(mint.next(now)),
            price: Price {
                rate_type: RateType::Fixed,
                tier_type: TierType::Requests,
                tiers: Tiers::new(tiers).unwrap(),
                token_basis: TokenBasis::InputOutput,
                base_cost_payer: Payer::Wallet,
                service_charge_payer: Payer::Merchant,
                on_disconnect: OnDisconnect::Complete,
                max_fee: None,
            },
            service_charge_rate: Decimal::new(19, 3),
        };
        Self {
            merchant_id: MerchantId::new(mint.next(now)),
            merchant_wallet: WalletId::new(mint.next(now)),
            customers: (0..CUSTOMERS)
                .map(|_| (CustomerId::new(mint.next(now)), WalletId::new(mint.next(now))))
                .collect(),
            now,
            mint,
            terms,
        }
    }

    fn preamble(&self) -> Vec<Event> {
        let merchant = MerchantRegistered {
            merchant_id: self.merchant_id,
            wallet_id: self.merchant_wallet,
            name: "Measured".to_owned(),
        };
        let mut events = vec![Event::from(merchant)];
        for (at, (customer_id, wallet_id)) in self.customers.iter().enumerate() {
            events.push(Event::from(CustomerCreated {
                customer_id: *customer_id,
                wallet_id: *wallet_id,
                reference_id: Some(format!("customer-{at}")),
                metadata: BTreeMap::new(),
                metadata_literals: std::collections::BTreeSet::new(),
            }));
            events.push(Event::from(WalletCredited {
                credit_id: CreditId::new(self.mint.next(self.now)),
                wallet_id: *wallet_id,
                customer_id: Some(*customer_id),
                amount: amount("1000"),
                reason: "measured".to_owned(),
                balance_after: amount("1000"),
            }));
        }
        events
    }

    fn call(&self, at: usize) -> Vec<Event> {
        let request_id = RequestId::new(self.mint.next(self.now));
        let (customer_id, wallet_id) = self.customers[at * 7_919 % CUSTOMERS];
        let parties = Parties {
            customer_id: Some(customer_id),
            wallet_id: Some(wallet_id),
            merchant_wallet_id: self.merchant_wallet,
        };
        let hold =
            Hold { wallet: amount("0.1"), merchant: amount("0.0019"), beside_plan: false, plan_changes: 0 };
        let debit = |wallet_id, customer_id, amount| {
            Event::from(WalletDebited {
                request_id,
                wallet_id,
                customer_id,
                amount,
                sources: vec![WalletSource { source: Source::Balance, amount }],
                balance_after: self::amount("900"),
            })
        };
        let mut metadata = BTreeMap::new();
        if at.is_multiple_of(10) {
            metadata.insert("team".to_owned(), format!("team{}", at % 100));
        }
        let opened = RequestOpened {
            request_id,
            gateway_id: GatewayId::new(request_id.ulid()),
            charge: Charge::CustomerBilling,
            parties,
            provider: "other".to_owned(),
            provider_key_type: ProviderKeyType::Unmanaged,
            endpoint: "POST http://127.0.0.1:9000/v1/chat/completions".to_owned(),
            model: Some("mock-large".to_owned()),
            metadata,
            model_price: None,
            terms: Some(self.terms.clone()),
            period_start: Some(self.now),
            hold,
            reported_id: None,
            spend_key: None,
        };
        let metered = RequestMetered {
            request_id,
            parties,
            meter_id: Some(self.terms.meter_id),
            period_start: Some(self.now),
            opened_at: Some(self.now),
            hold,
            http_status: 200,
            usage: Usage { tokens: Split { input: 120, output: 450 }, ..Usage::default() },
            counted: None,
            tier_position: Decimal::from(at),
            units: Decimal::ONE,
            model_cost: ModelCost::default(),
            fee: Fee {
                amount: amount("0.1"),
                breakdown: vec![FeeLine {
                    tier: self.terms.price.tiers.as_slice()[0].clone(),
                    units: Decimal::ONE,
                    cost: amount("0.1"),
                }],
            },
            service_charge: ServiceCharge { amount: amount("0.0019"), payer: Payer::Merchant },
            total_request_cost: amount("0.1019"),
            total_wallet_cost: amount("0.1"),
            total_merchant_cost: amount("0.0019"),
            overrun: Amount::ZERO,
            marks: Vec::new(),
            raw_usage: None,
            response_id: Some(format!("chatcmpl-{at:012}")),
            model: Some("mock-large-2026".to_owned()),
            provider_timestamp: Some(self.now),
            spend_key: None,
        };
        vec![
            Event::from(Box::new(opened)),
            Event::from(Box::new(metered)),
            debit(wallet_id, Some(customer_id), amount("0.1")),
            debit(self.merchant_wallet, None, amount("0.0019")),
        ]
    }
}

/// Appends events to an empty log without the appender, in batches of [`EVENTS_PER_BATCH`].
async fn load(client: &Client, workload: &Workload, events: impl Iterator<Item = Event>) -> i64 {
    let mut head = reader::head(client, PARTITION).await.unwrap();
    assert_eq!(head, 0, "use an empty database");
    let mut previous = GENESIS;
    let copy = "COPY ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes) \
                FROM STDIN BINARY";
    let types = [Type::INT2, Type::INT8, Type::INT4, Type::TIMESTAMPTZ, Type::TEXT, Type::BYTEA, Type::BYTEA];
    let mut rows = pin!(BinaryCopyInWriter::new(client.copy_in(copy).await.unwrap(), &types));
    let mut events = events.peekable();
    while events.peek().is_some() {
        let (mut lines, mut hashes) = (String::new(), Vec::new());
        let mut count = 0;
        for event in events.by_ref().take(EVENTS_PER_BATCH) {
            let fact = Fact { merchant_id: workload.merchant_id, occurred_at: workload.now, event };
            if count > 0 {
                lines.push('\n');
            }
            let start = lines.len();
            record::write(&fact, &mut lines);
            count += 1;
            let link = Link {
                position: head + i64::from(count),
                recorded_at: workload.now,
                writer: WRITER,
                record: &lines[start..],
            };
            previous = hash(&previous, &link);
            hashes.extend_from_slice(&previous);
        }
        let row: [&(dyn ToSql + Sync); 7] =
            [&PARTITION.number(), &(head + 1), &count, &workload.now, &WRITER, &lines.as_bytes(), &hashes];
        rows.as_mut().write(&row).await.unwrap();
        head += i64::from(count);
    }
    rows.as_mut().finish().await.unwrap();
    client
        .execute(
            "UPDATE ledger.heads SET position = $1, hash = $2 WHERE partition = $3",
            &[&head, &&previous[..], &PARTITION.number()],
        )
        .await
        .unwrap();
    head
}

/// The position of the last event in the feed.
async fn published(context: &async_nats::jetstream::Context) -> Option<i64> {
    let names = NatsNames::default();
    let stream = context.get_stream(names.stream(PARTITION)).await.ok()?;
    let last = stream.get_last_raw_message_by_subject(&names.subject(PARTITION)).await.ok()?;
    let number = |name| last.headers.get(name)?.as_str().parse::<i64>().ok();
    Some(number(relay::POSITION_HEADER)? + number(relay::COUNT_HEADER)? - 1)
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let database_url = arguments.next().expect("DATABASE_URL");
    let calls: usize = arguments.next().expect("CALLS").parse().unwrap();
    let nats_url = arguments.next();

    let key = "00".repeat(32);
    let options = farthing_schema::Migrate {
        mode: Some("test"),
        server_key_hex: &key,
        partitions: Some(1),
        shape: farthing_core::state::shape(),
        generation: farthing_core::state::generation(),
        citus: false,
    };
    let owner = connect(&database_url, Role::Owner).await.unwrap();
    println!("{:?}", farthing_schema::migrate(owner, options).await.unwrap());
    let (client, connection) = tokio_postgres::connect(&database_url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let before = reader::head(&client, PARTITION).await.unwrap();

    let workload = Workload::new();
    let started = Instant::now();
    let events = workload.preamble().into_iter().chain((0..calls).flat_map(|at| workload.call(at)));
    let head = load(&client, &workload, events).await;
    let count = (head - before) as f64;
    println!("loaded {count} events at {:.0}/s", count / started.elapsed().as_secs_f64());
    client.batch_execute("CHECKPOINT; ANALYZE ledger.batches").await.unwrap();

    let stop = CancellationToken::new();
    let config = Config {
        database_url: database_url.clone(),
        nats: nats_url.clone().map(NatsConfig::at),
        feed_replicas: 1,
        write_connections: 4,
        telemetry: Telemetry::default(),
    };
    let (cpu, started) = (cpu_seconds(), Instant::now());
    let projector = tokio::spawn(farthing_projector::run(config, stop.clone(), || println!("ready")));
    let schemas = Schemas::load(&client).await.unwrap();
    let mut waiting = ReadModel::ALL.to_vec();
    while !waiting.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut still = Vec::new();
        for model in waiting {
            if checkpoint::position(PartitionClient::new(&client, &schemas, PARTITION), model).await.unwrap()
                < head
            {
                still.push(model);
            } else {
                let elapsed = started.elapsed().as_secs_f64();
                println!("{:<12} {:>8.0} events/s", model.name(), count / elapsed);
            }
        }
        waiting = still;
    }
    if let Some(nats_url) = nats_url {
        let context = async_nats::jetstream::new(async_nats::connect(nats_url).await.unwrap());
        while published(&context).await.is_none_or(|position| position < head) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("{:<12} {:>8.0} events/s", "feed", count / started.elapsed().as_secs_f64());
    }
    let elapsed = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    println!("projector used {:.2} cores, {:.1} µs an event", cpu / elapsed, cpu / count * 1e6);
    stop.cancel();
    projector.await.unwrap().unwrap();
    for model in ReadModel::ALL {
        let started = Instant::now();
        let report =
            farthing_projector::verify(&database_url, model.name(), Digests::LeaveOut).await.unwrap();
        let events = report.events as f64;
        println!("{report:?} {:.0} events/s", events / started.elapsed().as_secs_f64());
    }
    drop(client);
    let _ = connection.await;
}
