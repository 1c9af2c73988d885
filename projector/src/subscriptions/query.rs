//! Finds and lists subscriptions, in the newer form and in the older one.

use chrono::{DateTime, Utc};
use farthing_core::event::PendingChange;
use farthing_core::ids::{CreditBundleId, CustomerId, MerchantId, PlanId, SubscriptionId, WalletId};
use farthing_core::money::Amount;
use farthing_core::plan::PlanTerms;

use crate::customers::query::Contact;
use crate::query::{self, Error, Listed, Page, PartitionClient, text};
use crate::row::row;

row! {
    /// A subscription.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SubscriptionRow {
        /// The subscription.
        pub subscription_id: SubscriptionId = id,
        /// The customer.
        pub customer_id: CustomerId = id,
        /// The customer's wallet, which holds the credit.
        pub wallet_id: WalletId = id,
        /// The plan.
        pub plan_id: PlanId = id,
        /// The plan's terms in this cycle.
        pub terms: PlanTerms = json,
        /// The instant from which its cycles are counted.
        pub anchor: DateTime<Utc> = plain,
        /// When the cycle began.
        pub cycle_start: DateTime<Utc> = plain,
        /// When it ends.
        pub cycle_end: DateTime<Utc> = plain,
        /// The bundle that is bought when the credit is used up.
        pub auto_top_up_bundle_id: Option<CreditBundleId> = id_or_null,
        /// The change that is made at the end of the cycle.
        pub pending_change: Option<PendingChange> = json_or_null,
        /// The remaining credit of the plan.
        pub credit: Amount = amount,
        /// The wallet's remaining bundle credit.
        pub bundle_credit: Amount = amount,
        /// When it began.
        pub started_at: DateTime<Utc> = plain,
        /// When it ended, if it has.
        pub cancelled_at: Option<DateTime<Utc>> = plain,
        /// The customer's contact data.
        pub contact: Contact = nested,
    }
}

row! {
    /// A subscription with the fields of the older form.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ActiveRow {
        /// The subscription.
        pub subscription_id: SubscriptionId = id,
        /// The customer.
        pub customer_id: CustomerId = id,
        /// The customer's wallet.
        pub wallet_id: WalletId = id,
        /// The plan.
        pub plan_id: PlanId = id,
        /// The plan's terms in this cycle.
        pub terms: PlanTerms = json,
        /// The instant from which its cycles are counted.
        pub anchor: DateTime<Utc> = plain,
        /// When it began.
        pub started_at: DateTime<Utc> = plain,
        /// When it ended, if it has.
        pub cancelled_at: Option<DateTime<Utc>> = plain,
        /// When its plan was created.
        pub plan_created_at: DateTime<Utc> = plain,
        /// When its wallet was created.
        pub wallet_created_at: DateTime<Utc> = plain,
        /// The money in the wallet, without credit.
        pub balance: Amount = amount,
        /// The remaining credit of the wallet, of all plans and bundles.
        pub credit: Amount = amount,
        /// The customer's contact data.
        pub contact: Contact = nested,
    }
}

/// Whether a subscription continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionStatus {
    /// It renews at the end of its cycle, unless a change is pending.
    Active,
    /// It has ended.
    Cancelled,
}

impl SubscriptionStatus {
    const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Selects subscriptions; all conditions must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionFilter {
    /// Only those of this status.
    pub status: Option<SubscriptionStatus>,
    /// Only this customer's.
    pub customer_id: Option<CustomerId>,
}

macro_rules! select_subscriptions {
    ($rest:literal) => {
        concat!(
            "SELECT s.subscription_id, s.customer_id, s.wallet_id, s.plan_id, s.terms, s.anchor, s.cycle_start, ",
            "s.cycle_end, s.auto_top_up_bundle_id, s.pending_change, s.credit, COALESCE(b.remaining, 0) AS bundle_credit, ",
            "s.started_at, s.cancelled_at, p.first_name, p.last_name, p.email, p.phone ",
            "FROM {subscriptions}.subscriptions AS s ",
            "LEFT JOIN {subscriptions}.bundle_credit AS b ON b.partition = s.partition AND b.wallet_id = s.wallet_id ",
            "LEFT JOIN personal.customer AS p ON p.partition = s.partition AND p.customer_id = s.customer_id ",
            "WHERE s.partition = $1 AND s.merchant_id = $2 ",
            $rest
        )
    };
}

/// A merchant's subscription by id.
pub const FIND: &str = select_subscriptions!("AND s.subscription_id = $3");

/// The active subscription of a merchant's customer.
pub const FIND_ACTIVE: &str = select_subscriptions!(
    "AND s.customer_id = $3 AND s.status = 'active' \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT 1"
);

/// A merchant's subscriptions, newest first.
pub const LIST: &str = select_subscriptions!(
    "AND (s.started_at, s.subscription_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $5"
);

/// A merchant's subscriptions of a status.
pub const LIST_BY_STATUS: &str = select_subscriptions!(
    "AND s.status = $3 AND (s.started_at, s.subscription_id) < (COALESCE($4::timestamptz, 'infinity'), $5) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $6"
);

/// A customer's subscriptions, of any status or of one.
pub const LIST_BY_CUSTOMER: &str = select_subscriptions!(
    "AND s.customer_id = $3 AND s.status = COALESCE($4, s.status) \
     AND (s.started_at, s.subscription_id) < (COALESCE($5::timestamptz, 'infinity'), $6) \
     ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $7"
);

/// A merchant's subscriptions with the fields of the older form. Deleted plans and customers keep their rows. The subqueries keep
/// their `LIMIT 1`: with plain joins, Postgres takes the result for much shorter than it is, or a partition for empty that is not in
/// its statistics, and reads all subscriptions of the merchant, or all customers of the partition, for each page.
pub const LIST_OLDER: &str = "\
SELECT s.subscription_id, s.customer_id, s.wallet_id, s.plan_id, s.terms, s.anchor, s.started_at, s.cancelled_at,
       t.created_at AS plan_created_at, c.created_at AS wallet_created_at, w.balance, w.credit,
       p.first_name, p.last_name, p.email, p.phone
FROM {subscriptions}.subscriptions AS s
CROSS JOIN LATERAL (
    SELECT created_at FROM {plans}.plans WHERE partition = $1 AND plan_id = s.plan_id LIMIT 1) AS t
CROSS JOIN LATERAL (
    SELECT created_at FROM {connections}.connections WHERE partition = $1 AND connection_id = s.customer_id LIMIT 1) AS c
CROSS JOIN LATERAL (
    SELECT balance, credit FROM {connections}.wallets WHERE partition = $1 AND wallet_id = s.wallet_id LIMIT 1) AS w
LEFT JOIN LATERAL (
    SELECT first_name, last_name, email, phone FROM personal.customer
    WHERE partition = $1 AND customer_id = s.customer_id LIMIT 1) AS p ON true
WHERE s.partition = $1 AND s.merchant_id = $2
    AND (s.started_at, s.subscription_id) < (COALESCE($3::timestamptz, 'infinity'), $4)
ORDER BY s.started_at DESC, s.subscription_id DESC LIMIT $5";

/// The subscription of a cursor.
pub const CURSOR: &str = "SELECT started_at AS at FROM {subscriptions}.subscriptions WHERE partition = $1 AND merchant_id = $2 AND subscription_id = $3";

/// The merchant's subscription `id`.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: SubscriptionId,
) -> Result<Option<SubscriptionRow>, Error> {
    query::first(db, FIND, &[text(&merchant_id.to_string()), text(&id.to_string())]).await
}

/// The active subscription of the merchant's customer.
pub async fn find_active(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    customer_id: CustomerId,
) -> Result<Option<SubscriptionRow>, Error> {
    query::first(db, FIND_ACTIVE, &[text(&merchant_id.to_string()), text(&customer_id.to_string())]).await
}

/// Fails unless the cursor is one of the list of the merchant's subscriptions.
pub async fn check_cursor(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<(), Error> {
    page.start::<SubscriptionId>(db, CURSOR, &merchant_id.to_string()).await.map(drop)
}

/// The merchant's subscriptions, newest first.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
    filter: SubscriptionFilter,
) -> Result<Listed<SubscriptionRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<SubscriptionId>(db, CURSOR, &merchant).await?;
    let status = filter.status.map(SubscriptionStatus::name);
    let mut parameters = vec![text(&merchant)];
    if let Some(customer) = filter.customer_id.map(|id| id.to_string()) {
        parameters.extend([text(&customer), text(&status)]);
        return query::list(db, LIST_BY_CUSTOMER, &parameters, &start, page).await;
    }
    if let Some(status) = status {
        parameters.push(text(&status));
        return query::list(db, LIST_BY_STATUS, &parameters, &start, page).await;
    }
    query::list(db, LIST, &parameters, &start, page).await
}

/// The merchant's subscriptions, newest first, in the older form. Reads the models `plans` and `connections` as well.
pub async fn older(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<Listed<ActiveRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<SubscriptionId>(db, CURSOR, &merchant).await?;
    query::list(db, LIST_OLDER, &[text(&merchant)], &start, page).await
}
