//! `POST /spend_keys`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{CreateSpendKey, SpendKeySnapshot, Timed};
use farthing_core::ids::SpendKeyId;
use farthing_core::secret;

use super::resource::SpendKey;
use super::settings::{CheckedSpendKey, NewSpendKeyBody};
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::StoredResponse;
use crate::input;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::existing_customer;
use crate::rest::writes::Writes;

/// 201 with the new spend key and its raw key, which is shown only once.
#[utoipa::path(
    post, path = "/spend_keys", operation_id = "create_spend_key", tag = "spend_keys",
    request_body = NewSpendKeyBody,
    responses(
        (status = 201, description = "The new spend key with its raw key.", body = SpendKey),
        (status = 404, description = "customer_not_found"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    let merchant_id = writes.merchant_id;
    let merchants_now = app.merchants_now(merchant_id).await?;
    let body: NewSpendKeyBody = input::body(writes.json()?)?;
    let CheckedSpendKey { settings, status, customer } = body.checked(merchants_now)?;
    let customer_id = match customer {
        None => None,
        Some(name) => Some(existing_customer(&app, merchant_id, &name, Resource::Customer).await?),
    };
    let now = app.now();
    let spend_key_id = SpendKeyId::new(app.mint.next(now));
    let raw = secret::new_spend_key();
    let command = CreateSpendKey {
        merchant_id,
        spend_key_id,
        customer_id,
        key_hash: app.server_key.hash(raw.reveal()),
        key_preview: raw.preview(),
        settings,
        status,
        now,
    };
    let render = move |(made, at): &(SpendKeySnapshot, DateTime<Utc>)| {
        Reply::created(SpendKey::new(spend_key_id, made.clone(), *at).with_raw(&raw))
    };
    writes.submit(Timed { command, merchant_id, now }, render).await
}
