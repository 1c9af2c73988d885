//! Writes the rows of plans, credit bundles and meters' slugs.

use farthing_core::ids::{CreditBundleId, MeterId, PlanId};
use farthing_core::partition::Partition;

use super::PlanBatch;
use super::fold::{NewBundle, NewPlan, PlanChange};
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT_PLANS, insert_plans<'a>,
    into plans,
    for (id, row) in (&'a PlanId, &'a NewPlan) => {
        plan_id: text = id.to_string(),
        merchant_id: text = row.merchant_id,
        terms: text = row.text,
        created_at: timestamptz = row.created_at,
        deleted_at: timestamptz = row.deleted_at,
    }
}

unnest_rows! {
    UPDATE_PLANS, update_plans<'a>,
    ["UPDATE {schema}.plans AS p \
      SET terms = COALESCE(changed.terms, p.terms), deleted_at = COALESCE(changed.deleted_at, p.deleted_at) \
      FROM " (rows as changed) " WHERE p.partition = changed.partition AND p.plan_id = changed.plan_id COLLATE \"C\""],
    for (id, change) in (&'a PlanId, &'a PlanChange) => {
        plan_id: text = id.to_string(),
        terms: text = change.text.as_deref(),
        deleted_at: timestamptz = change.deleted_at,
    }
}

copy_rows! {
    INSERT_BUNDLES, insert_bundles<'a>,
    into credit_bundles,
    for (id, bundle) in (&'a CreditBundleId, &'a NewBundle) => {
        credit_bundle_id: text = id.to_string(),
        merchant_id: text = bundle.row.merchant_id,
        offer: text = bundle.row.text,
        created_at: timestamptz = bundle.row.created_at,
        deleted_at: timestamptz = bundle.row.deleted_at,
        plan_id: text = bundle.plan_id,
    }
}

unnest_rows! {
    UPDATE_BUNDLES, update_bundles<'a>,
    ["UPDATE {schema}.credit_bundles AS b \
      SET offer = COALESCE(changed.offer, b.offer), deleted_at = COALESCE(changed.deleted_at, b.deleted_at) \
      FROM " (rows as changed) " WHERE b.partition = changed.partition AND b.credit_bundle_id = changed.credit_bundle_id COLLATE \"C\""],
    for (id, change) in (&'a CreditBundleId, &'a PlanChange) => {
        credit_bundle_id: text = id.to_string(),
        offer: text = change.text.as_deref(),
        deleted_at: timestamptz = change.deleted_at,
    }
}

copy_rows! {
    INSERT_SLUGS, insert_slugs<'a>,
    into meter_slugs,
    for (id, slug) in (&'a MeterId, &'a String) => {
        meter_id: text = id.to_string(),
        meter_slug: text = slug,
    }
}

unnest_rows! {
    DELETE_SLUGS, delete_slugs<'a>,
    ["DELETE FROM {schema}.meter_slugs AS s USING " (rows as deleted) " WHERE s.partition = deleted.partition AND s.meter_id = deleted.meter_id COLLATE \"C\""],
    for id in &'a MeterId => {
        meter_id: text = id.to_string(),
    }
}

impl WriteRows for PlanBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert_plans(db, batches, |batch| batch.new_plans.iter()).await?;
        update_plans(db, batches, |batch| batch.plans.iter()).await?;
        insert_bundles(db, batches, |batch| batch.new_bundles.iter()).await?;
        update_bundles(db, batches, |batch| batch.bundles.iter()).await?;
        insert_slugs(db, batches, |batch| batch.slugs.iter()).await?;
        delete_slugs(db, batches, |batch| batch.deleted_meters.iter()).await
    }
}
