//! Writes the rows of payment methods.

use farthing_core::partition::Partition;

use super::PaymentMethodBatch;
use super::fold::NewPaymentMethod;
use crate::writer::{WriteRows, Writer, copy_rows};

copy_rows! {
    INSERT, insert<'a>,
    into payment_methods,
    for row in &'a NewPaymentMethod => {
        payment_method_id: text = row.payment_method_id.to_string(),
        merchant_id: text = row.merchant_id.to_string(),
        customer_id: text = row.customer_id.map(|id| id.to_string()),
        brand: text = row.brand,
        last4: text = row.last4,
        exp_month: int2 = row.exp_month,
        exp_year: int2 = row.exp_year,
        created_at: timestamptz = row.created_at,
    }
}

impl WriteRows for PaymentMethodBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert(db, batches, |batch| batch.new.iter()).await
    }
}
