//! Finds and lists meters.

use chrono::{DateTime, Utc};
use farthing_core::ids::{MerchantId, MeterId};
use farthing_core::meter::Price;

use crate::query::{self, Error, Listed, Page, PartitionClient, findable, text};
use crate::row::row;

row! {
    /// A meter.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MeterRow {
        /// The meter, which is also the product.
        pub meter_id: MeterId = id,
        /// Unique among the merchant's meters.
        pub meter_slug: String = plain,
        /// Its display name.
        pub name: String = plain,
        /// Its price.
        pub price: Price = json,
        /// When it was defined.
        pub created_at: DateTime<Utc> = plain,
    }
}

macro_rules! select_meters {
    ($rest:literal) => {
        concat!(
            "SELECT meter_id, meter_slug, name, price, created_at FROM {meters}.meters ",
            "WHERE partition = $1 AND merchant_id = $2 AND deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's meter by id.
pub const FIND_BY_ID: &str = select_meters!("AND meter_id = $3");

/// A merchant's meter by slug.
pub const FIND_BY_SLUG: &str = select_meters!("AND meter_slug = $3");

/// A merchant's meters, newest first.
pub const LIST: &str = select_meters!(
    "AND (created_at, meter_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY created_at DESC, meter_id DESC LIMIT $5"
);

/// The meter of a cursor. A deleted one keeps its place in the list.
pub const CURSOR: &str = "SELECT created_at AS at FROM {meters}.meters WHERE partition = $1 AND merchant_id = $2 AND meter_id = $3";

/// The merchant's meter called `name`: a meter id or a slug.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    name: &str,
) -> Result<Option<MeterRow>, Error> {
    if !findable(name) {
        return Ok(None);
    }
    // A slug may not begin with `prd_`, so a name has one meaning.
    let sql = if name.parse::<MeterId>().is_ok() { FIND_BY_ID } else { FIND_BY_SLUG };
    query::first(db, sql, &[text(&merchant_id.to_string()), text(&name)]).await
}

/// The merchant's meters, newest first.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<Listed<MeterRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<MeterId>(db, CURSOR, &merchant).await?;
    query::list(db, LIST, &[text(&merchant)], &start, page).await
}
