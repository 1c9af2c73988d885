//! Decisions about recurring money, one by one: each is what a customer, a merchant or an auditor would ask about.

use chrono::TimeDelta;
use farthing_core::command::{
    AdvanceSubscription, Advanced, AutoRecharge, AutopayEdits, Billing, BundleEdit, Caller, CompletePayment,
    CreatePlan, CreditTarget, CreditWallet, CustomerRef, CustomerRefusal, DefineMeter, DeleteCustomer, Edit,
    Ending, MeterRef, Metered, NewBundle, Offered, OpenRequest, Paid, Payee, PaymentRefusal, PlanEdits,
    Purchase, Refusal, RequestPayment, RequestSettings, SetAutopay, SettleRequest, Settled, Slug,
    StartSubscription, SubscriptionEdit, UpdatePlan, UpdateSubscription, WalletRefusal, WalletShortfall,
};
use farthing_core::event::{
    Autopay, BundleOffer, DeclineReason, Event, Mark, PaymentEvent, PaymentRequested, PendingChange,
    ProviderKeyType, Purpose, RequestEvent, SubscriptionEvent,
};
use farthing_core::hold_scope::CreditScope;
use farthing_core::ids::{
    CreditBundleId, CreditId, CustomerId, GatewayId, MeterId, PaymentId, PlanId, RequestId, SubscriptionId,
};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::model_price::ListPrice;
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use farthing_core::pricing::SizeHint;
use farthing_core::state::{CEILING, State, StateKey, Wallet};
use rust_decimal::Decimal;
use ulid::Ulid;

use crate::years::{Years, cents};

fn dollars(text: &str) -> Amount {
    text.parse().unwrap()
}

/// A plan at this price with this credit, by the month; nothing of it rolls over.
fn terms(price: &str, credit: &str) -> PlanTerms {
    PlanTerms {
        name: "plan".into(),
        period_amount: dollars(price),
        included_credit: dollars(credit),
        billing_interval: BillingInterval::Month,
        rollover_type: Rollover::None,
        bundle_rollover_type: Rollover::Full,
        meter_ids: Vec::new(),
        default_auto_top_up_bundle_id: None,
    }
}

impl Years {
    fn first(&self) -> CustomerId {
        self.customers[0]
    }

    /// A plan, and the bundle that its subscribers' auto top-up buys: none where it costs nothing.
    fn plan(&mut self, terms: PlanTerms, bundle: &str) -> (PlanId, Option<CreditBundleId>) {
        let plan_id = PlanId::new(self.ulid());
        let credit_bundle_id = CreditBundleId::new(self.ulid());
        let cost = dollars(bundle);
        let there = cost.is_positive().then_some(credit_bundle_id);
        let offer = BundleOffer { name: "more".into(), cost, credit_amount: cost };
        let bundles = there.into_iter().map(|id| NewBundle { credit_bundle_id: id, offer: offer.clone() });
        let create = CreatePlan {
            merchant_id: self.merchant,
            plan_id,
            terms: PlanTerms { default_auto_top_up_bundle_id: there, ..terms },
            bundles: bundles.collect(),
            now: self.machine,
        };
        self.execute(&create).unwrap();
        (plan_id, there)
    }

    /// Every payment under way succeeds; what they were.
    fn pay_all(&mut self) -> Vec<PaymentRequested> {
        let payments: Vec<_> = self.open_payments().into_iter().map(|payment| payment.requested).collect();
        for payment in &payments {
            self.complete(payment.payment_id, Paid::Accepted("taken".into())).unwrap();
        }
        payments
    }

    fn decline_all(&mut self) {
        for payment in self.open_payments() {
            let declined = Paid::Declined(DeclineReason::InsufficientFunds);
            self.complete(payment.requested.payment_id, declined).unwrap();
        }
    }

    fn complete(&mut self, payment_id: PaymentId, paid: Paid) -> Result<Paid, Refusal> {
        self.execute(&CompletePayment { payment_id, paid, now: self.machine })
    }

    fn ask_for(&mut self, customer: CustomerId, purchase: Purchase) -> Result<PaymentId, Refusal> {
        let payment_id = PaymentId::new(self.ulid());
        self.execute(&RequestPayment {
            merchant_id: self.merchant,
            payment_id,
            payee: Payee::Customer(customer),
            payment_method_id: None,
            purchase,
            offered: None,
            checkout_session_id: None,
            now: self.machine,
        })?;
        Ok(payment_id)
    }

    /// The customer is on the plan from now on, or moves to it.
    fn joins(&mut self, customer: CustomerId, plan: PlanId) {
        self.subscribe(customer, plan);
        self.pay_all();
        assert_eq!(self.subscription(customer).unwrap().plan_id, plan);
    }

    /// So many days go by, and what is due then happens; payments are asked for, no more.
    fn days(&mut self, days: i64) {
        self.machine += TimeDelta::days(days);
        self.schedule();
    }

    /// A meter at this price per call.
    fn call_meter(&mut self, rate: &str) -> MeterId {
        let meter_id = MeterId::new(self.ulid());
        let price = Price {
            rate_type: RateType::Fixed,
            tier_type: TierType::Requests,
            tiers: Tiers::new(vec![Tier { start: Decimal::ZERO, rate: dollars(rate) }]).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Wallet,
            on_disconnect: OnDisconnect::Complete,
        };
        let (merchant_id, slug, now) = (self.merchant, Slug::Made("call".into()), self.machine);
        self.execute(&DefineMeter { merchant_id, meter_id, slug, name: "call".into(), price, now }).unwrap();
        meter_id
    }

    fn open(&mut self, customer: CustomerId, meter: MeterId) -> Result<RequestId, Refusal> {
        let request_id = RequestId::new(self.ulid());
        self.execute(&OpenRequest {
            request_id,
            gateway_id: GatewayId::new(Ulid::from_parts(1, 1)),
            caller: Caller::SecretKey(self.secret_key.clone()),
            customer: Some(CustomerRef::Id(customer)),
            meter: Some(MeterRef::Id(meter)),
            billing: Billing::Usual,
            provider: "other".into(),
            provider_key_type: ProviderKeyType::Unmanaged,
            endpoint: "POST https://example.com/".into(),
            model: None,
            list_price: ListPrice::Nothing,
            metadata: std::collections::BTreeMap::new(),
            size: SizeHint { input_bytes: 1, max_output_tokens: None },
            settings: RequestSettings {
                service_charge_rate: Decimal::ZERO,
                default_hold: cents(10),
                hold_cap: cents(150),
            },
            now: self.machine,
        })?;
        Ok(request_id)
    }

    /// Ends a call as metered; the facts of that.
    fn end(&mut self, request_id: RequestId) -> Vec<Event> {
        let before = self.till.facts.len();
        let metered = Metered {
            http_status: 200,
            usage: None,
            ending: Ending::Whole,
            raw_usage: None,
            response_id: None,
            model: None,
            provider_timestamp: None,
        };
        let settled = Settled::Metered(metered);
        self.execute(&SettleRequest { request_id, settled, now: self.machine }).unwrap();
        self.till.facts[before..].iter().map(|fact| fact.event.clone()).collect()
    }

    /// A call from its beginning to its end; the payments that it made the wallet ask for.
    fn call_on(&mut self, customer: CustomerId, meter: MeterId) -> Result<Vec<PaymentRequested>, Refusal> {
        let request_id = self.open(customer, meter)?;
        Ok(self.end(request_id).into_iter().filter_map(asked).collect())
    }

    fn credit(&mut self, customer: CustomerId, amount: Amount) -> Result<(), Refusal> {
        let credit_id = CreditId::new(self.ulid());
        let target = CreditTarget::Customer(customer);
        let (reason, now) = ("paid".into(), self.machine);
        self.execute(&CreditWallet { credit_id, target, amount, reason, now }).map(drop)
    }

    fn wallet(&self, customer: CustomerId) -> Wallet {
        let is_theirs =
            |wallet: &Wallet| wallet.owner == farthing_core::state::WalletOwner::Customer(customer);
        let mut wallets = self.till.stored("wallet").into_iter().map(|state| match state {
            State::Wallet(wallet) => *wallet,
            other => panic!("{other:?} under a wallet's key"),
        });
        wallets.find(is_theirs).unwrap()
    }

    fn merchants_balance(&self) -> Amount {
        let wallets = self.till.store.values().filter_map(|(key, json)| match State::from_json(key, json) {
            Ok(State::Wallet(wallet)) if matches!(key, StateKey::Wallet(_)) => Some(wallet),
            _ => None,
        });
        let mut own = wallets.filter(|wallet| wallet.owner == farthing_core::state::WalletOwner::Merchant);
        own.next().unwrap().balance
    }

    fn change(&mut self, customer: CustomerId, edit: SubscriptionEdit) {
        let subscription_id = self.subscription(customer).unwrap().subscriber.subscription_id;
        let (merchant_id, now) = (self.merchant, self.machine);
        self.execute(&UpdateSubscription { merchant_id, subscription_id, edit, now }).unwrap();
    }
}

fn asked(event: Event) -> Option<PaymentRequested> {
    if let Event::Payment(PaymentEvent::Requested(payment)) = event { Some(*payment) } else { None }
}

fn bundle_of(payment: &PaymentRequested) -> CreditBundleId {
    let Purpose::AutoTopUp { credit_bundle_id, .. } = payment.purpose else { panic!("{payment:?}") };
    credit_bundle_id
}

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
    // 1 left of the small plan, 2 of the large one.
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
fn after_a_downgrade_auto_top_up_stops_where_the_present_plan_has_no_bundle() {
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
        panic!("there is no money")
    };
    assert_eq!(auto_recharge, None);
}

#[test]
fn who_turned_the_bundle_of_a_plan_down_is_given_none_of_the_next() {
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
fn a_call_that_may_not_use_the_plans_credit_has_its_top_up() {
    let mut years = Years::begin();
    let customer = years.first();
    let (of_plan, other) = (years.call_meter("1"), years.call_meter("1"));
    let (plan, bundle) = years.plan(PlanTerms { meter_ids: vec![of_plan], ..terms("3", "3") }, "5");
    years.joins(customer, plan);
    let Err(Refusal::Wallet(WalletRefusal::InsufficientBalance {
        needed, auto_recharge: Some(short), ..
    })) = years.open(customer, other)
    else {
        panic!("nothing but the plan's credit is there")
    };
    assert_eq!(short.credit_scope, CreditScope::BesidePlan);
    let fill_up =
        AutoRecharge { short, payment_id: PaymentId::new(years.ulid()), hold: needed, now: years.machine };
    assert_eq!(years.execute(&fill_up), Ok(Some(fill_up.payment_id)));
    // One at a time, whoever asks.
    let again = AutoRecharge { payment_id: PaymentId::new(years.ulid()), ..fill_up };
    assert_eq!(years.execute(&again), Ok(None));
    let paid = years.pay_all();
    assert_eq!(Some(bundle_of(&paid[0])), bundle);
    // The bundle pays for it, and the plan's credit stays for the plan's own meter.
    assert_eq!(years.call_on(customer, other), Ok(Vec::new()));
    assert_eq!(years.wallet(customer).plan_credit(), dollars("3"));
    // A call that the plan's credit covers is short of nothing.
    let all = AutoRecharge { short: WalletShortfall { credit_scope: CreditScope::All, ..short }, ..again };
    assert_eq!(years.execute(&all), Ok(None));
    years.check();
}

#[test]
fn a_call_that_costs_a_wallet_nothing_has_no_card_charged() {
    let mut years = Years::begin();
    let customer = years.first();
    let (free, priced) = (years.call_meter("0"), years.call_meter("1"));
    let (plan, _) = years.plan(terms("1", "0"), "5");
    years.joins(customer, plan);
    assert_eq!(years.call_on(customer, free), Ok(Vec::new()), "the credit is used up, but not by this");
    years.credit(customer, dollars("1")).unwrap();
    assert_eq!(years.call_on(customer, priced).unwrap().len(), 1);
}

#[test]
fn money_of_a_customer_who_is_no_more_is_given_back_before_its_payment_ends() {
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
    assert_eq!(years.open_payments().len(), 1, "it waits until the money is given back");
    let taken_back = Paid::TakenBack(Some("refund".into()));
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
fn a_wallet_that_could_not_take_a_payment_is_asked_for_none() {
    let mut years = Years::begin();
    let customer = years.first();
    let room = dollars("50");
    years.credit(customer, CEILING.minus(room).unwrap()).unwrap();
    let out_of_range = Refusal::Amount(farthing_core::money::Error::OutOfRange);
    assert_eq!(years.ask_for(customer, Purchase::Fund(dollars("50.0000000001"))), Err(out_of_range.clone()));
    assert_eq!(years.credit(customer, dollars("50.0000000001")), Err(out_of_range.clone()));
    // What brings more credit than it costs is measured by that.
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
    // Several that were asked for while there was room can all be entered: the ceiling is far below the end of the range.
    for _ in 0..10 {
        years.ask_for(customer, Purchase::Fund(room)).unwrap();
    }
    assert_eq!(years.pay_all().len(), 10);
    // The wallet asks for none by itself either, and its calls go on.
    let edits = AutopayEdits::all(Some(Autopay { threshold: Amount::MAX, amount: dollars("10") }));
    let (merchant_id, payee, now) = (years.merchant, Payee::Customer(customer), years.machine);
    years.execute(&SetAutopay { merchant_id, payee, edits, now }).unwrap();
    let meter = years.call_meter("1");
    assert_eq!(years.call_on(customer, meter), Ok(Vec::new()));
    years.check();
}

#[test]
fn a_failed_renewal_keeps_what_rolled_over_and_what_expired_stays_expired() {
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
    // Paid a day later, the cycle's credit comes beside what rolled over.
    years.days(1);
    years.pay_all();
    assert_eq!(left(&years), [dollars("4"), dollars("2")]);
    // What is never paid ends with the subscription.
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
fn credit_that_expires_under_a_call_leaves_it_to_the_merchant_and_nothing_is_lost() {
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
fn credit_of_the_next_cycle_pays_for_a_call_that_outlasts_the_one_before() {
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

/// Two calls may not hold the same money, one of them from before a plan for another meter.
#[test]
fn a_hold_from_before_a_plan_is_not_taken_for_covered_by_the_plans_credit() {
    let mut years = Years::begin();
    let customer = years.first();
    let (of_plan, other) = (years.call_meter("2"), years.call_meter("2"));
    years.credit(customer, dollars("2")).unwrap();
    let before_the_plan = years.open(customer, other).unwrap();
    let (plan, _) = years.plan(PlanTerms { meter_ids: vec![of_plan], ..terms("0", "2") }, "0");
    years.joins(customer, plan);
    // All that is there is 4, of which 2 are held: but the plan's 2 are for its own meter alone.
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
    // Once what was held before is gone, calls of either meter are told apart again.
    years.credit(customer, dollars("2")).unwrap();
    let second = years.open(customer, other).unwrap();
    assert!(years.open(customer, other).is_err());
    years.end(second);
    years.check();
}

#[test]
fn a_call_whose_credit_is_for_another_meter_by_its_end_is_the_merchants_and_nothing_is_lost() {
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

/// The call was charged in full, all of it to the merchant, and says so.
fn borne_by_the_merchant(events: &[Event], cost: &str) {
    let Event::Request(RequestEvent::Metered(metered)) = &events[0] else { panic!("{events:?}") };
    let cost = dollars(cost);
    assert_eq!((metered.total_request_cost, metered.total_wallet_cost), (cost, Amount::ZERO));
    assert_eq!((metered.total_merchant_cost, metered.overrun), (cost, cost));
    assert_eq!(metered.marks.iter().filter(|mark| **mark == Mark::Overrun).count(), 1);
}

#[test]
fn nobody_pays_another_price_or_for_less_credit_than_was_offered() {
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

#[test]
fn what_is_asked_for_while_a_renewal_is_paid_is_told_for_the_end_of_the_new_cycle() {
    let mut years = Years::begin();
    let customer = years.first();
    let (plan, _) = years.plan(terms("3", "2"), "0");
    years.joins(customer, plan);
    years.days(32);
    years.change(customer, SubscriptionEdit::Cancel);
    years.pay_all();
    let subscription = years.subscription(customer).unwrap();
    let pending = Some(PendingChange::Cancellation { effective_at: subscription.cycle.end });
    assert_eq!(subscription.pending_change, pending);
    // The log says so, not the fold alone: whoever reads it need not know the rule.
    let Some(Event::Subscription(SubscriptionEvent::Updated(told))) =
        years.till.facts.last().map(|fact| &fact.event)
    else {
        panic!("{:?}", years.till.facts.last())
    };
    assert_eq!(told.pending_change, pending);
    years.days(31);
    assert!(years.subscription(customer).is_none(), "it ends unpaid for a further cycle");
    assert!(years.open_payments().is_empty());
}

#[test]
fn days_that_passed_before_they_could_be_paid_are_not_paid_for_later() {
    let mut years = Years::begin();
    let customer = years.first();
    let daily = PlanTerms { billing_interval: BillingInterval::Day, ..terms("3", "2") };
    let (plan, _) = years.plan(daily, "0");
    years.joins(customer, plan);
    let began = years.subscription(customer).unwrap().cycle;
    years.days(1);
    years.decline_all();
    years.days(1);
    years.decline_all();
    years.days(1);
    assert_eq!(years.pay_all().len(), 1, "one day is paid for");
    let cycle = years.subscription(customer).unwrap().cycle;
    assert_eq!((cycle.number, cycle.start), (3, began.start + TimeDelta::days(3)));
    assert!(cycle.end > years.machine, "a day that is not over");
    assert_eq!(years.wallet(customer).plan_credit(), dollars("2"));
    years.schedule();
    assert!(years.open_payments().is_empty(), "nothing else is owed");
    // A gateway that was away is another matter: what could have been paid in time is paid.
    let subscription_id = years.subscription(customer).unwrap().subscriber.subscription_id;
    years.machine += TimeDelta::days(2);
    let payment_id = PaymentId::new(years.ulid());
    let advance = AdvanceSubscription { subscription_id, payment_id, now: years.machine };
    assert_eq!(years.execute(&advance), Ok(Advanced::ToBePaid(payment_id)));
    years.pay_all();
    assert_eq!(years.subscription(customer).unwrap().cycle.number, 4);
}
