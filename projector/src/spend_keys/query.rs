//! Finds spend keys, with what they have spent in the cycles of their limits.

use chrono::{DateTime, Utc};
use farthing_core::event::{Cycle, SpendKeySettings, SpendKeyStatus};
use farthing_core::ids::{CustomerId, MerchantId, SpendKeyId, WalletId};
use farthing_core::money::Amount;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Listed, Page, Parameter};

/// A spend key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendKeyRow {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// The wallet it spends from.
    pub wallet_id: WalletId,
    /// The customer whose wallet that is; none for the merchant's own.
    pub connection_id: Option<CustomerId>,
    /// What may be shown of the raw key.
    pub key_preview: String,
    /// Does it work?
    pub status: SpendKeyStatus,
    /// Name and limits.
    pub settings: SpendKeySettings,
    /// When it came to be.
    pub created_at: DateTime<Utc>,
    /// When a call was last admitted.
    pub last_used_at: Option<DateTime<Utc>>,
    /// Spent in the spend limit's current cycle.
    pub current_spend: Amount,
    /// Calls admitted in the request limit's current cycle.
    pub current_requests: i64,
    /// Spent ever.
    pub total_spend: Amount,
    /// Calls admitted ever.
    pub total_requests: i64,
}

impl SpendKeyRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            spend_key_id: columns.id()?,
            wallet_id: columns.id()?,
            connection_id: columns.id_or_null()?,
            key_preview: columns.plain()?,
            status: columns.word()?,
            settings: columns.json()?,
            created_at: columns.plain()?,
            last_used_at: columns.plain()?,
            current_spend: columns.amount()?,
            current_requests: columns.plain()?,
            total_spend: columns.amount()?,
            total_requests: columns.plain()?,
        })
    }
}

/// The spend keys of the merchant `$1`, with the counters of the cycles that began at `$2` (daily), `$3` (weekly)
/// and `$4` (monthly).
macro_rules! select_spend_keys {
    ($rest:literal) => {
        concat!(
            "SELECT k.spend_key_id, k.wallet_id, k.connection_id, k.key_preview, k.status, k.settings, k.created_at, ",
            "k.last_used_at, coalesce(spend.spent, 0), coalesce(calls.requests, 0), coalesce(total.spent, 0), ",
            "coalesce(total.requests, 0) ",
            "FROM spend_keys.spend_keys AS k ",
            "LEFT JOIN spend_keys.spending AS spend ON spend.spend_key_id = k.spend_key_id ",
            "AND spend.cycle = k.spend_cycle COLLATE \"C\" AND spend.started_at = CASE k.spend_cycle ",
            "WHEN 'daily' THEN $2 WHEN 'weekly' THEN $3 WHEN 'monthly' THEN $4 ELSE to_timestamp(0) END ",
            "LEFT JOIN spend_keys.spending AS calls ON calls.spend_key_id = k.spend_key_id ",
            "AND calls.cycle = k.request_cycle COLLATE \"C\" AND calls.started_at = CASE k.request_cycle ",
            "WHEN 'daily' THEN $2 WHEN 'weekly' THEN $3 WHEN 'monthly' THEN $4 ELSE to_timestamp(0) END ",
            "LEFT JOIN spend_keys.spending AS total ON total.spend_key_id = k.spend_key_id ",
            "AND total.cycle = 'total' AND total.started_at = to_timestamp(0) ",
            "WHERE k.merchant_id = $1 AND k.deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's spend key by id.
pub const FIND: &str = select_spend_keys!("AND k.spend_key_id = $5");

/// A merchant's spend keys, newest first.
pub const LIST: &str = select_spend_keys!("ORDER BY k.created_at DESC, k.spend_key_id DESC LIMIT $5");

/// The same, after a cursor.
pub const LIST_AFTER: &str = select_spend_keys!(
    "AND (k.created_at, k.spend_key_id) < ($6, $7) ORDER BY k.created_at DESC, k.spend_key_id DESC LIMIT $5"
);

/// A merchant's spend keys on a customer's wallet.
pub const LIST_OF_CONNECTION: &str =
    select_spend_keys!("AND k.connection_id = $6 ORDER BY k.created_at DESC, k.spend_key_id DESC LIMIT $5");

/// The same, after a cursor.
pub const LIST_OF_CONNECTION_AFTER: &str = select_spend_keys!(
    "AND k.connection_id = $6 AND (k.created_at, k.spend_key_id) < ($7, $8) \
     ORDER BY k.created_at DESC, k.spend_key_id DESC LIMIT $5"
);

/// When the spend key of a cursor came to be; one deleted in the meantime still has its place in the list.
pub const CURSOR: &str =
    "SELECT created_at FROM spend_keys.spend_keys WHERE merchant_id = $1 AND spend_key_id = $2";

/// The parameters `$1` to `$4` of every selection.
struct Common {
    merchant_id: String,
    starts: [DateTime<Utc>; 3],
}

impl Common {
    fn new(merchant_id: MerchantId, now: DateTime<Utc>) -> Self {
        let starts = [Cycle::Daily, Cycle::Weekly, Cycle::Monthly].map(|cycle| cycle.start(now));
        Self { merchant_id: merchant_id.to_string(), starts }
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        let mut parameters: Vec<Parameter<'_>> = vec![(&self.merchant_id, Type::TEXT)];
        parameters.extend(self.starts.iter().map(|start| (start as _, Type::TIMESTAMPTZ)));
        parameters
    }
}

/// The merchant's spend key `id`, its current cycles being those around `now`.
pub async fn find(
    db: &Client,
    merchant_id: MerchantId,
    id: SpendKeyId,
    now: DateTime<Utc>,
) -> Result<Option<SpendKeyRow>, Error> {
    let (common, id) = (Common::new(merchant_id, now), id.to_string());
    let mut parameters = common.parameters();
    parameters.push((&id, Type::TEXT));
    let row = db.query_typed(FIND, &parameters).await?.into_iter().next();
    Ok(row.map(|row| SpendKeyRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's spend keys, newest first; only those on the wallet of `connection_id` when one is given.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    connection_id: Option<CustomerId>,
    now: DateTime<Utc>,
) -> Result<Listed<SpendKeyRow>, Error> {
    let after = match page.cursor {
        Some(cursor) => Some(cursor_position(db, merchant_id, cursor).await?),
        None => None,
    };
    let (common, limit) = (Common::new(merchant_id, now), page.rows_to_ask());
    let connection_id = connection_id.map(|id| id.to_string());
    let mut parameters = common.parameters();
    parameters.push((&limit, Type::INT8));
    parameters.extend(connection_id.iter().map(|id| (id as _, Type::TEXT)));
    if let Some((created_at, id)) = &after {
        parameters.extend([(created_at as _, Type::TIMESTAMPTZ), (id as _, Type::TEXT)]);
    }
    let sql = match (&connection_id, &after) {
        (None, None) => LIST,
        (None, Some(_)) => LIST_AFTER,
        (Some(_), None) => LIST_OF_CONNECTION,
        (Some(_), Some(_)) => LIST_OF_CONNECTION_AFTER,
    };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| SpendKeyRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

async fn cursor_position(
    db: &Client,
    merchant_id: MerchantId,
    cursor: &str,
) -> Result<(DateTime<Utc>, String), Error> {
    let id: SpendKeyId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
    let id = id.to_string();
    let parameters: [Parameter<'_>; 2] = [(&merchant_id.to_string(), Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, id))
}
