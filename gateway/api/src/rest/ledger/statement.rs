//! `GET /ledger/statement`.

use std::sync::Arc;

use axum::extract::State;
use chrono::TimeDelta;
use farthing_core::ids::{CustomerId, WalletId};
use farthing_projector::ReadModel;
use farthing_projector::entries::query;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::entries::WalletQuery;
use super::resource::{LedgerEntry, LedgerFunds};
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::page::PageQuery;
use crate::rest::params::Params;
use crate::rest::reads::Reads;
use crate::values;

/// Instants are whole milliseconds.
const JUST_AFTER: TimeDelta = TimeDelta::milliseconds(1);

/// The period of a statement.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PeriodQuery {
    /// The first instant.
    #[param(inline)]
    start: values::LocalInstant,
    /// The instant after the last; by default the present one.
    #[param(inline)]
    end: Option<values::LocalInstant>,
}

/// A statement of a wallet. The opening funds and the changes of all entries add up to the closing funds.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerStatement {
    wallet_id: WalletId,
    customer_id: Option<CustomerId>,
    start: Timestamp,
    /// The end that was used: pass it on with the cursor.
    end: Timestamp,
    /// The funds before `start`.
    opening: LedgerFunds,
    /// The funds before `end`.
    closing: LedgerFunds,
    /// A page of the entries, oldest first.
    entries: Vec<LedgerEntry>,
    /// Whether there is another page.
    has_more: bool,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// 200 with the statement of a wallet over a period. Its entries come in pages, oldest first; the cursor is the position of
/// the last entry.
#[utoipa::path(
    get, path = "/ledger/statement", operation_id = "get_ledger_statement", tag = "ledger",
    params(PageQuery, WalletQuery, PeriodQuery),
    responses(
        (status = 200, description = "The statement.", body = LedgerStatement),
        (status = 404, description = "wallet_not_found"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, (WalletQuery { wallet_id }, period))): Params<(PageQuery, (WalletQuery, PeriodQuery))>,
) -> Result<Reply<LedgerStatement>, ApiError> {
    let now = app.merchants_now(merchant_id).await?;
    let connection = reads.caught_up(ReadModel::Entries, merchant_id).await?;
    let db = connection.partition();
    let wallet = within(query::find_wallet(db, merchant_id, wallet_id)).await?;
    let wallet = wallet.ok_or(ApiError::NotFound(Resource::Wallet))?;
    let start = period.start.0.to_utc();
    // The clock of another gateway may be ahead of this one's.
    let present = wallet.counted_at.map_or(now, |last| now.max(last + JUST_AFTER));
    let given_end = period.end.map(|end| end.0.to_utc());
    let end = given_end.unwrap_or(present);
    let mut issues = Issues::default();
    if end < start {
        match given_end {
            Some(_) => issues.refuse(["end"], "must not be before start"),
            None => issues.refuse(["start"], "must not be in the future"),
        }
    }
    issues.checked()?;
    let opening = within(query::funds_before(db, wallet_id, &wallet, start)).await?;
    let closing = within(query::funds_before(db, wallet_id, &wallet, end)).await?;
    let listed = within(query::list_period(db, wallet_id, (opening, closing), page.as_query())).await?;
    let last = listed.items.last().map(|row| row.position.to_string());
    let entries = listed.items.into_iter().map(|row| LedgerEntry::new(wallet_id, wallet.customer_id, row));
    Ok(Reply::ok(LedgerStatement {
        wallet_id,
        customer_id: wallet.customer_id,
        start: Timestamp(start),
        end: Timestamp(end),
        opening: opening.into(),
        closing: closing.into(),
        entries: entries.collect(),
        has_more: listed.has_more,
        next_cursor: last.filter(|_| listed.has_more),
    }))
}
