//! Lists the entries of a wallet, and reads its money at an instant.

use chrono::{DateTime, Utc};
use farthing_core::entry::Cause;
use farthing_core::ids::{CustomerId, MerchantId, WalletId};
use farthing_core::money::Amount;
use tokio_postgres::types::Type;

use crate::query::{self, Error, Listed, Page, PartitionClient, instant, text};
use crate::row::row;

row! {
    /// An entry.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EntryRow {
        /// Its position in the partition of its merchant.
        pub position: i64 = plain,
        /// When it happened.
        pub occurred_at: DateTime<Utc> = plain,
        /// What caused it.
        pub cause: Cause = json,
        /// The change of the balance.
        pub balance_change: Amount = amount,
        /// The change of the plan's credit.
        pub plan_credit_change: Amount = amount,
        /// The change of the bundles' credit.
        pub bundle_credit_change: Amount = amount,
        /// The balance after it.
        pub balance: Amount = amount,
        /// The plan's credit after it.
        pub plan_credit: Amount = amount,
        /// The bundles' credit after it.
        pub bundle_credit: Amount = amount,
    }
}

row! {
    /// The money in a wallet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FundsRow {
        /// The balance.
        pub balance: Amount = amount,
        /// The plan's credit.
        pub plan_credit: Amount = amount,
        /// The bundles' credit.
        pub bundle_credit: Amount = amount,
    }
}

row! {
    /// A wallet.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WalletRow {
        /// Its customer; none for the merchant's own.
        pub customer_id: Option<CustomerId> = id_or_null,
        /// When its last entry counts.
        pub counted_at: Option<DateTime<Utc>> = plain,
        /// The position of its last entry; 0 without one.
        pub last_position: i64 = plain,
    }
}

row! {
    /// The place of an entry in a list.
    struct EntryPlace {
        counted_at: DateTime<Utc> = plain,
        position: i64 = plain,
    }
}

macro_rules! select_entries {
    ($rest:literal) => {
        concat!(
            "SELECT position, occurred_at, cause, balance_change, plan_credit_change, bundle_credit_change, ",
            "balance, plan_credit, bundle_credit FROM {entries}.entries WHERE partition = $1 AND wallet_id = $2 ",
            $rest
        )
    };
}

/// The part of a wallet's entries that a statement is about.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// The wallet.
    pub wallet_id: WalletId,
    /// Entries after this position are left out, so that all parts of a statement are of the same log.
    pub last_position: i64,
}

/// A merchant's wallet.
pub const FIND_WALLET: &str = "\
SELECT customer_id, counted_at, last_position FROM {entries}.wallets WHERE partition = $1 AND wallet_id = $2 AND merchant_id = $3";

/// The entry of a cursor.
pub const CURSOR: &str = "\
SELECT counted_at, position FROM {entries}.entries WHERE partition = $1 AND wallet_id = $2 AND position = $3";

/// The entries of a wallet, newest first.
pub const LIST: &str = select_entries!("AND position < $3 ORDER BY position DESC LIMIT $4");

/// The entries of a wallet in a period, oldest first.
pub const LIST_PERIOD: &str = select_entries!(
    "AND (counted_at, position) > ($3, $4) AND counted_at < $5 AND position <= $6 \
     ORDER BY counted_at, position LIMIT $7"
);

/// The money in a wallet before an instant.
pub const FUNDS_BEFORE: &str = "\
SELECT balance, plan_credit, bundle_credit FROM {entries}.entries
WHERE partition = $1 AND wallet_id = $2 AND counted_at < $3 AND position <= $4
ORDER BY counted_at DESC, position DESC LIMIT 1";

/// The merchant's wallet `id`; `None` if it is another merchant's, or nobody's.
pub async fn find_wallet(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: WalletId,
) -> Result<Option<WalletRow>, Error> {
    query::first(db, FIND_WALLET, &[text(&id.to_string()), text(&merchant_id.to_string())]).await
}

/// The entries of a wallet, newest first. The cursor is a position.
pub async fn list(
    db: PartitionClient<'_>,
    wallet_id: WalletId,
    page: Page<'_>,
) -> Result<Listed<EntryRow>, Error> {
    let wallet = wallet_id.to_string();
    let start = cursor(db, &wallet, page).await?.map_or(i64::MAX, |place| place.position);
    let limit = page.rows_to_select();
    query::page(db, LIST, &[text(&wallet), (&start, Type::INT8), (&limit, Type::INT8)], page).await
}

/// The entries of a wallet from `start` on and before `end`, oldest first. The cursor is a position.
pub async fn list_period(
    db: PartitionClient<'_>,
    scope: Scope,
    (start, end): (DateTime<Utc>, DateTime<Utc>),
    page: Page<'_>,
) -> Result<Listed<EntryRow>, Error> {
    let wallet = scope.wallet_id.to_string();
    let before_all = EntryPlace { counted_at: start, position: 0 };
    let after = match cursor(db, &wallet, page).await? {
        None => before_all,
        Some(place) if (start..end).contains(&place.counted_at) => place,
        // The cursor of another period's statement: the entries after it do not add up with this one's funds.
        Some(_) => return Err(Error::CursorInvalid),
    };
    let limit = page.rows_to_select();
    let parameters = [
        text(&wallet),
        instant(&after.counted_at),
        (&after.position, Type::INT8),
        instant(&end),
        (&scope.last_position, Type::INT8),
        (&limit, Type::INT8),
    ];
    query::page(db, LIST_PERIOD, &parameters, page).await
}

/// The money in a wallet before `at`.
pub async fn funds_before(
    db: PartitionClient<'_>,
    scope: Scope,
    at: DateTime<Utc>,
) -> Result<FundsRow, Error> {
    let wallet = scope.wallet_id.to_string();
    let parameters = [text(&wallet), instant(&at), (&scope.last_position as _, Type::INT8)];
    let found = query::first(db, FUNDS_BEFORE, &parameters).await?;
    Ok(found.unwrap_or_default())
}

/// The entry that the cursor names.
async fn cursor(
    db: PartitionClient<'_>,
    wallet: &String,
    page: Page<'_>,
) -> Result<Option<EntryPlace>, Error> {
    let Some(cursor) = page.cursor else { return Ok(None) };
    let position = cursor.parse::<i64>().map_err(|_| Error::CursorInvalid)?;
    let found = query::first(db, CURSOR, &[text(wallet), (&position, Type::INT8)]).await?;
    found.map(Some).ok_or(Error::CursorInvalid)
}
