//! `GET /spend_keys/{id}`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::spend_keys::query;

use super::resource::SpendKey;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the spend key, without its raw key.
#[utoipa::path(
    get, path = "/spend_keys/{id}", operation_id = "get_spend_key", tag = "spend_keys",
    params(("id" = String, Path, description = "The spend key's id.")),
    responses(
        (status = 200, description = "The spend key.", body = SpendKey),
        (status = 404, description = "spend_key_not_found"),
    ),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<SpendKey>, ApiError> {
    let unknown = ApiError::NotFound(Resource::SpendKey);
    let Ok(id) = name.parse() else { return Err(unknown) };
    let now = app.merchants_now(merchant_id).await?;
    let connection = reads.caught_up(ReadModel::SpendKeys, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, id, now)).await?.ok_or(unknown)?;
    Ok(Reply::ok(row.into()))
}
