//! Writes the rows.

use std::collections::BTreeMap;

use tokio_postgres::types::ToSql;

use super::Batch;
use super::fold::{Change, New};
use crate::writer::Writer;

pub(crate) const INSERT_PLANS: &str = "INSERT INTO {schema}.plans (plan_id, merchant_id, terms, created_at, deleted_at) \
     SELECT plan_id, merchant_id, terms, created_at, deleted_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[]) \
         AS new(plan_id, merchant_id, terms, created_at, deleted_at)";

pub(crate) const UPDATE_PLANS: &str = "UPDATE {schema}.plans AS p \
     SET terms = COALESCE(changed.terms, p.terms), deleted_at = COALESCE(changed.deleted_at, p.deleted_at) \
     FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS changed(plan_id, terms, deleted_at) \
     WHERE p.plan_id = changed.plan_id COLLATE \"C\"";

pub(crate) const INSERT_BUNDLES: &str = "INSERT INTO {schema}.credit_bundles \
         (credit_bundle_id, merchant_id, offer, created_at, deleted_at, plan_id) \
     SELECT credit_bundle_id, merchant_id, offer, created_at, deleted_at, plan_id \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[]) \
         AS new(credit_bundle_id, merchant_id, offer, created_at, deleted_at, plan_id)";

pub(crate) const UPDATE_BUNDLES: &str = "UPDATE {schema}.credit_bundles AS b \
     SET offer = COALESCE(changed.offer, b.offer), deleted_at = COALESCE(changed.deleted_at, b.deleted_at) \
     FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS changed(credit_bundle_id, offer, deleted_at) \
     WHERE b.credit_bundle_id = changed.credit_bundle_id COLLATE \"C\"";

pub(crate) const INSERT_SLUGS: &str = "INSERT INTO {schema}.meter_slugs (meter_id, meter_slug) \
     SELECT meter_id, meter_slug FROM unnest($1::text[], $2::text[]) AS new(meter_id, meter_slug)";

pub(crate) const DELETE_SLUGS: &str =
    "DELETE FROM {schema}.meter_slugs WHERE meter_id = ANY ($1::text[] COLLATE \"C\")";

/// Rows as columns.
struct Columns<'a> {
    ids: Vec<String>,
    merchants: Vec<&'a str>,
    texts: Vec<&'a str>,
    created: Vec<chrono::DateTime<chrono::Utc>>,
    deleted: Vec<Option<chrono::DateTime<chrono::Utc>>>,
}

impl<'a> Columns<'a> {
    fn of<I: ToString>(rows: &'a BTreeMap<I, New>) -> Self {
        Self {
            ids: rows.keys().map(ToString::to_string).collect(),
            merchants: rows.values().map(|row| row.merchant_id.as_str()).collect(),
            texts: rows.values().map(|row| row.text.as_str()).collect(),
            created: rows.values().map(|row| row.created_at).collect(),
            deleted: rows.values().map(|row| row.deleted_at).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.ids, &self.merchants, &self.texts, &self.created, &self.deleted]
    }
}

async fn update<I: ToString + Ord>(
    db: &mut Writer<'_>,
    sql: &'static str,
    rows: &BTreeMap<I, Change>,
) -> Result<(), tokio_postgres::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = rows.keys().map(ToString::to_string).collect();
    let texts: Vec<_> = rows.values().map(|row| row.text.as_deref()).collect();
    let deleted: Vec<_> = rows.values().map(|row| row.deleted_at).collect();
    db.execute(sql, &[&ids, &texts, &deleted]).await?;
    Ok(())
}

impl Batch {
    pub(super) async fn write_plans(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.new_plans.is_empty() {
            db.execute(INSERT_PLANS, &Columns::of(&self.new_plans).parameters()).await?;
        }
        update(db, UPDATE_PLANS, &self.plans).await
    }

    pub(super) async fn write_bundles(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.new_bundles.is_empty() {
            let columns = Columns::of(&self.new_bundles);
            let plans: Vec<&str> = self.plan_of.values().map(String::as_str).collect();
            let mut parameters = columns.parameters().to_vec();
            parameters.push(&plans);
            db.execute(INSERT_BUNDLES, &parameters).await?;
        }
        update(db, UPDATE_BUNDLES, &self.bundles).await
    }

    pub(super) async fn write_slugs(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.slugs.is_empty() {
            let ids: Vec<String> = self.slugs.keys().map(ToString::to_string).collect();
            let slugs: Vec<&str> = self.slugs.values().map(String::as_str).collect();
            db.execute(INSERT_SLUGS, &[&ids, &slugs]).await?;
        }
        if !self.meters_gone.is_empty() {
            let ids: Vec<String> = self.meters_gone.iter().map(ToString::to_string).collect();
            db.execute(DELETE_SLUGS, &[&ids]).await?;
        }
        Ok(())
    }
}
