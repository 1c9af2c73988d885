//! The Wallet resource, read from the authoritative states.

use farthing_core::event::Autopay;
use farthing_core::ids::{MerchantId, WalletId};
use farthing_core::money::Amount;
use farthing_core::state::{State, StateKey};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::older_and_newer_names::existing_customer;

/// The wallet of the merchant or of a customer.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(in crate::rest) struct Wallet {
    wallet_id: WalletId,
    /// Dollars, without the credit of plans and bundles. Only a merchant's own balance can be below zero, after an overrun
    /// or a fee that the merchant pays.
    balance: Amount,
    /// Whether the wallet is recharged automatically.
    autopay_enabled: bool,
    /// A balance below this, in dollars, starts a recharge.
    autopay_threshold: Option<Amount>,
    /// The amount of a recharge, in dollars.
    autopay_amount: Option<Amount>,
}

impl Wallet {
    /// The merchant's own wallet.
    pub(super) async fn of(app: &App, merchant_id: MerchantId) -> Result<Self, ApiError> {
        let Some(State::Merchant(merchant)) = app.state(merchant_id, StateKey::Merchant(merchant_id)).await?
        else {
            return Err(ApiError::internal(format!("{merchant_id} has no state")));
        };
        Self::read(app, merchant_id, merchant.wallet_id).await
    }

    /// The wallet of the merchant's customer with this id or reference id, or the error that there is no such `resource`.
    pub(in crate::rest) async fn of_customer(
        app: &App,
        merchant_id: MerchantId,
        name: &str,
        resource: Resource,
    ) -> Result<Self, ApiError> {
        let id = existing_customer(app, merchant_id, name, resource).await?;
        match app.state(merchant_id, StateKey::Customer(id)).await? {
            Some(State::Customer(customer)) => Self::read(app, merchant_id, customer.wallet_id).await,
            Some(_) | None => Err(ApiError::NotFound(resource)),
        }
    }

    async fn read(app: &App, merchant_id: MerchantId, wallet_id: WalletId) -> Result<Self, ApiError> {
        let Some(State::Wallet(wallet)) = app.state(merchant_id, StateKey::Wallet(wallet_id)).await? else {
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
