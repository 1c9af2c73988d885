//! The merchant's wallet as it is shown, and where it is read: from the states, which decisions read as well.

use farthing_ledger::event::Autopay;
use farthing_ledger::ids::{MerchantId, WalletId};
use farthing_ledger::money::Amount;
use farthing_ledger::state::{State, StateKey};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::ApiError;

/// The merchant's own wallet.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(in crate::rest) struct Wallet {
    wallet_id: WalletId,
    /// Dollars; below zero where an overrun or a fee that the merchant bears came to more than there was.
    balance: Amount,
    /// Is it filled up by itself?
    autopay_enabled: bool,
    /// It is when the balance falls below this, in dollars.
    autopay_threshold: Option<Amount>,
    /// By this, in dollars.
    autopay_amount: Option<Amount>,
}

impl Wallet {
    /// The wallet as it is now.
    pub(super) async fn of(app: &App, merchant_id: MerchantId) -> Result<Self, ApiError> {
        let gone = |what: &str| ApiError::Internal(format!("{merchant_id} has no {what}"));
        let Some(State::Merchant(merchant)) = app.state(StateKey::Merchant(merchant_id)).await? else {
            return Err(gone("state"));
        };
        let Some(State::Wallet(wallet)) = app.state(StateKey::Wallet(merchant.wallet_id)).await? else {
            return Err(gone("wallet"));
        };
        let of = |part: fn(Autopay) -> Amount| wallet.autopay.map(part);
        Ok(Self {
            wallet_id: merchant.wallet_id,
            balance: wallet.balance,
            autopay_enabled: wallet.autopay.is_some(),
            autopay_threshold: of(|autopay| autopay.threshold),
            autopay_amount: of(|autopay| autopay.amount),
        })
    }
}
