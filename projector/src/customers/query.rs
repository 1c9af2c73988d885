//! Finds customers.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_ledger::ids::{CustomerId, MerchantId, WalletId};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, findable};

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
            contact: Contact::read(columns)?,
        })
    }
}

/// A merchant's customer by id.
pub const FIND_BY_ID: &str = "SELECT c.customer_id, c.wallet_id, c.reference_id, c.metadata, c.created_at, \
            p.first_name, p.last_name, p.email, p.phone \
     FROM customers.customers AS c \
     LEFT JOIN personal.customer AS p ON p.customer_id = c.customer_id COLLATE \"default\" \
     WHERE c.customer_id = $2 AND c.merchant_id = $1";

/// A merchant's customer by reference id.
pub const FIND_BY_REFERENCE: &str = "SELECT c.customer_id, c.wallet_id, c.reference_id, c.metadata, c.created_at, \
            p.first_name, p.last_name, p.email, p.phone \
     FROM customers.customers AS c \
     LEFT JOIN personal.customer AS p ON p.customer_id = c.customer_id COLLATE \"default\" \
     WHERE c.merchant_id = $1 AND c.reference_id = $2";

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
