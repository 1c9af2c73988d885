//! The events of checkout sessions: a hosted page that a customer completes once.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::kind::area;
use crate::ids::{CheckoutSessionId, CreditBundleId, CustomerId, PlanId};

area! {
    /// The events of a checkout session.
    Event::Checkout(CheckoutEvent) {
        SessionCreated(CheckoutSessionCreated) = "checkout_session.created",
        SessionCompleted(CheckoutSessionCompleted) = "checkout_session.completed",
    }
}

impl CheckoutEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::SessionCreated(event) => format!("{}/created", event.checkout_session_id),
            Self::SessionCompleted(event) => format!("{}/completed", event.checkout_session_id),
        }
    }
}

/// What a checkout session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckoutMode {
    /// A new customer, or a known one's contact; a payment method where one is given.
    Onboarding,
    /// Money into the wallet.
    Topup,
    /// A subscription: a new one, or another plan.
    Subscription,
    /// A credit bundle.
    CreditBundle,
}

/// A checkout session was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutSessionCreated {
    /// The session.
    pub checkout_session_id: CheckoutSessionId,
    /// What it is for.
    pub checkout_mode: CheckoutMode,
    /// The origin of the merchant's app: who may frame the page, and who is told of its end.
    pub origin_url: String,
    /// The customer it is for; none where it makes one.
    pub customer_id: Option<CustomerId>,
    /// The merchant's own identifier of the customer.
    pub reference_id: Option<String>,
    /// The plan, in mode `subscription`.
    pub plan_id: Option<PlanId>,
    /// The bundle, in mode `credit_bundle`.
    pub credit_bundle_id: Option<CreditBundleId>,
    /// It cannot be completed from then on.
    pub expires_at: DateTime<Utc>,
}

/// A checkout session was completed; it cannot be again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutSessionCompleted {
    /// The session.
    pub checkout_session_id: CheckoutSessionId,
    /// The customer, new or known.
    pub customer_id: CustomerId,
}
