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
use crate::time_text;
use crate::usage::{Counted, Usage};

area! {
    /// The events of one call.
    Event::Request(RequestEvent) {
        Opened(Box<RequestOpened>) = "request.opened",
        Metered(Box<RequestMetered>) = "request.metered",
        Failed(Box<RequestFailed>) = "request.failed",
    }
}

impl RequestEvent {
    pub(super) fn customer_id(&self) -> Option<CustomerId> {
        match self {
            Self::Opened(event) => event.parties.customer_id,
            Self::Metered(event) => event.parties.customer_id,
            Self::Failed(event) => event.parties.customer_id,
        }
    }

    pub(super) fn request_id(&self) -> RequestId {
        match self {
            Self::Opened(event) => event.request_id,
            Self::Metered(event) => event.request_id,
            Self::Failed(event) => event.request_id,
        }
    }

    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Opened(event) => format!("{}/opened", event.request_id),
            Self::Metered(event) => format!("{}/metered", event.request_id),
            Self::Failed(event) => format!("{}/failed", event.request_id),
        }
    }

    /// The webhook event that the event leads to.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        match self {
            Self::Metered(event) => {
                Some(WebhookNotice { topic: Topic::RequestCompleted, customer_id: event.parties.customer_id })
            }
            Self::Opened(_) | Self::Failed(_) => None,
        }
    }
}

/// The owner of the provider key that pays the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ProviderKeyType {
    /// The instance's managed provider key.
    Managed,
    /// The caller's own.
    Unmanaged,
}

/// The wallets a call may draw on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parties {
    /// The customer, if the call names one.
    pub customer_id: Option<CustomerId>,
    /// The customer's wallet.
    pub wallet_id: Option<WalletId>,
    /// The merchant's own wallet.
    pub merchant_wallet_id: WalletId,
}

/// Money reserved for a call between its admission and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hold {
    /// On the customer's wallet.
    pub wallet: Amount,
    /// On the merchant's wallet.
    pub merchant: Amount,
    /// The hold excludes the plan's credit, which covers calls on other meters only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside_plan: bool,
    /// The wallet's count of plan changes when the hold was decided: see [`HoldScope`].
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub plan_changes: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it skips by reference")]
fn is_none_yet(count: &u32) -> bool {
    *count == 0
}

impl Hold {
    /// The part of the customer's wallet that the hold may draw on.
    pub fn credit_scope(self) -> CreditScope {
        if self.beside_plan { CreditScope::BesidePlan } else { CreditScope::All }
    }

    /// The scope of the hold in the customer's wallet.
    pub fn scope(self) -> HoldScope {
        HoldScope { credit: self.credit_scope(), plan_changes: self.plan_changes }
    }

    /// The sum held on both wallets.
    pub fn total(self) -> Result<Amount, money::Error> {
        self.wallet.plus(self.merchant)
    }
}

/// The use of a spend key by a call, in every event of the call. The key's counters are folded from these events only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    /// The key.
    pub spend_key_id: SpendKeyId,
    /// When the call was admitted, by the key's clock, which never runs backwards. The call counts in the cycles of
    /// this instant.
    #[serde(serialize_with = "time_text::serialize")]
    pub admitted_at: DateTime<Utc>,
    /// The part of the key's spend limit that the call takes until it ends, unless it is the hold on the wallets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Amount>,
}

impl KeyUse {
    /// The part of the key's spend limit that a call with this hold takes until it ends.
    pub fn held(self, hold: Hold) -> Result<Amount, money::Error> {
        self.held.map_or_else(|| hold.total(), Ok)
    }
}

/// The allocation of a call's cost: a row of the table in completion.md section 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// The merchant pays the provider's cost; there is no fee.
    Merchant,
    /// Counted on the meter. The fee is computed but not charged.
    MeterOnly,
    /// The customer's wallet pays the provider's cost; there is no fee.
    Customer,
    /// The customer pays the fee; the meter names the payer of the other costs.
    CustomerBilling,
    /// Recorded on the customer, paid by the merchant (`disable_billing`).
    Recorded,
    /// Counted only: the call uses the caller's own provider key and has no fee.
    MeteringOnly,
    /// A spend key's wallet pays the provider's cost; there is no fee.
    SpendKey,
}

/// A call was admitted and its hold reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOpened {
    /// The request.
    pub request_id: RequestId,
    /// The gateway process that carries it.
    pub gateway_id: GatewayId,
    /// The allocation of the cost.
    pub charge: Charge,
    /// The wallets involved.
    pub parties: Parties,
    /// The provider's name; `other` for one that is not built in.
    pub provider: String,
    /// The owner of the provider key.
    pub provider_key_type: ProviderKeyType,
    /// Method and full forwarded URL.
    pub endpoint: String,
    /// The model named by the request body.
    pub model: Option<String>,
    /// Free key-value pairs of the caller.
    pub metadata: BTreeMap<String, String>,
    /// The provider's list price at admission; `None` if the provider charges nothing or the price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_price: Option<ModelPrice>,
    /// The meter's price at admission.
    pub terms: Option<Terms>,
    /// The start of the usage period that the call counts in.
    #[serde(serialize_with = "time_text::serialize_option")]
    pub period_start: Option<DateTime<Utc>>,
    /// The hold.
    pub hold: Hold,
    /// The merchant's own id of a call that was made elsewhere and reported afterwards: it is opened and metered in one
    /// append, without a hold. `None` for a forwarded call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_id: Option<String>,
    /// The spend key that the call used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend_key: Option<KeyUse>,
}

/// The service charge of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCharge {
    /// The fee times the instance's rate.
    pub amount: Amount,
    /// Its payer.
    pub payer: Payer,
}

/// A remark on a metered call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The provider reported no usage: zero units were counted.
    UsageMissing,
    /// The usage of a call on a managed provider key did not become known, because its response could not be read, or its
    /// caller left or its gateway gave it up before: the hold was charged.
    HoldCharged,
    /// The usage that the provider reported is more than the call could have used, or its cost is too large, and it was not
    /// counted; or its fee is too large, and was left out.
    UsageInvalid,
    /// The response was incomplete; the usage reported until then was charged.
    Partial,
    /// The customer's wallet did not cover the cost; the merchant pays the rest.
    Overrun,
}

/// A call was completed and metered, and its hold released. The event holds the full cost, independent of its payer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMetered {
    /// The request.
    pub request_id: RequestId,
    /// The wallets concerned.
    pub parties: Parties,
    /// The meter it was counted on.
    pub meter_id: Option<MeterId>,
    /// The usage period it was counted in.
    #[serde(serialize_with = "time_text::serialize_option")]
    pub period_start: Option<DateTime<Utc>>,
    /// When it was opened; usage reports count it at this instant.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "time_text::serialize_option"
    )]
    pub opened_at: Option<DateTime<Utc>>,
    /// The hold that is released.
    pub hold: Hold,
    /// The provider's status; 0 without a response.
    pub http_status: u16,
    /// The usage reported by the provider.
    pub usage: Usage,
    /// What the gateway counted of a call whose usage stayed unknown and whose hold may be less than its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// The tier usage before the call, in the units of the fee.
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
    /// The part paid by the customer's wallet.
    pub total_wallet_cost: Amount,
    /// The part paid by the merchant.
    pub total_merchant_cost: Amount,
    /// The part of the merchant's cost that the customer's wallet could not cover.
    pub overrun: Amount,
    /// Remarks.
    pub marks: Vec<Mark>,
    /// The raw usage, if it was not believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_usage: Option<String>,
    /// The provider's own id of its response.
    pub response_id: Option<String>,
    /// The model named by the response.
    pub model: Option<String>,
    /// The completion time that the provider returned.
    #[serde(serialize_with = "time_text::serialize_option")]
    pub provider_timestamp: Option<DateTime<Utc>>,
    /// The spend key that the call used.
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
    /// The provider did not respond in time.
    ProviderTimeout,
    /// The provider disconnected before it reported any usage.
    ProviderGone,
    /// The provider's address is forbidden.
    AddressForbidden,
    /// The caller disconnected before the provider reported any usage, and the drain window elapsed.
    CallerGone,
    /// The reported usage is not plausible; it is stored raw.
    UsageInvalid,
    /// The gateway died with the call in flight; reconcile it by hand.
    Abandoned,
    /// The settlement of the call could not be appended, or its task failed; reconcile it by hand.
    Unsettleable,
}

/// A call ended without being metered. Its hold is released and nothing is charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFailed {
    /// The request.
    pub request_id: RequestId,
    /// The wallets concerned.
    pub parties: Parties,
    /// The hold that is released.
    pub hold: Hold,
    /// The reason.
    pub reason: FailureReason,
    /// The provider's status, if it responded.
    pub http_status: Option<u16>,
    /// The raw usage, if it was rejected as implausible.
    pub raw_usage: Option<String>,
    /// The provider's own id of its response.
    pub response_id: Option<String>,
    /// The model named by the response.
    pub model: Option<String>,
    /// The spend key that the call used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend_key: Option<KeyUse>,
}
