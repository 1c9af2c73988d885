//! Finds and lists customers.

use chrono::{DateTime, Utc};
use farthing_core::ids::{CustomerId, MerchantId, PlanId, SubscriptionId, WalletId};
use farthing_core::metadata::Metadata;
use serde::{Deserialize, Serialize};

use crate::query::{self, Error, Listed, Page, PartitionClient, findable, text};
use crate::row::{FromRow as _, row};

row! {
    /// A customer's contact data. It is stored outside of the log, so that it can be erased.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Contact {
        /// First name.
        pub first_name: Option<String> = plain,
        /// Last name.
        pub last_name: Option<String> = plain,
        /// E-mail address.
        pub email: Option<String> = plain,
        /// Phone number, E.164.
        pub phone: Option<String> = plain,
    }
}

/// A customer's active subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// Its plan.
    pub plan_id: PlanId,
    /// The plan's name, as it was when the cycle began.
    pub name: String,
}

row! {
    /// A customer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CustomerRow {
        /// The customer, which is also the connection.
        pub customer_id: CustomerId = id,
        /// The customer's wallet.
        pub wallet_id: WalletId = id,
        /// The merchant's own identifier.
        pub reference_id: Option<String> = plain,
        /// Free key-value pairs.
        pub metadata: Metadata = json,
        /// When it was created.
        pub created_at: DateTime<Utc> = plain,
        /// The active subscription.
        pub subscription: Option<Subscribed> = json_or_null,
        /// The contact data.
        pub contact: Contact = nested,
    }
}

macro_rules! select_customers {
    ($rest:literal) => {
        concat!(
            "SELECT c.customer_id, c.wallet_id, c.reference_id, c.metadata, c.created_at, c.subscription, ",
            "p.first_name, p.last_name, p.email, p.phone ",
            "FROM {customers}.customers AS c ",
            "LEFT JOIN personal.customer AS p ON p.partition = c.partition AND p.customer_id = c.customer_id ",
            "WHERE c.partition = $1 AND c.merchant_id = $2 ",
            $rest
        )
    };
}

/// A merchant's customer by id, deleted or not. A deleted one has little more than its id.
pub const FIND_EVEN_DELETED: &str = select_customers!("AND c.customer_id = $3");

/// A merchant's customer by id.
pub const FIND_BY_ID: &str = select_customers!("AND c.deleted_at IS NULL AND c.customer_id = $3");

/// A merchant's customer by reference id.
pub const FIND_BY_REFERENCE: &str = select_customers!("AND c.deleted_at IS NULL AND c.reference_id = $3");

/// A merchant's customers, newest first.
pub const LIST: &str = select_customers!(
    "AND c.deleted_at IS NULL AND (c.created_at, c.customer_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY c.created_at DESC, c.customer_id DESC LIMIT $5"
);

/// A merchant's customers with a reference id.
pub const LIST_BY_REFERENCE: &str = select_customers!(
    "AND c.deleted_at IS NULL AND c.reference_id = $3 \
     AND (c.created_at, c.customer_id) < (COALESCE($4::timestamptz, 'infinity'), $5) \
     ORDER BY c.created_at DESC, c.customer_id DESC LIMIT $6"
);

/// The customer of a cursor. A deleted one keeps its place in the list.
pub const CURSOR: &str = "SELECT created_at AS at FROM {customers}.customers WHERE partition = $1 AND merchant_id = $2 AND customer_id = $3";

/// The merchant's customer called `name`: a customer id or the merchant's own reference id.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    name: &str,
) -> Result<Option<CustomerRow>, Error> {
    if !findable(name) {
        return Ok(None);
    }
    // A reference id may not begin with `con_` (completion.md section 7), so a name has one meaning.
    let sql = if name.parse::<CustomerId>().is_ok() { FIND_BY_ID } else { FIND_BY_REFERENCE };
    query::first(db, sql, &[text(&merchant_id.to_string()), text(&name)]).await
}

/// The merchant's customer `id`, deleted or not.
pub async fn find_even_deleted(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: CustomerId,
) -> Result<Option<CustomerRow>, Error> {
    query::first(db, FIND_EVEN_DELETED, &[text(&merchant_id.to_string()), text(&id.to_string())]).await
}

/// The merchant's customers, newest first; only the one with `reference_id` when one is given.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
    reference_id: Option<&str>,
) -> Result<Listed<CustomerRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<CustomerId>(db, CURSOR, &merchant).await?;
    match reference_id {
        None => query::list(db, LIST, &[text(&merchant)], &start, page).await,
        Some(id) if !findable(id) => Ok(Listed::empty()),
        Some(id) => query::list(db, LIST_BY_REFERENCE, &[text(&merchant), text(&id)], &start, page).await,
    }
}

/// The contact data of a customer.
pub const CONTACT: &str = "SELECT first_name, last_name, email, phone FROM personal.customer WHERE partition = $1 AND customer_id = $2";

/// The customer's contact data. It is written in the transaction of its event, so it is never behind the log.
pub async fn contact(db: PartitionClient<'_>, id: CustomerId) -> Result<Contact, Error> {
    let rows = db.query(CONTACT, &[text(&id.to_string())]).await?;
    Ok(rows.first().map(Contact::from_row).transpose()?.unwrap_or_default())
}
