//! A wallet as it is shown, and where it is read: from the states, which decisions read as well.

use farthing_core::event::Autopay;
use farthing_core::ids::{MerchantId, WalletId};
use farthing_core::money::Amount;
use farthing_core::state::{State, StateKey};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::ApiError;

/// The merchant's own wallet, or a customer's.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(in crate::rest) struct Wallet {
    wallet_id: WalletId,
    /// Dollars, credit of plans and bundles apart; below zero, of a merchant's own alone, where an overrun or a fee that the
    /// merchant bears came to more than there was.
    balance: Amount,
    /// Is it filled up by itself?
    autopay_enabled: bool,
    /// It is when the balance falls below this, in dollars.
    autopay_threshold: Option<Amount>,
    /// By this, in dollars.
    autopay_amount: Option<Amount>,
}

impl Wallet {
    /// The merchant's own as it is now.
    pub(super) async fn of(app: &App, merchant_id: MerchantId) -> Result<Self, ApiError> {
        let Some(State::Merchant(merchant)) = app.state(StateKey::Merchant(merchant_id)).await? else {
            return Err(ApiError::internal(format!("{merchant_id} has no state")));
        };
        Self::read(app, merchant.wallet_id).await
    }

    /// That of the merchant's customer called `name`, an id or a reference id; none where there is no such customer.
    pub(in crate::rest) async fn of_customer(
        app: &App,
        merchant_id: MerchantId,
        name: &str,
    ) -> Result<Option<Self>, ApiError> {
        let Some(id) = app.customer_id(merchant_id, name).await? else { return Ok(None) };
        let Some(State::Customer(customer)) = app.state(StateKey::Customer(id)).await? else {
            return Ok(None);
        };
        Self::read(app, customer.wallet_id).await.map(Some)
    }

    async fn read(app: &App, wallet_id: WalletId) -> Result<Self, ApiError> {
        let Some(State::Wallet(wallet)) = app.state(StateKey::Wallet(wallet_id)).await? else {
            return Err(ApiError::internal(format!("{wallet_id} has no state")));
        };
        let of = |part: fn(Autopay) -> Amount| wallet.autopay.map(part);
        Ok(Self {
            wallet_id,
            balance: wallet.balance,
            autopay_enabled: wallet.autopay.is_some(),
            autopay_threshold: of(|autopay| autopay.threshold),
            autopay_amount: of(|autopay| autopay.amount),
        })
    }
}
