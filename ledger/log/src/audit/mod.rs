//! The audit: reads every partition of the log once, verifies its hash chain and that its positions have no gap, folds
//! every state from the events and compares it with the stored one, and verifies the sums of money.

pub mod explain;
mod findings;
mod partition_reader;
pub mod statement;
mod stored_states;
pub mod trial_balance;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tokio_postgres::{GenericClient, IsolationLevel, Transaction};

pub use self::findings::{Findings, Place};
use self::partition_reader::{Line, PartitionReader, Visitor};
use self::stored_states::StoredStates;
use super::connect::{self, Role, redacted};
use super::partitions;
use super::reader;
use super::record::Record;
use farthing_core::event::{Event, Fact, Movement, WalletEvent};
use farthing_core::hold_scope::CreditScope;
use farthing_core::ids::{RequestId, WalletId};
use farthing_core::money::{self, Amount, Total};
use farthing_core::partition::{Partition, Partitions};
use farthing_core::state::{State, StateKey, Wallet, WalletOwner, apply, effects, generation};

const HEAD: &str = "SELECT position, hash FROM ledger.heads WHERE partition = $1";

/// The stored states of generation $1.
const STATES: &str = "SELECT partition, kind, id, shape, body FROM ledger.state WHERE generation = $1";

/// The checkpoints of generation $1.
const CHECKPOINTS: &str = "SELECT partition, position FROM ledger.checkpoints WHERE generation = $1";

/// The record batches with events after position $2: those since the checkpoint.
const TAIL: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position + count > $2::bigint + 1 AND first_position > $2 - 1024 ORDER BY first_position";

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
    /// The named partition does not exist.
    #[error("the log has no partition {partition}")]
    NoSuchPartition {
        /// The partition.
        partition: Partition,
    },
    /// The named position is behind the head.
    #[error("partition {partition} has no position {position} yet: its last event is at {last}")]
    NoSuchPosition {
        /// The partition.
        partition: Partition,
        /// The position.
        position: i64,
        /// The position of the newest event.
        last: i64,
    },
    /// No event names the wallet.
    #[error("no event of the log names the wallet {0}")]
    UnknownWallet(WalletId),
    /// No event names the request.
    #[error("no event of the log names the request {0}")]
    UnknownRequest(RequestId),
    /// A sum is out of range.
    #[error("a sum {0}")]
    Money(#[from] money::Error),
    /// The result cannot be written.
    #[error("the result cannot be written: {0}")]
    Output(#[from] std::io::Error),
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
    /// What is wrong.
    #[serde(flatten)]
    pub findings: Findings,
}

/// The head of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
        self.findings.find(finding);
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
    chains: Vec<PartitionReader>,
    states: Folded,
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
        let row = snapshot.query_one(HEAD, &[&chain.partition.number()]).await?;
        let (position, hash): (i64, &[u8]) = (row.get("position"), row.get("hash"));
        let hex = farthing_core::secret::hex(hash);
        report.heads.push(Head { partition: chain.partition, position, hash: hex });
        chain.compare((position, hash), &mut report.findings);
    }
    Ok(progress.states)
}

impl Progress {
    /// Nothing was read yet.
    async fn start(client: &impl GenericClient) -> Result<Self, Error> {
        let partitions = partitions::load(client).await?.ok_or(Error::NoPartitions)?;
        Ok(Self {
            partitions,
            chains: partitions.all().map(PartitionReader::new).collect(),
            states: BTreeMap::new(),
        })
    }

    /// Reads and verifies each partition to its end.
    async fn read_on(&mut self, client: &impl GenericClient, report: &mut Report) -> Result<(), Error> {
        for chain in &mut self.chains {
            let states = self.states.entry(chain.partition).or_default();
            let mut folding = Folding { report: &mut *report, states, partitions: self.partitions };
            while chain.read_page(client, i64::MAX, &mut folding).await? {}
        }
        Ok(())
    }
}

/// Folds the states of a partition.
struct Folding<'a> {
    report: &'a mut Report,
    states: &'a mut BTreeMap<StateKey, State>,
    partitions: Partitions,
}

impl Visitor for Folding<'_> {
    fn findings(&mut self) -> &mut Findings {
        &mut self.report.findings
    }

    fn visit(&mut self, line: &Line<'_>) -> Result<(), Error> {
        self.report.events += 1;
        fold(self.report, self.states, self.partitions, line.place, line.text);
        Ok(())
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
    report.ok = report.findings.is_empty();
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
