//! Finds and lists checkout sessions.

use chrono::{DateTime, Utc};
use farthing_core::event::CheckoutMode;
use farthing_core::ids::{CheckoutSessionId, CreditBundleId, CustomerId, MerchantId, PlanId};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Listed, Page, Parameter, findable};

/// A checkout session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutSessionRow {
    /// Its id.
    pub checkout_session_id: CheckoutSessionId,
    /// What it is for.
    pub checkout_mode: CheckoutMode,
    /// Where the merchant's app is.
    pub origin_url: String,
    /// The customer: the one it was created for, or the one who completed it.
    pub customer_id: Option<CustomerId>,
    /// The merchant's own identifier of the customer.
    pub reference_id: Option<String>,
    /// The plan.
    pub plan_id: Option<PlanId>,
    /// The bundle.
    pub credit_bundle_id: Option<CreditBundleId>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// It cannot be completed from then on.
    pub expires_at: DateTime<Utc>,
    /// When it was completed.
    pub completed_at: Option<DateTime<Utc>>,
}

impl CheckoutSessionRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            checkout_session_id: columns.id()?,
            checkout_mode: columns.word()?,
            origin_url: columns.plain()?,
            customer_id: columns.id_or_null()?,
            reference_id: columns.plain()?,
            plan_id: columns.id_or_null()?,
            credit_bundle_id: columns.id_or_null()?,
            created_at: columns.plain()?,
            expires_at: columns.plain()?,
            completed_at: columns.plain()?,
        })
    }
}

macro_rules! select_sessions {
    ($rest:literal) => {
        concat!(
            "SELECT checkout_session_id, checkout_mode, origin_url, customer_id, reference_id, plan_id, ",
            "credit_bundle_id, created_at, expires_at, completed_at ",
            "FROM checkout_sessions.checkout_sessions WHERE merchant_id = $1 ",
            $rest
        )
    };
}

/// A merchant's session.
pub const FIND: &str = select_sessions!("AND checkout_session_id = $2");

/// A merchant's sessions after a place in the list; the first page starts at `infinity`.
pub const LIST: &str = select_sessions!(
    "AND (created_at, checkout_session_id) < (COALESCE($2::timestamptz, 'infinity'), $3) \
     ORDER BY created_at DESC, checkout_session_id DESC LIMIT $4"
);

/// The same, of those with a reference id.
pub const LIST_BY_REFERENCE: &str = select_sessions!(
    "AND (created_at, checkout_session_id) < (COALESCE($2::timestamptz, 'infinity'), $3) AND reference_id = $5 \
     ORDER BY created_at DESC, checkout_session_id DESC LIMIT $4"
);

/// When the session of a cursor was created.
pub const CURSOR: &str = "SELECT created_at FROM checkout_sessions.checkout_sessions WHERE merchant_id = $1 AND checkout_session_id = $2";

/// The merchant's session with this id.
pub async fn find(
    db: &Client,
    merchant_id: MerchantId,
    id: CheckoutSessionId,
) -> Result<Option<CheckoutSessionRow>, Error> {
    let (merchant, id) = (merchant_id.to_string(), id.to_string());
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(FIND, &parameters).await?.into_iter().next();
    Ok(row.map(|row| CheckoutSessionRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's sessions, newest first; only those with `reference_id` when one is given.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    reference_id: Option<&str>,
) -> Result<Listed<CheckoutSessionRow>, Error> {
    let merchant = merchant_id.to_string();
    let (after, id) = match page.cursor {
        None => (None, String::new()),
        Some(cursor) => {
            let id = cursor.parse::<CheckoutSessionId>().map_err(|_| Error::CursorInvalid)?.to_string();
            let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
            let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next();
            (Some(row.ok_or(Error::CursorInvalid)?.try_get::<_, DateTime<Utc>>(0)?), id)
        }
    };
    if !reference_id.is_none_or(findable) {
        return Ok(Listed::empty());
    }
    let limit = page.rows_to_ask();
    let mut parameters: Vec<Parameter<'_>> =
        vec![(&merchant, Type::TEXT), (&after, Type::TIMESTAMPTZ), (&id, Type::TEXT), (&limit, Type::INT8)];
    let sql = match &reference_id {
        None => LIST,
        Some(reference_id) => {
            parameters.push((reference_id, Type::TEXT));
            LIST_BY_REFERENCE
        }
    };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> =
        rows.iter().map(|row| CheckoutSessionRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}
