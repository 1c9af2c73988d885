//! Refold: rebuilds all states from the log when they are stored in the shape of another version. Invariant: the states
//! pass the audit before they are committed, and no append happens meanwhile, because the head is locked.

use std::collections::BTreeMap;

use tokio_postgres::error::SqlState;
use tokio_postgres::{GenericClient, Transaction};

use super::audit::{self, Report};
use super::connect::{self, Role, redacted};
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};

/// The only partition so far.
const PARTITION: i16 = Partition::new(0).number();

/// The version of the shape in which this program stores states. Increment it with every change after which a stored
/// state is read differently or not at all, or after which the same events fold to another state.
pub const VERSION: i64 = 2;

const STORED_SHAPE: &str = "SELECT shape FROM ledger.heads WHERE partition = $1";

/// The holder of this lock is the only writer; a gateway that waits too long for it gives up its append.
const LOCK_HEAD: &str = "SELECT position FROM ledger.heads WHERE partition = $1 FOR UPDATE";

/// A program of another shape, which may have decided on the old states, appends nothing from now on.
const SET_SHAPE: &str = "UPDATE ledger.heads SET shape = $2, epoch = epoch + 1 WHERE partition = $1";

const CLEAR: &str = "DELETE FROM ledger.state";

const PUT: &str = "\
INSERT INTO ledger.state (kind, id, body)
SELECT s.kind, s.id, s.body FROM unnest($1::text[], $2::text[], $3::text[]) AS s(kind, id, body)";

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
    let stored = match client.query_opt(STORED_SHAPE, &[&PARTITION]).await {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => return Ok(false),
        stored => stored?,
    };
    Ok(stored.map(|row| row.try_get::<_, i64>(0)).transpose()? == Some(VERSION))
}

/// Rebuilds all states in one transaction, unless they are in this program's shape. Returns the audit of the new
/// states, or `None` if nothing had to be done.
pub async fn refold(database_url: &str) -> Result<Option<Report>, Error> {
    let mut client = connect::connect(database_url, Role::Owner).await?;
    let transaction = client.transaction().await?;
    transaction.query_one(LOCK_HEAD, &[&PARTITION]).await?;
    if is_current(&transaction).await? {
        return Ok(None);
    }
    let mut report = Report::default();
    let folded = audit::read(&transaction, &mut report, audit::Progress::start(&transaction).await?).await?;
    refuse_broken(&report)?;
    transaction.execute(CLEAR, &[]).await?;
    put(&transaction, &folded).await?;
    transaction.execute(SET_SHAPE, &[&PARTITION, &VERSION]).await?;
    audit::conclude(&transaction, &mut report, &folded).await?;
    refuse_broken(&report)?;
    transaction.commit().await?;
    Ok(Some(report))
}

async fn put(
    transaction: &Transaction<'_>,
    folded: &BTreeMap<StateKey, State>,
) -> Result<(), tokio_postgres::Error> {
    let statement = transaction.prepare(PUT).await?;
    let rows: Vec<_> = folded.iter().collect();
    for part in rows.chunks(STATES_AT_ONCE) {
        let (mut kinds, mut ids, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (key, state) in part {
            let (kind, id) = key.stored();
            kinds.push(kind);
            ids.push(id);
            bodies.push(state.to_json());
        }
        transaction.execute(&statement, &[&kinds, &ids, &bodies]).await?;
    }
    Ok(())
}

fn refuse_broken(report: &Report) -> Result<(), Error> {
    match report.findings.first() {
        None => Ok(()),
        Some(first) => Err(Error::Broken { count: report.findings_count, first: first.clone() }),
    }
}
