//! Auto top-up and autopay.

use farthing_core::command::{
    AutoRecharge, AutopayEdits, CustomerRef, Edit, Payee, Purchase, Refusal, SetAutopay, StartSubscription,
    SubscriptionEdit, WalletRefusal, WalletShortfall,
};
use farthing_core::event::{Autopay, Purpose};
use farthing_core::hold_scope::CreditScope;
use farthing_core::ids::{PaymentId, SubscriptionId};
use farthing_core::money::Amount;
use farthing_core::plan::PlanTerms;
use farthing_core::state::CEILING;

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
