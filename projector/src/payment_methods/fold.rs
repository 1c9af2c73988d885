//! The fold: a row per payment method.

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, PaymentEvent, Recorded};
use farthing_schema::read_model::ReadModel;

use crate::column::storable;
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, column by column.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) payment_method_id: Vec<String>,
    pub(super) merchant_id: Vec<String>,
    pub(super) customer_id: Vec<Option<String>>,
    pub(super) brand: Vec<String>,
    pub(super) last4: Vec<String>,
    pub(super) exp_month: Vec<i16>,
    pub(super) exp_year: Vec<i16>,
    pub(super) created_at: Vec<DateTime<Utc>>,
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::PaymentMethods;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Payment(PaymentEvent::MethodAdded(event)) => {
                self.payment_method_id.push(event.payment_method_id.to_string());
                self.merchant_id.push(fact.merchant_id.to_string());
                self.customer_id.push(event.customer_id.map(|id| id.to_string()));
                self.brand.push(storable(&event.card.brand).into_owned());
                self.last4.push(storable(&event.card.last4).into_owned());
                self.exp_month.push(event.card.exp_month.into());
                self.exp_year.push(i16::try_from(event.card.exp_year).unwrap_or(i16::MAX));
                self.created_at.push(fact.occurred_at);
            }
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Wallet(_)
            | Event::Request(_)
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(
                PaymentEvent::Requested(_)
                | PaymentEvent::Succeeded(_)
                | PaymentEvent::Declined(_)
                | PaymentEvent::Voided(_),
            )
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.payment_method_id.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert(db).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn of_a_card_only_what_may_be_shown_is_in_the_row() {
        let added = json!({
            "payment_method_id": "pm_01ARZ3NDEKTSV4RRFFQ69G5FAV", "wallet_id": "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "customer_id": null, "processor": "test", "token": "secret",
            "card": {"brand": "visa", "last4": "4242", "exp_month": 12, "exp_year": 2030},
        });
        let batch: Batch = sample::fold(vec![sample::event("payment_method.added", &added)]);
        assert_eq!(
            (batch.last4.as_slice(), batch.exp_year.as_slice()),
            (&["4242".to_owned()][..], &[2030][..])
        );
        assert!(!format!("{batch:?}").contains("secret"));
    }
}
