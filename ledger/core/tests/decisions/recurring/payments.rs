//! Offers and refunds.

use std::collections::{BTreeMap, BTreeSet};

use farthing_core::command::{
    BundleEdit, CreateCheckoutCustomer, CreateCheckoutSession, CreateCustomer, CreatedCustomer,
    CustomerRefusal, DeleteCustomer, Offered, Paid, Payee, PaymentRefusal, PersonalData, PlanEdits, Purchase,
    Refusal, RequestPayment, SubscriptionRefusal, UpdatePlan, WalletRefusal,
};
use farthing_core::event::{CheckoutMode, DeclineReason, Event, PaymentEvent};
use farthing_core::ids::{CheckoutSessionId, CustomerId, PaymentId, PlanId, SubscriptionId, WalletId};
use farthing_core::money::Amount;
use farthing_core::state::MAX_BUNDLES;

use super::{dollars, terms};
use crate::years::Years;

#[test]
fn a_payment_of_a_deleted_customer_is_refunded_before_it_ends() {
    let mut years = Years::begin();
    let customer = years.first();
    let payment_id = years.ask_for(customer, Purchase::Fund(dollars("20"))).unwrap();
    let (merchant_id, now) = (years.merchant, years.machine);
    years.execute(&DeleteCustomer { merchant_id, customer_id: customer, now }).unwrap();
    let accepted = Paid::Accepted("taken".into());
    assert_eq!(
        years.complete(payment_id, accepted.clone()),
        Err(Refusal::Customer(CustomerRefusal::NotFound))
    );
    assert_eq!(years.open_payments().len(), 1, "it stays open until the money is refunded");
    let taken_back = Paid::Voided(Some("refund".into()));
    assert_eq!(years.complete(payment_id, taken_back.clone()), Ok(taken_back));
    let Some(Event::Payment(PaymentEvent::Voided(voided))) = years.till.facts.last().map(|fact| &fact.event)
    else {
        panic!("{:?}", years.till.facts.last())
    };
    assert_eq!((voided.amount, voided.refund.as_deref()), (dollars("20"), Some("refund")));
    assert_eq!(years.complete(payment_id, accepted), Err(Refusal::Payment(PaymentRefusal::NotOpen)));
    assert_eq!(
        years.ask_for(customer, Purchase::Fund(dollars("20"))),
        Err(Refusal::Customer(CustomerRefusal::NotFound))
    );
    assert_eq!(years.wallet(customer).balance, Amount::ZERO);
}

#[test]
fn a_payer_never_pays_more_or_gets_less_than_was_offered() {
    let mut years = Years::begin();
    let customer = years.first();
    let (plan, bundle) = years.plan(terms("3", "2"), "5");
    years.joins(customer, plan);
    let bundle = bundle.unwrap();
    let ask = |years: &mut Years, price: &str, credit: &str| {
        let request = RequestPayment {
            merchant_id: years.merchant,
            payment_id: PaymentId::new(years.ulid()),
            payee: Payee::Customer(customer),
            payment_method_id: None,
            purchase: Purchase::Bundle(bundle),
            offered: Some(Offered { price: dollars(price), credit: dollars(credit), auto_top_up: None }),
            checkout_session_id: None,
            now: years.machine,
        };
        years.execute(&request)
    };
    assert_eq!(ask(&mut years, "5", "5"), Ok(()));
    let offer = BundleEdit::Update { id: bundle, name: None, cost: Some(dollars("6")), credit_amount: None };
    let edits = PlanEdits { bundles: vec![offer], ..PlanEdits::default() };
    let (merchant_id, now) = (years.merchant, years.machine);
    years.execute(&UpdatePlan { merchant_id, plan_id: plan, edits, now }).unwrap();
    assert_eq!(ask(&mut years, "5", "5"), Err(Refusal::Payment(PaymentRefusal::OfferChanged)));
    assert_eq!(ask(&mut years, "6", "6"), Err(Refusal::Payment(PaymentRefusal::OfferChanged)));
    assert_eq!(ask(&mut years, "6", "5"), Ok(()));
}

#[test]
fn an_upgrade_that_changes_the_automatic_top_up_keeps_the_card_that_paid_it() {
    let mut years = Years::begin();
    let customer = years.first();
    let (cheap, _) = years.plan(terms("3", "2"), "0");
    let (dear, bundle) = years.plan(terms("9", "8"), "5");
    years.joins(customer, cheap);
    let first = years.subscription(customer).unwrap().payment_method_id;
    let second = years.card(customer);
    assert_ne!(first, Some(second));
    years.joins(customer, dear);
    let subscription = years.subscription(customer).unwrap();
    assert_eq!(subscription.auto_top_up_bundle_id, bundle, "the upgrade changes the settings");
    assert_eq!(subscription.payment_method_id, Some(second));
}

#[test]
fn an_upgrade_is_refused_while_another_one_is_paid() {
    let mut years = Years::begin();
    let customer = years.first();
    let [(small, _), (large, _), (largest, _)] =
        ["10", "20", "30"].map(|price| years.plan(terms(price, price), "0"));
    years.joins(customer, small);
    let upgrade = |years: &mut Years, plan: PlanId| {
        let fresh = SubscriptionId::new(years.ulid());
        years.ask_for(customer, Purchase::Plan(plan, fresh))
    };
    let is_locked = |years: &mut Years| {
        for plan in [large, largest] {
            assert_eq!(upgrade(years, plan), Err(Refusal::Payment(PaymentRefusal::InProgress)));
        }
    };
    let declined = upgrade(&mut years, large).unwrap();
    is_locked(&mut years);
    // The end of another payment changes nothing.
    let funded = years.ask_for(customer, Purchase::Fund(dollars("20"))).unwrap();
    years.complete(funded, Paid::Accepted("taken".into())).unwrap();
    is_locked(&mut years);
    years.complete(declined, Paid::Declined(DeclineReason::CardDeclined)).unwrap();
    let paid = upgrade(&mut years, large).unwrap();
    is_locked(&mut years);
    years.complete(paid, Paid::Accepted("taken".into())).unwrap();
    assert_eq!(upgrade(&mut years, large), Err(Refusal::Subscription(SubscriptionRefusal::AlreadyActive)));
    years.joins(customer, largest);
    assert_eq!(years.wallet(customer).balance, dollars("20"), "no upgrade became balance");
    years.check();
}

#[test]
fn a_customer_that_a_checkout_session_created_is_not_created_again_once_it_is_deleted() {
    let mut years = Years::begin();
    let checkout_session_id = CheckoutSessionId::new(years.ulid());
    let (merchant_id, now) = (years.merchant, years.machine);
    years
        .execute(&CreateCheckoutSession {
            merchant_id,
            checkout_session_id,
            checkout_mode: CheckoutMode::Onboarding,
            origin_url: "https://shop.example".into(),
            customer: None,
            reference_id: None,
            plan_id: None,
            credit_bundle_id: None,
            now,
        })
        .unwrap();
    let customer_id = CustomerId::new(checkout_session_id.ulid());
    let mut form = CreateCheckoutCustomer {
        checkout_session_id,
        create: CreateCustomer {
            merchant_id,
            customer_id,
            wallet_id: WalletId::new(checkout_session_id.ulid()),
            reference_id: None,
            metadata: BTreeMap::new(),
            metadata_literals: BTreeSet::new(),
            personal: PersonalData::default(),
            now,
        },
    };
    assert_eq!(years.execute(&form), Ok(CreatedCustomer::Created(customer_id)));
    assert_eq!(years.execute(&form), Ok(CreatedCustomer::Existing(customer_id)), "the form is sent twice");
    years.execute(&DeleteCustomer { merchant_id, customer_id, now }).unwrap();
    // A gateway of an earlier build gives the wallet another id.
    form.create.wallet_id = WalletId::new(years.ulid());
    // A second event with the same id would be refused by the log, with all that is appended beside it.
    assert_eq!(years.execute(&form), Err(Refusal::Customer(CustomerRefusal::NotFound)));
}

#[test]
fn a_wallet_takes_no_more_bundles_while_a_thousand_are_not_used_up() {
    let mut years = Years::begin();
    let customer = years.first();
    let (plan, bundle) = years.plan(terms("3", "2"), "1");
    years.joins(customer, plan);
    let purchase = Purchase::Bundle(bundle.unwrap());
    let late = years.ask_for(customer, purchase).unwrap();
    for _ in 0..MAX_BUNDLES {
        let payment_id = years.ask_for(customer, purchase).unwrap();
        years.complete(payment_id, Paid::Accepted("taken".into())).unwrap();
    }
    let refused = Err(Refusal::Wallet(WalletRefusal::TooManyBundles));
    assert_eq!(years.ask_for(customer, purchase), refused);
    // What was asked for before, and is paid, is granted.
    years.complete(late, Paid::Accepted("taken".into())).unwrap();
    assert_eq!(years.wallet(customer).bundles.len(), MAX_BUNDLES + 1);
    assert_eq!(years.ask_for(customer, purchase), refused);
    assert!(years.ask_for(customer, Purchase::Fund(dollars("20"))).is_ok(), "money is taken");
}
