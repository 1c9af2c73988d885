//! `POST /spend_keys`.

use std::sync::Arc;

use axum::extract::State;
use chrono::Utc;
use farthing_ledger::command::{CreateSpendKey, to_millisecond};
use farthing_ledger::ids::SpendKeyId;
use farthing_ledger::secret;

use super::resource::SpendKey;
use super::settings::Wanted;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};

/// 201 with the new spend key and, this once, its raw key.
pub(in crate::rest) async fn create(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    JsonText(json): JsonText,
) -> Result<Reply<SpendKey>, ApiError> {
    let now = to_millisecond(Utc::now());
    let Wanted { settings, customer } = Wanted::read(&json, now)?;
    let customer_id = match customer {
        None => None,
        Some(name) => {
            let id = app.customer_id(merchant_id, &name).await?;
            Some(id.ok_or(ApiError::NotFound(Resource::Customer))?)
        }
    };
    let spend_key_id = SpendKeyId::new(app.mint.next(now));
    let raw = secret::new_spend_key();
    let command = CreateSpendKey {
        merchant_id,
        spend_key_id,
        customer_id,
        key_hash: app.server_key.hash(raw.reveal()),
        key_preview: raw.preview(),
        settings: settings.clone(),
        now,
    };
    let wallet_id = app.ledger.submit(command).await?;
    let spend_key = SpendKey::unused(spend_key_id, wallet_id, customer_id, settings, now);
    Ok(Reply::created(spend_key.with_raw(&raw)))
}
