//! `GET /payment_methods`.

use std::sync::Arc;

use axum::extract::State;
use farthing_ledger::state;
use farthing_ledger::state::StateKey;
use farthing_projector::ReadModel;
use farthing_projector::payment_methods::query;
use serde::Serialize;
use utoipa::ToSchema;

use super::resource::PaymentMethod;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::reads::{Reads, within};

/// Payment methods, newest first: at most 100, which is more than a wallet has.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PaymentMethods {
    data: Vec<PaymentMethod>,
}

/// 200 with the payment methods of the merchant's own wallet.
#[utoipa::path(
    get, path = "/payment_methods", operation_id = "list_payment_methods", tag = "payment_methods",
    responses((status = 200, description = "The payment methods.", body = PaymentMethods)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
) -> Result<Reply<PaymentMethods>, ApiError> {
    let default = default_of(&app, merchant_id).await?;
    let connection = reads.caught_up(ReadModel::PaymentMethods).await?;
    let listed = within(query::list_own(&connection, merchant_id)).await?;
    let shown = listed.into_iter().map(|row| {
        let is_default = Some(row.payment_method_id) == default;
        PaymentMethod::new(row.payment_method_id, row.card, is_default, row.created_at)
    });
    Ok(Reply::ok(PaymentMethods { data: shown.collect() }))
}

async fn default_of(
    app: &App,
    merchant_id: farthing_ledger::ids::MerchantId,
) -> Result<Option<farthing_ledger::ids::PaymentMethodId>, ApiError> {
    let Some(state::State::Merchant(merchant)) = app.state(StateKey::Merchant(merchant_id)).await? else {
        return Ok(None);
    };
    match app.state(StateKey::Wallet(merchant.wallet_id)).await? {
        Some(state::State::Wallet(wallet)) => Ok(wallet.payment_method_id),
        Some(_) | None => Ok(None),
    }
}
