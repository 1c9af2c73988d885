//! Writes the rows of entries and wallets. The wallets are read before they change: the money after an entry is that in its
//! wallet's row and the changes of the batch until it. The entries are copied: an insertion that joined each entry with its
//! wallet took twice the time.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use farthing_core::ids::WalletId;
use farthing_core::partition::Partition;
use futures_util::future::join;
use rust_decimal::Decimal;

use super::EntryBatch;
use super::fold::{Moved, NewEntry, NewWallet, Sum};
use crate::column::{Text, json, nonzero};
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT_WALLETS, insert_wallets<'a>,
    into wallets,
    for row in &'a NewWallet => {
        wallet_id: text = row.wallet_id.to_string(),
        merchant_id: text = row.merchant_id.to_string(),
        customer_id: text = row.customer_id.map(|id| id.to_string()),
        balance: numeric = Decimal::ZERO,
        plan_credit: numeric = Decimal::ZERO,
        bundle_credit: numeric = Decimal::ZERO,
        last_position: int8 = 0_i64,
    }
}

/// The money of the wallets $2 in the partitions $1, and when their last entry counts.
const FUNDS: &str = "\
SELECT w.partition, w.wallet_id, w.balance, w.plan_credit, w.bundle_credit, w.counted_at
FROM unnest($1::int2[], $2::text[]) AS moved(partition, wallet_id)
JOIN {schema}.wallets AS w ON w.partition = moved.partition AND w.wallet_id = moved.wallet_id COLLATE \"C\"";

/// The money of a wallet before a batch.
struct Before {
    sum: Sum,
    counted_at: Option<DateTime<Utc>>,
}

/// The wallets of some batches, by partition and id.
type Wallets = HashMap<(i16, WalletId), Before>;

/// Reads the wallets that the batches move.
async fn wallets_before(
    db: &Writer<'_>,
    batches: &[(Partition, EntryBatch)],
) -> Result<Wallets, tokio_postgres::Error> {
    let (mut partitions, mut ids) = (Vec::new(), Vec::new());
    for (partition, batch) in batches {
        partitions.extend(batch.moved.keys().map(|_| partition.number()));
        ids.extend(batch.moved.keys().map(WalletId::to_string));
    }
    if ids.is_empty() {
        return Ok(Wallets::new());
    }
    let mut wallets = Wallets::new();
    for row in db.query(FUNDS, &[&partitions, &ids]).await? {
        // All are ids that were asked for.
        let Ok(id) = row.try_get::<_, &str>(1)?.parse::<WalletId>() else { continue };
        let sum =
            Sum { balance: row.try_get(2)?, plan_credit: row.try_get(3)?, bundle_credit: row.try_get(4)? };
        wallets.insert((row.try_get(0)?, id), Before { sum, counted_at: row.try_get(5)? });
    }
    Ok(wallets)
}

/// An entry with the money after it.
struct Written<'a> {
    entry: &'a NewEntry,
    counted_at: DateTime<Utc>,
    after: Sum,
}

/// The entries of a batch of wallets that are known.
fn written<'a>(partition: Partition, batch: &'a EntryBatch, wallets: &Wallets) -> Vec<Written<'a>> {
    let entries = batch.entries.iter().filter_map(|entry| {
        let before = wallets.get(&(partition.number(), entry.wallet_id))?;
        let counted_at =
            before.counted_at.map_or(entry.moved.counted_at, |at| at.max(entry.moved.counted_at));
        Some(Written { entry, counted_at, after: before.sum.plus(entry.moved.sum) })
    });
    entries.collect()
}

copy_rows! {
    COPY_ENTRIES, copy_entries<'a>,
    into entries,
    for row in &'a Written<'a> => {
        wallet_id: text = Text(row.entry.wallet_id),
        position: int8 = row.entry.position,
        occurred_at: timestamptz = row.entry.occurred_at,
        counted_at: timestamptz = row.counted_at,
        cause: text = json(&row.entry.cause),
        balance_change: numeric = nonzero(row.entry.change.balance),
        plan_credit_change: numeric = nonzero(row.entry.change.plan_credit),
        bundle_credit_change: numeric = nonzero(row.entry.change.bundle_credit),
        balance: numeric = row.after.balance,
        plan_credit: numeric = nonzero(row.after.plan_credit),
        bundle_credit: numeric = nonzero(row.after.bundle_credit),
    }
}

unnest_rows! {
    UPDATE_WALLETS, update_wallets<'a>,
    ["UPDATE {schema}.wallets AS w \
      SET balance = w.balance + moved.balance, plan_credit = w.plan_credit + moved.plan_credit, \
          bundle_credit = w.bundle_credit + moved.bundle_credit, \
          counted_at = GREATEST(w.counted_at, moved.counted_at), last_position = moved.last_position \
      FROM " (rows as moved) " WHERE w.partition = moved.partition AND w.wallet_id = moved.wallet_id COLLATE \"C\""],
    for (id, moved) in (&'a WalletId, &'a Moved) => {
        wallet_id: text = id.to_string(),
        balance: numeric = moved.sum.balance,
        plan_credit: numeric = moved.sum.plan_credit,
        bundle_credit: numeric = moved.sum.bundle_credit,
        counted_at: timestamptz = moved.counted_at,
        last_position: int8 = moved.last_position,
    }
}

impl WriteRows for EntryBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert_wallets(db, batches, |batch| batch.wallets.iter()).await?;
        let wallets = wallets_before(db, batches).await?;
        let entries: Vec<_> = batches
            .iter()
            .map(|(partition, batch)| (*partition, written(*partition, batch, &wallets)))
            .collect();
        db.prepare([UPDATE_WALLETS, COPY_ENTRIES]).await?;
        let (moved, copied) = join(
            update_wallets(db, batches, |batch| batch.moved.iter()),
            copy_entries(db, &entries, |entries| entries.iter()),
        )
        .await;
        // After the first error the other one only says that the transaction is aborted.
        moved.and(copied)
    }
}
