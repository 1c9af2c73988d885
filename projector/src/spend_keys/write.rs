//! Writes the rows.

use chrono::{DateTime, Utc};
use farthing_core::ids::SpendKeyId;

use super::Batch;
use crate::column::{Numeric, word};
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.spend_keys \
         (spend_key_id, merchant_id, wallet_id, connection_id, key_preview, rotation, status, settings, \
          spend_cycle, request_cycle, created_at) \
     SELECT spend_key_id, merchant_id, wallet_id, connection_id, key_preview, 0, 'active', settings, \
            spend_cycle, request_cycle, created_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
                 $9::timestamptz[]) \
         AS new(spend_key_id, merchant_id, wallet_id, connection_id, key_preview, settings, spend_cycle, \
                request_cycle, created_at)";

pub(crate) const ROTATE: &str = "UPDATE {schema}.spend_keys AS k SET key_preview = rotated.key_preview, rotation = rotated.rotation \
     FROM unnest($1::text[], $2::text[], $3::integer[]) AS rotated(spend_key_id, key_preview, rotation) \
     WHERE k.spend_key_id = rotated.spend_key_id COLLATE \"C\"";

pub(crate) const UPDATE: &str = "UPDATE {schema}.spend_keys AS k \
     SET status = updated.status, settings = updated.settings, spend_cycle = updated.spend_cycle, \
         request_cycle = updated.request_cycle \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) \
         AS updated(spend_key_id, status, settings, spend_cycle, request_cycle) \
     WHERE k.spend_key_id = updated.spend_key_id COLLATE \"C\"";

pub(crate) const USED: &str = "UPDATE {schema}.spend_keys AS k SET last_used_at = used.last_used_at \
     FROM unnest($1::text[], $2::timestamptz[]) AS used(spend_key_id, last_used_at) \
     WHERE k.spend_key_id = used.spend_key_id COLLATE \"C\"";

/// A call that ends after its key was deleted counts nowhere any more.
pub(crate) const ADD_SPENDING: &str = "INSERT INTO {schema}.spending AS s (spend_key_id, cycle, started_at, spent, requests) \
     SELECT more.spend_key_id, more.cycle, more.started_at, more.spent, more.requests \
     FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::numeric[], $5::bigint[]) \
         AS more(spend_key_id, cycle, started_at, spent, requests) \
     WHERE EXISTS (SELECT FROM {schema}.spend_keys AS k WHERE k.spend_key_id = more.spend_key_id COLLATE \"C\" \
                   AND k.deleted_at IS NULL) \
     ON CONFLICT (spend_key_id, cycle, started_at) \
     DO UPDATE SET spent = s.spent + excluded.spent, requests = s.requests + excluded.requests";

pub(crate) const DELETE_SPENDING: &str =
    "DELETE FROM {schema}.spending WHERE spend_key_id = ANY ($1::text[] COLLATE \"C\")";

pub(crate) const DELETE: &str = "UPDATE {schema}.spend_keys AS k SET deleted_at = deleted.at \
     FROM unnest($1::text[], $2::timestamptz[]) AS deleted(spend_key_id, at) \
     WHERE k.spend_key_id = deleted.spend_key_id COLLATE \"C\"";

fn texts<'a>(ids: impl IntoIterator<Item = &'a SpendKeyId>) -> Vec<String> {
    ids.into_iter().map(ToString::to_string).collect()
}

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        let new = &self.fresh;
        if !new.spend_key_id.is_empty() {
            db.execute(
                INSERT,
                &[
                    &new.spend_key_id,
                    &new.merchant_id,
                    &new.wallet_id,
                    &new.connection_id,
                    &new.key_preview,
                    &new.settings,
                    &new.spend_cycle,
                    &new.request_cycle,
                    &new.created_at,
                ],
            )
            .await?;
        }
        Ok(())
    }

    pub(super) async fn rotate(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.rotated.is_empty() {
            let ids = texts(self.rotated.keys());
            let previews: Vec<&str> = self.rotated.values().map(|key| key.key_preview.as_str()).collect();
            let rotations: Vec<i32> = self.rotated.values().map(|key| key.rotation).collect();
            db.execute(ROTATE, &[&ids, &previews, &rotations]).await?;
        }
        Ok(())
    }

    pub(super) async fn update(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.updated.is_empty() {
            let ids = texts(self.updated.keys());
            let statuses: Vec<String> = self.updated.values().map(|key| word(key.status)).collect();
            let settings: Vec<&str> = self.updated.values().map(|key| key.settings.as_str()).collect();
            let spend_cycles: Vec<String> = self.updated.values().map(|key| word(key.spend_cycle)).collect();
            let request_cycles: Vec<String> =
                self.updated.values().map(|key| word(key.request_cycle)).collect();
            db.execute(UPDATE, &[&ids, &statuses, &settings, &spend_cycles, &request_cycles]).await?;
        }
        Ok(())
    }

    pub(super) async fn mark_used(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.used.is_empty() {
            let ids = texts(self.used.keys());
            let instants: Vec<DateTime<Utc>> = self.used.values().copied().collect();
            db.execute(USED, &[&ids, &instants]).await?;
        }
        Ok(())
    }

    pub(super) async fn add_spending(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.spending.is_empty() {
            let ids = texts(self.spending.keys().map(|(id, _, _)| id));
            let cycles: Vec<String> = self.spending.keys().map(|(_, cycle, _)| word(*cycle)).collect();
            let starts: Vec<DateTime<Utc>> = self.spending.keys().map(|(_, _, start)| *start).collect();
            let spent: Vec<Numeric> = self.spending.values().map(|more| Numeric(more.spent)).collect();
            let requests: Vec<i64> = self.spending.values().map(|more| more.requests).collect();
            db.execute(ADD_SPENDING, &[&ids, &cycles, &starts, &spent, &requests]).await?;
        }
        Ok(())
    }

    pub(super) async fn delete(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.deleted.is_empty() {
            let ids = texts(self.deleted.keys());
            let instants: Vec<DateTime<Utc>> = self.deleted.values().copied().collect();
            db.execute(DELETE_SPENDING, &[&ids]).await?;
            db.execute(DELETE, &[&ids, &instants]).await?;
        }
        Ok(())
    }
}
