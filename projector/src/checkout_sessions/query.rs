//! Finds and lists checkout sessions.

use chrono::{DateTime, Utc};
use farthing_core::event::CheckoutMode;
use farthing_core::ids::{CheckoutSessionId, CreditBundleId, CustomerId, MerchantId, PlanId};

use crate::query::{self, Error, Listed, Page, PartitionClient, findable, text};
use crate::row::row;

row! {
    /// A checkout session.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CheckoutSessionRow {
        /// The session.
        pub checkout_session_id: CheckoutSessionId = id,
        /// What it sells.
        pub checkout_mode: CheckoutMode = variant,
        /// The origin of the merchant's app.
        pub origin_url: String = plain,
        /// The customer: the one it was created for, or the one who completed it.
        pub customer_id: Option<CustomerId> = id_or_null,
        /// The merchant's own identifier of the customer.
        pub reference_id: Option<String> = plain,
        /// The plan.
        pub plan_id: Option<PlanId> = id_or_null,
        /// The bundle.
        pub credit_bundle_id: Option<CreditBundleId> = id_or_null,
        /// When it was created.
        pub created_at: DateTime<Utc> = plain,
        /// From this instant on it cannot be completed.
        pub expires_at: DateTime<Utc> = plain,
        /// When it was completed.
        pub completed_at: Option<DateTime<Utc>> = plain,
    }
}

macro_rules! select_sessions {
    ($rest:literal) => {
        concat!(
            "SELECT checkout_session_id, checkout_mode, origin_url, customer_id, reference_id, plan_id, ",
            "credit_bundle_id, created_at, expires_at, completed_at ",
            "FROM {checkout_sessions}.checkout_sessions WHERE partition = $1 AND merchant_id = $2 ",
            $rest
        )
    };
}

/// A merchant's session by id.
pub const FIND: &str = select_sessions!("AND checkout_session_id = $3");

/// A merchant's sessions, newest first.
pub const LIST: &str = select_sessions!(
    "AND (created_at, checkout_session_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY created_at DESC, checkout_session_id DESC LIMIT $5"
);

/// A merchant's sessions with a reference id.
pub const LIST_BY_REFERENCE: &str = select_sessions!(
    "AND reference_id = $3 AND (created_at, checkout_session_id) < (COALESCE($4::timestamptz, 'infinity'), $5) \
     ORDER BY created_at DESC, checkout_session_id DESC LIMIT $6"
);

/// The session of a cursor.
pub const CURSOR: &str = "SELECT created_at AS at FROM {checkout_sessions}.checkout_sessions WHERE partition = $1 AND merchant_id = $2 AND checkout_session_id = $3";

/// The merchant's session with this id.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: CheckoutSessionId,
) -> Result<Option<CheckoutSessionRow>, Error> {
    query::first(db, FIND, &[text(&merchant_id.to_string()), text(&id.to_string())]).await
}

/// The merchant's sessions, newest first; only those with `reference_id` when one is given.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
    reference_id: Option<&str>,
) -> Result<Listed<CheckoutSessionRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<CheckoutSessionId>(db, CURSOR, &merchant).await?;
    match reference_id {
        None => query::list(db, LIST, &[text(&merchant)], &start, page).await,
        Some(id) if !findable(id) => Ok(Listed::empty()),
        Some(id) => query::list(db, LIST_BY_REFERENCE, &[text(&merchant), text(&id)], &start, page).await,
    }
}
