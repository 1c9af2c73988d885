//! The fold: a row per session, and the end of those that were completed.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{CheckoutEvent, CheckoutSessionCreated, Event, Recorded};
use farthing_core::ids::MerchantId;
use farthing_schema::read_model::ReadModel;

use crate::column::{storable, word};
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, column by column, and completions.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) new: New,
    pub(super) completed: BTreeMap<String, (String, DateTime<Utc>)>,
}

/// Rows of the table `checkout_sessions`.
#[derive(Debug, Default)]
pub(super) struct New {
    pub(super) checkout_session_id: Vec<String>,
    pub(super) merchant_id: Vec<String>,
    pub(super) checkout_mode: Vec<String>,
    pub(super) origin_url: Vec<String>,
    pub(super) customer_id: Vec<Option<String>>,
    pub(super) reference_id: Vec<Option<String>>,
    pub(super) plan_id: Vec<Option<String>>,
    pub(super) credit_bundle_id: Vec<Option<String>>,
    pub(super) created_at: Vec<DateTime<Utc>>,
    pub(super) expires_at: Vec<DateTime<Utc>>,
}

impl New {
    fn push(&mut self, event: &CheckoutSessionCreated, merchant_id: MerchantId, created_at: DateTime<Utc>) {
        self.checkout_session_id.push(event.checkout_session_id.to_string());
        self.merchant_id.push(merchant_id.to_string());
        self.checkout_mode.push(word(event.checkout_mode));
        self.origin_url.push(storable(&event.origin_url).into_owned());
        self.customer_id.push(event.customer_id.map(|id| id.to_string()));
        self.reference_id.push(event.reference_id.as_deref().map(|id| storable(id).into_owned()));
        self.plan_id.push(event.plan_id.map(|id| id.to_string()));
        self.credit_bundle_id.push(event.credit_bundle_id.map(|id| id.to_string()));
        self.created_at.push(created_at);
        self.expires_at.push(event.expires_at);
    }
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::CheckoutSessions;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Checkout(CheckoutEvent::SessionCreated(event)) => {
                self.new.push(event, fact.merchant_id, fact.occurred_at);
            }
            Event::Checkout(CheckoutEvent::SessionCompleted(event)) => {
                let end = (event.customer_id.to_string(), fact.occurred_at);
                self.completed.insert(event.checkout_session_id.to_string(), end);
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
            | Event::Payment(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.new.checkout_session_id.is_empty() && self.completed.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert(db).await?;
        self.complete(db).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn a_session_that_is_created_and_completed_in_one_batch_is_both() {
        let id = "cs_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let customer_id = "con_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let created = json!({
            "checkout_session_id": id, "checkout_mode": "credit_bundle", "origin_url": "https://app.example",
            "customer_id": null, "reference_id": "a\u{0}b", "plan_id": null, "credit_bundle_id": null,
            "expires_at": "2026-01-02T00:00:00Z",
        });
        let completed = json!({"checkout_session_id": id, "customer_id": customer_id});
        let batch: Batch = sample::fold(vec![
            sample::event("checkout_session.created", &created),
            sample::event("checkout_session.completed", &completed),
        ]);
        assert_eq!(batch.new.checkout_mode, ["credit_bundle"]);
        assert_eq!(batch.new.reference_id, [Some("a\u{FFFD}b".to_owned())]);
        assert_eq!(batch.completed[id], (customer_id.to_owned(), DateTime::UNIX_EPOCH));
        assert!(!batch.is_empty());
    }
}
