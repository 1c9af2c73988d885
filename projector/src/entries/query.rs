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
        pub balance_change: Amount = amount_or_zero,
        /// The change of the plan's credit.
        pub plan_credit_change: Amount = amount_or_zero,
        /// The change of the bundles' credit.
        pub bundle_credit_change: Amount = amount_or_zero,
        /// The balance after it.
        pub balance: Amount = amount,
        /// The plan's credit after it.
        pub plan_credit: Amount = amount_or_zero,
        /// The bundles' credit after it.
        pub bundle_credit: Amount = amount_or_zero,
    }
}

row! {
    /// The money in a wallet after an entry.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FundsRow {
        /// The position of the entry; 0 before the first.
        pub position: i64 = plain,
        /// The balance.
        pub balance: Amount = amount,
        /// The plan's credit.
        pub plan_credit: Amount = amount_or_zero,
        /// The bundles' credit.
        pub bundle_credit: Amount = amount_or_zero,
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
        /// The money after its last entry.
        pub last: FundsRow = nested,
    }
}

row! {
    /// The place of an entry in a list.
    struct EntryPlace {
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

/// A merchant's wallet.
pub const FIND_WALLET: &str = "\
SELECT customer_id, counted_at, last_position AS position, balance, plan_credit, bundle_credit
FROM {entries}.wallets WHERE partition = $1 AND wallet_id = $2 AND merchant_id = $3";

/// The entry of a cursor.
pub const CURSOR: &str = "\
SELECT position FROM {entries}.entries WHERE partition = $1 AND wallet_id = $2 AND position = $3";

/// The entries of a wallet, newest first.
pub const LIST: &str = select_entries!("AND position < $3 ORDER BY position DESC LIMIT $4");

/// The entries of a wallet between two positions, oldest first.
pub const LIST_PERIOD: &str =
    select_entries!("AND position > $3 AND position <= $4 ORDER BY position LIMIT $5");

/// The last entry of a wallet, of those up to the position $4, that counts before the instant $3, with the money after it.
/// `counted_at` never decreases from one entry of a wallet to the next, so this is a binary search by position: entries up
/// to `low` count before the instant, and those after `high` do not. An index of `counted_at` would be searched in one step,
/// but every entry would be written into it.
pub const FUNDS_BEFORE: &str = "\
WITH RECURSIVE search (low, high) AS (
    SELECT CASE WHEN last.counted_at < $3 THEN last.position ELSE 0 END,
        CASE WHEN last.counted_at < $3 THEN last.position ELSE last.position - 1 END
    FROM (
        SELECT position, counted_at FROM {entries}.entries
        WHERE partition = $1 AND wallet_id = $2 AND position <= $4 ORDER BY position DESC LIMIT 1) AS last
    UNION ALL
    SELECT CASE WHEN middle.counted_at >= $3 THEN s.low ELSE (s.low + s.high + 1) / 2 END,
        CASE WHEN middle.counted_at >= $3 THEN middle.position - 1 ELSE s.high END
    FROM search AS s LEFT JOIN LATERAL (
        SELECT e.position, e.counted_at FROM {entries}.entries AS e
        WHERE e.partition = $1 AND e.wallet_id = $2 AND e.position <= (s.low + s.high + 1) / 2
        ORDER BY e.position DESC LIMIT 1) AS middle ON true
    WHERE s.low < s.high)
SELECT found.position, found.balance, found.plan_credit, found.bundle_credit
FROM search AS s CROSS JOIN LATERAL (
    SELECT e.position, e.balance, e.plan_credit, e.bundle_credit FROM {entries}.entries AS e
    WHERE e.partition = $1 AND e.wallet_id = $2 AND e.position <= s.low
    ORDER BY e.position DESC LIMIT 1) AS found
WHERE s.low = s.high";

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
    let start = cursor(db, &wallet, page).await?.unwrap_or(i64::MAX);
    let limit = page.rows_to_select();
    query::page(db, LIST, &[text(&wallet), (&start, Type::INT8), (&limit, Type::INT8)], page).await
}

/// The entries of a wallet after the one of `opening`, up to the one of `closing`, oldest first: those of a period that
/// begins and ends with these funds. The cursor is a position.
pub async fn list_period(
    db: PartitionClient<'_>,
    wallet_id: WalletId,
    (opening, closing): (FundsRow, FundsRow),
    page: Page<'_>,
) -> Result<Listed<EntryRow>, Error> {
    let wallet = wallet_id.to_string();
    let after = match cursor(db, &wallet, page).await? {
        None => opening.position,
        Some(position) if opening.position < position && position <= closing.position => position,
        // The cursor of another period's statement: the entries after it do not add up with this one's funds.
        Some(_) => return Err(Error::CursorInvalid),
    };
    let limit = page.rows_to_select();
    let parameters =
        [text(&wallet), (&after, Type::INT8), (&closing.position, Type::INT8), (&limit, Type::INT8)];
    query::page(db, LIST_PERIOD, &parameters, page).await
}

/// The money in the wallet `id` before `at`. Entries after the last one of `wallet` are left out, so that all parts of a
/// statement are of the same log.
pub async fn funds_before(
    db: PartitionClient<'_>,
    id: WalletId,
    wallet: &WalletRow,
    at: DateTime<Utc>,
) -> Result<FundsRow, Error> {
    if wallet.counted_at.is_none_or(|last| last < at) {
        return Ok(wallet.last);
    }
    let id = id.to_string();
    let parameters = [text(&id), instant(&at), (&wallet.last.position as _, Type::INT8)];
    let found = query::first(db, FUNDS_BEFORE, &parameters).await?;
    Ok(found.unwrap_or_default())
}

/// The position of the entry that the cursor names.
async fn cursor(db: PartitionClient<'_>, wallet: &String, page: Page<'_>) -> Result<Option<i64>, Error> {
    let Some(cursor) = page.cursor else { return Ok(None) };
    let position = cursor.parse::<i64>().map_err(|_| Error::CursorInvalid)?;
    let found = query::first::<EntryPlace>(db, CURSOR, &[text(wallet), (&position, Type::INT8)]).await?;
    found.map(|place| Some(place.position)).ok_or(Error::CursorInvalid)
}
