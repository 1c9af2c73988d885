//! Finds and lists meters.

use chrono::{DateTime, Utc};
use farthing_core::ids::{MerchantId, MeterId};
use farthing_core::meter::Price;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Listed, Page, Parameter, findable};

/// A meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterRow {
    /// The meter, which is also the product.
    pub meter_id: MeterId,
    /// Unique among the merchant's meters.
    pub meter_slug: String,
    /// Its display name.
    pub name: String,
    /// Its price.
    pub price: Price,
    /// When it was defined.
    pub created_at: DateTime<Utc>,
}

impl MeterRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            meter_id: columns.id()?,
            meter_slug: columns.plain()?,
            name: columns.plain()?,
            price: columns.json()?,
            created_at: columns.plain()?,
        })
    }
}

macro_rules! select_meters {
    ($rest:literal) => {
        concat!(
            "SELECT meter_id, meter_slug, name, price, created_at FROM meters.meters ",
            "WHERE merchant_id = $1 AND deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's meter by id.
pub const FIND_BY_ID: &str = select_meters!("AND meter_id = $2");

/// A merchant's meter by slug.
pub const FIND_BY_SLUG: &str = select_meters!("AND meter_slug = $2");

/// A merchant's meters, newest first.
pub const LIST: &str = select_meters!("ORDER BY created_at DESC, meter_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_AFTER: &str =
    select_meters!("AND (created_at, meter_id) < ($3, $4) ORDER BY created_at DESC, meter_id DESC LIMIT $2");

/// When the meter of a cursor was defined; one deleted in the meantime still has its place in the list.
pub const CURSOR: &str = "SELECT created_at FROM meters.meters WHERE merchant_id = $1 AND meter_id = $2";

/// The merchant's meter called `name`: a meter id or a slug.
pub async fn find(db: &Client, merchant_id: MerchantId, name: &str) -> Result<Option<MeterRow>, Error> {
    if !findable(name) {
        return Ok(None);
    }
    // A slug may not begin with `prd_`, so no name means two meters.
    let sql = if name.parse::<MeterId>().is_ok() { FIND_BY_ID } else { FIND_BY_SLUG };
    let merchant = merchant_id.to_string();
    let row = db.query_typed(sql, &[(&merchant, Type::TEXT), (&name, Type::TEXT)]).await?.into_iter().next();
    Ok(row.map(|row| MeterRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's meters, newest first.
pub async fn list(db: &Client, merchant_id: MerchantId, page: Page<'_>) -> Result<Listed<MeterRow>, Error> {
    let merchant = merchant_id.to_string();
    let after = match page.cursor {
        Some(cursor) => Some(cursor_position(db, &merchant, cursor).await?),
        None => None,
    };
    let limit = page.rows_to_ask();
    let mut parameters: Vec<Parameter<'_>> = vec![(&merchant, Type::TEXT), (&limit, Type::INT8)];
    if let Some((created_at, id)) = &after {
        parameters.extend([(created_at as _, Type::TIMESTAMPTZ), (id as _, Type::TEXT)]);
    }
    let sql = if after.is_some() { LIST_AFTER } else { LIST };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| MeterRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

async fn cursor_position(
    db: &Client,
    merchant: &str,
    cursor: &str,
) -> Result<(DateTime<Utc>, String), Error> {
    let id: MeterId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
    let id = id.to_string();
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, id))
}
