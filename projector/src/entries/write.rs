//! Writes the rows of entries and wallets. An entry is written before its wallet's row changes: the money after it is that
//! row and the changes of the batch until it.

use farthing_core::ids::WalletId;
use farthing_core::partition::Partition;
use rust_decimal::Decimal;

use super::EntryBatch;
use super::fold::{Moved, NewEntry, NewWallet};
use crate::column::json;
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

unnest_rows! {
    INSERT_ENTRIES, insert_entries<'a>,
    ["INSERT INTO {schema}.entries (" (columns) ") \
      SELECT new.partition, new.wallet_id, new.position, new.occurred_at, \
          GREATEST(new.counted_at, w.counted_at), new.cause, \
          new.balance_change, new.plan_credit_change, new.bundle_credit_change, \
          w.balance + new.balance, w.plan_credit + new.plan_credit, w.bundle_credit + new.bundle_credit \
      FROM " (rows as new) " \
      JOIN {schema}.wallets AS w ON w.partition = new.partition AND w.wallet_id = new.wallet_id COLLATE \"C\""],
    for row in &'a NewEntry => {
        wallet_id: text = row.wallet_id.to_string(),
        position: int8 = row.position,
        occurred_at: timestamptz = row.occurred_at,
        counted_at: timestamptz = row.moved.counted_at,
        cause: text = json(&row.cause),
        balance_change: numeric = row.change.balance,
        plan_credit_change: numeric = row.change.plan_credit,
        bundle_credit_change: numeric = row.change.bundle_credit,
        balance: numeric = row.moved.sum.balance,
        plan_credit: numeric = row.moved.sum.plan_credit,
        bundle_credit: numeric = row.moved.sum.bundle_credit,
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
    async fn write_rows(
        batches: &[(Partition, Self)],
        db: &mut Writer<'_>,
    ) -> Result<(), tokio_postgres::Error> {
        insert_wallets(db, batches, |batch| batch.wallets.iter()).await?;
        insert_entries(db, batches, |batch| batch.entries.iter()).await?;
        update_wallets(db, batches, |batch| batch.moved.iter()).await
    }
}
