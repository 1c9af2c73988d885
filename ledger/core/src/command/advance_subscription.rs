//! `AdvanceSubscription`: does the due work of a subscription: ends its cycle, starts the next one or requests its
//! payment. Any number of schedulers may send it; the decision sees whether the work is done, so it is done once
//! (completion.md section 8).

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::SubscriptionRefusal;
use super::update_subscription::{cancelled, settings_after};
use crate::event::{
    CancelReason, CycleEnded, Event, ExpiredBundle, PaymentRequested, PendingChange, Purpose, RenewalFailed,
    SubscriptionEvent, SubscriptionRenewed,
};
use crate::ids::{PaymentId, PlanId, SubscriptionId};
use crate::money::Amount;
use crate::plan::{BillingCycle, PlanTerms, Rollover};
use crate::state::{Phase, StateCache, Subscription};

/// The number of retries of a failed renewal.
pub(super) const RETRIES: u32 = 3;

/// The time between attempts at a renewal.
const RETRY_AFTER: TimeDelta = TimeDelta::days(1);

/// Advances a subscription: carries out its due work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvanceSubscription {
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// A new id for a payment that may be due.
    pub payment_id: PaymentId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// The result of advancing a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advanced {
    /// Nothing is due.
    NothingDue,
    /// A payment was requested and must be made now.
    PaymentRequested(PaymentId),
    /// Due work was done; more may be due.
    Done,
}

/// The plan, terms and number of the cycle after the present one.
pub(super) struct Next {
    pub(super) plan_id: PlanId,
    pub(super) terms: PlanTerms,
    pub(super) cycle: BillingCycle,
}

impl Next {
    /// The next cycle by the pending downgrade or by the present terms of the plan; by the old terms if the plan was
    /// deleted.
    fn of(
        states: &StateCache,
        subscription: &Subscription,
        attempt: u32,
        now: DateTime<Utc>,
    ) -> Result<Self, DecideError> {
        let (plan_id, terms) = match &subscription.pending_change {
            Some(PendingChange::Downgrade { plan_id, terms, .. }) => (*plan_id, (**terms).clone()),
            Some(PendingChange::Cancellation { .. }) | None => {
                let plan = states.plan(subscription.plan_id)?;
                let terms = plan.map_or_else(|| subscription.terms.clone(), |plan| plan.terms.clone());
                (subscription.plan_id, terms)
            }
        };
        Ok(Self::on(plan_id, terms, subscription, attempt, (now, now)))
    }

    /// The next cycle on this plan, for the `attempt`th attempt to pay it, requested and begun at these times. Cycles that
    /// ended while they were unpaid are skipped, and so are all that have ended if one of them did while the payment was
    /// open. One that had ended before its payment was first requested is otherwise not: nobody was asked to pay it in time.
    pub(super) fn on(
        plan_id: PlanId,
        terms: PlanTerms,
        subscription: &Subscription,
        attempt: u32,
        (requested_at, now): (DateTime<Utc>, DateTime<Utc>),
    ) -> Self {
        let interval = terms.billing_interval;
        let same_interval = interval == subscription.terms.billing_interval;
        let (anchor, number) = if same_interval {
            (subscription.anchor, subscription.cycle.number + 1)
        } else {
            (subscription.cycle.end, 0)
        };
        let ending_after = |at| BillingCycle::ending_after(interval, anchor, number, at);
        let skips = attempt > 1 || ending_after(requested_at).end <= now;
        let mut cycle = if skips { ending_after(now) } else { BillingCycle::of(interval, anchor, number) };
        if !same_interval {
            cycle = BillingCycle::of(interval, cycle.start, 0);
        }
        Self { plan_id, terms, cycle }
    }

    /// The events that start the cycle.
    pub(super) fn renewed(self, subscription: &Subscription, payment_id: Option<PaymentId>) -> Vec<Event> {
        let pending = subscription.outlasting(self.plan_id, self.cycle.end);
        let revision = subscription.revision + 1;
        let settings = settings_after(subscription, revision, (self.plan_id, &self.terms), pending, None);
        let renewed = Event::from(Box::new(SubscriptionRenewed {
            subscriber: subscription.subscriber,
            plan_id: self.plan_id,
            granted: self.terms.included_credit,
            terms: self.terms,
            cycle: self.cycle,
            payment_id,
        }));
        [renewed].into_iter().chain(settings).collect()
    }
}

/// The events of a renewal whose `attempt`th payment failed. A subscription that was cancelled meanwhile ends.
pub(super) fn unpaid(
    states: &StateCache,
    subscription: &Subscription,
    attempt: u32,
    payment_id: Option<PaymentId>,
    now: DateTime<Utc>,
) -> Result<Vec<Event>, DecideError> {
    if subscription.is_cancelled() {
        return Ok(vec![cancelled(states, subscription, CancelReason::Requested)?]);
    }
    let retry_at = now.checked_add_signed(RETRY_AFTER).unwrap_or(now);
    let mut events = vec![Event::from(RenewalFailed {
        subscriber: subscription.subscriber,
        cycle_number: subscription.cycle.number + 1,
        attempt,
        payment_id,
        retry_at,
    })];
    if attempt > RETRIES {
        events.push(cancelled(states, subscription, CancelReason::PaymentFailed)?);
    }
    Ok(events)
}

impl AdvanceSubscription {
    /// Ends the cycle: its credit is carried over or expires.
    fn ended(states: &StateCache, subscription: &Subscription, is_over: bool) -> Result<Event, DecideError> {
        let subscriber = subscription.subscriber;
        let wallet = states.wallet(subscriber.wallet_id)?.expect("a subscriber has a wallet");
        let left = wallet.plan_credit();
        let (carried_over, expired) = match subscription.terms.rollover_type {
            Rollover::Full if !is_over => (left, Amount::ZERO),
            Rollover::Full | Rollover::None => (Amount::ZERO, left),
        };
        let expired_bundles = match subscription.terms.bundle_rollover_type {
            Rollover::Full => Vec::new(),
            Rollover::None => {
                let bundles = wallet.bundles.iter();
                let expired = |bundle: &crate::state::BundleCredit| ExpiredBundle {
                    payment_id: bundle.payment_id,
                    amount: bundle.remaining,
                };
                bundles.map(expired).collect()
            }
        };
        Ok(Event::from(CycleEnded {
            subscriber,
            cycle_number: subscription.cycle.number,
            ended_at: subscription.cycle.end,
            carried_over,
            expired,
            expired_bundles,
        }))
    }

    /// Starts the next cycle or requests its payment.
    fn renew(
        &self,
        states: &StateCache,
        subscription: &Subscription,
        attempt: u32,
        now: DateTime<Utc>,
    ) -> Result<(Vec<Event>, Advanced), DecideError> {
        let next = Next::of(states, subscription, attempt, now)?;
        if next.terms.is_free() {
            return Ok((next.renewed(subscription, None), Advanced::Done));
        }
        let subscriber = subscription.subscriber;
        let wallet = states.wallet(subscriber.wallet_id)?.expect("a subscriber has a wallet");
        let Some(payment_method_id) = wallet.payment_method_id.or(subscription.payment_method_id) else {
            return Ok((unpaid(states, subscription, attempt, None, now)?, Advanced::Done));
        };
        let payment = Event::from(Box::new(PaymentRequested {
            payment_id: self.payment_id,
            wallet_id: subscriber.wallet_id,
            customer_id: Some(subscriber.customer_id),
            payment_method_id,
            amount: next.terms.period_amount,
            purpose: Purpose::Renewal {
                subscription_id: self.subscription_id,
                cycle_number: next.cycle.number,
                attempt,
                plan_id: next.plan_id,
                terms: Box::new(next.terms),
            },
            checkout_session_id: None,
            brings: None,
        }));
        Ok((vec![payment], Advanced::PaymentRequested(self.payment_id)))
    }
}

impl Command for AdvanceSubscription {
    type Outcome = Advanced;

    fn decide(&self, states: &StateCache) -> Result<Decision<Advanced>, DecideError> {
        let subscription = states.subscription(self.subscription_id)?.ok_or(SubscriptionRefusal::NotFound)?;
        let merchant_id = subscription.merchant_id;
        let now = states.now(merchant_id, self.now)?;
        if subscription.due_at().is_none_or(|due_at| due_at > now) {
            return Ok(Decision::already(Advanced::NothingDue));
        }
        let is_cancelled = subscription.is_cancelled();
        let mut events = Vec::with_capacity(2);
        let attempts = match subscription.phase {
            Phase::Running => {
                events.push(Self::ended(states, subscription, is_cancelled)?);
                0
            }
            Phase::Dunning { attempts, .. } => attempts,
        };
        let advanced = if is_cancelled {
            let mut end = cancelled(states, subscription, CancelReason::Requested)?;
            if let (Phase::Running, Event::Subscription(SubscriptionEvent::Cancelled(end))) =
                (subscription.phase, &mut end)
            {
                // The end of the cycle has expired all of it.
                end.expired = Amount::ZERO;
            }
            events.push(end);
            Advanced::Done
        } else {
            let (renewal, advanced) = self.renew(states, subscription, attempts + 1, now)?;
            events.extend(renewal);
            advanced
        };
        Ok(Decision::append(merchant_id, self.now, events, advanced))
    }
}
