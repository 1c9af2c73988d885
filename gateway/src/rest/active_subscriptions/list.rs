//! `GET /active-subscriptions`: a bare array, not wrapped in `data`.

use serde::Serialize;

use crate::error::ApiError;
use crate::openapi::values::AnyObject;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;

/// An active subscription. There is none yet.
#[derive(Debug, Serialize)]
pub(super) enum ActiveSubscription {}

/// 200 with all of them.
#[utoipa::path(
    get, path = "/active-subscriptions", operation_id = "list_active_subscriptions", tag = "subscriptions",
    responses((status = 200, description = "All of them, as a bare array.", body = Vec<AnyObject>)),
)]
pub(super) async fn list(_: Merchant) -> Result<Reply<Vec<ActiveSubscription>>, ApiError> {
    Ok(Reply::ok(Vec::new()))
}
