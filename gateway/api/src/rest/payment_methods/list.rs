//! `GET /payment_methods`: of the merchant's own wallet. Also the list of a customer's wallet, which the customer enters on
//! hosted pages.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::ids::{CustomerId, MerchantId, PaymentMethodId};
use farthing_core::state;
use farthing_core::state::StateKey;
use farthing_projector::ReadModel;
use farthing_projector::payment_methods::query;
use serde::Serialize;
use utoipa::ToSchema;

use super::resource::PaymentMethod;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::reads::Reads;

/// Payment methods, newest first, at most 100.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct PaymentMethods {
    data: Vec<PaymentMethod>,
}

impl PaymentMethods {
    /// The payment methods of the merchant's own wallet, or of the customer's wallet.
    pub(in crate::rest) async fn of(
        app: &App,
        reads: &Reads,
        merchant_id: MerchantId,
        customer_id: Option<CustomerId>,
    ) -> Result<Self, ApiError> {
        let owner = customer_id.map_or(StateKey::Merchant(merchant_id), StateKey::Customer);
        let default = default_of(app, merchant_id, owner).await?;
        let connection = reads.caught_up(ReadModel::PaymentMethods, merchant_id).await?;
        let listed = within(query::list(connection.partition(), merchant_id, customer_id)).await?;
        let shown = listed.into_iter().map(|row| {
            let is_default = Some(row.payment_method_id) == default;
            PaymentMethod::new(row.payment_method_id, row.card, is_default, row.created_at)
        });
        Ok(Self { data: shown.collect() })
    }
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
    Ok(Reply::ok(PaymentMethods::of(&app, &reads, merchant_id, None).await?))
}

/// The default payment method of the owner's wallet.
async fn default_of(
    app: &App,
    merchant_id: MerchantId,
    owner: StateKey,
) -> Result<Option<PaymentMethodId>, ApiError> {
    let wallet_id = match app.state(merchant_id, owner).await? {
        Some(state::State::Merchant(merchant)) => merchant.wallet_id,
        Some(state::State::Customer(customer)) => customer.wallet_id,
        Some(_) | None => return Ok(None),
    };
    match app.state(merchant_id, StateKey::Wallet(wallet_id)).await? {
        Some(state::State::Wallet(wallet)) => Ok(wallet.payment_method_id),
        Some(_) | None => Ok(None),
    }
}
