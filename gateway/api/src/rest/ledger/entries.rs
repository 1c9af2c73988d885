//! `GET /ledger/entries`.

use farthing_core::ids::WalletId;
use farthing_projector::ReadModel;
use farthing_projector::entries::query;
use serde::Deserialize;

use super::resource::LedgerEntry;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// The wallet of a list or a statement.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WalletQuery {
    /// The merchant's own wallet, or one of its customers'.
    pub(super) wallet_id: WalletId,
}

/// 200 with a page of the entries of a wallet, newest first. The cursor is the position of the last entry.
#[utoipa::path(
    get, path = "/ledger/entries", operation_id = "list_ledger_entries", tag = "ledger",
    params(PageQuery, WalletQuery),
    responses(
        (status = 200, description = "A page of entries.", body = List<LedgerEntry>),
        (status = 404, description = "wallet_not_found"),
    ),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, WalletQuery { wallet_id })): Params<(PageQuery, WalletQuery)>,
) -> Result<Reply<List<LedgerEntry>>, ApiError> {
    let connection = reads.caught_up(ReadModel::Entries, merchant_id).await?;
    let db = connection.partition();
    let wallet = within(query::find_wallet(db, merchant_id, wallet_id)).await?;
    let wallet = wallet.ok_or(ApiError::NotFound(Resource::Wallet))?;
    let listed = within(query::list(db, wallet_id, page.as_query())).await?;
    let last = listed.items.last().map(|row| row.position.to_string());
    let shown = listed.items.into_iter().map(|row| LedgerEntry::new(wallet_id, wallet.customer_id, row));
    Ok(Reply::ok(List::new(shown.collect(), listed.has_more, last)))
}
