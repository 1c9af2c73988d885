//! Finds and lists customers.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::ids::{CustomerId, MerchantId, PlanId, SubscriptionId, WalletId};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Listed, Page, Parameter, findable};

/// What a merchant may know of a customer's person; erased apart from the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contact {
    /// First name.
    pub first_name: Option<String>,
    /// Last name.
    pub last_name: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
    /// Phone number, E.164.
    pub phone: Option<String>,
}

impl Contact {
    pub(crate) fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            first_name: columns.plain()?,
            last_name: columns.plain()?,
            email: columns.plain()?,
            phone: columns.plain()?,
        })
    }
}

/// What a customer is subscribed to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// Its plan.
    pub plan_id: PlanId,
    /// The plan's name, as it was when the cycle began.
    pub name: String,
}

/// A customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomerRow {
    /// The customer, which is also the connection.
    pub customer_id: CustomerId,
    /// The customer's wallet.
    pub wallet_id: WalletId,
    /// The merchant's own identifier.
    pub reference_id: Option<String>,
    /// Free key-value pairs.
    pub metadata: BTreeMap<String, String>,
    /// When it came to be.
    pub created_at: DateTime<Utc>,
    /// The active subscription.
    pub subscription: Option<Subscribed>,
    /// The customer's person.
    pub contact: Contact,
}

impl CustomerRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            customer_id: columns.id()?,
            wallet_id: columns.id()?,
            reference_id: columns.plain()?,
            metadata: columns.json()?,
            created_at: columns.plain()?,
            subscription: columns.json_or_null()?,
            contact: Contact::read(columns)?,
        })
    }
}

macro_rules! select_customers {
    ($rest:literal) => {
        concat!(
            "SELECT c.customer_id, c.wallet_id, c.reference_id, c.metadata, c.created_at, c.subscription, ",
            "p.first_name, p.last_name, p.email, p.phone ",
            "FROM customers.customers AS c ",
            "LEFT JOIN personal.customer AS p ON p.customer_id = c.customer_id COLLATE \"default\" ",
            "WHERE c.merchant_id = $1 AND c.deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's customer by id, even one that is no more: of such a one hardly more is left than that it was there.
pub const FIND_EVEN_DELETED: &str = concat!(
    "SELECT c.customer_id, c.wallet_id, c.reference_id, c.metadata, c.created_at, c.subscription, ",
    "p.first_name, p.last_name, p.email, p.phone FROM customers.customers AS c ",
    "LEFT JOIN personal.customer AS p ON p.customer_id = c.customer_id COLLATE \"default\" ",
    "WHERE c.merchant_id = $1 AND c.customer_id = $2"
);

/// A merchant's customer by id.
pub const FIND_BY_ID: &str = select_customers!("AND c.customer_id = $2");

/// A merchant's customer by reference id.
pub const FIND_BY_REFERENCE: &str = select_customers!("AND c.reference_id = $2");

/// A merchant's customers, newest first.
pub const LIST: &str = select_customers!("ORDER BY c.created_at DESC, c.customer_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_AFTER: &str = select_customers!(
    "AND (c.created_at, c.customer_id) < ($3, $4) ORDER BY c.created_at DESC, c.customer_id DESC LIMIT $2"
);

/// A merchant's customers with a reference id.
pub const LIST_BY_REFERENCE: &str =
    select_customers!("AND c.reference_id = $3 ORDER BY c.created_at DESC, c.customer_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_BY_REFERENCE_AFTER: &str = select_customers!(
    "AND c.reference_id = $3 AND (c.created_at, c.customer_id) < ($4, $5) \
     ORDER BY c.created_at DESC, c.customer_id DESC LIMIT $2"
);

/// When the customer of a cursor came to be; one deleted in the meantime still has its place in the list.
pub const CURSOR: &str =
    "SELECT created_at FROM customers.customers WHERE merchant_id = $1 AND customer_id = $2";

/// The merchant's customer called `name`: a customer id or the merchant's own reference id.
pub async fn find(db: &Client, merchant_id: MerchantId, name: &str) -> Result<Option<CustomerRow>, Error> {
    if !findable(name) {
        return Ok(None);
    }
    // A reference id may not begin with `con_` (completion.md section 7), so no name means two customers.
    let sql = if name.parse::<CustomerId>().is_ok() { FIND_BY_ID } else { FIND_BY_REFERENCE };
    let merchant = merchant_id.to_string();
    let row = db.query_typed(sql, &[(&merchant, Type::TEXT), (&name, Type::TEXT)]).await?.into_iter().next();
    Ok(row.map(|row| CustomerRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's customer `id`, even one that is no more.
pub async fn find_even_deleted(
    db: &Client,
    merchant_id: MerchantId,
    id: CustomerId,
) -> Result<Option<CustomerRow>, Error> {
    let parameters: [Parameter<'_>; 2] =
        [(&merchant_id.to_string(), Type::TEXT), (&id.to_string(), Type::TEXT)];
    let row = db.query_typed(FIND_EVEN_DELETED, &parameters).await?.into_iter().next();
    Ok(row.map(|row| CustomerRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's customers, newest first; only the one with `reference_id` when one is given.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    reference_id: Option<&str>,
) -> Result<Listed<CustomerRow>, Error> {
    let merchant = merchant_id.to_string();
    let after = match page.cursor {
        Some(cursor) => Some(cursor_position(db, &merchant, cursor).await?),
        None => None,
    };
    if !reference_id.is_none_or(findable) {
        return Ok(Listed::empty());
    }
    let limit = page.rows_to_ask();
    let mut parameters: Vec<Parameter<'_>> = vec![(&merchant, Type::TEXT), (&limit, Type::INT8)];
    if let Some(reference_id) = &reference_id {
        parameters.push((reference_id, Type::TEXT));
    }
    if let Some((created_at, id)) = &after {
        parameters.extend([(created_at as _, Type::TIMESTAMPTZ), (id as _, Type::TEXT)]);
    }
    let sql = match (reference_id, &after) {
        (None, None) => LIST,
        (None, Some(_)) => LIST_AFTER,
        (Some(_), None) => LIST_BY_REFERENCE,
        (Some(_), Some(_)) => LIST_BY_REFERENCE_AFTER,
    };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| CustomerRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

async fn cursor_position(
    db: &Client,
    merchant: &str,
    cursor: &str,
) -> Result<(DateTime<Utc>, String), Error> {
    let id: CustomerId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
    let id = id.to_string();
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, id))
}

/// The person of a customer.
pub const CONTACT: &str =
    "SELECT first_name, last_name, email, phone FROM personal.customer WHERE customer_id = $1";

/// What is known of the customer's person: written with what tells of it, so that it is never behind.
pub async fn contact(db: &Client, id: CustomerId) -> Result<Contact, Error> {
    let row = db.query_typed(CONTACT, &[(&id.to_string(), Type::TEXT)]).await?.into_iter().next();
    Ok(row.map(|row| Contact::read(&mut Columns::of(&row))).transpose()?.unwrap_or_default())
}
