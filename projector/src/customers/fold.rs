//! The fold: one row per customer.

use chrono::{DateTime, Utc};
use farthing_ledger::event::{Event, Recorded};
use farthing_schema::read_model::ReadModel;

use crate::column::{json, storable};
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, column by column.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) customer_id: Vec<String>,
    pub(super) merchant_id: Vec<String>,
    pub(super) wallet_id: Vec<String>,
    pub(super) reference_id: Vec<Option<String>>,
    pub(super) metadata: Vec<String>,
    pub(super) created_at: Vec<DateTime<Utc>>,
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::Customers;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::CustomerCreated(event) => {
                self.customer_id.push(event.customer_id.to_string());
                self.merchant_id.push(fact.merchant_id.to_string());
                self.wallet_id.push(event.wallet_id.to_string());
                self.reference_id.push(event.reference_id.as_deref().map(|id| storable(id).into_owned()));
                self.metadata.push(json(&event.metadata));
                self.created_at.push(fact.occurred_at);
            }
            Event::MerchantRegistered(_)
            | Event::SecretKeyIssued(_)
            | Event::MeterDefined(_)
            | Event::SpendKeyCreated(_)
            | Event::KeyRotated(_)
            | Event::WalletCredited(_)
            | Event::RequestOpened(_)
            | Event::RequestMetered(_)
            | Event::WalletDebited(_)
            | Event::RequestFailed(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.customer_id.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert(db).await
    }
}

#[cfg(test)]
mod tests {
    use farthing_ledger::event::CustomerCreated;
    use farthing_ledger::ids::{CustomerId, Mint, WalletId};

    use super::*;
    use crate::sample;

    #[test]
    fn a_customer_is_one_row_and_a_call_is_none() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let created = CustomerCreated {
            customer_id: CustomerId::new(ulid),
            wallet_id: WalletId::new(ulid),
            reference_id: Some("a\0b".to_owned()),
            metadata: [("team".to_owned(), "blue".to_owned())].into(),
        };
        let opened = Event::RequestOpened(Box::new(sample::opened()));
        let batch: Batch = sample::fold(vec![Event::CustomerCreated(created), opened]);
        assert_eq!(batch.customer_id, [CustomerId::new(ulid).to_string()]);
        assert_eq!(batch.reference_id, [Some("a\u{FFFD}b".to_owned())]);
        assert_eq!(batch.metadata, [r#"{"team":"blue"}"#]);
        assert!(sample::fold::<Batch>(vec![Event::RequestOpened(Box::new(sample::opened()))]).is_empty());
    }
}
