//! `POST /spend_keys/{id}/rotate`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{RotateSpendKey, SpendKeySnapshot, Timed};
use farthing_core::secret;

use super::resource::SpendKey;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::StoredResponse;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::writes::Writes;

/// 200 with the spend key and its new raw key, which is shown only once. The old key is revoked.
///
/// The response is made from the command's outcome: after the rotation nothing may fail that would lose the raw key.
#[utoipa::path(
    post, path = "/spend_keys/{id}/rotate", operation_id = "rotate_spend_key", tag = "spend_keys",
    params(("id" = String, Path, description = "The spend key's id.")),
    responses(
        (status = 200, description = "The spend key with its new raw key.", body = SpendKey),
        (status = 404, description = "spend_key_not_found"),
    ),
)]
pub(super) async fn rotate(
    State(app): State<Arc<App>>,
    Named(name): Named,
    writes: Writes,
) -> Result<StoredResponse, ApiError> {
    let Ok(spend_key_id) = name.parse() else { return Err(ApiError::NotFound(Resource::SpendKey)) };
    let raw = secret::new_spend_key();
    let now = app.now();
    let command = RotateSpendKey {
        merchant_id: writes.merchant_id,
        spend_key_id,
        key_hash: app.server_key.hash(raw.reveal()),
        key_preview: raw.preview(),
        now,
    };
    let render = move |(rotated, at): &(SpendKeySnapshot, DateTime<Utc>)| {
        Reply::ok(SpendKey::new(spend_key_id, rotated.clone(), *at).with_raw(&raw))
    };
    writes.submit(Timed { command, merchant_id: writes.merchant_id, now }, render).await
}
