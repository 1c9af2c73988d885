//! Finds spend keys, with their spending in the cycles of their limits.

use chrono::{DateTime, Utc};
use farthing_core::event::{Cycle, SpendKeySettings, SpendKeyStatus};
use farthing_core::ids::{CustomerId, MerchantId, SpendKeyId, WalletId};
use farthing_core::money::Amount;

use crate::query::{self, Error, Listed, Page, Parameter, PartitionClient, instant, text};
use crate::row::row;

row! {
    /// A spend key.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SpendKeyRow {
        /// The key's id.
        pub spend_key_id: SpendKeyId = id,
        /// The wallet it spends from.
        pub wallet_id: WalletId = id,
        /// The customer who owns the wallet; `None` if it is the merchant's own.
        pub connection_id: Option<CustomerId> = id_or_null,
        /// What may be shown of the raw key.
        pub key_preview: String = plain,
        /// Whether it may be used.
        pub status: SpendKeyStatus = variant,
        /// Name and limits.
        pub settings: SpendKeySettings = json,
        /// When it was created.
        pub created_at: DateTime<Utc> = plain,
        /// When a call was last admitted.
        pub last_used_at: Option<DateTime<Utc>> = plain,
        /// Spent in the spend limit's current cycle.
        pub current_spend: Amount = amount,
        /// Calls admitted in the request limit's current cycle.
        pub current_requests: i64 = plain,
        /// Spent since it was created.
        pub total_spend: Amount = amount,
        /// Calls admitted since it was created.
        pub total_requests: i64 = plain,
    }
}

/// The spend keys of the merchant `$2`, with the counters of the cycles that began at `$3` (daily), `$4` (weekly)
/// and `$5` (monthly).
macro_rules! select_spend_keys {
    ($rest:literal) => {
        concat!(
            "SELECT k.spend_key_id, k.wallet_id, k.connection_id, k.key_preview, k.status, k.settings, k.created_at, ",
            "k.last_used_at, coalesce(spend.spent, 0) AS current_spend, coalesce(calls.requests, 0) AS current_requests, ",
            "coalesce(total.spent, 0) AS total_spend, coalesce(total.requests, 0) AS total_requests ",
            "FROM {spend_keys}.spend_keys AS k ",
            "LEFT JOIN {spend_keys}.spending AS spend ON spend.partition = k.partition AND spend.spend_key_id = k.spend_key_id ",
            "AND spend.cycle = k.spend_cycle COLLATE \"C\" AND spend.started_at = CASE k.spend_cycle ",
            "WHEN 'daily' THEN $3 WHEN 'weekly' THEN $4 WHEN 'monthly' THEN $5 ELSE to_timestamp(0) END ",
            "LEFT JOIN {spend_keys}.spending AS calls ON calls.partition = k.partition AND calls.spend_key_id = k.spend_key_id ",
            "AND calls.cycle = k.request_cycle COLLATE \"C\" AND calls.started_at = CASE k.request_cycle ",
            "WHEN 'daily' THEN $3 WHEN 'weekly' THEN $4 WHEN 'monthly' THEN $5 ELSE to_timestamp(0) END ",
            "LEFT JOIN {spend_keys}.spending AS total ON total.partition = k.partition AND total.spend_key_id = k.spend_key_id ",
            "AND total.cycle = 'total' AND total.started_at = to_timestamp(0) ",
            "WHERE k.partition = $1 AND k.merchant_id = $2 ",
            $rest
        )
    };
}

/// A merchant's spend key by id, deleted or not. A deleted one is as it was, but its counters are zero.
pub const FIND_EVEN_DELETED: &str = select_spend_keys!("AND k.spend_key_id = $6");

/// A merchant's spend key by id.
pub const FIND: &str = select_spend_keys!("AND k.deleted_at IS NULL AND k.spend_key_id = $6");

/// A merchant's spend keys, newest first.
pub const LIST: &str = select_spend_keys!(
    "AND k.deleted_at IS NULL AND (k.created_at, k.spend_key_id) < (COALESCE($6::timestamptz, 'infinity'), $7) \
     ORDER BY k.created_at DESC, k.spend_key_id DESC LIMIT $8"
);

/// A merchant's spend keys on a customer's wallet.
pub const LIST_OF_CONNECTION: &str = select_spend_keys!(
    "AND k.deleted_at IS NULL AND k.connection_id = $6 \
     AND (k.created_at, k.spend_key_id) < (COALESCE($7::timestamptz, 'infinity'), $8) \
     ORDER BY k.created_at DESC, k.spend_key_id DESC LIMIT $9"
);

/// The spend key of a cursor. A deleted one keeps its place in the list.
pub const CURSOR: &str = "SELECT created_at AS at FROM {spend_keys}.spend_keys WHERE partition = $1 AND merchant_id = $2 AND spend_key_id = $3";

/// The parameters `$2` to `$5` of every query.
struct QueryScope {
    merchant_id: String,
    starts: [DateTime<Utc>; 3],
}

impl QueryScope {
    fn new(merchant_id: MerchantId, now: DateTime<Utc>) -> Self {
        let starts = [Cycle::Daily, Cycle::Weekly, Cycle::Monthly].map(|cycle| cycle.start(now));
        Self { merchant_id: merchant_id.to_string(), starts }
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        let mut parameters = vec![text(&self.merchant_id)];
        parameters.extend(self.starts.iter().map(instant));
        parameters
    }
}

/// The merchant's spend key `id`, its current cycles being those around `now`.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: SpendKeyId,
    now: DateTime<Utc>,
) -> Result<Option<SpendKeyRow>, Error> {
    first(db, FIND, merchant_id, id, now).await
}

/// The merchant's spend key `id`, deleted or not, its current cycles being those around `now`.
pub async fn find_even_deleted(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: SpendKeyId,
    now: DateTime<Utc>,
) -> Result<Option<SpendKeyRow>, Error> {
    first(db, FIND_EVEN_DELETED, merchant_id, id, now).await
}

/// The spend key `id` that `statement` finds.
async fn first(
    db: PartitionClient<'_>,
    statement: &'static str,
    merchant_id: MerchantId,
    id: SpendKeyId,
    now: DateTime<Utc>,
) -> Result<Option<SpendKeyRow>, Error> {
    let (common, id) = (QueryScope::new(merchant_id, now), id.to_string());
    let mut parameters = common.parameters();
    parameters.push(text(&id));
    query::first(db, statement, &parameters).await
}

/// Fails unless the cursor is one of the list of the merchant's spend keys.
pub async fn check_cursor(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<(), Error> {
    page.start::<SpendKeyId>(db, CURSOR, &merchant_id.to_string()).await.map(drop)
}

/// The merchant's spend keys, newest first; only those on the wallet of `connection_id` when one is given.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
    connection_id: Option<CustomerId>,
    now: DateTime<Utc>,
) -> Result<Listed<SpendKeyRow>, Error> {
    let common = QueryScope::new(merchant_id, now);
    let start = page.start::<SpendKeyId>(db, CURSOR, &common.merchant_id).await?;
    let mut parameters = common.parameters();
    match connection_id.map(|id| id.to_string()) {
        None => query::list(db, LIST, &parameters, &start, page).await,
        Some(connection) => {
            parameters.push(text(&connection));
            query::list(db, LIST_OF_CONNECTION, &parameters, &start, page).await
        }
    }
}
