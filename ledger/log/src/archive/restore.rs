//! `farthing archive restore`: loads archived ranges back into the table, the newest first, so that what stays archived
//! still begins with the first event. The files are left where they are.

use std::collections::HashMap;

use farthing_core::partition::Partition;
use tokio_postgres::Client;

use super::Error;
use super::range::ArchivedRange;
use super::store::Store;
use crate::batch_pages::BatchRow;

/// Adds record batches of archive $2 of partition $1. Those that are there already stay as they are.
const INSERT: &str = "SELECT ledger.restore_archived($1, $2, $3, $4, $5, $6, $7, $8)";

/// The record batches of partition $1 that begin from $2 to $3.
const STORED: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position BETWEEN $2 AND $3 ORDER BY first_position";

/// From here on, the range counts as not archived.
const RECORD: &str = "INSERT INTO ledger.archive_restores (partition, number) VALUES ($1, $2)";

/// The ranges that were loaded back.
pub type Restored = Vec<ArchivedRange>;

/// Loads the archived ranges of `partition` back that have events at `from` or later. `report` is given each range when it is
/// back.
pub async fn restore(
    database_url: &str,
    store: &Store,
    partition: Partition,
    from: i64,
    mut report: impl FnMut(&ArchivedRange),
) -> Result<Restored, Error> {
    store.check()?;
    let lock = super::open(database_url).await?;
    let client = lock.client();
    let mut restored = Vec::new();
    for partition in super::chosen(client, Some(partition)).await? {
        let mut ranges = ArchivedRange::all(client, partition).await?;
        while let Some(range) = ranges.pop_if(|range| range.last_position >= from) {
            load(client, store, &range).await?;
            report(&range);
            restored.push(range);
        }
    }
    lock.release().await?;
    Ok(restored)
}

async fn load(client: &Client, store: &Store, range: &ArchivedRange) -> Result<(), Error> {
    let content = store.proven(range).await?;
    let number = range.partition.number();
    // In the order of the positions, so that what is missing of a range is always its end.
    for page in content.batches.chunks(usize::try_from(super::BATCHES_AT_ONCE).unwrap_or(1)) {
        let firsts: Vec<_> = page.iter().map(|batch| batch.first_position).collect();
        let counts: Vec<_> = page.iter().map(|batch| batch.count).collect();
        let times: Vec<_> = page.iter().map(|batch| batch.recorded_at).collect();
        let writers: Vec<_> = page.iter().map(|batch| batch.writer.as_str()).collect();
        let events: Vec<_> = page.iter().map(|batch| batch.events.as_slice()).collect();
        let hashes: Vec<_> = page.iter().map(|batch| batch.hashes.as_slice()).collect();
        client
            .execute(INSERT, &[&number, &range.number, &firsts, &counts, &times, &writers, &events, &hashes])
            .await?;
        let ends = page.first().zip(page.last());
        let (first, last) = ends.map_or((0, 0), |(first, last)| (first.first_position, last.last_position()));
        let stored = stored(client, range, first, last).await?;
        if stored != page {
            let partition = range.partition;
            let position = first_difference(&stored, page).unwrap_or(first);
            return Err(Error::OtherEvents { partition, position, object: range.object.clone() });
        }
    }
    client.execute(RECORD, &[&number, &range.number]).await?;
    Ok(())
}

/// The first position of a record batch that only one of two runs of them has.
fn first_difference(stored: &[BatchRow], of_file: &[BatchRow]) -> Option<i64> {
    let equal = stored.iter().zip(of_file).take_while(|(stored, of_file)| stored == of_file).count();
    let next = [stored.get(equal), of_file.get(equal)].into_iter().flatten();
    next.map(|batch| batch.first_position).min()
}

/// The first position of a record batch of the table within `range` that is not one of `batches`, those of its file.
pub(super) async fn other(
    client: &Client,
    range: &ArchivedRange,
    batches: &[BatchRow],
) -> Result<Option<i64>, tokio_postgres::Error> {
    if !range.is_in_table(client).await? {
        return Ok(None);
    }
    let stored = stored(client, range, range.first_position, range.last_position).await?;
    let of_file: HashMap<_, _> = batches.iter().map(|batch| (batch.first_position, batch)).collect();
    let other = stored.iter().find(|batch| of_file.get(&batch.first_position) != Some(batch));
    Ok(other.map(|batch| batch.first_position))
}

/// The record batches of the table that begin from position `first` to `last` of the partition of `range`.
async fn stored(
    client: &Client,
    range: &ArchivedRange,
    first: i64,
    last: i64,
) -> Result<Vec<BatchRow>, tokio_postgres::Error> {
    let rows = client.query(STORED, &[&range.partition.number(), &first, &last]).await?;
    rows.iter().map(BatchRow::of).collect()
}
