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
        let ActiveRow { subscription, plan_credit, plan_created_at, wallet_created_at, balance } = row;
        let credit = plan_credit.plus(subscription.bundle_credit);
        let active_balance = credit.and_then(|credit| credit.plus(balance)).map_err(out_of_range)?;
        Ok(Self {
            active_subscription_id: subscription.subscription_id,
            subscription_id: subscription.subscription_id,
            wallet_id: subscription.wallet_id,
            customer_id: subscription.customer_id,
            connection_id: subscription.customer_id,
            subscription_config_id: subscription.plan_id,
            plan_id: subscription.plan_id,
            started_at: Timestamp(subscription.started_at),
            billing_anchor: subscription.anchor.day(),
            status: Status::of(subscription.cancelled_at),
            created_at: Timestamp(subscription.started_at),
            subscription_config: SubscriptionConfig {
                subscription_config_id: subscription.plan_id,
                plan_id: subscription.plan_id,
                merchant_id,
                name: subscription.terms.name,
                period_amount: subscription.terms.period_amount,
                rollover_type: subscription.terms.rollover_type,
                created_at: Timestamp(plan_created_at),
            },
            wallet: Wallet {
                wallet_id: subscription.wallet_id,
                active_balance,
                created_at: Timestamp(wallet_created_at),
                owner: subscription.contact.into(),
            },
            cancelled_at: subscription.cancelled_at.map(Timestamp),
        })
    }
}
