//! The properties of random years.

use std::collections::BTreeMap;

use farthing_core::event::{Event, PaymentEvent, RequestEvent, Source, SubscriptionEvent, WalletEvent};
use proptest::prelude::*;

use super::Years;
use super::happening::happening;

proptest! {
    #![proptest_config(crate::config(200))]

    #[test]
    fn credit_granted_is_credit_used_expired_and_remaining_at_every_position(
        happenings in proptest::collection::vec(happening(), 1..200),
    ) {
        let mut years = Years::begin();
        for happening in &happenings {
            years.happen(happening);
            years.check();
        }
    }
}

/// The property above proves nothing about behaviour that its years never show.
#[test]
fn random_years_see_everything_that_can_happen_to_credit() {
    use proptest::strategy::ValueTree as _;

    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = proptest::collection::vec(happening(), 200);
    let mut seen = BTreeMap::<&str, usize>::new();
    let mut see = |what: &'static str| *seen.entry(what).or_default() += 1;
    for _ in 0..60 {
        let mut years = Years::begin();
        for happening in strategy.new_tree(&mut runner).unwrap().current() {
            years.happen(&happening);
        }
        for fact in &years.till.facts {
            see(farthing_core::event::codec::encode(&fact.event).kind);
            match &fact.event {
                Event::Wallet(WalletEvent::Debited(event)) => {
                    for part in &event.sources {
                        see(match part.source {
                            Source::Balance => "drawn from the balance",
                            Source::PlanCredit(_) => "drawn from a plan's credit",
                            Source::BundleCredit(_) => "drawn from a bundle's credit",
                        });
                    }
                }
                Event::Subscription(SubscriptionEvent::CycleEnded(event)) => {
                    see(if event.expired.is_positive() { "expired" } else { "nothing expired" });
                    see(if event.carried_over.is_positive() {
                        "carried over"
                    } else {
                        "nothing carried over"
                    });
                    see(if event.expired_bundles.is_empty() {
                        "no bundle expired"
                    } else {
                        "a bundle expired"
                    });
                }
                Event::Payment(PaymentEvent::Requested(event)) => see(match event.purpose {
                    farthing_core::event::Purpose::Fund => "funding",
                    farthing_core::event::Purpose::Autopay => "autopay",
                    farthing_core::event::Purpose::Bundle { .. } => "a bundle",
                    farthing_core::event::Purpose::AutoTopUp { .. } => "an auto top-up",
                    farthing_core::event::Purpose::Subscribe { .. } => "a subscription",
                    farthing_core::event::Purpose::Upgrade { .. } => "an upgrade",
                    farthing_core::event::Purpose::Renewal { .. } => "a renewal",
                }),
                Event::Subscription(SubscriptionEvent::Cancelled(event)) => see(match event.reason {
                    farthing_core::event::CancelReason::Requested => "cancelled as asked",
                    farthing_core::event::CancelReason::PaymentFailed => "cancelled unpaid",
                    farthing_core::event::CancelReason::CustomerDeleted => "cancelled with its customer",
                }),
                Event::Request(RequestEvent::Metered(event)) if event.overrun.is_positive() => {
                    see("an overrun");
                }
                Event::Request(RequestEvent::Opened(event)) if event.hold.beside_plan => {
                    see("a hold beside the plan");
                }
                _ => {}
            }
        }
    }
    let unseen: Vec<_> = [
        "plan.created",
        "plan.updated",
        "plan.deleted",
        "subscription.started",
        "subscription.updated",
        "subscription.cycle_ended",
        "subscription.renewed",
        "subscription.renewal_failed",
        "subscription.upgraded",
        "subscription.cancelled",
        "bundle.purchased",
        "wallet.autopay_changed",
        "payment.succeeded",
        "payment.declined",
        "payment.voided",
        "clock.advanced",
        "customer.deleted",
        "request.failed",
        "drawn from the balance",
        "drawn from a plan's credit",
        "drawn from a bundle's credit",
        "expired",
        "carried over",
        "a bundle expired",
        "funding",
        "autopay",
        "a bundle",
        "an auto top-up",
        "a subscription",
        "an upgrade",
        "a renewal",
        "cancelled as asked",
        "cancelled unpaid",
        "cancelled with its customer",
        "an overrun",
        "a hold beside the plan",
    ]
    .into_iter()
    .filter(|what| !seen.contains_key(what))
    .collect();
    assert!(unseen.is_empty(), "never seen: {unseen:?} in {seen:?}");
}
