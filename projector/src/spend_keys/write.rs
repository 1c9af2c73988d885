//! Writes the rows of spend keys and of their spending.

use chrono::{DateTime, Utc};
use farthing_core::event::Cycle;
use farthing_core::ids::SpendKeyId;
use farthing_core::partition::Partition;
use futures_util::future::join;

use super::SpendKeyBatch;
use super::fold::{NewSpendKey, RotatedSpendKey, Spending, UpdatedSpendKey};
use crate::column::variant_name;
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT, insert<'a>,
    into spend_keys,
    for row in &'a NewSpendKey => {
        spend_key_id: text = row.spend_key_id.to_string(),
        merchant_id: text = row.merchant_id.to_string(),
        wallet_id: text = row.wallet_id.to_string(),
        connection_id: text = row.connection_id.map(|id| id.to_string()),
        key_preview: text = row.key_preview,
        rotation: int4 = 0_i32,
        status: text = "active",
        settings: text = row.settings,
        spend_cycle: text = variant_name(row.spend_cycle),
        request_cycle: text = variant_name(row.request_cycle),
        created_at: timestamptz = row.created_at,
    }
}

unnest_rows! {
    ROTATE, rotate<'a>,
    ["UPDATE {schema}.spend_keys AS k SET key_preview = rotated.key_preview, rotation = rotated.rotation \
      FROM " (rows as rotated) " WHERE k.partition = rotated.partition AND k.spend_key_id = rotated.spend_key_id COLLATE \"C\""],
    for (id, key) in (&'a SpendKeyId, &'a RotatedSpendKey) => {
        spend_key_id: text = id.to_string(),
        key_preview: text = key.key_preview.as_str(),
        rotation: int4 = key.rotation,
    }
}

unnest_rows! {
    UPDATE, update<'a>,
    ["UPDATE {schema}.spend_keys AS k \
      SET status = updated.status, settings = updated.settings, spend_cycle = updated.spend_cycle, \
          request_cycle = updated.request_cycle \
      FROM " (rows as updated) " WHERE k.partition = updated.partition AND k.spend_key_id = updated.spend_key_id COLLATE \"C\""],
    for (id, key) in (&'a SpendKeyId, &'a UpdatedSpendKey) => {
        spend_key_id: text = id.to_string(),
        status: text = variant_name(key.status),
        settings: text = key.settings.as_str(),
        spend_cycle: text = variant_name(key.spend_cycle),
        request_cycle: text = variant_name(key.request_cycle),
    }
}

unnest_rows! {
    MARK_USED, mark_used<'a>,
    ["UPDATE {schema}.spend_keys AS k SET last_used_at = used.last_used_at \
      FROM " (rows as used) " WHERE k.partition = used.partition AND k.spend_key_id = used.spend_key_id COLLATE \"C\""],
    for (id, at) in (&'a SpendKeyId, &'a DateTime<Utc>) => {
        spend_key_id: text = id.to_string(),
        last_used_at: timestamptz = at,
    }
}

// A call that ends after its key was deleted is not counted.
unnest_rows! {
    ADD_SPENDING, add_spending<'a>,
    ["INSERT INTO {schema}.spending AS s (" (columns) ") SELECT " (columns) " FROM " (rows as more)
     " JOIN (SELECT partition AS of_partition, spend_key_id AS id FROM {schema}.spend_keys WHERE deleted_at IS NULL) AS k \
          ON k.of_partition = more.partition AND k.id = more.spend_key_id COLLATE \"C\" \
      ON CONFLICT (partition, spend_key_id, cycle, started_at) \
      DO UPDATE SET spent = s.spent + excluded.spent, requests = s.requests + excluded.requests"],
    for ((id, kind, start), sum) in (&'a (SpendKeyId, Cycle, DateTime<Utc>), &'a Spending) => {
        spend_key_id: text = id.to_string(),
        cycle: text = variant_name(*kind),
        started_at: timestamptz = start,
        spent: numeric = sum.spent,
        requests: int8 = sum.requests,
    }
}

unnest_rows! {
    DELETE_SPENDING, delete_spending<'a>,
    ["DELETE FROM {schema}.spending AS s USING " (rows as deleted)
     " WHERE s.partition = deleted.partition AND s.spend_key_id = deleted.spend_key_id COLLATE \"C\""],
    for id in &'a SpendKeyId => {
        spend_key_id: text = id.to_string(),
    }
}

unnest_rows! {
    DELETE, delete<'a>,
    ["UPDATE {schema}.spend_keys AS k SET deleted_at = deleted.deleted_at \
      FROM " (rows as deleted) " WHERE k.partition = deleted.partition AND k.spend_key_id = deleted.spend_key_id COLLATE \"C\""],
    for (id, at) in (&'a SpendKeyId, &'a DateTime<Utc>) => {
        spend_key_id: text = id.to_string(),
        deleted_at: timestamptz = at,
    }
}

impl WriteRows for SpendKeyBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert(db, batches, |batch| batch.new.iter()).await?;
        rotate(db, batches, |batch| batch.rotated.iter()).await?;
        update(db, batches, |batch| batch.updated.iter()).await?;
        db.prepare([MARK_USED, ADD_SPENDING]).await?;
        let (used, added) = join(
            mark_used(db, batches, |batch| batch.used.iter()),
            add_spending(db, batches, |batch| batch.spending.iter()),
        )
        .await;
        used.and(added)?;
        // Deletions are last, so that no other change of the batch restores the counters of a deleted key. The key's
        // row stays, marked as deleted.
        delete_spending(db, batches, |batch| batch.deleted.keys()).await?;
        delete(db, batches, |batch| batch.deleted.iter()).await
    }
}
