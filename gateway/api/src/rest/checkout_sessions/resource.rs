//! The Checkout session resource.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use farthing_core::event::{CheckoutMode, CheckoutSessionCreated};
use farthing_core::ids::{CheckoutSessionId, CreditBundleId, CustomerId, PlanId};
use farthing_core::secret::ServerKey;
use farthing_projector::checkout_sessions::query::CheckoutSessionRow;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::pages::PagesUrl;
use crate::rest::body::Timestamp;

/// A checkout session. Members without a value are left out.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct CheckoutSession {
    checkout_session_id: CheckoutSessionId,
    /// Base64 of `{"secret", "base"}`. Its holder can complete the session.
    checkout_session_token: String,
    /// The hosted page.
    url: String,
    checkout_mode: CheckoutMode,
    /// The URL of the merchant's app. Its origin may frame the page and receives the page's messages.
    origin_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription_config_id: Option<PlanId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_id: Option<PlanId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit_bundle_id: Option<CreditBundleId>,
    created_at: Timestamp,
    /// The session cannot be completed after this instant.
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
}

impl CheckoutSession {
    /// A new session.
    pub(super) fn new(
        created: CheckoutSessionCreated,
        created_at: DateTime<Utc>,
        key: &ServerKey,
        pages: &PagesUrl,
    ) -> Self {
        let row = CheckoutSessionRow {
            checkout_session_id: created.checkout_session_id,
            checkout_mode: created.checkout_mode,
            origin_url: created.origin_url,
            customer_id: created.customer_id,
            reference_id: created.reference_id,
            plan_id: created.plan_id,
            credit_bundle_id: created.credit_bundle_id,
            created_at,
            expires_at: created.expires_at,
            completed_at: None,
        };
        Self::shown(row, key, pages)
    }

    /// A session, with the URL of its page.
    pub(super) fn shown(row: CheckoutSessionRow, key: &ServerKey, pages: &PagesUrl) -> Self {
        let secret = key.checkout_secret(row.checkout_session_id);
        let base = pages.to_string();
        Self {
            checkout_session_id: row.checkout_session_id,
            checkout_session_token: STANDARD.encode(json!({"secret": secret, "base": base}).to_string()),
            url: format!("{base}embed/checkout/{secret}"),
            checkout_mode: row.checkout_mode,
            origin_url: row.origin_url,
            connection_id: row.customer_id,
            customer_id: row.customer_id,
            reference_id: row.reference_id,
            subscription_config_id: row.plan_id,
            plan_id: row.plan_id,
            credit_bundle_id: row.credit_bundle_id,
            created_at: Timestamp(row.created_at),
            expires_at: Timestamp(row.expires_at),
            completed_at: row.completed_at.map(Timestamp),
        }
    }
}
