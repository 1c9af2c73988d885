//! `PATCH /wallet`: when the merchant's own wallet is filled up by itself.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{AutopayEdits, CustomerRefusal, Payee, Refusal, SetAutopay};
use farthing_core::ids::MerchantId;
use farthing_core::money::Amount;
use farthing_log::appender;
use utoipa::ToSchema;

use super::resource::Wallet;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::fields::Fields;

/// Whether the wallet is filled up by itself; what is absent stays. Threshold and amount are both there as long as it is
/// (`null` clears, and is refused then), and go when it is not any more.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `edits` reads")]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(in crate::rest) struct WalletChanges {
    /// `null` counts as absent.
    autopay_enabled: Option<bool>,
    /// When the balance falls below this, in dollars.
    autopay_threshold: Option<values::PositiveAmountInput>,
    /// By this, in dollars.
    autopay_amount: Option<values::FundingAmount>,
}

fn edits(json: &str) -> Result<AutopayEdits, ApiError> {
    let mut fields = Fields::of(json)?;
    let enabled = fields.flag("autopay_enabled");
    let threshold = fields.edit("autopay_threshold", |fields, name| {
        let threshold = fields.amount(name);
        if threshold.is_some_and(|threshold| !threshold.is_positive()) {
            fields.refuse(name, "must be above zero");
        }
        threshold
    });
    let amount = fields.edit("autopay_amount", |fields, name| {
        let amount = fields.payable(name);
        let in_range = |amount: Amount| (10.into()..=10_000.into()).contains(&amount.decimal());
        if amount.is_some_and(|amount| !in_range(amount)) {
            fields.refuse(name, "must be from 10 to 10000");
        }
        amount
    });
    fields.checked()?;
    Ok(AutopayEdits { enabled, threshold, amount })
}

/// 200 with the wallet as it is now.
#[utoipa::path(
    patch, path = "/wallet", operation_id = "update_wallet", tag = "wallet",
    request_body = WalletChanges,
    responses((status = 200, description = "The wallet as it is now.", body = Wallet)),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    JsonText(json): JsonText,
) -> Result<Reply<Wallet>, ApiError> {
    let edits = edits(&json)?;
    let now = app.now();
    app.ledger.submit(SetAutopay { merchant_id, payee: Payee::Merchant, edits, now }).await?;
    Ok(Reply::ok(Wallet::of(&app, merchant_id).await?))
}

/// The same for the wallet of the merchant's customer called `name`, an id or a reference id; none where there is no such
/// customer.
pub(in crate::rest) async fn change_of_customer(
    app: &App,
    merchant_id: MerchantId,
    name: &str,
    json: &str,
) -> Result<Option<Wallet>, ApiError> {
    let edits = edits(json)?;
    let Some(customer_id) = app.customer_id(merchant_id, name).await? else { return Ok(None) };
    let now = app.now();
    let payee = Payee::Customer(customer_id);
    match app.ledger.submit(SetAutopay { merchant_id, payee, edits, now }).await {
        Ok(()) => Wallet::of_customer(app, merchant_id, name).await,
        // Somebody deleted it meanwhile.
        Err(appender::Error::Refused(Refusal::Customer(CustomerRefusal::NotFound))) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
