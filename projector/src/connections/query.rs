//! Finds and lists connections.

use chrono::{DateTime, Utc};
use farthing_core::ids::{CustomerId, MerchantId, WalletId};
use farthing_core::money::Amount;
use farthing_core::period::Period;
use tokio_postgres::Row;

use crate::customers::query::Contact;
use crate::query::{self, Error, Listed, Page, PartitionClient, findable, text};
use crate::row::{FromRow, ReadColumn as _, Unreadable, row};

row! {
    /// A connection.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ConnectionRow {
        /// The connection, which is also the customer.
        pub connection_id: CustomerId = id,
        /// Its wallet.
        pub wallet_id: WalletId = id,
        /// The money in the wallet, open holds included.
        pub balance: Amount = amount,
        /// The remaining credit of plan and bundles.
        pub credit: Amount = amount,
        /// The cycle of its subscription, which is its usage period.
        pub cycle: Option<Period> = nested,
        /// Whether the wallet recharges automatically.
        pub autopay_enabled: bool = plain,
        /// The merchant's own identifier.
        pub reference_id: Option<String> = plain,
        /// When it was created; the anchor of its usage periods while there is no subscription.
        pub created_at: DateTime<Utc> = plain,
        /// The customer's contact data.
        pub contact: Contact = nested,
    }
}

impl FromRow for Option<Period> {
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        let (start, end): (Option<_>, Option<_>) = (row.plain("cycle_start")?, row.plain("cycle_end")?);
        Ok(start.zip(end).map(|(start, end)| Period { start, end }))
    }
}

macro_rules! select_connections {
    ($rest:literal) => {
        concat!(
            "SELECT c.connection_id, c.wallet_id, w.balance, w.credit, w.cycle_start, w.cycle_end, ",
            "w.autopay AS autopay_enabled, c.reference_id, c.created_at, ",
            "p.first_name, p.last_name, p.email, p.phone ",
            "FROM {connections}.connections AS c ",
            "JOIN {connections}.wallets AS w ON w.partition = c.partition AND w.wallet_id = c.wallet_id ",
            "LEFT JOIN personal.customer AS p ON p.partition = c.partition AND p.customer_id = c.connection_id ",
            "WHERE c.partition = $1 AND c.merchant_id = $2 AND c.deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's connection by id.
pub const FIND: &str = select_connections!("AND c.connection_id = $3");

/// A merchant's connections, newest first.
pub const LIST: &str = select_connections!(
    "AND (c.created_at, c.connection_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY c.created_at DESC, c.connection_id DESC LIMIT $5"
);

/// A merchant's connections with a reference id.
pub const LIST_BY_REFERENCE: &str = select_connections!(
    "AND c.reference_id = $3 AND (c.created_at, c.connection_id) < (COALESCE($4::timestamptz, 'infinity'), $5) \
     ORDER BY c.created_at DESC, c.connection_id DESC LIMIT $6"
);

/// The connection of a cursor. A deleted one keeps its place in the list.
pub const CURSOR: &str = "SELECT created_at AS at FROM {connections}.connections WHERE partition = $1 AND merchant_id = $2 AND connection_id = $3";

/// The merchant's connection `id`.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: CustomerId,
) -> Result<Option<ConnectionRow>, Error> {
    query::first(db, FIND, &[text(&merchant_id.to_string()), text(&id.to_string())]).await
}

/// The merchant's connections, newest first; only those with `reference_id` when one is given.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
    reference_id: Option<&str>,
) -> Result<Listed<ConnectionRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<CustomerId>(db, CURSOR, &merchant).await?;
    match reference_id {
        None => query::list(db, LIST, &[text(&merchant)], &start, page).await,
        Some(id) if !findable(id) => Ok(Listed::empty()),
        Some(id) => query::list(db, LIST_BY_REFERENCE, &[text(&merchant), text(&id)], &start, page).await,
    }
}
