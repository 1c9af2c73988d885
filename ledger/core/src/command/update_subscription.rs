//! `UpdateSubscription`: changes the auto top-up of a subscription, or schedules a change for the end of its cycle
//! (completion.md section 8).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::edit::Edit;
use super::refusal::{PlanRefusal, SubscriptionRefusal};
use super::start_subscription::check_bundle;
use crate::event::{CancelReason, Event, PendingChange, SubscriptionCancelled, SubscriptionUpdated};
use crate::ids::{CreditBundleId, MerchantId, PaymentMethodId, PlanId, SubscriptionId};
use crate::plan::PlanTerms;
use crate::state::{Phase, StateCache, Subscription};

/// A change of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionEdit {
    /// Changes the bundle bought automatically when the credit is used up.
    AutoTopUp(Edit<CreditBundleId>),
    /// Ends the subscription with its cycle; at once if the cycle has ended and the payment of the next one has failed.
    Cancel,
    /// Moves the subscription to a cheaper plan at the end of its cycle.
    Downgrade(PlanId),
}

/// Changes a subscription. A change without effect appends nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateSubscription {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// The changes.
    pub edit: SubscriptionEdit,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// Finds the merchant's subscription.
pub(super) fn find(
    states: &StateCache,
    merchant_id: MerchantId,
    id: SubscriptionId,
) -> Result<&Subscription, DecideError> {
    let subscription = states.subscription(id)?.filter(|found| found.merchant_id == merchant_id);
    Ok(subscription.ok_or(SubscriptionRefusal::NotFound)?)
}

/// Ends the subscription now. The remaining plan credit expires.
pub(super) fn cancelled(
    states: &StateCache,
    subscription: &Subscription,
    reason: CancelReason,
) -> Result<Event, DecideError> {
    let subscriber = subscription.subscriber;
    let wallet = states.wallet(subscriber.wallet_id)?.expect("a subscriber has a wallet");
    Ok(Event::from(SubscriptionCancelled {
        subscriber,
        plan_id: subscription.plan_id,
        reason,
        expired: wallet.plan_credit(),
    }))
}

/// The change of settings at the start of a cycle on this plan, if any. Auto top-up continues with a bundle of that
/// plan or stops, and a change requested since then stays pending. Whether the subscriber turned it off is recorded before a
/// default comes or goes from which it is guessed. An upgrade that was `paid_by` a method has made it the subscription's.
pub(super) fn settings_after(
    subscription: &Subscription,
    revision: u32,
    (plan_id, terms): (PlanId, &PlanTerms),
    pending_change: Option<PendingChange>,
    paid_by: Option<PaymentMethodId>,
) -> Option<Event> {
    let present = subscription.auto_top_up_bundle_id;
    let auto_top_up_bundle_id =
        if plan_id == subscription.plan_id { present } else { subscription.auto_top_up_on(terms) };
    let has_default = |terms: &PlanTerms| terms.default_auto_top_up_bundle_id.is_some();
    let is_guess_at_its_end =
        auto_top_up_bundle_id.is_none() && has_default(&subscription.terms) != has_default(terms);
    let auto_top_up_chosen = match subscription.auto_top_up_chosen {
        // A bundle that was chosen stays behind with its plan.
        Some(chosen) => Some(chosen && auto_top_up_bundle_id == present),
        None => is_guess_at_its_end.then(|| subscription.turned_auto_top_up_off()),
    };
    let top_up = (auto_top_up_bundle_id, auto_top_up_chosen);
    let changes = top_up != (present, subscription.auto_top_up_chosen);
    (changes || pending_change.is_some()).then(|| {
        Event::from(Box::new(SubscriptionUpdated {
            subscriber: subscription.subscriber,
            revision,
            auto_top_up_bundle_id,
            auto_top_up_chosen,
            payment_method_id: paid_by.or(subscription.payment_method_id),
            pending_change,
        }))
    })
}

impl Command for UpdateSubscription {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let subscription = find(states, self.merchant_id, self.subscription_id)?;
        let present = (subscription.auto_top_up_bundle_id, subscription.auto_top_up_chosen);
        let mut top_up = present;
        let mut pending_change = subscription.pending_change.clone();
        let effective_at = subscription.cycle.end;
        let wallet = states.wallet(subscription.subscriber.wallet_id)?.expect("a subscriber has a wallet");
        // The id of a payment that has ended is kept, so that the same change again is none.
        let outlasts =
            wallet.upgrade_payment_id.or(pending_change.as_ref().and_then(PendingChange::outlasts));
        match (&self.edit, subscription.phase) {
            (SubscriptionEdit::AutoTopUp(Edit::Keep), _) => {}
            (SubscriptionEdit::AutoTopUp(Edit::Clear), _) => top_up = (None, Some(true)),
            (SubscriptionEdit::AutoTopUp(Edit::Set(id)), _) => {
                check_bundle(states, self.merchant_id, subscription.plan_id, Some(*id))?;
                top_up = (Some(*id), Some(true));
            }
            (SubscriptionEdit::Cancel, Phase::Dunning { payment_id: None, attempts: 1.., .. }) => {
                let event = cancelled(states, subscription, CancelReason::Requested)?;
                return Ok(Decision::append(self.merchant_id, self.now, vec![event], ()));
            }
            (SubscriptionEdit::Cancel, Phase::Running | Phase::Dunning { .. }) => {
                pending_change = Some(PendingChange::Cancellation { effective_at, outlasts });
            }
            (SubscriptionEdit::Downgrade(plan_id), _) => {
                let plan = states.plan(*plan_id)?.filter(|plan| plan.merchant_id == self.merchant_id);
                let terms = Box::new(plan.ok_or(PlanRefusal::NotFound)?.terms.clone());
                let plan_id = *plan_id;
                pending_change = Some(PendingChange::Downgrade { effective_at, plan_id, terms, outlasts });
            }
        }
        if top_up == present && pending_change == subscription.pending_change {
            return Ok(Decision::already(()));
        }
        let (auto_top_up_bundle_id, auto_top_up_chosen) = top_up;
        let event = Event::from(Box::new(SubscriptionUpdated {
            subscriber: subscription.subscriber,
            revision: subscription.revision + 1,
            auto_top_up_bundle_id,
            auto_top_up_chosen,
            payment_method_id: subscription.payment_method_id,
            pending_change,
        }));
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
