//! `PATCH /wallet`: the automatic recharge of the merchant's own wallet.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{AutopayEdits, CustomerRefusal, Payee, Refusal, SetAutopay};
use farthing_core::ids::MerchantId;
use farthing_log::appender;
use serde::Deserialize;
use utoipa::ToSchema;

use super::resource::Wallet;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::input::{self, Given, Patch};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::older_and_newer_names::existing_customer;
use crate::values;

/// The automatic recharge of the wallet. An absent field stays. While it is enabled, threshold and amount must both be set
/// and cannot be cleared; disabling it clears both.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = WalletChanges)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(in crate::rest) struct WalletChangesBody {
    #[serde(default)]
    #[schema(value_type = bool)]
    autopay_enabled: Given<bool>,
    /// A balance below this, in dollars, starts a recharge.
    #[serde(default)]
    #[schema(value_type = Option<values::PositiveAmountInput>)]
    autopay_threshold: Patch<values::PositiveAmountInput>,
    /// The amount of a recharge, in dollars.
    #[serde(default)]
    #[schema(value_type = Option<values::FundingAmount>)]
    autopay_amount: Patch<values::FundingAmount>,
}

fn edits(app: &App, json: &str) -> Result<AutopayEdits, ApiError> {
    let body: WalletChangesBody = input::body(json)?;
    if body.autopay_enabled.0 == Some(true) {
        app.payments.processor()?;
    }
    Ok(AutopayEdits {
        enabled: body.autopay_enabled.0,
        threshold: body.autopay_threshold.edit(|threshold| threshold.0),
        amount: body.autopay_amount.edit(|amount| amount.0),
    })
}

/// 200 with the updated wallet.
#[utoipa::path(
    patch, path = "/wallet", operation_id = "update_wallet", tag = "wallet",
    request_body = WalletChangesBody,
    responses(
        (status = 200, description = "The updated wallet.", body = Wallet),
        (status = 501, description = "payments_unavailable"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    json: JsonText,
) -> Result<Reply<Wallet>, ApiError> {
    let edits = edits(&app, &json)?;
    let now = app.now();
    app.submit(merchant_id, SetAutopay { merchant_id, payee: Payee::Merchant, edits, now }).await?;
    Ok(Reply::ok(Wallet::of(&app, merchant_id).await?))
}

/// Changes the automatic recharge of a customer's wallet. `name` is the customer's id or reference id. Without such a
/// customer, the error is that there is no such `resource`.
pub(in crate::rest) async fn update_customer_wallet(
    app: &App,
    merchant_id: MerchantId,
    name: &str,
    json: &str,
    resource: Resource,
) -> Result<Wallet, ApiError> {
    let edits = edits(app, json)?;
    let customer_id = existing_customer(app, merchant_id, name, resource).await?;
    let now = app.now();
    let payee = Payee::Customer(customer_id);
    match app.submit(merchant_id, SetAutopay { merchant_id, payee, edits, now }).await {
        Ok(()) => Wallet::of_customer(app, merchant_id, name, resource).await,
        // The customer was deleted in the meantime.
        Err(appender::Error::Refused(Refusal::Customer(CustomerRefusal::NotFound))) => {
            Err(ApiError::NotFound(resource))
        }
        Err(error) => Err(error.into()),
    }
}
