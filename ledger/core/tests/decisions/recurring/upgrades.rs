//! What happens while the payment of an upgrade is open: changes that are requested, and cycles that end.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::command::{Edit, Paid, Purchase, SubscriptionEdit};
use farthing_core::event::{
    CancelReason, DeclineReason, Event, PaymentRequested, PendingChange, Purpose, RenewalFailed,
    SubscriptionEvent,
};
use farthing_core::ids::{CustomerId, PaymentId, PlanId, SubscriptionId};
use farthing_core::money::Amount;
use farthing_core::state::Phase;

use super::{dollars, terms};
use crate::years::Years;

/// A customer with the first of three plans, each dearer than the one before, and the other two. The first one has a
/// bundle.
fn with_dearer_plans() -> (Years, CustomerId, [PlanId; 3]) {
    let mut years = Years::begin();
    let customer = years.first();
    let prices = [("10", "5"), ("20", "0"), ("30", "0")];
    let [(small, _), (large, _), (largest, _)] =
        prices.map(|(price, bundle)| years.plan(terms(price, price), bundle));
    years.joins(customer, small);
    (years, customer, [small, large, largest])
}

fn upgrade(years: &mut Years, customer: CustomerId, plan: PlanId) -> PaymentId {
    let fresh = SubscriptionId::new(years.ulid());
    years.ask_for(customer, Purchase::Plan(plan, fresh)).unwrap()
}

fn accept(years: &mut Years, payment_id: PaymentId) {
    years.complete(payment_id, Paid::Accepted("taken".into())).unwrap();
}

fn decline(years: &mut Years, payment_id: PaymentId) {
    years.complete(payment_id, Paid::Declined(DeclineReason::CardDeclined)).unwrap();
}

fn pending(years: &Years, customer: CustomerId) -> Option<PendingChange> {
    years.subscription(customer).unwrap().pending_change
}

/// The open payment of a renewal, if there is one.
fn renewal(years: &Years) -> Option<PaymentRequested> {
    let open = years.open_payments().into_iter().map(|payment| payment.requested);
    let mut renewals = open.filter(|payment| matches!(payment.purpose, Purpose::Renewal { .. }));
    let first = renewals.next();
    assert_eq!(renewals.next(), None, "one renewal at a time");
    first
}

/// Requests the upgrade ten minutes before the subscription is due, and does what is due then.
fn upgrade_before_the_end(years: &mut Years, customer: CustomerId, plan: PlanId) -> PaymentId {
    let due_at = due_at(years, customer);
    years.machine = due_at - TimeDelta::minutes(10);
    let payment_id = upgrade(years, customer, plan);
    years.machine = due_at;
    years.schedule();
    payment_id
}

/// What the last renewal says of an upgrade whose payment is open.
fn renewed_during(years: &Years) -> Option<PaymentId> {
    let renewed = years.till.facts.iter().rev().find_map(|fact| match &fact.event {
        Event::Subscription(SubscriptionEvent::Renewed(renewed)) => Some(renewed.outlasts),
        _ => None,
    });
    renewed.expect("it was renewed")
}

/// Requests an upgrade ten minutes before the cycle ends and then the downgrade, which is made two hours later, while the
/// payment of the upgrade is open.
fn downgrade_during(years: &mut Years, customer: CustomerId, plans: [PlanId; 2]) -> PaymentId {
    years.machine = due_at(years, customer) - TimeDelta::minutes(10);
    let payment_id = upgrade(years, customer, plans[0]);
    years.change(customer, SubscriptionEdit::Downgrade(plans[1]));
    years.machine += TimeDelta::hours(2);
    years.schedule();
    if let Some(asked) = renewal(years) {
        accept(years, asked.payment_id);
    }
    let subscription = years.subscription(customer).unwrap();
    assert_eq!((subscription.plan_id, &subscription.pending_change), (plans[1], &None));
    payment_id
}

fn due_at(years: &Years, customer: CustomerId) -> DateTime<Utc> {
    years.subscription(customer).unwrap().due_at().unwrap()
}

/// Lets time pass until the subscription is due, and does what is due then.
fn pass_until_due(years: &mut Years, customer: CustomerId) {
    years.machine = due_at(years, customer);
    years.schedule();
}

/// The last event, which says that a renewal failed or waits.
fn failed(years: &Years) -> RenewalFailed {
    match &years.till.facts.last().unwrap().event {
        Event::Subscription(SubscriptionEvent::RenewalFailed(failed)) => failed.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancellation_requested_while_an_upgrade_is_paid_takes_effect_after_the_new_cycle() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    years.days(3);
    let payment_id = upgrade(&mut years, customer, large);
    years.change(customer, SubscriptionEdit::Cancel);
    accept(&mut years, payment_id);
    let subscription = years.subscription(customer).unwrap();
    assert_eq!((subscription.plan_id, subscription.cycle.start), (large, years.machine));
    let effective_at = subscription.cycle.end;
    let kept = Some(PendingChange::Cancellation { effective_at, outlasts: Some(payment_id) });
    assert_eq!(subscription.pending_change, kept);
    // The log states it, so readers need not know the rule.
    let Event::Subscription(SubscriptionEvent::Updated(told)) = &years.till.facts.last().unwrap().event
    else {
        panic!("{:?}", years.till.facts.last())
    };
    assert_eq!((&told.pending_change, told.revision), (&kept, subscription.revision));
    years.days(32);
    assert!(years.subscription(customer).is_none(), "it ends without a payment for another cycle");
    assert!(years.open_payments().is_empty());
    years.check();
}

#[test]
fn a_downgrade_requested_while_an_upgrade_is_paid_takes_effect_after_the_new_cycle() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    let (smallest, _) = years.plan(terms("5", "5"), "0");
    let payment_id = upgrade(&mut years, customer, large);
    years.change(customer, SubscriptionEdit::Downgrade(smallest));
    accept(&mut years, payment_id);
    let subscription = years.subscription(customer).unwrap();
    assert_eq!(subscription.plan_id, large);
    let Some(PendingChange::Downgrade { effective_at, plan_id, .. }) = subscription.pending_change else {
        panic!("{:?}", subscription.pending_change)
    };
    assert_eq!((effective_at, plan_id), (subscription.cycle.end, smallest));
    years.days(32);
    let renewals = years.pay_all();
    assert_eq!((renewals.len(), renewals[0].amount), (1, dollars("5")));
    assert_eq!(years.subscription(customer).unwrap().plan_id, smallest);
    assert_eq!(pending(&years, customer), None);
    years.check();
}

#[test]
fn an_upgrade_takes_back_a_change_that_was_requested_before_it() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    years.change(customer, SubscriptionEdit::Cancel);
    let payment_id = upgrade(&mut years, customer, large);
    // Another change meanwhile does not make the cancellation a later one.
    years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Clear));
    accept(&mut years, payment_id);
    assert_eq!(years.subscription(customer).unwrap().plan_id, large);
    assert_eq!(pending(&years, customer), None);
    years.days(32);
    assert_eq!(years.pay_all().len(), 1, "it is renewed");
}

#[test]
fn a_change_that_is_requested_again_while_an_upgrade_is_paid_is_a_later_one() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    years.change(customer, SubscriptionEdit::Cancel);
    let payment_id = upgrade(&mut years, customer, large);
    for _ in 0..2 {
        years.change(customer, SubscriptionEdit::Cancel);
        let outlasts = pending(&years, customer).as_ref().and_then(PendingChange::outlasts);
        assert_eq!(outlasts, Some(payment_id));
    }
    accept(&mut years, payment_id);
    let kept = pending(&years, customer);
    assert!(matches!(kept, Some(PendingChange::Cancellation { .. })), "{kept:?}");
    // Once more, it changes nothing.
    let before = years.till.facts.len();
    years.change(customer, SubscriptionEdit::Cancel);
    assert_eq!((years.till.facts.len(), pending(&years, customer)), (before, kept));
}

#[test]
fn a_change_outlasts_one_upgrade_and_not_the_next_one() {
    let (mut years, customer, [_, large, largest]) = with_dearer_plans();
    let declined = upgrade(&mut years, customer, large);
    years.change(customer, SubscriptionEdit::Cancel);
    decline(&mut years, declined);
    let end = years.subscription(customer).unwrap().cycle.end;
    let kept = Some(PendingChange::Cancellation { effective_at: end, outlasts: Some(declined) });
    assert_eq!(pending(&years, customer), kept, "a declined upgrade changes nothing");
    let before = years.till.facts.len();
    years.change(customer, SubscriptionEdit::Cancel);
    assert_eq!(years.till.facts.len(), before, "it is pending already");
    years.joins(customer, large);
    assert_eq!(pending(&years, customer), None);
    // The same if the first one was accepted.
    let accepted = upgrade(&mut years, customer, largest);
    years.change(customer, SubscriptionEdit::Cancel);
    accept(&mut years, accepted);
    assert!(pending(&years, customer).is_some());
    let (more, _) = years.plan(terms("40", "40"), "0");
    years.joins(customer, more);
    assert_eq!(pending(&years, customer), None);
    years.check();
}

#[test]
fn a_cancellation_outlasts_a_renewal_and_an_upgrade_that_are_both_paid_after_it() {
    let (mut years, customer, [small, large, _]) = with_dearer_plans();
    let upgraded = upgrade(&mut years, customer, large);
    years.days(32);
    years.change(customer, SubscriptionEdit::Cancel);
    let renewed = renewal(&years).unwrap().payment_id;
    for (payment_id, plan_id) in [(renewed, small), (upgraded, large)] {
        accept(&mut years, payment_id);
        let subscription = years.subscription(customer).unwrap();
        assert_eq!(subscription.plan_id, plan_id);
        let effective_at = subscription.cycle.end;
        let kept = PendingChange::Cancellation { effective_at, outlasts: Some(upgraded) };
        assert_eq!(subscription.pending_change, Some(kept));
    }
    years.check();
}

#[test]
fn a_cancelled_subscription_ends_with_its_cycle_though_an_upgrade_is_being_paid() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    years.change(customer, SubscriptionEdit::Cancel);
    let payment_id = upgrade_before_the_end(&mut years, customer, large);
    assert!(years.subscription(customer).is_none());
    accept(&mut years, payment_id);
    assert!(years.subscription(customer).is_none());
    assert_eq!(years.wallet(customer).balance, dollars("20"), "the money is not lost");
    years.check();
}

#[test]
fn a_renewal_that_waits_for_an_accepted_upgrade_is_not_charged() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    let payment_id = upgrade_before_the_end(&mut years, customer, large);
    assert_eq!(renewal(&years), None);
    let waits = failed(&years);
    assert_eq!((waits.attempt, waits.payment_id, waits.awaits), (0, None, Some(payment_id)));
    assert_eq!(waits.retry_at, years.machine + TimeDelta::minutes(10));
    assert_eq!(years.wallet(customer).plan_credit(), Amount::ZERO, "the old cycle's credit has expired");
    accept(&mut years, payment_id);
    let subscription = years.subscription(customer).unwrap();
    assert_eq!((subscription.plan_id, subscription.phase), (large, Phase::Running));
    assert_eq!(subscription.cycle.start, years.machine);
    years.machine += TimeDelta::hours(2);
    years.schedule();
    assert!(years.open_payments().is_empty());
    let wallet = years.wallet(customer);
    assert_eq!((wallet.balance, wallet.plan_credit()), (Amount::ZERO, dollars("20")));
    years.check();
}

#[test]
fn a_renewal_that_waits_is_charged_after_the_upgrade_was_declined() {
    let (mut years, customer, [small, large, _]) = with_dearer_plans();
    let began = years.subscription(customer).unwrap().cycle;
    let payment_id = upgrade_before_the_end(&mut years, customer, large);
    decline(&mut years, payment_id);
    pass_until_due(&mut years, customer);
    let asked = renewal(&years).unwrap();
    assert_eq!(asked.amount, dollars("10"));
    assert!(matches!(asked.purpose, Purpose::Renewal { attempt: 1, cycle_number: 1, .. }), "{asked:?}");
    accept(&mut years, asked.payment_id);
    let subscription = years.subscription(customer).unwrap();
    assert_eq!((subscription.plan_id, subscription.cycle.start), (small, began.end));
    assert_eq!(years.wallet(customer).plan_credit(), dollars("10"));
    years.check();
}

#[test]
fn a_renewal_does_not_wait_for_an_upgrade_whose_payment_stays_open() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    let end = due_at(&years, customer);
    let stuck = upgrade_before_the_end(&mut years, customer, large);
    let mut waited = 1;
    while renewal(&years).is_none() {
        assert_eq!(failed(&years).attempt, 0);
        assert!(waited < 10, "it waits for ever");
        waited += 1;
        pass_until_due(&mut years, customer);
    }
    assert_eq!(years.machine, end + TimeDelta::minutes(50), "an hour after the upgrade was requested");
    assert_eq!(waited, 4, "at the end, and after 10, 30 and 50 minutes");
    // The waits are no attempts: it ends after four of them.
    for attempt in 1..=4 {
        let asked = renewal(&years).unwrap();
        decline(&mut years, asked.payment_id);
        if years.subscription(customer).is_some() {
            assert_eq!((failed(&years).attempt, failed(&years).awaits), (attempt, None));
        } else {
            assert_eq!(attempt, 4);
        }
        years.days(1);
    }
    assert!(years.subscription(customer).is_none());
    accept(&mut years, stuck);
    assert_eq!(years.wallet(customer).balance, dollars("20"));
    years.check();
}

#[test]
fn a_renewal_looks_again_a_minute_after_an_upgrade_that_was_requested_just_now() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    years.machine = due_at(&years, customer);
    upgrade(&mut years, customer, large);
    years.schedule();
    assert_eq!(failed(&years).retry_at, years.machine + TimeDelta::minutes(1));
    let mut waits = 1;
    while renewal(&years).is_none() {
        pass_until_due(&mut years, customer);
        waits += 1;
    }
    assert_eq!(waits, 8, "after 1, 2, 4, 8, 16, 32 and 60 minutes");
}

#[test]
fn the_retry_of_a_failed_renewal_waits_for_an_upgrade_too() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    pass_until_due(&mut years, customer);
    years.decline_all();
    let payment_id = upgrade_before_the_end(&mut years, customer, large);
    assert_eq!(renewal(&years), None);
    let waits = failed(&years);
    assert_eq!((waits.attempt, waits.payment_id, waits.awaits), (1, None, Some(payment_id)));
    decline(&mut years, payment_id);
    pass_until_due(&mut years, customer);
    let asked = renewal(&years).unwrap();
    assert!(matches!(asked.purpose, Purpose::Renewal { attempt: 2, .. }), "{asked:?}");
    years.check();
}

#[test]
fn a_cancellation_while_a_renewal_waits_for_an_upgrade_follows_its_outcome() {
    for accepted in [true, false] {
        let (mut years, customer, [_, large, _]) = with_dearer_plans();
        let payment_id = upgrade_before_the_end(&mut years, customer, large);
        years.change(customer, SubscriptionEdit::Cancel);
        if accepted {
            accept(&mut years, payment_id);
            let subscription = years.subscription(customer).unwrap();
            let effective_at = subscription.cycle.end;
            let kept = PendingChange::Cancellation { effective_at, outlasts: Some(payment_id) };
            assert_eq!((subscription.plan_id, subscription.pending_change), (large, Some(kept)));
        } else {
            decline(&mut years, payment_id);
        }
        pass_until_due(&mut years, customer);
        assert!(years.subscription(customer).is_none(), "{accepted}");
        let Event::Subscription(SubscriptionEvent::Cancelled(end)) = &years.till.facts.last().unwrap().event
        else {
            panic!("{:?}", years.till.facts.last())
        };
        assert_eq!(end.reason, CancelReason::Requested);
        assert!(years.open_payments().is_empty(), "{accepted}");
        years.check();
    }
}

#[test]
fn a_cycle_that_costs_nothing_begins_though_an_upgrade_is_being_paid() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    let (free, _) = years.plan(terms("0", "1"), "0");
    years.change(customer, SubscriptionEdit::Downgrade(free));
    let payment_id = upgrade_before_the_end(&mut years, customer, large);
    let subscription = years.subscription(customer).unwrap();
    assert_eq!((subscription.plan_id, subscription.phase), (free, Phase::Running));
    accept(&mut years, payment_id);
    assert_eq!(years.subscription(customer).unwrap().plan_id, large);
    years.check();
}

#[test]
fn a_downgrade_that_was_made_during_an_upgrade_is_made_again_after_it() {
    for price in ["0", "5"] {
        let (mut years, customer, [_, large, _]) = with_dearer_plans();
        let (cheap, _) = years.plan(terms(price, "1"), "0");
        let payment_id = downgrade_during(&mut years, customer, [large, cheap]);
        assert_eq!(renewed_during(&years), Some(payment_id));
        accept(&mut years, payment_id);
        let subscription = years.subscription(customer).unwrap();
        assert_eq!((subscription.plan_id, subscription.cycle.start), (large, years.machine));
        assert_eq!(subscription.outlasts, None, "it is pending now");
        let Some(PendingChange::Downgrade { effective_at, plan_id, outlasts, .. }) =
            subscription.pending_change.clone()
        else {
            panic!("{:?}", subscription.pending_change)
        };
        assert_eq!((effective_at, plan_id, outlasts), (subscription.cycle.end, cheap, Some(payment_id)));
        // The log states it, so readers need not know the rule.
        let Event::Subscription(SubscriptionEvent::Updated(told)) = &years.till.facts.last().unwrap().event
        else {
            panic!("{:?}", years.till.facts.last())
        };
        assert_eq!(told.pending_change, subscription.pending_change);
        years.days(32);
        let charged = years.pay_all().iter().map(|payment| payment.amount).collect::<Vec<_>>();
        let expected = if price == "0" { Vec::new() } else { vec![dollars(price)] };
        assert_eq!(charged, expected);
        let subscription = years.subscription(customer).unwrap();
        assert_eq!((subscription.plan_id, subscription.pending_change), (cheap, None));
        assert_eq!(renewed_during(&years), None);
        years.check();
    }
}

#[test]
fn a_downgrade_outlasts_an_upgrade_whose_payment_is_open_for_several_cycles() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    let (free, _) = years.plan(terms("0", "1"), "0");
    let payment_id = downgrade_during(&mut years, customer, [large, free]);
    for _ in 0..2 {
        pass_until_due(&mut years, customer);
        assert_eq!(renewed_during(&years), Some(payment_id));
    }
    // A later choice counts.
    let (other, _) = years.plan(terms("0", "2"), "0");
    years.change(customer, SubscriptionEdit::Downgrade(other));
    accept(&mut years, payment_id);
    let kept = pending(&years, customer);
    assert!(matches!(kept, Some(PendingChange::Downgrade { plan_id, .. }) if plan_id == other), "{kept:?}");
    years.check();
}

#[test]
fn a_downgrade_that_was_made_during_a_declined_upgrade_says_nothing_of_later_ones() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    let (free, _) = years.plan(terms("0", "1"), "0");
    let declined = downgrade_during(&mut years, customer, [large, free]);
    decline(&mut years, declined);
    pass_until_due(&mut years, customer);
    assert_eq!(renewed_during(&years), None);
    years.joins(customer, large);
    assert_eq!(pending(&years, customer), None);
    years.check();
}

#[test]
fn a_downgrade_requested_before_an_upgrade_and_made_during_it_is_taken_back() {
    let (mut years, customer, [_, large, _]) = with_dearer_plans();
    let (smallest, _) = years.plan(terms("5", "5"), "0");
    years.change(customer, SubscriptionEdit::Downgrade(smallest));
    let payment_id = upgrade_before_the_end(&mut years, customer, large);
    years.machine += TimeDelta::hours(2);
    years.schedule();
    let asked = renewal(&years).unwrap();
    accept(&mut years, asked.payment_id);
    assert_eq!(renewed_during(&years), None);
    accept(&mut years, payment_id);
    assert_eq!(years.subscription(customer).unwrap().plan_id, large);
    assert_eq!(pending(&years, customer), None);
    years.check();
}
