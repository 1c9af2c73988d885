//! The Subscription resource, in the newer form.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use chrono::{DateTime, Utc};
use farthing_core::event::PendingChange;
use farthing_core::ids::{CreditBundleId, CustomerId, MerchantId, PlanId, SubscriptionId, WalletId};
use farthing_core::money::{Amount, Error};
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use farthing_projector::subscriptions::query::SubscriptionRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::rest::body::Timestamp;
use crate::rest::customers::resource::Contact;

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct Subscription {
    subscription_id: SubscriptionId,
    active_subscription_id: SubscriptionId,
    plan_id: PlanId,
    subscription_config_id: PlanId,
    customer_id: CustomerId,
    connection_id: CustomerId,
    wallet_id: WalletId,
    status: Status,
    /// The bundle to buy when the credit is used up.
    auto_top_up_bundle_id: Option<CreditBundleId>,
    started_at: Timestamp,
    cancelled_at: Option<Timestamp>,
    cycle_start_at: Timestamp,
    cycle_end_at: Timestamp,
    plan: PlanOfCycle,
    credits: Credits,
    /// The change at the end of the cycle, if one is planned.
    pending_change: Option<Pending>,
    customer: Contact,
}

/// The status of a subscription.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SubscriptionStatus)]
pub(in crate::rest) enum Status {
    /// The subscription continues.
    Active,
    /// The subscription has ended.
    Cancelled,
}

/// The plan, with its terms at the start of the cycle.
#[derive(Debug, Serialize, ToSchema)]
struct PlanOfCycle {
    plan_id: PlanId,
    subscription_config_id: PlanId,
    merchant_id: MerchantId,
    name: String,
    period_amount: Amount,
    included_credit: Amount,
    billing_interval: BillingInterval,
    rollover_type: Rollover,
    bundle_rollover_type: Rollover,
}

/// The unused credit.
#[derive(Debug, Serialize, ToSchema)]
struct Credits {
    /// The sum of cycle and bundle credit.
    total_remaining: Amount,
    /// Unused credit of the plan's cycles.
    cycle_remaining: Amount,
    /// Unused credit of bundles. It stays when the subscription ends.
    bundle_remaining: Amount,
}

/// A planned change of a subscription.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionPendingChange)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Pending {
    /// The subscription ends.
    Cancellation { effective_at: Timestamp },
    /// The subscription moves to another plan.
    Downgrade { effective_at: Timestamp, plan_id: PlanId, subscription_config_id: PlanId },
}

impl Status {
    /// By the instant it ended at.
    pub(in crate::rest) const fn of(cancelled_at: Option<DateTime<Utc>>) -> Self {
        if cancelled_at.is_some() { Self::Cancelled } else { Self::Active }
    }
}

impl PlanOfCycle {
    fn of(merchant_id: MerchantId, plan_id: PlanId, terms: PlanTerms) -> Self {
        Self {
            plan_id,
            subscription_config_id: plan_id,
            merchant_id,
            name: terms.name,
            period_amount: terms.period_amount,
            included_credit: terms.included_credit,
            billing_interval: terms.billing_interval,
            rollover_type: terms.rollover_type,
            bundle_rollover_type: terms.bundle_rollover_type,
        }
    }
}

impl From<PendingChange> for Pending {
    fn from(change: PendingChange) -> Self {
        match change {
            PendingChange::Cancellation { effective_at, outlasts: _ } => {
                Self::Cancellation { effective_at: Timestamp(effective_at) }
            }
            PendingChange::Downgrade { effective_at, plan_id, terms: _, outlasts: _ } => Self::Downgrade {
                effective_at: Timestamp(effective_at),
                plan_id,
                subscription_config_id: plan_id,
            },
        }
    }
}

impl Subscription {
    /// The merchant's subscription of `row`.
    pub(in crate::rest) fn of_row(merchant_id: MerchantId, row: SubscriptionRow) -> Result<Self, ApiError> {
        let total_remaining = row.credit.plus(row.bundle_credit).map_err(out_of_range)?;
        Ok(Self {
            subscription_id: row.subscription_id,
            active_subscription_id: row.subscription_id,
            plan_id: row.plan_id,
            subscription_config_id: row.plan_id,
            customer_id: row.customer_id,
            connection_id: row.customer_id,
            wallet_id: row.wallet_id,
            status: Status::of(row.cancelled_at),
            auto_top_up_bundle_id: row.auto_top_up_bundle_id,
            started_at: Timestamp(row.started_at),
            cancelled_at: row.cancelled_at.map(Timestamp),
            cycle_start_at: Timestamp(row.cycle_start),
            cycle_end_at: Timestamp(row.cycle_end),
            plan: PlanOfCycle::of(merchant_id, row.plan_id, row.terms),
            credits: Credits {
                total_remaining,
                cycle_remaining: row.credit,
                bundle_remaining: row.bundle_credit,
            },
            pending_change: row.pending_change.map(Pending::from),
            customer: row.contact.into(),
        })
    }
}

/// The sum of one wallet's money is out of range, which every command checks.
pub(in crate::rest) fn out_of_range(error: Error) -> ApiError {
    ApiError::internal(format!("the money of a wallet {error}"))
}
