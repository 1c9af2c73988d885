//! The events of checkout sessions. A checkout session is a hosted page that a customer completes once.

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
    pub(super) fn customer_id(&self) -> Option<CustomerId> {
        match self {
            Self::SessionCreated(event) => event.customer_id,
            Self::SessionCompleted(event) => Some(event.customer_id),
        }
    }

    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::SessionCreated(event) => format!("{}/created", event.checkout_session_id),
            Self::SessionCompleted(event) => format!("{}/completed", event.checkout_session_id),
        }
    }
}

/// The purpose of a checkout session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckoutMode {
    /// Creates a customer or updates an existing one's contact; may add a payment method.
    Onboarding,
    /// Adds money to the wallet.
    Topup,
    /// Starts a subscription or changes its plan.
    Subscription,
    /// Buys a credit bundle.
    CreditBundle,
}

/// A checkout session was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutSessionCreated {
    /// The session.
    pub checkout_session_id: CheckoutSessionId,
    /// Its purpose.
    pub checkout_mode: CheckoutMode,
    /// The origin of the merchant's app, which may frame the page and receives its completion message.
    pub origin_url: String,
    /// The customer it is for; `None` if the session creates one.
    pub customer_id: Option<CustomerId>,
    /// The merchant's own identifier of the customer.
    pub reference_id: Option<String>,
    /// The plan, in mode `subscription`.
    pub plan_id: Option<PlanId>,
    /// The bundle, in mode `credit_bundle`.
    pub credit_bundle_id: Option<CreditBundleId>,
    /// When it expires; it cannot be completed after that.
    pub expires_at: DateTime<Utc>,
}

/// A checkout session was completed. It cannot be completed twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutSessionCompleted {
    /// The session.
    pub checkout_session_id: CheckoutSessionId,
    /// The customer, new or existing.
    pub customer_id: CustomerId,
}
