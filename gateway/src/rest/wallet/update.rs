//! `PATCH /wallet`: when the merchant's own wallet is filled up by itself.

use std::sync::Arc;

use axum::extract::State;
use farthing_ledger::command::{Payee, SetAutopay};
use farthing_ledger::event::Autopay;
use utoipa::ToSchema;

use super::resource::Wallet;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::fields::Fields;

/// Whether the wallet is filled up by itself; threshold and amount go with `true`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `autopay` reads")]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
struct WalletChanges {
    autopay_enabled: bool,
    /// When the balance falls below this, in dollars.
    autopay_threshold: Option<values::PositiveAmountInput>,
    /// By this, in dollars.
    autopay_amount: Option<values::FundingAmount>,
}

fn autopay(json: &str) -> Result<Option<Autopay>, ApiError> {
    let mut fields = Fields::of(json)?;
    let enabled = fields.flag("autopay_enabled");
    let enabled = fields.required("autopay_enabled", enabled).unwrap_or(false);
    let threshold = fields.amount("autopay_threshold");
    let amount = fields.amount("autopay_amount");
    if enabled {
        fields.required("autopay_threshold", threshold);
        fields.required("autopay_amount", amount);
    }
    if threshold.is_some_and(|threshold| !threshold.is_positive()) {
        fields.refuse("autopay_threshold", "must be above zero");
    }
    if amount.is_some_and(|amount| !(10.into()..=10_000.into()).contains(&amount.decimal())) {
        fields.refuse("autopay_amount", "must be from 10 to 10000");
    }
    fields.checked()?;
    Ok(threshold.zip(amount).filter(|_| enabled).map(|(threshold, amount)| Autopay { threshold, amount }))
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
    let autopay = autopay(&json)?;
    let now = app.now();
    app.ledger.submit(SetAutopay { merchant_id, payee: Payee::Merchant, autopay, now }).await?;
    Ok(Reply::ok(Wallet::of(&app, merchant_id).await?))
}
