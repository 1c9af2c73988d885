//! Auto top-up and autopay.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use farthing_core::command::{
    AutoRecharge, AutopayEdits, CustomerRef, DeleteCustomer, Edit, Payee, PlanEdits, Purchase, Refusal,
    SetAutopay, StartSubscription, SubscriptionEdit, UpdatePlan, WalletRefusal, WalletShortfall,
};
use farthing_core::event::{Autopay, Event, Purpose, SubscriptionEvent};
use farthing_core::hold_scope::CreditScope;
use farthing_core::ids::{CreditBundleId, PaymentId, PlanId, SubscriptionId};
use farthing_core::money::Amount;
use farthing_core::plan::PlanTerms;
use farthing_core::state::{CEILING, EvolveError, Missing, StateCache};

use super::{bundle_of, dollars, terms};
use crate::years::Years;

#[test]
fn after_an_upgrade_auto_top_up_buys_the_bundle_of_the_present_plan() {
    let mut years = Years::begin();
    let customer = years.first();
    let meter = years.call_meter("1");
    let (small, small_bundle) = years.plan(terms("1", "1"), "5");
    let (large, large_bundle) = years.plan(terms("3", "2"), "7");
    years.joins(customer, small);
    assert_eq!(years.wallet(customer).plan.unwrap().auto_top_up_bundle_id, small_bundle);
    years.joins(customer, large);
    assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, large_bundle);
    // 1 remains of the small plan, 2 of the large one.
    for payments in [0, 0, 1] {
        let payments_asked = years.call_on(customer, meter).unwrap();
        assert_eq!(payments_asked.len(), payments);
        for payment in &payments_asked {
            assert_eq!((Some(bundle_of(payment)), payment.amount), (large_bundle, dollars("7")));
        }
    }
    years.check();
}

#[test]
fn after_a_downgrade_auto_top_up_stops_if_the_new_plan_has_no_bundle() {
    let mut years = Years::begin();
    let customer = years.first();
    let meter = years.call_meter("1");
    let (large, _) = years.plan(terms("3", "2"), "7");
    let (small, _) = years.plan(terms("1", "1"), "0");
    years.joins(customer, large);
    years.change(customer, SubscriptionEdit::Downgrade(small));
    years.days(32);
    let renewals = years.pay_all();
    assert_eq!((renewals.len(), renewals[0].amount), (1, dollars("1")));
    let subscription = years.subscription(customer).unwrap();
    assert_eq!((subscription.plan_id, subscription.auto_top_up_bundle_id), (small, None));
    assert_eq!(subscription.pending_change, None);
    assert_eq!(years.call_on(customer, meter), Ok(Vec::new()), "the last of the credit");
    let Err(Refusal::Wallet(WalletRefusal::InsufficientBalance { auto_recharge, .. })) =
        years.open(customer, meter)
    else {
        panic!("the wallet is empty")
    };
    assert_eq!(auto_recharge, None);
}

#[test]
fn a_subscriber_without_auto_top_up_gets_none_with_the_next_plan() {
    let mut years = Years::begin();
    let customer = years.first();
    let (small, _) = years.plan(terms("1", "1"), "5");
    let (large, _) = years.plan(terms("3", "2"), "7");
    years.joins(customer, small);
    years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Clear));
    years.joins(customer, large);
    assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, None);
    assert_eq!(years.wallet(customer).plan.unwrap().auto_top_up_bundle_id, None);
}

#[test]
fn auto_top_up_that_was_turned_off_on_a_plan_without_a_default_stays_off() {
    for is_upgrade in [true, false] {
        let mut years = Years::begin();
        let customer = years.first();
        let (present, _) = years.plan(terms("5", "4"), "0");
        let (next, _) = years.plan(terms(if is_upgrade { "9" } else { "1" }, "1"), "7");
        years.joins(customer, present);
        years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Clear));
        let told = years.till.facts.len();
        years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Clear));
        assert_eq!(years.till.facts.len(), told, "the same choice again appends nothing");
        if is_upgrade {
            years.joins(customer, next);
        } else {
            years.change(customer, SubscriptionEdit::Downgrade(next));
            years.days(32);
            years.pay_all();
        }
        let subscription = years.subscription(customer).unwrap();
        assert_eq!((subscription.plan_id, subscription.auto_top_up_bundle_id), (next, None));
        assert_eq!(years.wallet(customer).plan.unwrap().auto_top_up_bundle_id, None);
    }
}

#[test]
fn a_default_that_a_plan_got_later_is_not_one_that_its_subscribers_turned_off() {
    let mut years = Years::begin();
    let customer = years.first();
    let (small, small_bundle) = years.plan(terms("1", "1"), "5");
    let (large, large_bundle) = years.plan(terms("3", "2"), "7");
    set_default(&mut years, small, Edit::Clear);
    years.joins(customer, small);
    set_default(&mut years, small, Edit::Set(small_bundle.unwrap()));
    years.days(32);
    years.pay_all();
    let subscription = years.subscription(customer).unwrap();
    assert_eq!(subscription.terms.default_auto_top_up_bundle_id, small_bundle);
    assert_eq!(subscription.auto_top_up_bundle_id, None, "it is for new subscribers");
    years.joins(customer, large);
    assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, large_bundle);
}

#[test]
fn a_plan_without_a_default_does_not_turn_auto_top_up_off_for_the_plans_after_it() {
    for chooses in [false, true] {
        let mut years = Years::begin();
        let customer = years.first();
        let (first, first_bundle) = years.plan(terms("1", "1"), "5");
        let (second, _) = years.plan(terms("3", "2"), "0");
        let (third, third_bundle) = years.plan(terms("9", "2"), "7");
        years.joins(customer, first);
        if chooses {
            years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Clear));
            years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Set(first_bundle.unwrap())));
        }
        assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, first_bundle);
        years.joins(customer, second);
        assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, None);
        years.joins(customer, third);
        assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, third_bundle);
    }
}

#[test]
fn a_log_that_does_not_say_who_chose_auto_top_up_folds_to_the_states_of_its_time() {
    for bundle in ["0", "5"] {
        let mut years = Years::begin();
        let customer = years.first();
        let (small, _) = years.plan(terms("1", "1"), bundle);
        let (large, large_bundle) = years.plan(terms("3", "2"), "7");
        years.joins(customer, small);
        years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Clear));
        years.change(customer, SubscriptionEdit::Cancel);
        forget_who_chose(&mut years);
        let mut folded = StateCache::default();
        while let Err(stuck) = folded.evolve(&years.till.facts) {
            match stuck {
                EvolveError::Missing(Missing(keys)) => {
                    for key in keys {
                        folded.load(key, None);
                    }
                }
                EvolveError::InvariantBroken(broken) => panic!("{broken}"),
            }
        }
        let folded = folded.take_changes().into_iter().filter_map(|(key, json)| Some((key.stored(), json?)));
        let folded: BTreeMap<_, _> = folded.collect();
        let stored = years.till.store.iter().map(|(name, (_, json))| (name.clone(), json.clone()));
        let stored: BTreeMap<_, _> = stored.collect();
        assert_eq!(folded, stored);
        // It is guessed from the plan's default.
        years.joins(customer, large);
        let guessed = if bundle == "0" { large_bundle } else { None };
        let subscription = years.subscription(customer).unwrap();
        assert_eq!((subscription.auto_top_up_bundle_id, subscription.auto_top_up_chosen), (guessed, None));
    }
}

/// Makes the log, and the stored states, what a program wrote that did not record who chose auto top-up.
fn forget_who_chose(years: &mut Years) {
    for fact in &mut years.till.facts {
        match &mut fact.event {
            Event::Subscription(SubscriptionEvent::Started(event)) => event.auto_top_up_chosen = None,
            Event::Subscription(SubscriptionEvent::Updated(event)) => event.auto_top_up_chosen = None,
            _ => {}
        }
    }
    for ((kind, _), (_, json)) in &mut years.till.store {
        if *kind == "subscription" {
            let without = json
                .replace(r#""auto_top_up_chosen":true,"#, "")
                .replace(r#""auto_top_up_chosen":false,"#, "");
            assert!(without.len() < json.len(), "{json}");
            *json = without;
        }
    }
    years.till.states.clear();
}

#[test]
fn auto_top_up_that_was_turned_off_before_that_was_recorded_stays_off_after_a_plan_without_a_default() {
    for same_plan in [false, true] {
        let mut years = Years::begin();
        let customer = years.first();
        let (first, _) = years.plan(terms("1", "1"), "5");
        let (second, _) = years.plan(terms("3", "2"), "0");
        let (third, _) = years.plan(terms("9", "2"), "7");
        years.joins(customer, first);
        years.change(customer, SubscriptionEdit::AutoTopUp(Edit::Clear));
        forget_who_chose(&mut years);
        assert_eq!(years.subscription(customer).unwrap().auto_top_up_chosen, None);
        if same_plan {
            set_default(&mut years, first, Edit::Clear);
            years.days(32);
            years.pay_all();
        } else {
            years.joins(customer, second);
        }
        let subscription = years.subscription(customer).unwrap();
        assert_eq!(subscription.terms.default_auto_top_up_bundle_id, None);
        // The guess can no longer be made, so it is recorded.
        assert_eq!(subscription.auto_top_up_chosen, Some(true));
        years.joins(customer, third);
        assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, None);
    }
}

#[test]
fn a_default_that_a_plan_got_later_is_not_one_that_was_turned_off_before_that_was_recorded() {
    let mut years = Years::begin();
    let customer = years.first();
    let (first, bundle) = years.plan(terms("1", "1"), "5");
    let (second, of_second) = years.plan(terms("9", "2"), "7");
    set_default(&mut years, first, Edit::Clear);
    years.joins(customer, first);
    forget_who_chose(&mut years);
    set_default(&mut years, first, Edit::Set(bundle.unwrap()));
    years.days(32);
    years.pay_all();
    let subscription = years.subscription(customer).unwrap();
    assert_eq!(subscription.terms.default_auto_top_up_bundle_id, bundle);
    assert_eq!((subscription.auto_top_up_bundle_id, subscription.auto_top_up_chosen), (None, Some(false)));
    years.joins(customer, second);
    assert_eq!(years.subscription(customer).unwrap().auto_top_up_bundle_id, of_second);
}

/// Sets which of its bundles new subscribers of a plan buy automatically.
fn set_default(years: &mut Years, plan_id: PlanId, default_auto_top_up_bundle_id: Edit<CreditBundleId>) {
    let edits = PlanEdits { default_auto_top_up_bundle_id, ..PlanEdits::default() };
    let (merchant_id, now) = (years.merchant, years.machine);
    years.execute(&UpdatePlan { merchant_id, plan_id, edits, now }).unwrap();
}

#[test]
fn a_call_outside_the_plans_meters_triggers_a_top_up() {
    let mut years = Years::begin();
    let customer = years.first();
    let (of_plan, other) = (years.call_meter("1"), years.call_meter("1"));
    let (plan, bundle) = years.plan(PlanTerms { meter_ids: vec![of_plan], ..terms("3", "3") }, "5");
    years.joins(customer, plan);
    let Err(Refusal::Wallet(WalletRefusal::InsufficientBalance {
        needed, auto_recharge: Some(short), ..
    })) = years.open(customer, other)
    else {
        panic!("the wallet has only the plan's credit")
    };
    assert_eq!(short.credit_scope, CreditScope::BesidePlan);
    let fill_up =
        AutoRecharge { short, payment_id: PaymentId::new(years.ulid()), hold: needed, now: years.machine };
    assert_eq!(years.execute(&fill_up), Ok(Some(fill_up.payment_id)));
    // One payment at a time.
    let again = AutoRecharge { payment_id: PaymentId::new(years.ulid()), ..fill_up };
    assert_eq!(years.execute(&again), Ok(None));
    let paid = years.pay_all();
    assert_eq!(Some(bundle_of(&paid[0])), bundle);
    // The bundle pays, and the plan's credit stays for the plan's own meter.
    assert_eq!(years.call_on(customer, other), Ok(Vec::new()));
    assert_eq!(years.wallet(customer).plan_credit(), dollars("3"));
    // A call that the plan's credit covers needs no recharge.
    let all = AutoRecharge { short: WalletShortfall { credit_scope: CreditScope::All, ..short }, ..again };
    assert_eq!(years.execute(&all), Ok(None));
    years.check();
}

#[test]
fn a_free_call_does_not_trigger_a_payment() {
    let mut years = Years::begin();
    let customer = years.first();
    let (free, priced) = (years.call_meter("0"), years.call_meter("1"));
    let (plan, _) = years.plan(terms("1", "0"), "5");
    years.joins(customer, plan);
    assert_eq!(years.call_on(customer, free), Ok(Vec::new()), "the credit is used up, but not by this call");
    assert_eq!(years.report(customer, free), []);
    years.credit(customer, dollars("1")).unwrap();
    assert_eq!(years.call_on(customer, priced).unwrap().len(), 1);
}

#[test]
fn a_report_that_an_empty_wallet_covers_no_part_of_triggers_autopay() {
    let mut years = Years::begin();
    let customer = years.first();
    let meter = years.call_meter("1");
    let edits = AutopayEdits::all(Some(Autopay { threshold: dollars("5"), amount: dollars("20") }));
    let (merchant_id, payee, now) = (years.merchant, Payee::Customer(customer), years.machine);
    years.execute(&SetAutopay { merchant_id, payee, edits, now }).unwrap();
    let requested = years.report(customer, meter);
    assert_eq!(requested.len(), 1);
    assert_eq!((&requested[0].purpose, requested[0].amount), (&Purpose::Autopay, dollars("20")));
    assert_eq!(years.report(customer, meter), [], "one payment at a time");
    years.decline_all();
    assert_eq!(years.report(customer, meter), [], "one attempt a day");
    years.days(1);
    assert_eq!(years.report(customer, meter).len(), 1);
    years.pay_all();
    assert_eq!(years.report(customer, meter), []);
    assert_eq!(years.wallet(customer).balance, dollars("19"));
    years.check();
}

#[test]
fn a_declined_card_does_not_pause_a_wallet_that_has_another_card_by_then() {
    let mut years = Years::begin();
    let customer = years.first();
    let meter = years.call_meter("1");
    let (plan, bundle) = years.plan(terms("3", "0"), "5");
    years.joins(customer, plan);
    let requested = years.report(customer, meter);
    assert_eq!(requested.iter().map(bundle_of).collect::<Vec<_>>(), [bundle.unwrap()]);
    let newer = years.card(customer);
    assert_ne!(requested[0].payment_method_id, newer);
    years.decline_all();
    assert_eq!(years.wallet(customer).not_again_before, None);
    // The newer card is asked at once. It pauses the wallet if it is declined itself, for autopay as well.
    let again = years.report(customer, meter);
    assert_eq!(again.iter().map(|payment| payment.payment_method_id).collect::<Vec<_>>(), [newer]);
    years.decline_all();
    let pause = years.machine + TimeDelta::days(1);
    assert_eq!(years.wallet(customer).not_again_before, Some(pause));
    assert_eq!(years.report(customer, meter), [], "one attempt a day");
    years.check();
}

#[test]
fn a_declined_payment_of_a_deleted_customer_ends_all_the_same() {
    let mut years = Years::begin();
    let customer = years.first();
    let meter = years.call_meter("1");
    let (plan, _) = years.plan(terms("3", "0"), "5");
    years.joins(customer, plan);
    assert_eq!(years.report(customer, meter).len(), 1);
    let (merchant_id, now) = (years.merchant, years.machine);
    years.execute(&DeleteCustomer { merchant_id, customer_id: customer, now }).unwrap();
    years.decline_all();
    assert!(years.open_payments().is_empty());
    years.check();
}

#[test]
fn a_report_that_no_credit_covers_buys_the_bundle() {
    for meters in [0, 1] {
        let mut years = Years::begin();
        let customer = years.first();
        let (of_plan, other) = (years.call_meter("1"), years.call_meter("1"));
        // Without credit, or with credit that pays for another meter.
        let terms = if meters == 0 { terms("3", "0") } else { terms("3", "3") };
        let meter_ids = vec![of_plan; meters];
        let (plan, bundle) = years.plan(PlanTerms { meter_ids, ..terms }, "5");
        years.joins(customer, plan);
        let requested = years.report(customer, other);
        assert_eq!(requested.iter().map(bundle_of).collect::<Vec<_>>(), [bundle.unwrap()]);
        assert_eq!(years.report(customer, other), [], "one payment at a time");
        years.pay_all();
        assert_eq!(years.report(customer, other), []);
        assert_eq!(years.wallet(customer).bundle_credit().unwrap(), dollars("4"));
        years.check();
    }
}

#[test]
fn no_payment_is_requested_beyond_the_ceiling_of_a_wallet() {
    let mut years = Years::begin();
    let customer = years.first();
    let room = dollars("50");
    years.credit(customer, CEILING.minus(room).unwrap()).unwrap();
    let out_of_range = Refusal::Amount(farthing_core::money::Error::OutOfRange);
    assert_eq!(years.ask_for(customer, Purchase::Fund(dollars("50.0000000001"))), Err(out_of_range.clone()));
    assert_eq!(years.credit(customer, dollars("50.0000000001")), Err(out_of_range.clone()));
    // A purchase that grants more credit than its price is limited by its credit.
    let (plan, _) = years.plan(PlanTerms { included_credit: dollars("51"), ..terms("60", "0") }, "0");
    let fresh = SubscriptionId::new(years.ulid());
    assert_eq!(years.ask_for(customer, Purchase::Plan(plan, fresh)), Err(out_of_range.clone()));
    let (free, _) = years.plan(terms("0", "51"), "0");
    let start = StartSubscription {
        merchant_id: years.merchant,
        customer: CustomerRef::Id(customer),
        subscription_id: fresh,
        plan_id: free,
        auto_top_up_bundle_id: None,
        now: years.machine,
    };
    assert_eq!(years.execute(&start).map(drop), Err(out_of_range));
    // Several payments requested below the ceiling can all be credited: the ceiling is far below the end of the range.
    for _ in 0..10 {
        years.ask_for(customer, Purchase::Fund(room)).unwrap();
    }
    assert_eq!(years.pay_all().len(), 10);
    // The wallet requests no automatic payment either, and its calls continue.
    let edits = AutopayEdits::all(Some(Autopay { threshold: Amount::MAX, amount: dollars("10") }));
    let (merchant_id, payee, now) = (years.merchant, Payee::Customer(customer), years.machine);
    years.execute(&SetAutopay { merchant_id, payee, edits, now }).unwrap();
    let meter = years.call_meter("1");
    assert_eq!(years.call_on(customer, meter), Ok(Vec::new()));
    years.check();
}

#[test]
fn autopay_is_changed_in_part() {
    let mut years = Years::begin();
    let (merchant_id, payee, now) = (years.merchant, Payee::Customer(years.first()), years.machine);
    let mut set = |enabled: Option<bool>, threshold: Edit<Amount>, amount: Edit<Amount>| {
        let edits = AutopayEdits { enabled, threshold, amount };
        years.execute(&SetAutopay { merchant_id, payee, edits, now })?;
        Ok(years.wallet(years.first()).autopay.map(|autopay| (autopay.threshold, autopay.amount)))
    };
    let (one, two, ten) = (dollars("1"), dollars("2"), dollars("10"));
    let incomplete = |enabled, threshold, amount| {
        Err(Refusal::Wallet(WalletRefusal::AutopayIncomplete { enabled, threshold, amount }))
    };
    assert_eq!(set(None, Edit::Keep, Edit::Keep), Ok(None));
    assert_eq!(set(None, Edit::Clear, Edit::Clear), Ok(None));
    assert_eq!(set(Some(true), Edit::Keep, Edit::Keep), incomplete(true, true, true));
    assert_eq!(set(Some(true), Edit::Set(one), Edit::Keep), incomplete(true, false, true));
    assert_eq!(set(None, Edit::Set(one), Edit::Keep), incomplete(false, true, false));
    assert_eq!(set(Some(true), Edit::Set(one), Edit::Set(ten)), Ok(Some((one, ten))));
    assert_eq!(set(None, Edit::Set(two), Edit::Keep), Ok(Some((two, ten))));
    assert_eq!(set(Some(true), Edit::Keep, Edit::Keep), Ok(Some((two, ten))));
    assert_eq!(set(None, Edit::Keep, Edit::Clear), incomplete(true, false, true));
    assert_eq!(set(Some(false), Edit::Set(one), Edit::Keep), Ok(None));
}
