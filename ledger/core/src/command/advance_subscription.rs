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

/// How long the payment of an upgrade may be open for a renewal to wait for its outcome. Shorter than any cycle.
const UPGRADE_AWAITED: TimeDelta = TimeDelta::hours(1);

/// The least time until a renewal that waits looks again.
const LOOKS_AGAIN_AFTER: TimeDelta = TimeDelta::minutes(1);

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
            // Its start is the new anchor. One that was clamped to the end of a short month makes an earlier end, by three
            // days at most. A cycle that has ended so is followed by one that has not.
            cycle = BillingCycle::of(interval, cycle.start, 0);
            if skips && cycle.end <= now {
                cycle = BillingCycle::of(interval, cycle.end, 0);
            }
        }
        Self { plan_id, terms, cycle }
    }

    /// The events that start the cycle.
    pub(super) fn renewed(
        self,
        states: &StateCache,
        subscription: &Subscription,
        payment_id: Option<PaymentId>,
    ) -> Result<Vec<Event>, DecideError> {
        let subscriber = subscription.subscriber;
        let wallet = states.wallet(subscriber.wallet_id)?.expect("a subscriber has a wallet");
        let pending = subscription.outlasting(self.plan_id, self.cycle.end);
        let revision = subscription.revision + 1;
        let settings = settings_after(subscription, revision, (self.plan_id, &self.terms), pending, None);
        let renewed = Event::from(Box::new(SubscriptionRenewed {
            subscriber,
            plan_id: self.plan_id,
            granted: self.terms.included_credit,
            terms: self.terms,
            cycle: self.cycle,
            payment_id,
            outlasts: subscription.renewed_during(wallet.upgrade_payment_id, self.plan_id),
        }));
        Ok([renewed].into_iter().chain(settings).collect())
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
        awaits: None,
        retry_at,
    })];
    if attempt > RETRIES {
        events.push(cancelled(states, subscription, CancelReason::PaymentFailed)?);
    }
    Ok(events)
}

/// The open payment of an upgrade whose end a paid renewal that is due `now` waits for, and when it looks again; `None` if it
/// does not wait. An accepted upgrade begins a cycle of its own, and the renewal would be paid in vain. A payment that stays
/// open does not hold up renewals. The time between two looks doubles.
fn awaited_upgrade(
    states: &StateCache,
    subscription: &Subscription,
    now: DateTime<Utc>,
) -> Result<Option<(PaymentId, DateTime<Utc>)>, DecideError> {
    let subscriber = subscription.subscriber;
    let wallet = states.wallet(subscriber.wallet_id)?.expect("a subscriber has a wallet");
    let Some(payment_id) = wallet.upgrade_payment_id else { return Ok(None) };
    let Some(open) = states.payment(payment_id)? else { return Ok(None) };
    let Purpose::Upgrade { subscription_id, .. } = &open.requested.purpose else { return Ok(None) };
    let open_for = now.signed_duration_since(open.requested_at);
    if *subscription_id != subscriber.subscription_id || open_for >= UPGRADE_AWAITED {
        return Ok(None);
    }
    let next_look = now.checked_add_signed(open_for.max(LOOKS_AGAIN_AFTER));
    let last_look = open.requested_at.checked_add_signed(UPGRADE_AWAITED);
    Ok(next_look.zip(last_look).map(|(next, last)| (payment_id, next.min(last))))
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

    /// Starts the next cycle or requests its payment, or waits for the outcome of an upgrade's payment.
    fn renew(
        &self,
        states: &StateCache,
        subscription: &Subscription,
        attempt: u32,
        now: DateTime<Utc>,
    ) -> Result<(Vec<Event>, Advanced), DecideError> {
        let next = Next::of(states, subscription, attempt, now)?;
        if next.terms.is_free() {
            return Ok((next.renewed(states, subscription, None)?, Advanced::Done));
        }
        let subscriber = subscription.subscriber;
        if let Some((awaited, retry_at)) = awaited_upgrade(states, subscription, now)? {
            let waits = RenewalFailed {
                subscriber,
                cycle_number: subscription.cycle.number + 1,
                attempt: attempt - 1,
                payment_id: None,
                awaits: Some(awaited),
                retry_at,
            };
            return Ok((vec![Event::from(waits)], Advanced::Done));
        }
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

#[cfg(test)]
mod tests {
    use chrono::Datelike as _;
    use ulid::Ulid;

    use super::*;
    use crate::event::Subscriber;
    use crate::ids::{CustomerId, MerchantId, WalletId};
    use crate::plan::BillingInterval;

    fn terms(billing_interval: BillingInterval) -> PlanTerms {
        PlanTerms {
            name: "plan".into(),
            period_amount: Amount::ZERO,
            included_credit: Amount::ZERO,
            billing_interval,
            rollover_type: Rollover::None,
            bundle_rollover_type: Rollover::None,
            meter_ids: Vec::new(),
            default_auto_top_up_bundle_id: None,
        }
    }

    /// A subscription of this interval whose present cycle has this number.
    fn subscription(interval: BillingInterval, anchor: DateTime<Utc>, number: u32) -> Subscription {
        let id = Ulid::from_parts(1, 1);
        let cycle = BillingCycle::of(interval, anchor, number);
        Subscription {
            merchant_id: MerchantId::new(id),
            subscriber: Subscriber {
                subscription_id: SubscriptionId::new(id),
                customer_id: CustomerId::new(id),
                wallet_id: WalletId::new(id),
            },
            plan_id: PlanId::new(id),
            terms: terms(interval),
            started_at: anchor,
            anchor,
            cycle,
            phase: Phase::Dunning { attempts: 0, payment_id: None, retry_at: cycle.end },
            payment_method_id: None,
            auto_top_up_bundle_id: None,
            auto_top_up_chosen: None,
            pending_change: None,
            outlasts: None,
            revision: 0,
            due_ms: None,
        }
    }

    /// The last three days of each month, from a year into a leap year.
    fn month_ends() -> impl Iterator<Item = DateTime<Utc>> {
        let first: DateTime<Utc> = "2027-01-01T10:00:00.250Z".parse().unwrap();
        let days = (0..15 * 30).map(move |day| first + TimeDelta::days(day));
        days.filter(|day| (*day + TimeDelta::days(3)).month() != day.month())
    }

    /// Days around the ends of cycles, of up to five years.
    fn delays() -> Vec<i64> {
        let is_near = |days: &i64| *days <= 95 || [0, 1, 2, 363, 364].contains(&(days % 365));
        (0..=5 * 365).filter(is_near).collect()
    }

    #[test]
    fn a_late_payment_is_for_a_cycle_that_has_not_ended_and_overlaps_none() {
        let delays = delays();
        for anchor in month_ends() {
            for interval in BillingInterval::ALL {
                let other = if interval == BillingInterval::Day {
                    subscription(BillingInterval::Week, anchor - TimeDelta::days(7), 0)
                } else {
                    subscription(BillingInterval::Day, anchor - TimeDelta::days(1), 0)
                };
                for before in [other, subscription(interval, anchor, 2)] {
                    let end = before.cycle.end;
                    let late = end + TimeDelta::days(57);
                    for days in &delays {
                        let now = end + TimeDelta::days(*days) + TimeDelta::hours(3);
                        is_right(&before, interval, 1, (end, now));
                        is_right(&before, interval, 2, (now, now));
                        // The first request was late, too.
                        if now > late {
                            is_right(&before, interval, 1, (late, now));
                        }
                    }
                }
            }
        }
    }

    /// Checks the cycle of a renewal onto `interval` that was requested and paid at these times.
    fn is_right(
        before: &Subscription,
        interval: BillingInterval,
        attempt: u32,
        (requested_at, now): (DateTime<Utc>, DateTime<Utc>),
    ) {
        let cycle = Next::on(before.plan_id, terms(interval), before, attempt, (requested_at, now)).cycle;
        let told = || format!("{:?} {interval:?} {attempt} {requested_at} {now}: {cycle:?}", before.cycle);
        assert!(before.cycle.end <= cycle.start && cycle.start <= now, "{}", told());
        // It is one of the cycles that follow from the anchor that the subscription then has.
        let kept = if cycle.number == 0 { cycle.start } else { before.anchor };
        assert_eq!(BillingCycle::of(interval, kept, cycle.number), cycle, "{}", told());
        let (anchor, number) = if interval == before.terms.billing_interval {
            (before.anchor, before.cycle.number + 1)
        } else {
            (before.cycle.end, 0)
        };
        let open = BillingCycle::ending_after(interval, anchor, number, requested_at);
        if attempt == 1 && now < open.end {
            let first = BillingCycle::of(interval, anchor, number);
            assert_eq!(cycle, first, "{}, though it was paid in time", told());
        } else {
            assert!(now < cycle.end, "{}", told());
        }
    }
}
