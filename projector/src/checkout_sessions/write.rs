//! Writes the rows of checkout sessions.

use farthing_core::ids::CheckoutSessionId;
use farthing_core::partition::Partition;

use super::CheckoutSessionBatch;
use super::fold::{CompletedCheckoutSession, NewCheckoutSession};
use crate::column::variant_name;
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT, insert<'a>,
    into checkout_sessions,
    for row in &'a NewCheckoutSession => {
        checkout_session_id: text = row.checkout_session_id.to_string(),
        merchant_id: text = row.merchant_id.to_string(),
        checkout_mode: text = variant_name(row.checkout_mode),
        origin_url: text = row.origin_url,
        customer_id: text = row.customer_id.map(|id| id.to_string()),
        reference_id: text = row.reference_id,
        plan_id: text = row.plan_id.map(|id| id.to_string()),
        credit_bundle_id: text = row.credit_bundle_id.map(|id| id.to_string()),
        created_at: timestamptz = row.created_at,
        expires_at: timestamptz = row.expires_at,
    }
}

unnest_rows! {
    COMPLETE, complete<'a>,
    ["UPDATE {schema}.checkout_sessions AS s \
      SET customer_id = ended.customer_id, completed_at = ended.completed_at \
      FROM " (rows as ended) " WHERE s.partition = ended.partition AND s.checkout_session_id = ended.checkout_session_id COLLATE \"C\""],
    for (id, row) in (&'a CheckoutSessionId, &'a CompletedCheckoutSession) => {
        checkout_session_id: text = id.to_string(),
        customer_id: text = row.customer_id.to_string(),
        completed_at: timestamptz = row.completed_at,
    }
}

impl WriteRows for CheckoutSessionBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert(db, batches, |batch| batch.new.iter()).await?;
        complete(db, batches, |batch| batch.completed.iter()).await
    }
}
