//! `PUT /spend_keys/{id}`: an absent field stays, `null` removes a limit (interface.md, Spend keys).

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::UpdateSpendKey;
use farthing_projector::ReadModel;
use farthing_projector::spend_keys::query;

use super::resource::SpendKey;
use super::settings::SpendKeyChangesBody;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::input;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the updated spend key.
#[utoipa::path(
    put, path = "/spend_keys/{id}", operation_id = "update_spend_key", tag = "spend_keys",
    params(("id" = String, Path, description = "The spend key's id.")),
    request_body = SpendKeyChangesBody,
    responses(
        (status = 200, description = "The updated spend key.", body = SpendKey),
        (status = 404, description = "spend_key_not_found"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<SpendKey>, ApiError> {
    let merchants_now = app.merchants_now(merchant_id).await?;
    let edits = input::body::<SpendKeyChangesBody>(&json)?.checked(merchants_now)?;
    let unknown = ApiError::NotFound(Resource::SpendKey);
    let Ok(spend_key_id) = name.parse() else { return Err(unknown) };
    app.submit(merchant_id, UpdateSpendKey { merchant_id, spend_key_id, edits, now: app.now() }).await?;
    let connection = reads.caught_up_after_write(ReadModel::SpendKeys, merchant_id).await?;
    let row = query::find(connection.partition(), merchant_id, spend_key_id, merchants_now);
    let row = within(row).await?.ok_or(unknown)?;
    Ok(Reply::ok(row.into()))
}
