//! Writes the rows of meters.

use chrono::{DateTime, Utc};
use farthing_core::ids::MeterId;
use farthing_core::partition::Partition;

use super::MeterBatch;
use super::fold::{MeterUpdate, NewMeter};
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT, insert<'a>,
    into meters,
    for (id, row) in (&'a MeterId, &'a NewMeter) => {
        meter_id: text = id.to_string(),
        merchant_id: text = row.merchant_id,
        meter_slug: text = row.meter_slug,
        name: text = row.current.name,
        price: text = row.current.price,
        created_at: timestamptz = row.created_at,
        deleted_at: timestamptz = row.deleted_at,
    }
}

unnest_rows! {
    UPDATE, update<'a>,
    ["UPDATE {schema}.meters AS m SET name = updated.name, price = updated.price \
      FROM " (rows as updated) " WHERE m.partition = updated.partition AND m.meter_id = updated.meter_id COLLATE \"C\""],
    for (id, update) in (&'a MeterId, &'a MeterUpdate) => {
        meter_id: text = id.to_string(),
        name: text = update.name.as_str(),
        price: text = update.price.as_str(),
    }
}

unnest_rows! {
    DELETE, delete<'a>,
    ["UPDATE {schema}.meters AS m SET deleted_at = deleted.deleted_at \
      FROM " (rows as deleted) " WHERE m.partition = deleted.partition AND m.meter_id = deleted.meter_id COLLATE \"C\""],
    for (id, at) in (&'a MeterId, &'a DateTime<Utc>) => {
        meter_id: text = id.to_string(),
        deleted_at: timestamptz = at,
    }
}

impl WriteRows for MeterBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert(db, batches, |batch| batch.new.iter()).await?;
        update(db, batches, |batch| batch.updated.iter()).await?;
        delete(db, batches, |batch| batch.deleted.iter()).await
    }
}
