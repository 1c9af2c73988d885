//! The statement that appends a batch: a call of `ledger.append_batch`. Alone it is a transaction of its own, in one round trip.

use std::collections::HashSet;

use serde::Serialize;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use super::batch::{AppendBatch, Entries};
use super::store::{Head, StoreResult};
use farthing_core::command::PersonalChange;
use farthing_core::event::ContactPart;
use farthing_core::ids::CustomerId;
use farthing_core::partition::Partition;
use farthing_core::state::shape;

/// Appends a decided batch if the head is still at the position it was decided at.
pub(super) const APPEND: &str = "\
SELECT ledger.append_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14::text::json, $15::text::json, $16)";

/// Appends batches of several partitions that consist of events alone, each if its head is still at the position it was
/// decided at. Returns the partitions of those that were appended. It does for each what `ledger.append` does for a batch without
/// anything else, in one statement without a function: with many partitions, batches are small and functions dear.
///
/// It can be a transaction of its own: each wait for a head, in which it keeps the others locked, is no longer than half a second.
/// That is set before the first head is locked, since the rows of FROM are complete by then.
pub(super) const APPEND_EVENTS: &str = "\
WITH moved AS (
    UPDATE ledger.heads AS h SET position = b.position + b.count, hash = b.last_hash
    FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::integer[], $5::bytea[], $6::timestamptz[], $7::text[],
        $8::bytea[], $9::bytea[])
        AS b(partition, position, epoch, count, last_hash, recorded_at, writer, lines, chain),
        set_config('lock_timeout', '500ms', true)
    WHERE h.partition = b.partition AND h.position = b.position AND h.epoch = b.epoch AND h.shape = $10
    RETURNING b.partition, b.position, b.count, b.recorded_at, b.writer, b.lines, b.chain
)
INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
SELECT m.partition, m.position + 1, m.count, m.recorded_at, m.writer, m.lines, m.chain FROM moved AS m
RETURNING partition";

/// Executes [`APPEND_EVENTS`], which is `statement`, for these batches. Returns whether each was appended, in their order.
pub(super) async fn append_events(
    client: &Client,
    statement: &Statement,
    batches: &[(Partition, Head, &AppendBatch)],
) -> Result<Vec<bool>, Error> {
    let of_head =
        |value: fn(&Head) -> i64| batches.iter().map(|(_, head, _)| value(head)).collect::<Vec<_>>();
    let partitions: Vec<i16> = batches.iter().map(|(partition, ..)| partition.number()).collect();
    let (positions, epochs) = (of_head(|head| head.position), of_head(|head| head.epoch));
    let counts: Vec<i32> = batches.iter().map(|(.., batch)| batch.count).collect();
    let last_hashes: Vec<&[u8]> = batches.iter().map(|(.., batch)| batch.last_hash.as_slice()).collect();
    let times: Vec<_> = batches.iter().map(|(.., batch)| batch.recorded_at).collect();
    let writers: Vec<&str> = batches.iter().map(|(.., batch)| batch.writer.as_str()).collect();
    let lines: Vec<&[u8]> = batches.iter().map(|(.., batch)| batch.events.as_bytes()).collect();
    let chains: Vec<&[u8]> = batches.iter().map(|(.., batch)| batch.hashes.as_slice()).collect();
    let shape = i64::from(shape());
    let parameters: [&(dyn ToSql + Sync); 10] =
        [&partitions, &positions, &epochs, &counts, &last_hashes, &times, &writers, &lines, &chains, &shape];
    let rows = client.query(statement, &parameters).await?;
    let appended = rows.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<i16>, _>>()?;
    Ok(partitions.iter().map(|partition| appended.contains(partition)).collect())
}

/// The entries of a batch whose entries are in the directory already.
static NO_ENTRIES: Entries = (Vec::new(), Vec::new());

/// Executes `statement`, which is [`APPEND`]. Returns whether the batch was appended.
pub(super) async fn execute(
    client: &Client,
    statement: &Statement,
    partition: Partition,
    expected: Head,
    batch: &AppendBatch,
) -> StoreResult<bool> {
    Ok(try_execute(client, statement, partition, expected, batch).await?)
}

/// As [`execute`], with the error of Postgres.
pub(super) async fn try_execute(
    client: &Client,
    statement: &Statement,
    partition: Partition,
    expected: Head,
    batch: &AppendBatch,
) -> Result<bool, Error> {
    execute_with(client, statement, partition, expected, batch, &batch.directory).await
}

/// As [`execute`], but `add`, which is [`crate::directory::ADD`], writes the entries of the directory first, in a
/// transaction of its own: the append is one of a single node.
pub(super) async fn execute_after_entries(
    client: &Client,
    (add, statement): (&Statement, &Statement),
    partition: Partition,
    expected: Head,
    batch: &AppendBatch,
) -> StoreResult<bool> {
    let (kinds, ids) = &batch.directory;
    if !ids.is_empty() {
        client.execute(add, &[&partition.number(), kinds, ids]).await?;
    }
    Ok(execute_with(client, statement, partition, expected, batch, &NO_ENTRIES).await?)
}

async fn execute_with(
    client: &Client,
    statement: &Statement,
    partition: Partition,
    expected: Head,
    batch: &AppendBatch,
    (directory_kinds, directory_ids): &Entries,
) -> Result<bool, Error> {
    let (fact_keys, fact_positions) = &batch.indexed;
    let (personal, (claims, answers)) = (personal_changes(&batch.personal), batch.claims.changes.to_json());
    let parameters: [&(dyn ToSql + Sync); 16] = [
        &partition.number(),
        &expected.position,
        &expected.epoch,
        &i64::from(shape()),
        &batch.count,
        &batch.recorded_at,
        &batch.writer,
        &batch.events.as_bytes(),
        &batch.hashes,
        fact_keys,
        fact_positions,
        directory_kinds,
        directory_ids,
        &personal,
        &claims,
        &answers,
    ];
    client.query_one(statement, &parameters).await?.try_get(0)
}

/// A change of personal data, as `ledger.append_batch` takes it.
#[derive(Debug, Serialize)]
struct PersonalChangeRow<'a> {
    customer_id: CustomerId,
    erase: bool,
    /// The parts that are written; null clears one.
    parts: &'a [ContactPart],
    first_name: Option<&'a str>,
    last_name: Option<&'a str>,
    email: Option<&'a str>,
    phone: Option<&'a str>,
}

/// The changes as JSON; `None` if there are none.
fn personal_changes(changes: &[(CustomerId, PersonalChange)]) -> Option<String> {
    if changes.is_empty() {
        return None;
    }
    let rows: Vec<_> = changes.iter().map(|(id, change)| PersonalChangeRow::new(*id, change)).collect();
    Some(serde_json::to_string(&rows).expect("texts and flags are written as JSON"))
}

impl<'a> PersonalChangeRow<'a> {
    fn new(customer_id: CustomerId, change: &'a PersonalChange) -> Self {
        let (erase, parts, data) = match change {
            PersonalChange::Write { parts, data } => (false, parts.as_slice(), Some(data)),
            PersonalChange::Erase => (true, [].as_slice(), None),
        };
        Self {
            customer_id,
            erase,
            parts,
            first_name: data.and_then(|data| data.first_name.as_deref()),
            last_name: data.and_then(|data| data.last_name.as_deref()),
            email: data.and_then(|data| data.email.as_deref()),
            phone: data.and_then(|data| data.phone.as_deref()),
        }
    }
}
