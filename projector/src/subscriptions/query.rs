//! Finds and lists subscriptions, in the newer form and in the older one.

use chrono::{DateTime, Utc};
use farthing_core::event::PendingChange;
use farthing_core::ids::{CreditBundleId, CustomerId, MerchantId, PlanId, SubscriptionId, WalletId};
use farthing_core::money::Amount;
use farthing_core::plan::PlanTerms;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::customers::query::Contact;
use crate::query::{Error, Listed, Page, Parameter};

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRow {
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// Whose.
    pub customer_id: CustomerId,
    /// The customer's wallet, which holds the credit.
    pub wallet_id: WalletId,
    /// The plan.
    pub plan_id: PlanId,
    /// The plan's terms in this cycle.
    pub terms: PlanTerms,
    /// What its cycles are counted from.
    pub anchor: DateTime<Utc>,
    /// When the cycle began.
    pub cycle_start: DateTime<Utc>,
    /// When it ends.
    pub cycle_end: DateTime<Utc>,
    /// The bundle that is bought when the credit is used up.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
    /// What is to become of it at the end of the cycle.
    pub pending_change: Option<PendingChange>,
    /// What is left of the plan's credit.
    pub credit: Amount,
    /// What is left of the wallet's bundle credit.
    pub bundle_credit: Amount,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it ended, if it has.
    pub cancelled_at: Option<DateTime<Utc>>,
    /// The customer's person.
    pub contact: Contact,
}

/// A subscription with what only the older form shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRow {
    /// The subscription.
    pub subscription: SubscriptionRow,
    /// When its plan was created.
    pub plan_created_at: DateTime<Utc>,
    /// When its wallet came to be.
    pub wallet_created_at: DateTime<Utc>,
    /// The money in the wallet, credit apart.
    pub balance: Amount,
}

/// Whether a subscription goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does.
    Active,
    /// It has ended.
    Cancelled,
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Which subscriptions are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only those of this status.
    pub status: Option<Status>,
    /// Only this customer's.
    pub customer_id: Option<CustomerId>,
}

impl SubscriptionRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            subscription_id: columns.id()?,
            customer_id: columns.id()?,
            wallet_id: columns.id()?,
            plan_id: columns.id()?,
            terms: columns.json()?,
            anchor: columns.plain()?,
            cycle_start: columns.plain()?,
            cycle_end: columns.plain()?,
            auto_top_up_bundle_id: columns.id_or_null()?,
            pending_change: columns.json_or_null()?,
            credit: columns.amount()?,
            bundle_credit: columns.amount()?,
            started_at: columns.plain()?,
            cancelled_at: columns.plain()?,
            contact: Contact::read(columns)?,
        })
    }
}

macro_rules! select_subscriptions {
    ($columns:literal, $joins:literal, $rest:literal) => {
        concat!(
            "SELECT s.subscription_id, s.customer_id, s.wallet_id, s.plan_id, s.terms, s.anchor, s.cycle_start, ",
            "s.cycle_end, s.auto_top_up_bundle_id, s.pending_change, s.credit, COALESCE(b.remaining, 0), ",
            "s.started_at, s.cancelled_at, p.first_name, p.last_name, p.email, p.phone",
            $columns,
            " FROM subscriptions.subscriptions AS s ",
            "LEFT JOIN subscriptions.bundle_credit AS b ON b.wallet_id = s.wallet_id ",
            "LEFT JOIN personal.customer AS p ON p.customer_id = s.customer_id COLLATE \"default\" ",
            $joins,
            "WHERE s.merchant_id = $1 ",
            $rest
        )
    };
}

/// A merchant's subscription by id.
pub const FIND: &str = select_subscriptions!("", "", "AND s.subscription_id = $2");

/// The active subscription of a merchant's customer.
pub const FIND_ACTIVE: &str = select_subscriptions!(
    "",
    "",
    "AND s.customer_id = $2 AND s.status = 'active' \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT 1"
);

/// A merchant's subscriptions, newest first.
pub const LIST: &str =
    select_subscriptions!("", "", "ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_AFTER: &str = select_subscriptions!(
    "",
    "",
    "AND (s.started_at, s.subscription_id) < ($3, $4) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2"
);

/// A merchant's subscriptions of a status.
pub const LIST_BY_STATUS: &str = select_subscriptions!(
    "",
    "",
    "AND s.status = $3 ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2"
);

/// The same, after a cursor.
pub const LIST_BY_STATUS_AFTER: &str = select_subscriptions!(
    "",
    "",
    "AND s.status = $3 AND (s.started_at, s.subscription_id) < ($4, $5) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2"
);

/// A customer's subscriptions, of any status or of one.
pub const LIST_BY_CUSTOMER: &str = select_subscriptions!(
    "",
    "",
    "AND s.customer_id = $3 AND s.status = COALESCE($4, s.status) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2"
);

/// The same, after a cursor.
pub const LIST_BY_CUSTOMER_AFTER: &str = select_subscriptions!(
    "",
    "",
    "AND s.customer_id = $3 AND s.status = COALESCE($4, s.status) \
     AND (s.started_at, s.subscription_id) < ($5, $6) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2"
);

/// A merchant's subscriptions with what the older form shows. Plans that were deleted keep their rows, as customers do.
pub const LIST_OLDER: &str = select_subscriptions!(
    ", t.created_at, c.created_at, w.balance",
    "JOIN plans.plans AS t ON t.plan_id = s.plan_id \
     JOIN connections.connections AS c ON c.connection_id = s.customer_id \
     JOIN connections.wallets AS w ON w.wallet_id = s.wallet_id ",
    "ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2"
);

/// The same, after a cursor.
pub const LIST_OLDER_AFTER: &str = select_subscriptions!(
    ", t.created_at, c.created_at, w.balance",
    "JOIN plans.plans AS t ON t.plan_id = s.plan_id \
     JOIN connections.connections AS c ON c.connection_id = s.customer_id \
     JOIN connections.wallets AS w ON w.wallet_id = s.wallet_id ",
    "AND (s.started_at, s.subscription_id) < ($3, $4) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $2"
);

/// When the subscription of a cursor began.
pub const CURSOR: &str =
    "SELECT started_at FROM subscriptions.subscriptions WHERE merchant_id = $1 AND subscription_id = $2";

/// Items of a page, where all are read.
const ALL_AT_ONCE: i64 = 1_000;

/// The merchant's subscription `id`.
pub async fn find(
    db: &Client,
    merchant_id: MerchantId,
    id: SubscriptionId,
) -> Result<Option<SubscriptionRow>, Error> {
    one(db, FIND, merchant_id, &id.to_string()).await
}

/// The active subscription of the merchant's customer.
pub async fn find_active(
    db: &Client,
    merchant_id: MerchantId,
    customer_id: CustomerId,
) -> Result<Option<SubscriptionRow>, Error> {
    one(db, FIND_ACTIVE, merchant_id, &customer_id.to_string()).await
}

async fn one(
    db: &Client,
    sql: &str,
    merchant_id: MerchantId,
    id: &str,
) -> Result<Option<SubscriptionRow>, Error> {
    let parameters: [Parameter<'_>; 2] = [(&merchant_id.to_string(), Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(sql, &parameters).await?.into_iter().next();
    Ok(row.map(|row| SubscriptionRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's subscriptions, newest first.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    filter: Filter,
) -> Result<Listed<SubscriptionRow>, Error> {
    let merchant = merchant_id.to_string();
    let after = match page.cursor {
        Some(cursor) => Some(cursor_position(db, &merchant, cursor).await?),
        None => None,
    };
    let limit = page.rows_to_ask();
    let customer = filter.customer_id.map(|id| id.to_string());
    let status = filter.status.map(Status::word);
    let mut parameters: Vec<Parameter<'_>> = vec![(&merchant, Type::TEXT), (&limit, Type::INT8)];
    if let Some(customer) = &customer {
        parameters.extend([(customer as _, Type::TEXT), (&status as _, Type::TEXT)]);
    } else if let Some(status) = &status {
        parameters.push((status, Type::TEXT));
    }
    if let Some((started_at, id)) = &after {
        parameters.extend([(started_at as _, Type::TIMESTAMPTZ), (id as _, Type::TEXT)]);
    }
    let sql = match (&customer, status, &after) {
        (Some(_), _, None) => LIST_BY_CUSTOMER,
        (Some(_), _, Some(_)) => LIST_BY_CUSTOMER_AFTER,
        (None, Some(_), None) => LIST_BY_STATUS,
        (None, Some(_), Some(_)) => LIST_BY_STATUS_AFTER,
        (None, None, None) => LIST,
        (None, None, Some(_)) => LIST_AFTER,
    };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> =
        rows.iter().map(|row| SubscriptionRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

/// All of the merchant's subscriptions, newest first, in the older form. Wants the read models `plans` and
/// `connections` as well.
pub async fn older(db: &Client, merchant_id: MerchantId) -> Result<Vec<ActiveRow>, Error> {
    let merchant = merchant_id.to_string();
    let mut all: Vec<ActiveRow> = Vec::new();
    loop {
        let last = all.last().map(|row| &row.subscription);
        let after = last.map(|last| (last.started_at, last.subscription_id.to_string()));
        let mut parameters: Vec<Parameter<'_>> = vec![(&merchant, Type::TEXT), (&ALL_AT_ONCE, Type::INT8)];
        if let Some((started_at, id)) = &after {
            parameters.extend([(started_at as _, Type::TIMESTAMPTZ), (id as _, Type::TEXT)]);
        }
        let sql = if after.is_some() { LIST_OLDER_AFTER } else { LIST_OLDER };
        let rows = db.query_typed(sql, &parameters).await?;
        for row in &rows {
            let mut columns = Columns::of(row);
            all.push(ActiveRow {
                subscription: SubscriptionRow::read(&mut columns)?,
                plan_created_at: columns.plain()?,
                wallet_created_at: columns.plain()?,
                balance: columns.amount()?,
            });
        }
        if i64::try_from(rows.len()).unwrap_or(0) < ALL_AT_ONCE {
            return Ok(all);
        }
    }
}

async fn cursor_position(
    db: &Client,
    merchant: &str,
    cursor: &str,
) -> Result<(DateTime<Utc>, String), Error> {
    let id: SubscriptionId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
    let id = id.to_string();
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, id))
}
