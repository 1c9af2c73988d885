//! Writes the rows.

use tokio_postgres::types::ToSql;

use super::Batch;
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.meters \
         (meter_id, merchant_id, meter_slug, name, price, created_at, deleted_at) \
     SELECT meter_id, merchant_id, meter_slug, name, price, created_at, deleted_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[]) \
         AS new(meter_id, merchant_id, meter_slug, name, price, created_at, deleted_at)";

pub(crate) const UPDATE: &str = "UPDATE {schema}.meters AS m SET name = updated.name, price = updated.price \
     FROM unnest($1::text[], $2::text[], $3::text[]) AS updated(meter_id, name, price) \
     WHERE m.meter_id = updated.meter_id COLLATE \"C\"";

pub(crate) const DELETE: &str = "UPDATE {schema}.meters AS m SET deleted_at = deleted.at \
     FROM unnest($1::text[], $2::timestamptz[]) AS deleted(meter_id, at) \
     WHERE m.meter_id = deleted.meter_id COLLATE \"C\"";

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.new.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.new.keys().map(ToString::to_string).collect();
        let rows = || self.new.values();
        let merchants: Vec<&str> = rows().map(|row| row.merchant_id.as_str()).collect();
        let slugs: Vec<&str> = rows().map(|row| row.meter_slug.as_str()).collect();
        let names: Vec<&str> = rows().map(|row| row.shown.name.as_str()).collect();
        let prices: Vec<&str> = rows().map(|row| row.shown.price.as_str()).collect();
        let created: Vec<_> = rows().map(|row| row.created_at).collect();
        let deleted: Vec<_> = rows().map(|row| row.deleted_at).collect();
        let columns: [&(dyn ToSql + Sync); 7] =
            [&ids, &merchants, &slugs, &names, &prices, &created, &deleted];
        db.execute(INSERT, &columns).await?;
        Ok(())
    }

    pub(super) async fn update(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.updated.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.updated.keys().map(ToString::to_string).collect();
        let names: Vec<&str> = self.updated.values().map(|shown| shown.name.as_str()).collect();
        let prices: Vec<&str> = self.updated.values().map(|shown| shown.price.as_str()).collect();
        db.execute(UPDATE, &[&ids, &names, &prices]).await?;
        Ok(())
    }

    pub(super) async fn delete(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.deleted.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.deleted.keys().map(ToString::to_string).collect();
        let instants: Vec<_> = self.deleted.values().copied().collect();
        db.execute(DELETE, &[&ids, &instants]).await?;
        Ok(())
    }
}
