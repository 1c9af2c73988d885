//! The audit: reads every partition of the log once, verifies its hash chain and that its positions have no gap, folds
//! every state from the events and compares it with the stored one, and verifies the sums of money.

mod stored_states;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use tokio_postgres::{GenericClient, IsolationLevel, Transaction};

use self::stored_states::StoredStates;
use super::chain::{self, GENESIS, Hash, Link};
use super::connect::{self, Role, redacted};
use super::partitions;
use super::reader;
use super::record::Record;
use super::record_batch::RecordBatch;
use farthing_core::event::{Event, Fact, Movement, WalletEvent};
use farthing_core::hold_scope::CreditScope;
use farthing_core::ids::WalletId;
use farthing_core::money::{self, Amount, Total};
use farthing_core::partition::{Partition, Partitions};
use farthing_core::state::{State, StateKey, Wallet, WalletOwner, apply, effects, generation};

/// A page of the record batches whose first position is above $2, in the order of their positions.
const BATCHES: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position > $2 ORDER BY first_position LIMIT $3";

const HEAD: &str = "SELECT position, hash FROM ledger.heads WHERE partition = $1";

/// The stored states of generation $1.
const STATES: &str = "SELECT partition, kind, id, shape, body FROM ledger.state WHERE generation = $1";

/// The checkpoints of generation $1.
const CHECKPOINTS: &str = "SELECT partition, position FROM ledger.checkpoints WHERE generation = $1";

/// The record batches with events after position $2: those since the checkpoint.
const TAIL: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position + count > $2::bigint + 1 AND first_position > $2 - 1024 ORDER BY first_position";

/// Record batches that are read at once: at most 512 events each.
const PAGE: i64 = 64;

/// The number of findings whose text is in a report. Further findings are only counted.
const MAX_FINDINGS: usize = 100;

/// An error that stops the audit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer, or refuses.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] reader::Error),
    /// The database has no usable number of partitions.
    #[error("the log has no partitions: run `farthing migrate`")]
    NoPartitions,
}

/// The result of an audit.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// No finding.
    pub ok: bool,
    /// The number of events read.
    pub events: i64,
    /// The heads of the partitions.
    pub heads: Vec<Head>,
    /// The number of states folded and compared.
    pub states: usize,
    /// The sum of all credits, in dollars.
    pub credited: Total,
    /// The sum of the credit that plans and bundles granted, in dollars.
    pub granted: Total,
    /// The sum of the credit that expired, in dollars.
    pub expired: Total,
    /// The sum of all debits, in dollars.
    pub debited: Total,
    /// The sum of all balances, in dollars.
    pub balances: Total,
    /// The sum of all remaining credit, in dollars. Credited + granted - expired - debited = balances + credits.
    pub credits: Total,
    /// The wallets whose credit expired.
    #[serde(skip)]
    expired_wallets: BTreeSet<WalletId>,
    /// The text of each finding, at most 100.
    pub findings: Vec<String>,
    /// The number of findings.
    pub findings_count: usize,
}

/// The head of a partition.
#[derive(Debug, Serialize)]
pub struct Head {
    /// The partition.
    pub partition: Partition,
    /// The position of its newest event.
    pub position: i64,
    /// The hash of that event, in hexadecimal.
    pub hash: String,
}

impl Report {
    fn find(&mut self, finding: impl FnOnce() -> String) {
        self.findings_count += 1;
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding());
        }
    }

    fn count(&mut self, movement: Option<(WalletId, Movement)>) -> Result<(), money::Error> {
        let Some((wallet_id, movement)) = movement else { return Ok(()) };
        let (sum, amount) = match movement {
            Movement::Credited(amount) => (&mut self.credited, amount),
            Movement::Granted(amount) => (&mut self.granted, amount),
            Movement::Debited(amount) => (&mut self.debited, amount),
            Movement::Expired(amount) => {
                if amount.is_positive() {
                    self.expired_wallets.insert(wallet_id);
                }
                (&mut self.expired, amount)
            }
        };
        *sum = sum.plus(amount)?;
        Ok(())
    }

    /// Adds the balance and credit of a wallet to the sums.
    fn add(&mut self, wallet: &Wallet) -> Result<(), money::Error> {
        self.balances = self.balances.plus(wallet.balance)?;
        self.credits = self.credits.plus(wallet.plan_credit())?.plus(wallet.bundle_credit()?)?;
        Ok(())
    }
}

/// The states folded from the log, by partition.
type Folded = BTreeMap<Partition, BTreeMap<StateKey, State>>;

/// The part of the log that was read: what follows is verified against it.
struct Progress {
    partitions: Partitions,
    chains: Vec<Chain>,
    states: Folded,
}

/// The part of a partition that was read.
struct Chain {
    partition: Partition,
    /// The first position of the last batch.
    batch: i64,
    /// The position of the last event.
    position: i64,
    hash: Hash,
}

/// Audits the log of `database_url`. Gateways may write meanwhile: no snapshot is held but for the newest batches and the
/// comparison of the states.
pub async fn verify(database_url: &str) -> Result<Report, Error> {
    let mut client = connect::connect(database_url, Role::Owner).await?;
    let mut report = Report::default();
    let mut progress = Progress::start(&client).await?;
    progress.read_on(&client, &mut report).await?;
    let snapshot = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let folded = read(&snapshot, &mut report, progress).await?;
    conclude(&snapshot, &mut report, &folded).await?;
    Ok(report)
}

/// Reads and verifies the rest of the log after `progress`, and its heads. Returns the states folded from the whole log.
async fn read(
    snapshot: &Transaction<'_>,
    report: &mut Report,
    mut progress: Progress,
) -> Result<Folded, Error> {
    progress.read_on(snapshot, report).await?;
    for chain in &progress.chains {
        let (partition, last) = (chain.partition, chain.position);
        let row = snapshot.query_one(HEAD, &[&partition.number()]).await?;
        let (position, hash): (i64, &[u8]) = (row.get("position"), row.get("hash"));
        report.heads.push(Head { partition, position, hash: farthing_core::secret::hex(hash) });
        if position != last {
            report.find(|| {
                format!("partition {partition}: the head is at position {position}, the last event at {last}")
            });
        } else if hash != chain.hash {
            report.find(|| {
                format!(
                    "partition {partition}: the head's hash is not that of the last event, at position {last}"
                )
            });
        }
    }
    Ok(progress.states)
}

impl Progress {
    /// Nothing was read yet.
    async fn start(client: &impl GenericClient) -> Result<Self, Error> {
        let partitions = partitions::load(client).await?.ok_or(Error::NoPartitions)?;
        let start = |partition| Chain { partition, batch: 0, position: 0, hash: GENESIS };
        Ok(Self { partitions, chains: partitions.all().map(start).collect(), states: BTreeMap::new() })
    }

    /// Reads and verifies each partition to its end.
    async fn read_on(&mut self, client: &impl GenericClient, report: &mut Report) -> Result<(), Error> {
        for chain in &mut self.chains {
            let (partitions, states) = (self.partitions, self.states.entry(chain.partition).or_default());
            let mut fold = |report: &mut Report, place: Place, line: &str| {
                fold(report, states, partitions, place, line);
            };
            while chain.read_page(client, report, &mut fold).await? {}
        }
        Ok(())
    }
}

impl Chain {
    /// Reads and verifies the next batches; `false` if there are none. Gives each event to `fold`.
    async fn read_page(
        &mut self,
        client: &impl GenericClient,
        report: &mut Report,
        fold: &mut impl FnMut(&mut Report, Place, &str),
    ) -> Result<bool, Error> {
        let rows = client.query(BATCHES, &[&self.partition.number(), &self.batch, &PAGE]).await?;
        for row in &rows {
            self.batch = row.get("first_position");
            match reader::batch(row) {
                Ok(batch) => self.verify(report, &batch, fold),
                Err(reader::Error::Damaged { first_position, damaged, .. }) => {
                    let place = Place { partition: self.partition, position: first_position };
                    report.find(|| format!("{place}: the record batch is damaged: {damaged}"));
                    let count: i32 = row.get("count");
                    self.position = first_position + i64::from(count.max(1)) - 1;
                    let hashes: &[u8] = row.get("hashes");
                    if let Some(last) = hashes.last_chunk() {
                        self.hash = *last;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(!rows.is_empty())
    }

    /// Verifies a batch, and gives its events to `fold`.
    fn verify(
        &mut self,
        report: &mut Report,
        batch: &RecordBatch,
        fold: &mut impl FnMut(&mut Report, Place, &str),
    ) {
        let partition = self.partition;
        let at = |position| Place { partition, position };
        let (expected, found) = (self.position + 1, batch.first_position());
        match found - expected {
            0 => {}
            ..0 => {
                report.find(|| format!("{}: a record batch begins before the one before it ends", at(found)));
            }
            1 => report.find(|| format!("{}: the event is missing", at(expected))),
            _ => report.find(|| {
                format!(
                    "partition {partition}, positions {expected} to {}: the events are missing",
                    found - 1
                )
            }),
        }
        for (index, position) in (0..batch.len()).zip(found..) {
            report.events += 1;
            let record = batch.line(index);
            let link = Link { position, recorded_at: batch.recorded_at(), writer: batch.writer(), record };
            self.hash = chain::hash(&self.hash, &link);
            if batch.hash(index) != self.hash {
                report.find(|| {
                    let place = at(position);
                    format!("{place}: the hash does not follow from the event and the previous hash")
                });
                self.hash = batch.hash(index).try_into().unwrap_or(self.hash);
            }
            fold(report, at(position), record);
        }
        self.position = batch.last_position();
    }
}

/// The place of an event, as findings name it.
#[derive(Debug, Clone, Copy)]
struct Place {
    partition: Partition,
    position: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}, position {}", self.partition, self.position)
    }
}

/// Compares the stored states of this program's generation with the folded ones, and verifies the sums. The stored ones
/// are those of the checkpoints; the events since then are folded onto them. In a partition without a checkpoint, where
/// the generation is not built yet, nothing is compared.
async fn conclude(snapshot: &Transaction<'_>, report: &mut Report, folded: &Folded) -> Result<(), Error> {
    let rows = snapshot.query(STATES, &[&generation()]).await?;
    let mut stored = StoredStates::read(&rows);
    for row in &snapshot.query(CHECKPOINTS, &[&generation()]).await? {
        let (partition, position) = (row.get("partition"), row.get("position"));
        stored.add_partition(partition);
        for row in &snapshot.query(TAIL, &[&partition, &position]).await? {
            // The audit of the log has reported a damaged batch.
            let Ok(batch) = reader::batch(row) else { continue };
            stored.fold(partition, position, &batch);
        }
    }
    stored.compare(report, folded);
    sum_up(report, folded);
    report.ok = report.findings_count == 0;
    Ok(())
}

fn fold(
    report: &mut Report,
    folded: &mut BTreeMap<StateKey, State>,
    partitions: Partitions,
    place: Place,
    line: &str,
) {
    let decoded = Record::parse(line).and_then(|record| Ok((record.key, record.fact()?)));
    let (key, Fact { merchant_id, occurred_at, event }) = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return report.find(|| format!("{place}: {error}")),
    };
    if event.key() != key {
        report.find(|| format!("{place}: the stored key is not the key of the fact"));
    }
    if partitions.of(merchant_id) != place.partition {
        report.find(|| format!("{place}: {merchant_id} belongs to another partition"));
    }
    let moved = event.movement().and_then(|movement| report.count(movement));
    if let Err(error) = moved {
        report.find(|| format!("{place}: the sum {error}"));
    }
    let after = stated_balance(&event);
    for (key, effect) in effects(&Fact { merchant_id, occurred_at, event }) {
        let state = folded.remove(&key);
        match apply(&key, state, effect) {
            Ok(Some(state)) => {
                folded.insert(key, state);
            }
            Ok(None) => {}
            Err(broken) => report.find(|| format!("{place}: {broken}")),
        }
    }
    if let Some((wallet_id, balance)) = after {
        let wallet = folded.get(&StateKey::Wallet(wallet_id));
        if !matches!(wallet, Some(State::Wallet(wallet)) if wallet.balance == balance) {
            report.find(|| format!("{place}: the balance after it is not {balance}"));
        }
    }
}

/// The balance in the event itself, with its wallet.
fn stated_balance(event: &Event) -> Option<(WalletId, Amount)> {
    if let Event::Wallet(WalletEvent::Credited(event)) = event {
        Some((event.wallet_id, event.balance_after))
    } else if let Event::Wallet(WalletEvent::Debited(event)) = event {
        Some((event.wallet_id, event.balance_after))
    } else {
        None
    }
}

fn sum_up(report: &mut Report, folded: &Folded) {
    let expired = std::mem::take(&mut report.expired_wallets);
    for (key, state) in folded.values().flatten() {
        let (StateKey::Wallet(id), State::Wallet(wallet)) = (key, state) else { continue };
        let is_customers = matches!(wallet.owner, WalletOwner::Customer(_));
        let over_held = wallet.available(CreditScope::All).is_ok_and(Amount::is_negative);
        // Credit may expire under open holds; the merchant then bears the difference.
        if is_customers && over_held && !expired.contains(id) {
            report.find(|| format!("the holds exceed the available funds: {wallet:?}"));
        }
        if let Err(error) = report.add(wallet) {
            report.find(|| format!("the sum of all balances {error}"));
        }
    }
    let plus = |one: Total, other: Total| one.decimal().checked_add(other.decimal());
    let received = plus(report.credited, report.granted);
    let accounted = plus(report.debited, report.expired)
        .zip(plus(report.balances, report.credits))
        .and_then(|(spent, remaining)| spent.checked_add(remaining));
    if received.is_none() || received != accounted {
        report.find(|| {
            "the sums do not agree: credited + granted - expired - debited != balances + credits".to_owned()
        });
    }
}
