//! Writes the rows.

use super::Batch;
use crate::column::Numeric;
use crate::writer::Writer;

pub(crate) const INSERT_CONNECTIONS: &str = "INSERT INTO {schema}.connections (connection_id, merchant_id, wallet_id, reference_id, created_at) \
     SELECT connection_id, merchant_id, wallet_id, reference_id, created_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[]) \
         AS new(connection_id, merchant_id, wallet_id, reference_id, created_at)";

pub(crate) const INSERT_WALLETS: &str = "INSERT INTO {schema}.wallets (wallet_id, merchant_id, connection_id, balance) \
     SELECT wallet_id, merchant_id, connection_id, 0 \
     FROM unnest($1::text[], $2::text[], $3::text[]) AS new(wallet_id, merchant_id, connection_id)";

pub(crate) const UPDATE_BALANCES: &str = "UPDATE {schema}.wallets AS w SET balance = moved.balance \
     FROM unnest($1::text[], $2::numeric[]) AS moved(wallet_id, balance) \
     WHERE w.wallet_id = moved.wallet_id COLLATE \"C\"";

impl Batch {
    pub(super) async fn insert_connections(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        let new = &self.connections;
        if !new.connection_id.is_empty() {
            db.execute(
                INSERT_CONNECTIONS,
                &[&new.connection_id, &new.merchant_id, &new.wallet_id, &new.reference_id, &new.created_at],
            )
            .await?;
        }
        Ok(())
    }

    pub(super) async fn insert_wallets(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        let new = &self.wallets;
        if !new.ids.is_empty() {
            db.execute(INSERT_WALLETS, &[&new.ids, &new.merchants, &new.connections]).await?;
        }
        Ok(())
    }

    pub(super) async fn update_balances(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.balances.is_empty() {
            let wallets: Vec<String> = self.balances.keys().map(ToString::to_string).collect();
            let balances: Vec<Numeric> = self.balances.values().copied().map(Numeric::from).collect();
            db.execute(UPDATE_BALANCES, &[&wallets, &balances]).await?;
        }
        Ok(())
    }
}
