//! `GET /spend_keys`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::spend_keys::query;

use super::resource::SpendKey;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::{self, CustomerQuery};
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's spend keys, without their raw keys. A customer filters by wallet.
#[utoipa::path(
    get, path = "/spend_keys", operation_id = "list_spend_keys", tag = "spend_keys",
    params(PageQuery, CustomerQuery),
    responses((status = 200, description = "A page of spend keys.", body = List<SpendKey>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, customer)): Params<(PageQuery, CustomerQuery)>,
) -> Result<Reply<List<SpendKey>>, ApiError> {
    let mut issues = Issues::default();
    let customer = customer.customer(&mut issues);
    issues.checked()?;
    let connection_id = match &customer {
        None => None,
        Some(customer) => older_and_newer_names::customer_id(&app, merchant_id, customer).await?,
    };
    if customer.is_some() && connection_id.is_none() {
        // The cursor must be one of the list all the same.
        if page.cursor().is_some() {
            let connection = reads.caught_up(ReadModel::SpendKeys, merchant_id).await?;
            within(query::check_cursor(connection.partition(), merchant_id, page.as_query())).await?;
        }
        return Ok(Reply::ok(List::new(Vec::new(), false, None)));
    }
    let now = app.merchants_now(merchant_id).await?;
    let connection = reads.caught_up(ReadModel::SpendKeys, merchant_id).await?;
    let listed = query::list(connection.partition(), merchant_id, page.as_query(), connection_id, now);
    let listed = within(listed).await?;
    let last = listed.items.last().map(|row| row.spend_key_id.to_string());
    let shown = listed.items.into_iter().map(SpendKey::from).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
