//! Writes the rows.

use tokio_postgres::types::ToSql;

use super::Batch;
use super::fold::Current;
use crate::column::Numeric;
use crate::writer::Writer;

pub(crate) const INSERT_CONNECTIONS: &str = "INSERT INTO {schema}.connections \
         (connection_id, merchant_id, wallet_id, reference_id, created_at, deleted_at) \
     SELECT connection_id, merchant_id, wallet_id, reference_id, created_at, deleted_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[]) \
         AS new(connection_id, merchant_id, wallet_id, reference_id, created_at, deleted_at)";

pub(crate) const UPDATE_CONNECTIONS: &str = "UPDATE {schema}.connections AS c \
     SET reference_id = changed.reference_id, deleted_at = changed.deleted_at \
     FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS changed(connection_id, reference_id, deleted_at) \
     WHERE c.connection_id = changed.connection_id COLLATE \"C\"";

pub(crate) const INSERT_WALLETS: &str = "INSERT INTO {schema}.wallets (wallet_id, merchant_id, connection_id, balance, credit, autopay) \
     SELECT wallet_id, merchant_id, connection_id, 0, 0, false \
     FROM unnest($1::text[], $2::text[], $3::text[]) AS new(wallet_id, merchant_id, connection_id)";

pub(crate) const UPDATE_WALLETS: &str = "UPDATE {schema}.wallets AS w \
     SET balance = COALESCE(moved.balance, w.balance), credit = w.credit + moved.credit, \
         cycle_start = CASE WHEN moved.cycled THEN moved.cycle_start ELSE w.cycle_start END, \
         cycle_end = CASE WHEN moved.cycled THEN moved.cycle_end ELSE w.cycle_end END, \
         autopay = COALESCE(moved.autopay, w.autopay) \
     FROM unnest($1::text[], $2::numeric[], $3::numeric[], $4::boolean[], $5::timestamptz[], $6::timestamptz[], \
                 $7::boolean[]) \
         AS moved(wallet_id, balance, credit, cycled, cycle_start, cycle_end, autopay) \
     WHERE w.wallet_id = moved.wallet_id COLLATE \"C\"";

impl Batch {
    pub(super) async fn insert_connections(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.new.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.new.keys().map(ToString::to_string).collect();
        let rows = || self.new.values();
        let merchants: Vec<&str> = rows().map(|row| row.merchant_id.as_str()).collect();
        let wallets: Vec<&str> = rows().map(|row| row.wallet_id.as_str()).collect();
        let references: Vec<_> = rows().map(|row| row.present.reference_id.as_deref()).collect();
        let created: Vec<_> = rows().map(|row| row.created_at).collect();
        let deleted: Vec<_> = rows().map(|row| row.present.deleted_at).collect();
        let columns: [&(dyn ToSql + Sync); 6] = [&ids, &merchants, &wallets, &references, &created, &deleted];
        db.execute(INSERT_CONNECTIONS, &columns).await?;
        Ok(())
    }

    pub(super) async fn update_connections(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.changed.keys().map(ToString::to_string).collect();
        let references: Vec<_> = self.changed.values().map(|row| row.reference_id.as_deref()).collect();
        let deleted: Vec<_> = self.changed.values().map(|row| row.deleted_at).collect();
        db.execute(UPDATE_CONNECTIONS, &[&ids, &references, &deleted]).await?;
        Ok(())
    }

    pub(super) async fn insert_wallets(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        let new = &self.wallets;
        if !new.ids.is_empty() {
            db.execute(INSERT_WALLETS, &[&new.ids, &new.merchants, &new.connections]).await?;
        }
        Ok(())
    }

    pub(super) async fn update_wallets(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.moved.is_empty() {
            return Ok(());
        }
        let wallets: Vec<String> = self.moved.keys().map(ToString::to_string).collect();
        let moved = || self.moved.values();
        let balances: Vec<Option<Numeric>> = moved().map(|moved| moved.balance.map(Numeric::from)).collect();
        let credits: Vec<Numeric> = moved().map(|moved| Numeric(moved.credit)).collect();
        let cycled: Vec<bool> = moved().map(|moved| moved.cycle.is_some()).collect();
        let periods = || moved().map(|moved| moved.cycle.and_then(|Current(cycle)| cycle));
        let starts: Vec<_> = periods().map(|cycle| cycle.map(|cycle| cycle.start)).collect();
        let ends: Vec<_> = periods().map(|cycle| cycle.map(|cycle| cycle.end)).collect();
        let autopay: Vec<_> = moved().map(|moved| moved.autopay).collect();
        let columns: [&(dyn ToSql + Sync); 7] =
            [&wallets, &balances, &credits, &cycled, &starts, &ends, &autopay];
        db.execute(UPDATE_WALLETS, &columns).await?;
        Ok(())
    }
}
