//! What a checkout page showed, and what its form may begin.

use std::collections::BTreeSet;

use farthing_core::command::{
    BundleEdit, CompleteCheckoutSession, CreateCheckoutSession, CustomerRef, Edit, Offered, OfferedTopUp,
    PayCheckoutSession, Payee, PaymentRefusal, PersonalData, PlanEdits, Purchase, Refusal, RequestPayment,
    SubscriptionEdit, UpdateCustomer, UpdatePlan, UpdateSubscription,
};
use farthing_core::event::CheckoutMode;
use farthing_core::ids::{CheckoutSessionId, CustomerId, PaymentId, PlanId, SubscriptionId};

use super::{dollars, terms};
use crate::years::Years;

/// Creates a checkout session for `customer`.
fn session(
    years: &mut Years,
    customer: CustomerId,
    checkout_mode: CheckoutMode,
    plan_id: Option<PlanId>,
) -> CheckoutSessionId {
    let checkout_session_id = CheckoutSessionId::new(years.ulid());
    let create = CreateCheckoutSession {
        merchant_id: years.merchant,
        checkout_session_id,
        checkout_mode,
        origin_url: "https://shop.example".into(),
        customer: Some(CustomerRef::Id(customer)),
        reference_id: None,
        plan_id,
        credit_bundle_id: None,
        now: years.machine,
    };
    years.execute(&create).unwrap();
    checkout_session_id
}

#[test]
fn a_session_has_the_reference_id_that_its_customer_has_then() {
    let mut years = Years::begin();
    let customer = years.first();
    let created = |years: &mut Years, customer: Option<CustomerId>, reference_id: Option<&str>| {
        let create = CreateCheckoutSession {
            merchant_id: years.merchant,
            checkout_session_id: CheckoutSessionId::new(years.ulid()),
            checkout_mode: CheckoutMode::Onboarding,
            origin_url: "https://shop.example".into(),
            customer: customer.map(CustomerRef::Id),
            reference_id: reference_id.map(str::to_owned),
            plan_id: None,
            credit_bundle_id: None,
            now: years.machine,
        };
        let created = years.execute(&create).unwrap();
        (created.customer_id, created.reference_id)
    };
    assert_eq!(created(&mut years, Some(customer), None), (Some(customer), None));
    for reference in ["ada", "grace"] {
        let change = UpdateCustomer {
            merchant_id: years.merchant,
            customer_id: customer,
            reference_id: Edit::Set(reference.to_owned()),
            metadata: None,
            metadata_literals: BTreeSet::new(),
            contact: Vec::new(),
            personal: PersonalData::default(),
            now: years.machine,
        };
        years.execute(&change).unwrap();
        let of_customer = (Some(customer), Some(reference.to_owned()));
        for (named, given) in
            [(Some(customer), None), (None, Some(reference)), (Some(customer), Some(reference))]
        {
            assert_eq!(created(&mut years, named, given), of_customer, "{named:?} {given:?}");
        }
    }
    assert_eq!(created(&mut years, None, Some("ada")), (None, Some("ada".to_owned())), "nobody has it now");
    assert_eq!(created(&mut years, None, None), (None, None));
}

#[test]
fn a_page_charges_the_saved_card_that_it_showed_or_nothing() {
    let mut years = Years::begin();
    let customer = years.first();
    let shown = years.card(customer);
    let checkout_session_id = session(&mut years, customer, CheckoutMode::Topup, None);
    let pay = |years: &mut Years, saved| {
        let payment = RequestPayment {
            merchant_id: years.merchant,
            payment_id: PaymentId::new(years.ulid()),
            payee: Payee::Customer(customer),
            payment_method_id: Some(saved),
            purchase: Purchase::Fund(dollars("20")),
            offered: None,
            checkout_session_id: Some(checkout_session_id),
            now: years.machine,
        };
        years.execute(&PayCheckoutSession { payment, contact: None, method: None })
    };
    let newer = years.card(customer);
    assert_eq!(pay(&mut years, shown), Err(Refusal::Payment(PaymentRefusal::OfferChanged)));
    assert!(years.open_payments().is_empty());
    assert_eq!(pay(&mut years, newer), Ok(()));
    assert_eq!(years.open_payments()[0].requested.payment_method_id, newer);
    years.card(customer);
    assert_eq!(
        pay(&mut years, newer),
        Err(Refusal::Payment(PaymentRefusal::InProgress)),
        "a form that is sent twice is told of its own payment"
    );
}

#[test]
fn a_page_without_a_payment_begins_the_plan_that_it_showed_or_nothing() {
    for (current, price, credit) in [(None, "0", "5"), (Some("9"), "3", "2")] {
        let mut years = Years::begin();
        let customer = years.first();
        if let Some(price) = current {
            let (dear, _) = years.plan(terms(price, price), "0");
            years.joins(customer, dear);
        }
        let (plan_id, _) = years.plan(terms(price, credit), "0");
        let checkout_session_id = session(&mut years, customer, CheckoutMode::Subscription, Some(plan_id));
        let complete = |years: &mut Years, offered| {
            let command = CompleteCheckoutSession {
                merchant_id: years.merchant,
                checkout_session_id,
                customer_id: customer,
                contact: None,
                method: None,
                offered,
                subscription_id: SubscriptionId::new(years.ulid()),
                now: years.machine,
            };
            years.execute(&command)
        };
        let edits = PlanEdits { included_credit: Some(dollars("1")), ..PlanEdits::default() };
        let (merchant_id, now) = (years.merchant, years.machine);
        years.execute(&UpdatePlan { merchant_id, plan_id, edits, now }).unwrap();
        let offer =
            |credit| Some(Offered { price: dollars(price), credit: dollars(credit), auto_top_up: None });
        for shown in [offer(credit), None] {
            let changed = Err(Refusal::Payment(PaymentRefusal::OfferChanged));
            assert_eq!(complete(&mut years, shown), changed, "{price}");
        }
        assert_eq!(complete(&mut years, offer("1")), Ok(()), "{price}");
    }
}

/// Sends the form of a page that offers the plan for `price` with $2 of credit, and the automatic purchase of $5 of credit
/// for the price that is `shown`.
fn begin(
    years: &mut Years,
    customer: CustomerId,
    (checkout_session_id, plan_id): (CheckoutSessionId, PlanId),
    (price, is_paid): (&str, bool),
    shown: Option<&str>,
) -> Result<(), Refusal> {
    let top_up = |price| OfferedTopUp { price: dollars(price), credit: dollars("5") };
    let auto_top_up = shown.map(top_up);
    let offered = Some(Offered { price: dollars(price), credit: dollars("2"), auto_top_up });
    let subscription_id = SubscriptionId::new(years.ulid());
    let (merchant_id, now) = (years.merchant, years.machine);
    if is_paid {
        let payment = RequestPayment {
            merchant_id,
            payment_id: PaymentId::new(years.ulid()),
            payee: Payee::Customer(customer),
            payment_method_id: None,
            purchase: Purchase::Plan(plan_id, subscription_id),
            offered,
            checkout_session_id: Some(checkout_session_id),
            now,
        };
        return years.execute(&PayCheckoutSession { payment, contact: None, method: None });
    }
    years.execute(&CompleteCheckoutSession {
        merchant_id,
        checkout_session_id,
        customer_id: customer,
        contact: None,
        method: None,
        offered,
        subscription_id,
        now,
    })
}

#[test]
fn a_page_begins_a_plan_with_the_automatic_purchase_that_it_showed_or_nothing() {
    for (current, price, is_paid) in
        [(None, "0", false), (Some("9"), "3", false), (None, "3", true), (Some("1"), "3", true)]
    {
        let mut years = Years::begin();
        let customer = years.first();
        if let Some(price) = current {
            let (other, _) = years.plan(terms(price, price), "0");
            years.joins(customer, other);
        }
        years.card(customer);
        let (plan_id, bundle) = years.plan(terms(price, "2"), "5");
        let page = (session(&mut years, customer, CheckoutMode::Subscription, Some(plan_id)), plan_id);
        let dearer = BundleEdit::Update {
            id: bundle.unwrap(),
            name: None,
            cost: Some(dollars("6")),
            credit_amount: None,
        };
        let edits = PlanEdits { bundles: vec![dearer], ..PlanEdits::default() };
        let (merchant_id, now) = (years.merchant, years.machine);
        years.execute(&UpdatePlan { merchant_id, plan_id, edits, now }).unwrap();
        for shown in [None, Some("5")] {
            let changed = Err(Refusal::Payment(PaymentRefusal::OfferChanged));
            assert_eq!(begin(&mut years, customer, page, (price, is_paid), shown), changed, "{price}");
        }
        assert_eq!(begin(&mut years, customer, page, (price, is_paid), Some("6")), Ok(()), "{price}");
    }
}

#[test]
fn a_subscriber_who_turned_auto_top_up_off_is_offered_a_plan_without() {
    let mut years = Years::begin();
    let customer = years.first();
    let (cheap, _) = years.plan(terms("1", "1"), "4");
    years.joins(customer, cheap);
    let (merchant_id, now) = (years.merchant, years.machine);
    let subscription_id = years.subscription(customer).unwrap().subscriber.subscription_id;
    let edit = SubscriptionEdit::AutoTopUp(Edit::Clear);
    years.execute(&UpdateSubscription { merchant_id, subscription_id, edit, now }).unwrap();
    let (dear, _) = years.plan(terms("3", "2"), "5");
    let page = (session(&mut years, customer, CheckoutMode::Subscription, Some(dear)), dear);
    let changed = Err(Refusal::Payment(PaymentRefusal::OfferChanged));
    assert_eq!(begin(&mut years, customer, page, ("3", true), Some("5")), changed);
    assert_eq!(begin(&mut years, customer, page, ("3", true), None), Ok(()));
    years.pay_all();
    let subscription = years.subscription(customer).unwrap();
    assert_eq!((subscription.plan_id, subscription.auto_top_up_bundle_id), (dear, None));
}
