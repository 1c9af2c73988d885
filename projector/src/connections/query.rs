//! Finds and lists connections.

use chrono::{DateTime, Utc};
use farthing_core::ids::{CustomerId, MerchantId, WalletId};
use farthing_core::money::Amount;
use farthing_core::period::Period;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::customers::query::Contact;
use crate::query::{Error, Listed, Page, Parameter, findable};

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRow {
    /// The connection, which is also the customer.
    pub connection_id: CustomerId,
    /// Its wallet.
    pub wallet_id: WalletId,
    /// The money in the wallet, open holds included.
    pub balance: Amount,
    /// What is left of the credit of plan and bundles.
    pub credit: Amount,
    /// The cycle of its subscription, which is its usage period.
    pub cycle: Option<Period>,
    /// Is the wallet filled up by itself?
    pub autopay_enabled: bool,
    /// The merchant's own identifier.
    pub reference_id: Option<String>,
    /// When it came to be; anchors its usage periods where there is no subscription.
    pub created_at: DateTime<Utc>,
    /// The customer's person.
    pub contact: Contact,
}

impl ConnectionRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            connection_id: columns.id()?,
            wallet_id: columns.id()?,
            balance: columns.amount()?,
            credit: columns.amount()?,
            cycle: {
                let (start, end) = (columns.plain::<Option<_>>()?, columns.plain::<Option<_>>()?);
                start.zip(end).map(|(start, end)| Period { start, end })
            },
            autopay_enabled: columns.plain()?,
            reference_id: columns.plain()?,
            created_at: columns.plain()?,
            contact: Contact::read(columns)?,
        })
    }
}

macro_rules! select_connections {
    ($rest:literal) => {
        concat!(
            "SELECT c.connection_id, c.wallet_id, w.balance, w.credit, w.cycle_start, w.cycle_end, ",
            "w.autopay, c.reference_id, c.created_at, ",
            "p.first_name, p.last_name, p.email, p.phone ",
            "FROM connections.connections AS c ",
            "JOIN connections.wallets AS w ON w.wallet_id = c.wallet_id ",
            "LEFT JOIN personal.customer AS p ON p.customer_id = c.connection_id COLLATE \"default\" ",
            "WHERE c.merchant_id = $1 AND c.deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's connection by id.
pub const FIND: &str = select_connections!("AND c.connection_id = $2");

/// A merchant's connections, newest first.
pub const LIST: &str = select_connections!("ORDER BY c.created_at DESC, c.connection_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_AFTER: &str = select_connections!(
    "AND (c.created_at, c.connection_id) < ($3, $4) ORDER BY c.created_at DESC, c.connection_id DESC LIMIT $2"
);

/// A merchant's connections with a reference id.
pub const LIST_BY_REFERENCE: &str =
    select_connections!("AND c.reference_id = $3 ORDER BY c.created_at DESC, c.connection_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_BY_REFERENCE_AFTER: &str = select_connections!(
    "AND c.reference_id = $3 AND (c.created_at, c.connection_id) < ($4, $5) \
     ORDER BY c.created_at DESC, c.connection_id DESC LIMIT $2"
);

/// When the connection of a cursor came to be; one deleted in the meantime still has its place in the list.
pub const CURSOR: &str =
    "SELECT created_at FROM connections.connections WHERE merchant_id = $1 AND connection_id = $2";

/// The merchant's connection `id`.
pub async fn find(
    db: &Client,
    merchant_id: MerchantId,
    id: CustomerId,
) -> Result<Option<ConnectionRow>, Error> {
    let parameters: [Parameter<'_>; 2] =
        [(&merchant_id.to_string(), Type::TEXT), (&id.to_string(), Type::TEXT)];
    let row = db.query_typed(FIND, &parameters).await?.into_iter().next();
    Ok(row.map(|row| ConnectionRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's connections, newest first; only those with `reference_id` when one is given.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    reference_id: Option<&str>,
) -> Result<Listed<ConnectionRow>, Error> {
    let after = match page.cursor {
        Some(cursor) => Some(cursor_position(db, merchant_id, cursor).await?),
        None => None,
    };
    if !reference_id.is_none_or(findable) {
        return Ok(Listed::empty());
    }
    let merchant = merchant_id.to_string();
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
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| ConnectionRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

async fn cursor_position(
    db: &Client,
    merchant_id: MerchantId,
    cursor: &str,
) -> Result<(DateTime<Utc>, String), Error> {
    let id: CustomerId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
    let id = id.to_string();
    let parameters: [Parameter<'_>; 2] = [(&merchant_id.to_string(), Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, id))
}
