//! The resource of a subscription in the older form.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use chrono::Datelike as _;
use farthing_core::ids::{CustomerId, MerchantId, PlanId, SubscriptionId, WalletId};
use farthing_core::money::Amount;
use farthing_core::plan::Rollover;
use farthing_projector::subscriptions::query::ActiveRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::rest::body::Timestamp;
use crate::rest::customers::resource::Contact;
use crate::rest::subscriptions::resource::{Status, out_of_range};

/// A subscription in the older form.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ActiveSubscription {
    active_subscription_id: SubscriptionId,
    subscription_id: SubscriptionId,
    wallet_id: WalletId,
    customer_id: CustomerId,
    connection_id: CustomerId,
    subscription_config_id: PlanId,
    plan_id: PlanId,
    started_at: Timestamp,
    /// The day of the month on which a cycle is billed.
    #[schema(minimum = 1, maximum = 31)]
    billing_anchor: u32,
    status: Status,
    created_at: Timestamp,
    subscription_config: SubscriptionConfig,
    wallet: Wallet,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_at: Option<Timestamp>,
}

/// The plan, with its terms at the start of the cycle.
#[derive(Debug, Serialize, ToSchema)]
struct SubscriptionConfig {
    subscription_config_id: PlanId,
    plan_id: PlanId,
    merchant_id: MerchantId,
    name: String,
    period_amount: Amount,
    rollover_type: Rollover,
    created_at: Timestamp,
}

/// The customer's wallet, with the contact of its owner.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionWallet)]
struct Wallet {
    wallet_id: WalletId,
    /// The sum of balance and credit.
    active_balance: Amount,
    created_at: Timestamp,
    #[serde(flatten)]
    owner: Contact,
}

impl ActiveSubscription {
    /// The merchant's subscription of `row`. Those of one wallet show the same sum.
    pub(super) fn of_row(merchant_id: MerchantId, row: ActiveRow) -> Result<Self, ApiError> {
        let active_balance = row.balance.plus(row.credit).map_err(out_of_range)?;
        Ok(Self {
            active_subscription_id: row.subscription_id,
            subscription_id: row.subscription_id,
            wallet_id: row.wallet_id,
            customer_id: row.customer_id,
            connection_id: row.customer_id,
            subscription_config_id: row.plan_id,
            plan_id: row.plan_id,
            started_at: Timestamp(row.started_at),
            billing_anchor: row.anchor.day(),
            status: Status::of(row.cancelled_at),
            created_at: Timestamp(row.started_at),
            subscription_config: SubscriptionConfig {
                subscription_config_id: row.plan_id,
                plan_id: row.plan_id,
                merchant_id,
                name: row.terms.name,
                period_amount: row.terms.period_amount,
                rollover_type: row.terms.rollover_type,
                created_at: Timestamp(row.plan_created_at),
            },
            wallet: Wallet {
                wallet_id: row.wallet_id,
                active_balance,
                created_at: Timestamp(row.wallet_created_at),
                owner: row.contact.into(),
            },
            cancelled_at: row.cancelled_at.map(Timestamp),
        })
    }
}
