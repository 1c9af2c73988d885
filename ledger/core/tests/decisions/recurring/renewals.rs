//! Renewals that fail, are late or change.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::command::{AdvanceSubscription, Advanced, SubscriptionEdit};
use farthing_core::event::{CancelReason, Event, PendingChange, SubscriptionEvent};
use farthing_core::ids::{CustomerId, PaymentId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};

use super::{dollars, terms};
use crate::years::Years;

/// A customer with a plan of a day.
fn with_a_daily_plan() -> (Years, CustomerId) {
    let mut years = Years::begin();
    let customer = years.first();
    let daily = PlanTerms { billing_interval: BillingInterval::Day, ..terms("3", "2") };
    let (plan, _) = years.plan(daily, "0");
    years.joins(customer, plan);
    (years, customer)
}

#[test]
fn a_failed_renewal_keeps_rolled_over_credit_and_expired_credit_stays_expired() {
    let mut years = Years::begin();
    let customers = [years.customers[0], years.customers[1]];
    let (rolls_over, _) = years.plan(PlanTerms { rollover_type: Rollover::Full, ..terms("3", "2") }, "0");
    let (expires, _) = years.plan(terms("3", "2"), "0");
    years.joins(customers[0], rolls_over);
    years.joins(customers[1], expires);
    years.days(32);
    years.decline_all();
    let left = |years: &Years| customers.map(|customer| years.wallet(customer).plan_credit());
    assert_eq!(left(&years), [dollars("2"), Amount::ZERO]);
    // Paid a day later, the cycle's credit is added to the rolled-over credit.
    years.days(1);
    years.pay_all();
    assert_eq!(left(&years), [dollars("4"), dollars("2")]);
    // Credit expires with a subscription that is never paid.
    years.days(31);
    for _ in 0..4 {
        years.decline_all();
        years.days(1);
    }
    assert!(customers.iter().all(|customer| years.subscription(*customer).is_none()));
    assert_eq!(left(&years), [Amount::ZERO; 2]);
    years.check();
}

#[test]
fn a_change_requested_during_a_renewal_takes_effect_after_the_new_cycle() {
    let mut years = Years::begin();
    let customer = years.first();
    let (plan, _) = years.plan(terms("3", "2"), "0");
    years.joins(customer, plan);
    years.days(32);
    years.change(customer, SubscriptionEdit::Cancel);
    years.pay_all();
    let subscription = years.subscription(customer).unwrap();
    let pending = Some(PendingChange::Cancellation { effective_at: subscription.cycle.end, outlasts: None });
    assert_eq!(subscription.pending_change, pending);
    // The log states it, so readers need not know the rule.
    let Some(Event::Subscription(SubscriptionEvent::Updated(told))) =
        years.till.facts.last().map(|fact| &fact.event)
    else {
        panic!("{:?}", years.till.facts.last())
    };
    assert_eq!(told.pending_change, pending);
    years.days(31);
    assert!(years.subscription(customer).is_none(), "it ends without a payment for another cycle");
    assert!(years.open_payments().is_empty());
}

#[test]
fn a_cancelled_renewal_whose_payment_is_declined_ends_the_subscription_at_once() {
    let mut years = Years::begin();
    let customer = years.first();
    let (plan, _) = years.plan(PlanTerms { rollover_type: Rollover::Full, ..terms("3", "2") }, "0");
    years.joins(customer, plan);
    years.days(32);
    years.change(customer, SubscriptionEdit::Cancel);
    years.decline_all();
    assert!(years.subscription(customer).is_none(), "no further attempt charges who has cancelled");
    let Some(Event::Subscription(SubscriptionEvent::Cancelled(end))) =
        years.till.facts.last().map(|fact| &fact.event)
    else {
        panic!("{:?}", years.till.facts.last())
    };
    assert_eq!((end.reason, end.expired), (CancelReason::Requested, dollars("2")));
    years.days(31);
    assert!(years.open_payments().is_empty());
    years.check();
}

#[test]
fn cycles_that_end_while_their_payment_is_open_are_not_paid() {
    let (mut years, customer) = with_a_daily_plan();
    let began = years.subscription(customer).unwrap().cycle;
    // The processor answers three days after the payment was requested.
    years.days(1);
    years.days(3);
    assert_eq!(years.pay_all().len(), 1);
    let cycle = years.subscription(customer).unwrap().cycle;
    assert_eq!((cycle.number, cycle.start), (4, began.start + TimeDelta::days(4)));
    assert!(cycle.end > years.machine, "the paid day has not ended");
    years.schedule();
    assert!(years.open_payments().is_empty(), "nothing else is owed");
    assert_eq!(years.wallet(customer).plan_credit(), dollars("2"));
    years.check();
}

#[test]
fn no_cycle_is_paid_that_ended_before_a_late_request_whose_payment_stayed_open() {
    let (mut years, customer) = with_a_daily_plan();
    // The instance is away until the first renewal is late, and then the processor for a week.
    years.machine += TimeDelta::hours(50);
    years.schedule();
    years.days(7);
    let mut paid = 0;
    while !years.open_payments().is_empty() {
        paid += years.pay_all().len();
        years.schedule();
    }
    assert_eq!(paid, 1, "the present day");
    let cycle = years.subscription(customer).unwrap().cycle;
    assert!(cycle.start <= years.machine && years.machine < cycle.end);
    years.check();
}

#[test]
fn cycles_that_ended_while_unpaid_are_not_paid_later() {
    let (mut years, customer) = with_a_daily_plan();
    let began = years.subscription(customer).unwrap().cycle;
    years.days(1);
    years.decline_all();
    years.days(1);
    years.decline_all();
    years.days(1);
    assert_eq!(years.pay_all().len(), 1, "one day is paid");
    let cycle = years.subscription(customer).unwrap().cycle;
    assert_eq!((cycle.number, cycle.start), (3, began.start + TimeDelta::days(3)));
    assert!(cycle.end > years.machine, "a day that has not ended");
    assert_eq!(years.wallet(customer).plan_credit(), dollars("2"));
    years.schedule();
    assert!(years.open_payments().is_empty(), "nothing else is owed");
    // After an outage of the gateway, cycles that could have been paid in time are paid.
    let subscription_id = years.subscription(customer).unwrap().subscriber.subscription_id;
    years.machine += TimeDelta::days(2);
    let payment_id = PaymentId::new(years.ulid());
    let advance = AdvanceSubscription { subscription_id, payment_id, now: years.machine };
    assert_eq!(years.execute(&advance), Ok(Advanced::PaymentRequested(payment_id)));
    years.pay_all();
    assert_eq!(years.subscription(customer).unwrap().cycle.number, 4);
}

#[test]
fn a_late_renewal_onto_another_interval_is_for_a_cycle_that_has_not_ended() {
    // A cycle that begins where the 29th to 31st was clamped has ended at these instants, and the one that is counted from
    // that day has not.
    for (ended_at, interval, paid_at) in [
        ("2027-01-29T10:00:00Z", BillingInterval::Month, "2027-03-28T12:00:00Z"),
        ("2027-01-31T10:00:00Z", BillingInterval::Month, "2027-03-28T10:00:00Z"),
        ("2027-01-31T10:00:00Z", BillingInterval::Month, "2027-03-31T09:59:59Z"),
        ("2027-08-31T10:00:00Z", BillingInterval::Month, "2027-10-30T12:00:00Z"),
        ("2028-02-29T10:00:00Z", BillingInterval::Year, "2032-02-28T12:00:00Z"),
    ] {
        for is_declined_first in [false, true] {
            let mut years = Years::begin();
            let customer = years.first();
            let [ended_at, paid_at]: [DateTime<Utc>; 2] = [ended_at, paid_at].map(|at| at.parse().unwrap());
            let daily = PlanTerms { billing_interval: BillingInterval::Day, ..terms("3", "2") };
            let (daily, _) = years.plan(daily, "0");
            let (longer, _) = years.plan(PlanTerms { billing_interval: interval, ..terms("5", "4") }, "0");
            years.machine = ended_at - TimeDelta::days(1);
            years.joins(customer, daily);
            years.change(customer, SubscriptionEdit::Downgrade(longer));
            years.days(1);
            if is_declined_first {
                years.decline_all();
            }
            years.machine = paid_at;
            years.schedule();
            let told = format!("{ended_at} {paid_at} {is_declined_first}");
            assert_eq!(years.pay_all().len(), 1, "{told}");
            let subscription = years.subscription(customer).unwrap();
            let cycle = subscription.cycle;
            assert_eq!((subscription.plan_id, subscription.anchor), (longer, cycle.start), "{told}");
            assert!(cycle.start <= paid_at && paid_at < cycle.end, "{told}: {cycle:?}");
            years.schedule();
            assert!(years.open_payments().is_empty(), "{told}: nothing else is owed");
            assert_eq!(years.wallet(customer).plan_credit(), dollars("4"), "{told}");
            years.check();
        }
    }
}
