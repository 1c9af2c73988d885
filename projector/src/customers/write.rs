//! Writes the rows of customers.

use farthing_core::ids::CustomerId;
use farthing_core::partition::Partition;

use super::CustomerBatch;
use super::fold::{CustomerChange, NewCustomer};
use crate::column::NewValue;
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT, insert<'a>,
    into customers,
    for (id, row) in (&'a CustomerId, &'a NewCustomer) => {
        customer_id: text = id.to_string(),
        merchant_id: text = row.merchant_id,
        wallet_id: text = row.wallet_id,
        reference_id: text = row.reference_id,
        metadata: text = row.metadata,
        created_at: timestamptz = row.created_at,
        deleted_at: timestamptz = row.deleted_at,
        subscription: text = row.subscription,
    }
}

unnest_rows! {
    UPDATE, update<'a>,
    ["UPDATE {schema}.customers AS c \
      SET reference_id = CASE WHEN changed.renamed THEN changed.reference_id ELSE c.reference_id END, \
          metadata = COALESCE(changed.metadata, c.metadata), \
          deleted_at = COALESCE(changed.deleted_at, c.deleted_at), \
          subscription = CASE WHEN changed.subscribed THEN changed.subscription ELSE c.subscription END \
      FROM " (rows as changed) " WHERE c.partition = changed.partition AND c.customer_id = changed.customer_id COLLATE \"C\""],
    for (id, change) in (&'a CustomerId, &'a CustomerChange) => {
        customer_id: text = id.to_string(),
        renamed: bool = change.reference_id.is_some(),
        reference_id: text = NewValue::text(change.reference_id.as_ref()),
        metadata: text = change.metadata.as_deref(),
        deleted_at: timestamptz = change.deleted_at,
        subscribed: bool = change.subscription.is_some(),
        subscription: text = NewValue::text(change.subscription.as_ref()),
    }
}

impl WriteRows for CustomerBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert(db, batches, |batch| batch.new.iter()).await?;
        update(db, batches, |batch| batch.changed.iter()).await
    }
}
