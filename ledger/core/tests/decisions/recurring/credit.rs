//! Holds and debits of credit while plans change.

use farthing_core::command::{Refusal, SubscriptionEdit, WalletRefusal};
use farthing_core::event::{Event, RequestEvent};
use farthing_core::money::Amount;
use farthing_core::plan::PlanTerms;

use super::{borne_by_the_merchant, dollars, terms};
use crate::years::Years;

#[test]
fn the_merchant_pays_a_call_whose_credit_expired() {
    let mut years = Years::begin();
    let customer = years.first();
    let meter = years.call_meter("1.5");
    let (plan, _) = years.plan(terms("0", "2"), "0");
    years.joins(customer, plan);
    let call = years.open(customer, meter).unwrap();
    years.change(customer, SubscriptionEdit::Cancel);
    years.days(32);
    assert_eq!(years.wallet(customer).plan_credit(), Amount::ZERO);
    let before = years.merchants_balance();
    borne_by_the_merchant(&years.end(call), "1.5");
    assert_eq!(before.minus(years.merchants_balance()), Ok(dollars("1.5")));
    assert_eq!(years.wallet(customer).held, Amount::ZERO);
    years.check();
}

#[test]
fn credit_of_the_next_cycle_pays_for_a_call_that_outlasts_its_cycle() {
    let mut years = Years::begin();
    let customer = years.first();
    let meter = years.call_meter("1.5");
    let (plan, _) = years.plan(terms("0", "2"), "0");
    years.joins(customer, plan);
    let call = years.open(customer, meter).unwrap();
    years.days(32);
    let events = years.end(call);
    let Event::Request(RequestEvent::Metered(metered)) = &events[0] else { panic!("{events:?}") };
    assert_eq!((metered.total_wallet_cost, metered.overrun), (dollars("1.5"), Amount::ZERO));
    assert_eq!(years.wallet(customer).plan_credit(), dollars("0.5"));
}

/// Two calls must not hold the same money if one of them is from before a plan for another meter.
#[test]
fn a_hold_from_before_a_plan_does_not_count_as_covered_by_its_credit() {
    let mut years = Years::begin();
    let customer = years.first();
    let (of_plan, other) = (years.call_meter("2"), years.call_meter("2"));
    years.credit(customer, dollars("2")).unwrap();
    let before_the_plan = years.open(customer, other).unwrap();
    let (plan, _) = years.plan(PlanTerms { meter_ids: vec![of_plan], ..terms("0", "2") }, "0");
    years.joins(customer, plan);
    // The wallet has 4, of which 2 are held; the plan's 2 are for its own meter only.
    let Err(Refusal::Wallet(WalletRefusal::InsufficientBalance { available, .. })) =
        years.open(customer, other)
    else {
        panic!("the balance is held by the first call")
    };
    assert_eq!(available, Amount::ZERO);
    let of_the_plan = years.open(customer, of_plan).unwrap();
    for call in [before_the_plan, of_the_plan] {
        let Event::Request(RequestEvent::Metered(metered)) = years.end(call).remove(0) else {
            panic!("not metered")
        };
        assert_eq!((metered.total_wallet_cost, metered.overrun), (dollars("2"), Amount::ZERO));
    }
    let wallet = years.wallet(customer);
    assert_eq!(
        (wallet.balance, wallet.held, wallet.plan_credit()),
        (Amount::ZERO, Amount::ZERO, Amount::ZERO)
    );
    assert_eq!((wallet.held_before_plan, wallet.held_beside_plan), (Amount::ZERO, Amount::ZERO));
    // Once the earlier hold is released, the calls of the two meters are distinguished again.
    years.credit(customer, dollars("2")).unwrap();
    let second = years.open(customer, other).unwrap();
    assert!(years.open(customer, other).is_err());
    years.end(second);
    years.check();
}

#[test]
fn the_merchant_pays_a_call_whose_credit_moved_to_another_meter() {
    let mut years = Years::begin();
    let customer = years.first();
    let (of_small, of_large) = (years.call_meter("2"), years.call_meter("2"));
    let (small, _) = years.plan(PlanTerms { meter_ids: vec![of_small], ..terms("2", "2") }, "0");
    let (large, _) = years.plan(PlanTerms { meter_ids: vec![of_large], ..terms("3", "2") }, "0");
    years.joins(customer, small);
    let call = years.open(customer, of_small).unwrap();
    years.joins(customer, large);
    let own = years.merchants_balance();
    borne_by_the_merchant(&years.end(call), "2");
    assert_eq!(own.minus(years.merchants_balance()), Ok(dollars("2")));
    let wallet = years.wallet(customer);
    assert_eq!((wallet.held, wallet.held_before_plan), (Amount::ZERO, Amount::ZERO));
    assert_eq!(wallet.plan_credit(), dollars("4"), "the credit is there for the present plan's meter");
    years.check();
}
