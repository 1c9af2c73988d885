//! Writes the rows.

use tokio_postgres::types::ToSql;

use super::Batch;
use super::fold::{Change, NowThere};
use crate::column::Numeric;
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.subscriptions \
         (subscription_id, merchant_id, customer_id, wallet_id, plan_id, terms, status, anchor, cycle_start, cycle_end, \
          auto_top_up_bundle_id, credit, started_at) \
     SELECT subscription_id, merchant_id, customer_id, wallet_id, plan_id, terms, 'active', cycle_start, cycle_start, \
            cycle_end, auto_top_up_bundle_id, credit, started_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], \
                 $8::timestamptz[], $9::text[], $10::numeric[], $11::timestamptz[]) \
         AS new(subscription_id, merchant_id, customer_id, wallet_id, plan_id, terms, cycle_start, cycle_end, \
                auto_top_up_bundle_id, credit, started_at)";

pub(crate) const UPDATE: &str = "UPDATE {schema}.subscriptions AS s \
     SET plan_id = COALESCE(c.plan_id, s.plan_id), terms = COALESCE(c.terms, s.terms), \
         anchor = COALESCE(c.anchor, s.anchor), cycle_start = COALESCE(c.cycle_start, s.cycle_start), \
         cycle_end = COALESCE(c.cycle_end, s.cycle_end), \
         auto_top_up_bundle_id = CASE WHEN c.topped THEN c.auto_top_up_bundle_id ELSE s.auto_top_up_bundle_id END, \
         pending_change = CASE WHEN c.planned THEN c.pending_change ELSE s.pending_change END, \
         status = CASE WHEN c.cancelled_at IS NULL THEN s.status ELSE 'cancelled' END, \
         cancelled_at = COALESCE(c.cancelled_at, s.cancelled_at), credit = s.credit + c.credit \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], \
                 $7::boolean[], $8::text[], $9::boolean[], $10::text[], $11::timestamptz[], $12::numeric[]) \
         AS c(subscription_id, plan_id, terms, anchor, cycle_start, cycle_end, topped, auto_top_up_bundle_id, planned, \
              pending_change, cancelled_at, credit) \
     WHERE s.subscription_id = c.subscription_id COLLATE \"C\"";

/// The row must be there before anything is taken from it: a check is made of what would be inserted, too.
pub(crate) const INSERT_BUNDLES: &str = "INSERT INTO {schema}.bundle_credit (wallet_id, remaining) \
     SELECT wallet_id, 0 FROM unnest($1::text[]) AS new(wallet_id) ON CONFLICT (wallet_id) DO NOTHING";

pub(crate) const ADD_BUNDLES: &str = "UPDATE {schema}.bundle_credit AS b SET remaining = b.remaining + more.amount \
     FROM unnest($1::text[], $2::numeric[]) AS more(wallet_id, amount) \
     WHERE b.wallet_id = more.wallet_id COLLATE \"C\"";

fn there(change: Option<&NowThere>) -> Option<&str> {
    change.and_then(|NowThere(text)| text.as_deref())
}

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.new.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.new.keys().map(ToString::to_string).collect();
        let rows = || self.new.values();
        let merchants: Vec<&str> = rows().map(|row| row.merchant_id.as_str()).collect();
        let customers: Vec<&str> = rows().map(|row| row.customer_id.as_str()).collect();
        let wallets: Vec<&str> = rows().map(|row| row.wallet_id.as_str()).collect();
        let plans: Vec<&str> = rows().map(|row| row.cycle.plan_id.as_str()).collect();
        let terms: Vec<&str> = rows().map(|row| row.cycle.terms.as_str()).collect();
        let starts: Vec<_> = rows().map(|row| row.cycle.start).collect();
        let ends: Vec<_> = rows().map(|row| row.cycle.end).collect();
        let bundles: Vec<_> = rows().map(|row| row.auto_top_up_bundle_id.as_deref()).collect();
        let credits: Vec<Numeric> = rows().map(|row| row.credit.into()).collect();
        let started: Vec<_> = rows().map(|row| row.started_at).collect();
        let columns: [&(dyn ToSql + Sync); 11] = [
            &ids, &merchants, &customers, &wallets, &plans, &terms, &starts, &ends, &bundles, &credits,
            &started,
        ];
        db.execute(INSERT, &columns).await?;
        Ok(())
    }

    pub(super) async fn update(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.changed.keys().map(ToString::to_string).collect();
        let rows = || self.changed.values();
        let cycles = || rows().map(|row| row.cycle.as_ref());
        let plans: Vec<_> = cycles().map(|cycle| cycle.map(|cycle| cycle.plan_id.as_str())).collect();
        let terms: Vec<_> = cycles().map(|cycle| cycle.map(|cycle| cycle.terms.as_str())).collect();
        let anchors: Vec<_> = cycles().map(|cycle| cycle.and_then(|cycle| cycle.anchor)).collect();
        let starts: Vec<_> = cycles().map(|cycle| cycle.map(|cycle| cycle.start)).collect();
        let ends: Vec<_> = cycles().map(|cycle| cycle.map(|cycle| cycle.end)).collect();
        let topped: Vec<bool> = rows().map(|row| row.auto_top_up.is_some()).collect();
        let bundles: Vec<_> = rows().map(|row| there(row.auto_top_up.as_ref())).collect();
        let planned: Vec<bool> = rows().map(|row| row.pending.is_some()).collect();
        let pending: Vec<_> = rows().map(|row| there(row.pending.as_ref())).collect();
        let cancelled: Vec<_> = rows().map(|row| row.cancelled_at).collect();
        let credits: Vec<Numeric> = rows().map(|Change { credit, .. }| Numeric(*credit)).collect();
        let columns: [&(dyn ToSql + Sync); 12] = [
            &ids, &plans, &terms, &anchors, &starts, &ends, &topped, &bundles, &planned, &pending,
            &cancelled, &credits,
        ];
        db.execute(UPDATE, &columns).await?;
        Ok(())
    }

    pub(super) async fn add_bundles(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.bundles.is_empty() {
            return Ok(());
        }
        let wallets: Vec<String> = self.bundles.keys().map(ToString::to_string).collect();
        let amounts: Vec<Numeric> = self.bundles.values().copied().map(Numeric).collect();
        db.execute(INSERT_BUNDLES, &[&wallets]).await?;
        db.execute(ADD_BUNDLES, &[&wallets, &amounts]).await?;
        Ok(())
    }
}
