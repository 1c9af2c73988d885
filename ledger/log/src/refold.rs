//! Refold: rebuilds all states from the log when they are stored in the shape of another version. Invariant: the states
//! pass the audit before they are committed, and no append happens meanwhile, because the heads are locked.

use tokio_postgres::error::SqlState;
use tokio_postgres::{GenericClient, Transaction};

use super::audit::{self, Folded, Report};
use super::connect::{self, Role, redacted};

/// The version of the shape in which this program stores states. Increment it with every change after which a stored
/// state is read differently or not at all, or after which the same events fold to another state.
pub const VERSION: i64 = 2;

const IS_CURRENT: &str = "SELECT coalesce(bool_and(shape = $1), false) FROM ledger.heads";

const PARTITIONS: &str = "SELECT partition FROM ledger.heads ORDER BY partition";

/// The holder of these locks is the only writer; a gateway that waits too long for one gives up its append. Citus locks
/// rows of one partition at a time.
const LOCK_HEAD: &str = "SELECT position FROM ledger.heads WHERE partition = $1 FOR UPDATE";

/// A leader that stores states locks its checkpoint first.
const LOCK_CHECKPOINT: &str = "SELECT position FROM ledger.checkpoints WHERE partition = $1 FOR UPDATE";

/// A program of another shape, which may have decided on the old states, appends nothing and stores nothing from now on.
const SET_SHAPE: &str = "UPDATE ledger.heads SET shape = $1, epoch = epoch + 1";
const SET_CHECKPOINTS: &str = "\
UPDATE ledger.checkpoints AS c SET position = h.position, epoch = h.epoch
FROM ledger.heads AS h WHERE h.partition = c.partition";

const CLEAR: &str = "DELETE FROM ledger.state";

const PUT: &str = "\
INSERT INTO ledger.state (partition, kind, id, body)
SELECT s.partition, s.kind, s.id, s.body
FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[]) AS s(partition, kind, id, body)";

/// States written by one statement.
const STATES_AT_ONCE: usize = 5_000;

/// Why the states could not be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer, or refuses.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Audit(#[from] audit::Error),
    /// The log fails the audit, so the states are left unchanged.
    #[error(
        "the audit found {count} things wrong with the log; the states are unchanged. The first: {first}"
    )]
    Broken {
        /// The number of findings.
        count: usize,
        /// The first finding.
        first: String,
    },
}

/// Whether the states are stored in this program's shape; `false` for a database without a log.
pub async fn is_current(client: &impl GenericClient) -> Result<bool, tokio_postgres::Error> {
    match client.query_one(IS_CURRENT, &[&VERSION]).await {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(false),
        row => row?.try_get(0),
    }
}

/// Rebuilds all states in one transaction, unless they are in this program's shape. Returns the audit of the new
/// states, or `None` if nothing had to be done.
pub async fn refold(database_url: &str) -> Result<Option<Report>, Error> {
    let mut client = connect::connect(database_url, Role::Owner).await?;
    let transaction = client.transaction().await?;
    let partitions = transaction.query(PARTITIONS, &[]).await?;
    for lock in [LOCK_HEAD, LOCK_CHECKPOINT] {
        for row in &partitions {
            transaction.query(lock, &[&row.try_get::<_, i16>(0)?]).await?;
        }
    }
    if is_current(&transaction).await? {
        return Ok(None);
    }
    let mut report = Report::default();
    let folded = audit::read(&transaction, &mut report, audit::Progress::start(&transaction).await?).await?;
    refuse_broken(&report)?;
    transaction.execute(CLEAR, &[]).await?;
    put(&transaction, &folded).await?;
    transaction.execute(SET_SHAPE, &[&VERSION]).await?;
    transaction.execute(SET_CHECKPOINTS, &[]).await?;
    audit::conclude(&transaction, &mut report, &folded).await?;
    refuse_broken(&report)?;
    transaction.commit().await?;
    Ok(Some(report))
}

/// Stores the states of each partition.
async fn put(transaction: &Transaction<'_>, folded: &Folded) -> Result<(), tokio_postgres::Error> {
    let statement = transaction.prepare(PUT).await?;
    let rows: Vec<_> = folded
        .iter()
        .flat_map(|(partition, states)| states.iter().map(|(key, state)| (*partition, key, state)))
        .collect();
    for part in rows.chunks(STATES_AT_ONCE) {
        let (mut partitions, mut kinds, mut ids, mut bodies) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (partition, key, state) in part {
            let (kind, id) = key.stored();
            partitions.push(partition.number());
            kinds.push(kind);
            ids.push(id);
            bodies.push(state.to_json());
        }
        transaction.execute(&statement, &[&partitions, &kinds, &ids, &bodies]).await?;
    }
    Ok(())
}

fn refuse_broken(report: &Report) -> Result<(), Error> {
    match report.findings.first() {
        None => Ok(()),
        Some(first) => Err(Error::Broken { count: report.findings_count, first: first.clone() }),
    }
}
