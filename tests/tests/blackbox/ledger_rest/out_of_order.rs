//! Events are appended nearly in the order of their time: their times come from several gateways. Filters and balances follow
//! the times of the events all the same, and statements the latest time until each entry, in a log of two merchants that is
//! made for it.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::event::{Event, Fact, Source, WalletCredited, WalletDebited, WalletSource};
use farthing_core::ids::{CreditId, CustomerId, MerchantId, Mint, RequestId, WalletId};
use farthing_core::money::Amount;
use farthing_log::record;
use farthing_tests::books::decimal;
use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::log::{Log, Logged, next_hash};
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_gateway::SideGateway;
use rust_decimal::Decimal;
use serde_json::Value;

use super::{accounts, named, shown, shown_accounts, time};

/// Events of the log; `FARTHING_JOURNAL_EVENTS` says how many.
const EVENTS: usize = 3_000;

/// The largest record batch.
const BATCH: usize = 40;

/// Moments that are asked for.
const MOMENTS: usize = 25;

const APPEND: &str = "
INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
VALUES ($1, $2, $3, $4, 'a test', $5, $6)";

const CAUGHT_UP: &str = "
INSERT INTO {model}.checkpoint (partition, position, generation) SELECT partition, position, 1 FROM ledger.heads
ON CONFLICT (partition) DO UPDATE SET position = excluded.position";

/// A filter of events.
type Passes<'a> = Box<dyn Fn(&Logged) -> bool + 'a>;

/// A merchant whose events are made.
struct Owner {
    merchant_id: MerchantId,
    wallet_id: WalletId,
    customer_id: CustomerId,
    secret_key: String,
}

impl Owner {
    /// A new one in `partition`.
    async fn new(database_url: &str, log: &Log, partition: Option<i16>, mint: &Mint) -> (Self, i16) {
        loop {
            let made = operate(database_url, &["merchant", "create"]).await;
            let text = |name: &str| made[name].as_str().unwrap().to_owned();
            let there = log.partition_of(&text("merchant_id")).await.number();
            if partition.is_none_or(|partition| partition == there) {
                let owner = Self {
                    merchant_id: text("merchant_id").parse().unwrap(),
                    wallet_id: text("wallet_id").parse().unwrap(),
                    customer_id: CustomerId::new(mint.next(DateTime::UNIX_EPOCH)),
                    secret_key: text("secret_key"),
                };
                return (owner, there);
            }
        }
    }

    /// The number `number` of its credits and debits.
    fn event(&self, number: usize, mint: &Mint) -> Event {
        let ulid = mint.next(DateTime::UNIX_EPOCH);
        let customer_id = number.is_multiple_of(3).then_some(self.customer_id);
        let amount: Amount = format!("0.{:02}", number % 97 + 1).parse().unwrap();
        if number.is_multiple_of(5) {
            Event::from(WalletDebited {
                request_id: RequestId::new(ulid),
                wallet_id: self.wallet_id,
                customer_id,
                amount,
                sources: vec![WalletSource { source: Source::Balance, amount }],
                balance_after: Amount::ZERO,
            })
        } else {
            Event::from(WalletCredited {
                credit_id: CreditId::new(ulid),
                wallet_id: self.wallet_id,
                customer_id,
                amount,
                reason: String::new(),
                balance_after: Amount::ZERO,
            })
        }
    }
}

/// The delays between the events of a log: mostly a few milliseconds, sometimes backwards, rarely far.
fn delay() -> TimeDelta {
    TimeDelta::milliseconds(match fastrand::u8(..) {
        0..4 => -fastrand::i64(500..3_000),
        4..8 => fastrand::i64(500..5_000),
        8..80 => -fastrand::i64(0..20),
        _ => fastrand::i64(0..25),
    })
}

/// Appends events of the owners. The second one has one in fifty.
async fn append(log: &Log, partition: i16, owners: &[Owner; 2], began: DateTime<Utc>) {
    let mint = Mint::default();
    let head = log.heads().await.into_iter().find(|head| head.partition == partition).unwrap();
    let (mut position, mut hash, mut at) = (head.position, head.hash, began);
    let mut left = std::env::var("FARTHING_JOURNAL_EVENTS").map_or(EVENTS, |count| count.parse().unwrap());
    while left > 0 {
        let count = fastrand::usize(1..=BATCH.min(left));
        let (mut lines, mut hashes, first) = (Vec::new(), Vec::<u8>::new(), position + 1);
        let recorded_at = at;
        for _ in 0..count {
            let owner = &owners[usize::from(fastrand::u8(..50) == 0)];
            at += delay();
            let event = owner.event(usize::try_from(position).unwrap(), &mint);
            let mut line = String::new();
            record::write(&Fact { merchant_id: owner.merchant_id, occurred_at: at, event }, &mut line);
            position += 1;
            hash = next_hash(&hash, position, recorded_at.timestamp_micros(), "a test", &line);
            hashes.extend(&hash);
            lines.push(line);
        }
        let (count, events) = (i32::try_from(lines.len()).unwrap(), lines.join("\n").into_bytes());
        log.sql.execute(APPEND, &[&partition, &first, &count, &recorded_at, &events, &hashes]).await.unwrap();
        left -= lines.len();
    }
    log.sql
        .execute(
            "UPDATE ledger.heads SET position = $2, hash = $3 WHERE partition = $1",
            &[&partition, &position, &hash],
        )
        .await
        .unwrap();
    let stored = "UPDATE ledger.checkpoints SET position = $2 WHERE partition = $1";
    log.sql.execute(stored, &[&partition, &position]).await.unwrap();
}

/// An entry of an owner's wallet.
struct Entry {
    /// The latest time until it.
    counted_at: DateTime<Utc>,
    position: i64,
    balance: Decimal,
}

/// The entries that the events make.
fn entries(events: &[Logged]) -> Vec<Entry> {
    let (mut latest, mut balance, mut entries) = (DateTime::UNIX_EPOCH, Decimal::ZERO, Vec::new());
    for event in events {
        let amount = decimal(&event.body["amount"]);
        match event.kind.as_str() {
            "wallet.credited" => balance += amount,
            "wallet.debited" => balance -= amount,
            _ => continue,
        }
        latest = latest.max(event.occurred_at);
        entries.push(Entry { counted_at: latest, position: event.position, balance });
    }
    entries
}

/// Reads the statement of `start` to `end` in pages of `limit`, which must have these entries of the period.
async fn statement(
    ask: &impl AsyncFn(String) -> Value,
    owner: &Owner,
    entries: &[Entry],
    (start, end): (DateTime<Utc>, DateTime<Utc>),
    limit: usize,
) {
    let before = |at: DateTime<Utc>| entries.iter().rfind(|entry| entry.counted_at < at);
    let funds = |at| before(at).map_or(Decimal::ZERO, |entry| entry.balance);
    let within = entries.iter().filter(|entry| (start..end).contains(&entry.counted_at));
    let expected: Vec<_> = within.map(|entry| (entry.position.to_string(), entry.balance)).collect();
    let period = format!("wallet_id={}&start={}&end={}", owner.wallet_id, time(start), time(end));
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ask(format!("statement?limit={limit}&{period}{cursor}")).await;
        assert_eq!(decimal(&page["opening"]["balance"]), funds(start), "{period}{cursor}");
        assert_eq!(decimal(&page["closing"]["balance"]), funds(end), "{period}{cursor}");
        let rows = page["entries"].as_array().unwrap().iter();
        found.extend(
            rows.map(|row| (row["id"].as_str().unwrap().to_owned(), decimal(&row["after"]["balance"]))),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, expected, "{period}");
}

#[test]
fn an_event_counts_at_its_time_wherever_it_was_appended() {
    run(async {
        let seed = std::env::var("FARTHING_JOURNAL_SEED")
            .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
        eprintln!("FARTHING_JOURNAL_SEED={seed}");
        fastrand::seed(seed);
        let instance = Instance::shared().await;
        let database_url = instance.create_database("out_of_order").await;
        operate(&database_url, &["migrate", "--mode", "test"]).await;
        let (log, mint) = (Log::open(&database_url).await, Mint::default());
        let (busy, partition) = Owner::new(&database_url, &log, None, &mint).await;
        let (quiet, _) = Owner::new(&database_url, &log, Some(partition), &mint).await;
        let began = DateTime::from_timestamp_millis(Utc::now().timestamp_millis()).unwrap();
        // The states are stored, and do not follow what is appended here.
        log.stored().await;
        let owners = [busy, quiet];
        append(&log, partition, &owners, began).await;
        // No projector runs here: a rebuild folds the log up to the checkpoint.
        for model in ["journal", "entries"] {
            log.sql.batch_execute(&CAUGHT_UP.replace("{model}", model)).await.unwrap();
            let report = operate(&database_url, &["projections", "rebuild", model]).await;
            assert_eq!(report["events"].as_i64(), Some(log.head().await), "{report}");
        }
        let gateway = SideGateway::on(instance, &database_url, &[]).await;
        for owner in &owners {
            let events = log.of_merchant(&owner.merchant_id.to_string(), 0).await;
            let ask = async |target: String| -> Value {
                let request = Request::new("GET", format!("/v1/ledger/{target}")).bearer(&owner.secret_key);
                let answer = request.send(gateway.address).await.unwrap();
                assert_eq!(answer.head.header("x-service-stale"), None, "{target}");
                answer.expect(200)
            };
            let last = events.iter().map(|event| event.occurred_at).max().unwrap();
            let entries = entries(&events);
            // All of them, the last one alone, and none.
            let after = last + TimeDelta::milliseconds(1);
            for start in [began - TimeDelta::hours(1), last, after] {
                statement(&ask, owner, &entries, (start, after), 100).await;
            }
            statement(&ask, owner, &entries, (began - TimeDelta::hours(1), began), 100).await;
            for _ in 0..MOMENTS {
                let millis = (last - began).num_milliseconds() + 2;
                let at = began + TimeDelta::milliseconds(fastrand::i64(-1..millis));
                let answer = ask(format!("trial_balance?at={}", time(at))).await;
                let expected = accounts(&events, |event| event.occurred_at < at);
                assert_eq!(shown_accounts(&answer), named(expected), "{at}");
                let position = events[fastrand::usize(..events.len())].position;
                let answer = ask(format!("trial_balance?position={position}")).await;
                let expected = accounts(&events, |event| event.position <= position);
                assert_eq!(shown_accounts(&answer), named(expected), "{position}");

                let from = at - TimeDelta::milliseconds(fastrand::i64(0..4_000));
                statement(&ask, owner, &entries, (from, at), fastrand::usize(30..=100)).await;
                let period = format!("from={}&to={}", time(from), time(at));
                let within = |event: &Logged| (from..at).contains(&event.occurred_at);
                let customer = owner.customer_id.to_string();
                let filters: [(String, Passes<'_>); 3] = [
                    (String::new(), Box::new(|_| true)),
                    ("&kind=wallet.debited".to_owned(), Box::new(|event| event.kind == "wallet.debited")),
                    (
                        format!("&customer_id={customer}"),
                        Box::new(|event| event.body["customer_id"] == customer.as_str()),
                    ),
                ];
                for (filter, passes) in &filters {
                    let expected: Vec<_> =
                        events.iter().rev().filter(|event| within(event) && passes(event)).collect();
                    let page = ask(format!("events?limit=100&{period}{filter}")).await;
                    let found: Vec<_> = expected.iter().take(100).map(|event| shown(event)).collect();
                    assert_eq!(page["data"].as_array().unwrap(), &found, "{period}{filter}");
                    assert_eq!(page["has_more"], expected.len() > 100, "{period}{filter}");
                    if let Some(next) = page["next_cursor"].as_str() {
                        let page = ask(format!("events?limit=100&{period}{filter}&cursor={next}")).await;
                        let found: Vec<_> =
                            expected.iter().skip(100).take(100).map(|event| shown(event)).collect();
                        assert_eq!(page["data"].as_array().unwrap(), &found, "{period}{filter}");
                    }
                }
            }
        }
    });
}
