//! The fold: one row per payment method.

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, PaymentEvent, PaymentMethodAdded, Recorded};
use farthing_core::ids::{CustomerId, MerchantId, PaymentMethodId};
use farthing_schema::read_model::ReadModel;

use crate::column::storable;
use crate::engine::Projection;

/// New rows.
#[derive(Debug, Default)]
pub(crate) struct PaymentMethodBatch {
    pub(super) new: Vec<NewPaymentMethod>,
}

/// A row of the table `payment_methods`.
#[derive(Debug)]
pub(super) struct NewPaymentMethod {
    pub(super) payment_method_id: PaymentMethodId,
    pub(super) merchant_id: MerchantId,
    pub(super) customer_id: Option<CustomerId>,
    pub(super) brand: String,
    pub(super) last4: String,
    pub(super) exp_month: i16,
    pub(super) exp_year: i16,
    pub(super) created_at: DateTime<Utc>,
}

impl NewPaymentMethod {
    fn of(event: &PaymentMethodAdded, merchant_id: MerchantId, created_at: DateTime<Utc>) -> Self {
        Self {
            payment_method_id: event.payment_method_id,
            merchant_id,
            customer_id: event.customer_id,
            brand: storable(&event.card.brand),
            last4: storable(&event.card.last4),
            exp_month: event.card.exp_month.into(),
            exp_year: i16::try_from(event.card.exp_year).unwrap_or(i16::MAX),
            created_at,
        }
    }
}

impl Projection for PaymentMethodBatch {
    const MODEL: ReadModel = ReadModel::PaymentMethods;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Payment(PaymentEvent::MethodAdded(event)) => {
                self.new.push(NewPaymentMethod::of(event, fact.merchant_id, fact.occurred_at));
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
        self.new.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn the_row_of_a_card_has_no_secret() {
        let added = json!({
            "payment_method_id": "pm_01ARZ3NDEKTSV4RRFFQ69G5FAV", "wallet_id": "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "customer_id": null, "processor": "test", "token": "secret",
            "card": {"brand": "visa", "last4": "4242", "exp_month": 12, "exp_year": 2030},
        });
        let batch: PaymentMethodBatch = sample::fold(vec![sample::event("payment_method.added", &added)]);
        let row = batch.new.first().unwrap();
        assert_eq!((row.last4.as_str(), row.exp_year), ("4242", 2030));
        assert!(!format!("{batch:?}").contains("secret"));
    }
}
