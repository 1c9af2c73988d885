//! Offers and refunds.

use farthing_core::command::{
    BundleEdit, CustomerRefusal, DeleteCustomer, Offered, Paid, Payee, PaymentRefusal, PlanEdits, Purchase,
    Refusal, RequestPayment, UpdatePlan, WalletRefusal,
};
use farthing_core::event::{Event, PaymentEvent};
use farthing_core::ids::PaymentId;
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
            offered: Some(Offered { price: dollars(price), credit: dollars(credit) }),
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
