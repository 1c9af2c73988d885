//! The fold: one row per session, and its completion.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{CheckoutEvent, CheckoutMode, CheckoutSessionCreated, Event, Recorded};
use farthing_core::ids::{CheckoutSessionId, CreditBundleId, CustomerId, MerchantId, PlanId};
use farthing_schema::read_model::ReadModel;

use crate::column::storable;
use crate::engine::Projection;

/// New rows, and the sessions that were completed.
#[derive(Debug, Default)]
pub(crate) struct CheckoutSessionBatch {
    pub(super) new: Vec<NewCheckoutSession>,
    pub(super) completed: BTreeMap<CheckoutSessionId, CompletedCheckoutSession>,
}

/// A row of the table `checkout_sessions`.
#[derive(Debug)]
pub(super) struct NewCheckoutSession {
    pub(super) checkout_session_id: CheckoutSessionId,
    pub(super) merchant_id: MerchantId,
    pub(super) checkout_mode: CheckoutMode,
    pub(super) origin_url: String,
    pub(super) customer_id: Option<CustomerId>,
    pub(super) reference_id: Option<String>,
    pub(super) plan_id: Option<PlanId>,
    pub(super) credit_bundle_id: Option<CreditBundleId>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) expires_at: DateTime<Utc>,
}

/// The columns that a completion fills.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CompletedCheckoutSession {
    pub(super) customer_id: CustomerId,
    pub(super) completed_at: DateTime<Utc>,
}

impl NewCheckoutSession {
    fn of(event: &CheckoutSessionCreated, merchant_id: MerchantId, created_at: DateTime<Utc>) -> Self {
        Self {
            checkout_session_id: event.checkout_session_id,
            merchant_id,
            checkout_mode: event.checkout_mode,
            origin_url: storable(&event.origin_url),
            customer_id: event.customer_id,
            reference_id: event.reference_id.as_deref().map(storable),
            plan_id: event.plan_id,
            credit_bundle_id: event.credit_bundle_id,
            created_at,
            expires_at: event.expires_at,
        }
    }
}

impl Projection for CheckoutSessionBatch {
    const MODEL: ReadModel = ReadModel::CheckoutSessions;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Checkout(CheckoutEvent::SessionCreated(event)) => {
                self.new.push(NewCheckoutSession::of(event, fact.merchant_id, fact.occurred_at));
            }
            Event::Checkout(CheckoutEvent::SessionCompleted(event)) => {
                let completed = CompletedCheckoutSession {
                    customer_id: event.customer_id,
                    completed_at: fact.occurred_at,
                };
                self.completed.insert(event.checkout_session_id, completed);
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
        self.new.is_empty() && self.completed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn a_session_that_is_created_and_completed_in_one_batch_is_a_row_and_a_completion() {
        let id = "cs_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let customer_id = "con_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let created = json!({
            "checkout_session_id": id, "checkout_mode": "credit_bundle", "origin_url": "https://app.example",
            "customer_id": null, "reference_id": "a\u{0}b", "plan_id": null, "credit_bundle_id": null,
            "expires_at": "2026-01-02T00:00:00Z",
        });
        let completed = json!({"checkout_session_id": id, "customer_id": customer_id});
        let batch: CheckoutSessionBatch = sample::fold(vec![
            sample::event("checkout_session.created", &created),
            sample::event("checkout_session.completed", &completed),
        ]);
        let row = batch.new.first().unwrap();
        assert_eq!(row.checkout_mode, CheckoutMode::CreditBundle);
        assert_eq!(row.reference_id.as_deref(), Some("a\u{FFFD}b"));
        let completed = CompletedCheckoutSession {
            customer_id: customer_id.parse().unwrap(),
            completed_at: DateTime::UNIX_EPOCH,
        };
        assert_eq!(batch.completed[&id.parse().unwrap()], completed);
        assert!(!batch.is_empty());
    }
}
