//! Writes the rows of connections and wallets.

use farthing_core::ids::{CustomerId, WalletId};
use farthing_core::money::Amount;
use farthing_core::partition::Partition;
use rust_decimal::Decimal;

use super::ConnectionBatch;
use super::fold::{ConnectionChange, NewConnection, NewWallet, WalletChange};
use crate::column::NewValue;
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT_CONNECTIONS, insert_connections<'a>,
    into connections,
    for (id, row) in (&'a CustomerId, &'a NewConnection) => {
        connection_id: text = id.to_string(),
        merchant_id: text = row.merchant_id,
        wallet_id: text = row.wallet_id,
        reference_id: text = row.current.reference_id,
        created_at: timestamptz = row.created_at,
        deleted_at: timestamptz = row.current.deleted_at,
    }
}

unnest_rows! {
    UPDATE_CONNECTIONS, update_connections<'a>,
    ["UPDATE {schema}.connections AS c \
      SET reference_id = changed.reference_id, deleted_at = changed.deleted_at \
      FROM " (rows as changed) " WHERE c.partition = changed.partition AND c.connection_id = changed.connection_id COLLATE \"C\""],
    for (id, change) in (&'a CustomerId, &'a ConnectionChange) => {
        connection_id: text = id.to_string(),
        reference_id: text = change.reference_id.as_deref(),
        deleted_at: timestamptz = change.deleted_at,
    }
}

copy_rows! {
    INSERT_WALLETS, insert_wallets<'a>,
    into wallets,
    for row in &'a NewWallet => {
        wallet_id: text = row.wallet_id.to_string(),
        merchant_id: text = row.merchant_id,
        connection_id: text = row.connection_id,
        balance: numeric = Decimal::ZERO,
        credit: numeric = Decimal::ZERO,
        autopay: bool = false,
    }
}

unnest_rows! {
    UPDATE_WALLETS, update_wallets<'a>,
    ["UPDATE {schema}.wallets AS w \
      SET balance = COALESCE(moved.balance, w.balance), credit = w.credit + moved.credit, \
          cycle_start = CASE WHEN moved.cycled THEN moved.cycle_start ELSE w.cycle_start END, \
          cycle_end = CASE WHEN moved.cycled THEN moved.cycle_end ELSE w.cycle_end END, \
          autopay = COALESCE(moved.autopay, w.autopay) \
      FROM " (rows as moved) " WHERE w.partition = moved.partition AND w.wallet_id = moved.wallet_id COLLATE \"C\""],
    for (id, change) in (&'a WalletId, &'a WalletChange) => {
        wallet_id: text = id.to_string(),
        balance: numeric = change.balance.map(Amount::decimal),
        credit: numeric = change.credit,
        cycled: bool = change.cycle.is_some(),
        cycle_start: timestamptz = change.cycle.and_then(|NewValue(cycle)| Some(cycle?.start)),
        cycle_end: timestamptz = change.cycle.and_then(|NewValue(cycle)| Some(cycle?.end)),
        autopay: bool = change.autopay,
    }
}

impl WriteRows for ConnectionBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert_connections(db, batches, |batch| batch.new.iter()).await?;
        update_connections(db, batches, |batch| batch.changed.iter()).await?;
        insert_wallets(db, batches, |batch| batch.wallets.iter()).await?;
        update_wallets(db, batches, |batch| batch.moved.iter()).await
    }
}
