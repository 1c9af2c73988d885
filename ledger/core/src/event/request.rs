//! The events of one forwarded call: opened with a hold, then metered and debited, or failed.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::kind::area;
use super::webhook::{Topic, WebhookNotice};
use crate::hold_scope::CreditScope;
use crate::hold_scope::HoldScope;
use crate::ids::{CustomerId, GatewayId, MeterId, RequestId, SpendKeyId, WalletId};
use crate::meter::Payer;
use crate::meter::Terms;
use crate::model_price::ModelPrice;
use crate::money;
use crate::money::Amount;
use crate::pricing::Fee;
use crate::pricing::ModelCost;
use crate::usage::Usage;

area! {
    /// The events of one call.
    Event::Request(RequestEvent) {
        Opened(Box<RequestOpened>) = "request.opened",
        Metered(Box<RequestMetered>) = "request.metered",
        Failed(RequestFailed) = "request.failed",
    }
}

impl RequestEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Opened(event) => format!("{}/opened", event.request_id),
            Self::Metered(event) => format!("{}/metered", event.request_id),
            Self::Failed(event) => format!("{}/failed", event.request_id),
        }
    }

    /// What webhooks are notified of.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        match self {
            Self::Metered(event) => {
                Some(WebhookNotice { topic: Topic::RequestCompleted, customer_id: event.parties.customer_id })
            }
            Self::Opened(_) | Self::Failed(_) => None,
        }
    }
}

/// Whose provider key pays the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ProviderKeyType {
    /// Ours.
    Managed,
    /// The caller's own.
    Unmanaged,
}

/// The wallets a call may draw on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parties {
    /// The customer, when the call names one.
    pub customer_id: Option<CustomerId>,
    /// The customer's wallet.
    pub wallet_id: Option<WalletId>,
    /// The merchant's own wallet.
    pub merchant_wallet_id: WalletId,
}

/// Money set aside for a call between its admission and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hold {
    /// On the customer's wallet.
    pub wallet: Amount,
    /// On the merchant's wallet.
    pub merchant: Amount,
    /// The credit of the customer's plan may not cover it: that is for calls on other meters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside_plan: bool,
    /// How often the meters of the customer's plan were others by then: see [`HoldScope`].
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub plan_changes: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it skips by reference")]
fn is_none_yet(count: &u32) -> bool {
    *count == 0
}

impl Hold {
    /// How far into the customer's wallet it reaches.
    pub fn credit_scope(self) -> CreditScope {
        if self.beside_plan { CreditScope::BesidePlan } else { CreditScope::All }
    }

    /// What it stands on in the customer's wallet.
    pub fn scope(self) -> HoldScope {
        HoldScope { credit: self.credit_scope(), plan_changes: self.plan_changes }
    }

    /// What is set aside on both wallets together.
    pub fn total(self) -> Result<Amount, money::Error> {
        self.wallet.plus(self.merchant)
    }
}

/// The spend key that a call was made with, in each event of the call: the key's counters follow from these alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    /// The key.
    pub spend_key_id: SpendKeyId,
    /// When the call was admitted, by the key's own clock, which never runs backwards: the call counts in the
    /// cycles of this instant.
    pub admitted_at: DateTime<Utc>,
}

/// Who pays for a call: a row of the table in completion.md section 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// The merchant bears the provider's cost; there is no fee.
    Merchant,
    /// Counted on the meter; the fee is computed and charged to nobody.
    MeterOnly,
    /// The customer's wallet bears the provider's cost; there is no fee.
    Customer,
    /// The customer pays the fee; the meter says who bears the rest.
    CustomerBilling,
    /// Recorded on the customer, borne by the merchant (`disable_billing`).
    Recorded,
    /// Counted only: the caller's own provider key, no fee.
    MeteringOnly,
    /// A spend key's wallet bears the provider's cost; there is no fee.
    SpendKey,
}

/// A call was admitted and its hold set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOpened {
    /// The request.
    pub request_id: RequestId,
    /// The gateway process that carries it.
    pub gateway_id: GatewayId,
    /// Who pays.
    pub charge: Charge,
    /// From which wallets.
    pub parties: Parties,
    /// The provider's name; `other` for one that is not built in.
    pub provider: String,
    /// Whose provider key.
    pub provider_key_type: ProviderKeyType,
    /// Method and full forwarded URL.
    pub endpoint: String,
    /// The model that the body asks for.
    pub model: Option<String>,
    /// Free key-value pairs of the caller.
    pub metadata: BTreeMap<String, String>,
    /// The provider's list price as it was at admission; none where the call costs nothing there, or nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_price: Option<ModelPrice>,
    /// The meter's price as it was at admission.
    pub terms: Option<Terms>,
    /// The start of the usage period whose tier position counts.
    pub period_start: Option<DateTime<Utc>>,
    /// What is set aside.
    pub hold: Hold,
    /// The merchant's own id of a call that was made elsewhere and is only reported here: opened and metered in one
    /// append, with nothing set aside. None for a forwarded call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_id: Option<String>,
    /// The spend key that the call was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend_key: Option<KeyUse>,
}

/// The service charge of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCharge {
    /// The fee times the instance's rate.
    pub amount: Amount,
    /// Who bears it.
    pub payer: Payer,
}

/// What is worth knowing about a metered call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The provider reported no usage: zero units were counted.
    UsageMissing,
    /// The answer broke off; what had been reported was charged.
    Partial,
    /// The customer's wallet fell short; the merchant bears the rest.
    Overrun,
}

/// A call was completed and metered; its hold is released. What it cost stands here, whoever pays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMetered {
    /// The request.
    pub request_id: RequestId,
    /// The wallets concerned.
    pub parties: Parties,
    /// The meter it was counted on.
    pub meter_id: Option<MeterId>,
    /// The usage period it was counted in.
    pub period_start: Option<DateTime<Utc>>,
    /// When it was opened: what a report of usage counts it under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<DateTime<Utc>>,
    /// The hold that is released.
    pub hold: Hold,
    /// The provider's status.
    pub http_status: u16,
    /// What the provider reported.
    pub usage: Usage,
    /// The tier position before the call; its units are the fee's.
    pub tier_position: Decimal,
    /// The units counted on the meter.
    pub units: Decimal,
    /// The provider's cost.
    pub model_cost: ModelCost,
    /// The fee by the meter.
    pub fee: Fee,
    /// The service charge.
    pub service_charge: ServiceCharge,
    /// `total_wallet_cost` + `total_merchant_cost`.
    pub total_request_cost: Amount,
    /// What the customer's wallet bears.
    pub total_wallet_cost: Amount,
    /// What the merchant bears.
    pub total_merchant_cost: Amount,
    /// The part of the merchant's that the customer's wallet could not cover.
    pub overrun: Amount,
    /// What is worth knowing.
    pub marks: Vec<Mark>,
    /// The provider's own id of its answer.
    pub response_id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The completion time that the provider returned.
    pub provider_timestamp: Option<DateTime<Utc>>,
    /// The spend key that the call was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend_key: Option<KeyUse>,
}

/// Why a call was not metered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// The provider answered with a status outside 2xx.
    ProviderStatus,
    /// No connection to the provider.
    ProviderUnreachable,
    /// The provider did not answer in time.
    ProviderTimeout,
    /// The provider went away before it reported any usage.
    ProviderGone,
    /// The provider's address is not allowed.
    AddressForbidden,
    /// The caller went away before the provider reported any usage, and was not waited for any longer.
    CallerGone,
    /// The reported usage is not believable; it is kept raw.
    UsageInvalid,
    /// The gateway died with the call in flight: look at it for reconciliation.
    Abandoned,
}

/// A call ended without being metered; its hold is released and nothing is charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFailed {
    /// The request.
    pub request_id: RequestId,
    /// The wallets concerned.
    pub parties: Parties,
    /// The hold that is released.
    pub hold: Hold,
    /// Why.
    pub reason: FailureReason,
    /// The provider's status, when it answered.
    pub http_status: Option<u16>,
    /// The usage as reported, when it was not believed.
    pub raw_usage: Option<String>,
    /// The provider's own id of its answer.
    pub response_id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The spend key that the call was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend_key: Option<KeyUse>,
}
