//! Writes the rows of subscriptions and of bundle credit.

use farthing_core::ids::{SubscriptionId, WalletId};
use farthing_core::partition::Partition;
use rust_decimal::Decimal;

use super::SubscriptionBatch;
use super::fold::{NewSubscription, SubscriptionChange};
use crate::column::NewValue;
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT, insert<'a>,
    into subscriptions,
    for (id, row) in (&'a SubscriptionId, &'a NewSubscription) => {
        subscription_id: text = id.to_string(),
        merchant_id: text = row.merchant_id,
        customer_id: text = row.customer_id,
        wallet_id: text = row.wallet_id,
        plan_id: text = row.cycle.plan_id,
        terms: text = row.cycle.terms,
        status: text = "active",
        anchor: timestamptz = row.cycle.start,
        cycle_start: timestamptz = row.cycle.start,
        cycle_end: timestamptz = row.cycle.end,
        auto_top_up_bundle_id: text = row.auto_top_up_bundle_id,
        credit: numeric = row.credit.decimal(),
        started_at: timestamptz = row.started_at,
    }
}

unnest_rows! {
    UPDATE, update<'a>,
    ["UPDATE {schema}.subscriptions AS s \
      SET plan_id = COALESCE(c.plan_id, s.plan_id), terms = COALESCE(c.terms, s.terms), \
          anchor = COALESCE(c.anchor, s.anchor), cycle_start = COALESCE(c.cycle_start, s.cycle_start), \
          cycle_end = COALESCE(c.cycle_end, s.cycle_end), \
          auto_top_up_bundle_id = CASE WHEN c.topped THEN c.auto_top_up_bundle_id ELSE s.auto_top_up_bundle_id END, \
          pending_change = CASE WHEN c.planned THEN c.pending_change ELSE s.pending_change END, \
          status = CASE WHEN c.cancelled_at IS NULL THEN s.status ELSE 'cancelled' END, \
          cancelled_at = COALESCE(c.cancelled_at, s.cancelled_at), credit = s.credit + c.credit \
      FROM " (rows as c) " WHERE s.partition = c.partition AND s.subscription_id = c.subscription_id COLLATE \"C\""],
    for (id, row) in (&'a SubscriptionId, &'a SubscriptionChange) => {
        subscription_id: text = id.to_string(),
        plan_id: text = row.cycle.as_ref().map(|now| now.plan_id.as_str()),
        terms: text = row.cycle.as_ref().map(|now| now.terms.as_str()),
        anchor: timestamptz = row.cycle.as_ref().and_then(|now| now.anchor),
        cycle_start: timestamptz = row.cycle.as_ref().map(|now| now.start),
        cycle_end: timestamptz = row.cycle.as_ref().map(|now| now.end),
        topped: bool = row.auto_top_up.is_some(),
        auto_top_up_bundle_id: text = NewValue::text(row.auto_top_up.as_ref()),
        planned: bool = row.pending.is_some(),
        pending_change: text = NewValue::text(row.pending.as_ref()),
        cancelled_at: timestamptz = row.cancelled_at,
        credit: numeric = row.credit,
    }
}

// The row must exist before anything is taken from it: a check also applies to the row that would be inserted.
unnest_rows! {
    INSERT_BUNDLES, insert_bundles<'a>,
    ["INSERT INTO {schema}.bundle_credit (" (columns) ") SELECT " (columns) " FROM " (rows as new)
     " ON CONFLICT (partition, wallet_id) DO NOTHING"],
    for id in &'a WalletId => {
        wallet_id: text = id.to_string(),
        remaining: numeric = Decimal::ZERO,
    }
}

unnest_rows! {
    ADD_BUNDLES, add_bundles<'a>,
    ["UPDATE {schema}.bundle_credit AS b SET remaining = b.remaining + more.amount \
      FROM " (rows as more) " WHERE b.partition = more.partition AND b.wallet_id = more.wallet_id COLLATE \"C\""],
    for (id, more) in (&'a WalletId, &'a Decimal) => {
        wallet_id: text = id.to_string(),
        amount: numeric = more,
    }
}

impl WriteRows for SubscriptionBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert(db, batches, |batch| batch.new.iter()).await?;
        update(db, batches, |batch| batch.changed.iter()).await?;
        insert_bundles(db, batches, |batch| batch.bundles.keys()).await?;
        add_bundles(db, batches, |batch| batch.bundles.iter()).await
    }
}
