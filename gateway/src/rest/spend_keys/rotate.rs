//! `POST /spend_keys/{id}/rotate`.

use std::sync::Arc;

use axum::extract::State;
use chrono::Utc;
use farthing_ledger::command::{RotateSpendKey, to_millisecond};
use farthing_ledger::secret;
use farthing_ledger::state::{self, StateKey};
use farthing_projector::ReadModel;
use farthing_projector::spend_keys::query;

use super::resource::SpendKey;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::{Reads, within};

/// 200 with the spend key and, this once, its new raw key; the old one is dead.
///
/// The key is read before it is rotated: once it is, nothing may fail that would lose the raw key.
pub(in crate::rest) async fn rotate(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<SpendKey>, ApiError> {
    let unknown = ApiError::NotFound(Resource::SpendKey);
    let Ok(spend_key_id) = name.parse() else { return Err(unknown) };
    let state = match app.state(StateKey::SpendKey(spend_key_id)).await? {
        Some(state::State::SpendKey(state)) if state.merchant_id == merchant_id => *state,
        Some(_) | None => return Err(unknown),
    };
    let connection = reads.caught_up(ReadModel::SpendKeys).await?;
    let row = within(query::find(&connection, merchant_id, spend_key_id)).await?;
    drop(connection);
    let spend_key = row.map_or_else(|| SpendKey::of_state(spend_key_id, state), SpendKey::from);
    let raw = secret::new_spend_key();
    let command = RotateSpendKey {
        merchant_id,
        spend_key_id,
        key_hash: app.server_key.hash(raw.reveal()),
        key_preview: raw.preview(),
        now: to_millisecond(Utc::now()),
    };
    app.ledger.submit(command).await?;
    Ok(Reply::ok(spend_key.with_raw(&raw)))
}
