//! Random years of plans, calls, top-ups, changes and failures: credit granted = credit used + expired + remaining, for
//! every wallet, at every position of the log, by books that are kept here from the facts alone.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::command::{
    AddPaymentMethod, AdvanceClock, AdvanceSubscription, Advanced, AutopayEdits, Billing, Caller,
    CompletePayment, CreateCustomer, CreatePlan, CustomerRef, CustomerRefusal, DefineMeter, DeleteCustomer,
    DeletePlan, Edit, Ending, Failed, IssueSecretKey, MeterRef, Metered, NewBundle, OpenRequest, Paid, Payee,
    PaymentRefusal, PersonalData, PlanEdits, PlanRefusal, Purchase, Refusal, RegisterMerchant,
    RequestPayment, RequestSettings, SetAutopay, SettleRequest, Settled, Slug, StartSubscription,
    SubscriptionEdit, SubscriptionRefusal, UpdatePlan, UpdateSubscription, WalletRefusal,
};
use farthing_core::event::{
    Autopay, BundleOffer, Card, CustomerEvent, DeclineReason, Event, Fact, FailureReason, Mark, PaymentEvent,
    ProviderKeyType, RequestEvent, Source, SubscriptionEvent, WalletEvent,
};
use farthing_core::ids::{
    CreditBundleId, CustomerId, GatewayId, MerchantId, MeterId, PaymentId, PaymentMethodId, PlanId,
    RequestId, SecretKeyId, SubscriptionId, WalletId,
};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::model_price::ListPrice;
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use farthing_core::pricing::SizeHint;
use farthing_core::secret::{KeyHash, ServerKey};
use farthing_core::state::{OpenPayment, State, Subscription};
use farthing_core::usage::{Split, Usage};
use proptest::prelude::*;
use rust_decimal::Decimal;
use ulid::Ulid;

use crate::till::Till;

/// One thing that happens in a year. Numbers name things by their order, modulo how many there are.
#[derive(Debug, Clone)]
enum Happening {
    Plan {
        cents: u32,
        credit: u32,
        interval: u8,
        rollovers: u8,
        only_first_meter: bool,
        bundle: u32,
    },
    ChangePlan {
        plan: u8,
        credit: u32,
        rollover: bool,
    },
    DeletePlan {
        plan: u8,
    },
    Subscribe {
        customer: u8,
        plan: u8,
    },
    Downgrade {
        customer: u8,
        plan: u8,
    },
    Cancel {
        customer: u8,
    },
    AutoTopUp {
        customer: u8,
        on: bool,
    },
    Autopay {
        customer: u8,
        cents: Option<u32>,
    },
    BuyBundle {
        customer: u8,
    },
    Fund {
        customer: u8,
        cents: u32,
    },
    Call {
        customer: u8,
        meter: u8,
        output_limit: u32,
    },
    Settle {
        call: u8,
        tokens: Option<u32>,
    },
    Pay {
        payment: u8,
        accepts: bool,
    },
    DeleteCustomer {
        customer: u8,
    },
    PassTime {
        hours: u32,
        by_test_clock: bool,
    },
    Schedule,
    /// For four days, every payment is declined.
    HardTimes,
    Forget,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening as H;
    let cents = 0_u32..3_000;
    prop_oneof![
        1 => (prop_oneof![Just(0), cents.clone()], 0_u32..100, 0_u8..4, 0_u8..4, any::<bool>(), 0_u32..500)
            .prop_map(|(cents, percent, interval, rollovers, only_first_meter, bundle)| {
                let credit = if cents == 0 { percent * 10 } else { cents * percent / 100 };
                H::Plan { cents, credit, interval, rollovers, only_first_meter, bundle }
            }),
        1 => (any::<u8>(), 0_u32..500, any::<bool>())
            .prop_map(|(plan, credit, rollover)| H::ChangePlan { plan, credit, rollover }),
        1 => any::<u8>().prop_map(|plan| H::DeletePlan { plan }),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(customer, plan)| H::Subscribe { customer, plan }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(customer, plan)| H::Downgrade { customer, plan }),
        1 => any::<u8>().prop_map(|customer| H::Cancel { customer }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(customer, on)| H::AutoTopUp { customer, on }),
        1 => (any::<u8>(), proptest::option::of(100_u32..1_000))
            .prop_map(|(customer, cents)| H::Autopay { customer, cents }),
        2 => any::<u8>().prop_map(|customer| H::BuyBundle { customer }),
        2 => (any::<u8>(), 1_u32..2_000).prop_map(|(customer, cents)| H::Fund { customer, cents }),
        8 => (any::<u8>(), any::<u8>(), 0_u32..2_000_000)
            .prop_map(|(customer, meter, output_limit)| H::Call { customer, meter, output_limit }),
        8 => (any::<u8>(), proptest::option::weighted(0.9, 0_u32..3_000_000))
            .prop_map(|(call, tokens)| H::Settle { call, tokens }),
        6 => (any::<u8>(), proptest::bool::weighted(0.8)).prop_map(|(payment, accepts)| H::Pay { payment, accepts }),
        1 => any::<u8>().prop_map(|customer| H::DeleteCustomer { customer }),
        5 => (0_u32..1_000, any::<bool>())
            .prop_map(|(hours, by_test_clock)| H::PassTime { hours, by_test_clock }),
        5 => Just(H::Schedule),
        1 => Just(H::HardTimes),
        1 => Just(H::Forget),
    ]
}

/// What one wallet has seen, by where its money came from.
#[derive(Debug, Default)]
struct Account {
    balance: Decimal,
    plan: Decimal,
    bundles: BTreeMap<PaymentId, Decimal>,
    /// In the order they were bought.
    bought: Vec<PaymentId>,
    granted: Decimal,
    used: Decimal,
    expired: Decimal,
    /// The meters of the plan, where it names any.
    meters: Vec<MeterId>,
}

#[derive(Debug, Default)]
pub(crate) struct CreditBooks {
    accounts: BTreeMap<WalletId, Account>,
    /// The meter of each request.
    meters: BTreeMap<RequestId, Option<MeterId>>,
    /// Who is no more.
    deleted: BTreeSet<CustomerId>,
    /// The end of each subscription's present cycle.
    cycles: BTreeMap<SubscriptionId, DateTime<Utc>>,
    /// When each subscription's renewal last failed, since its cycle ended.
    unpaid: BTreeMap<SubscriptionId, DateTime<Utc>>,
    /// Payments by what became of them.
    payments: BTreeMap<PaymentId, bool>,
}

impl CreditBooks {
    fn enter(&mut self, facts: &[Fact]) {
        for fact in facts {
            self.enter_one(fact);
        }
        for (id, account) in &self.accounts {
            let bundles: Decimal = account.bundles.values().sum();
            assert!(account.balance >= Decimal::ZERO && account.plan >= Decimal::ZERO, "{id}: {account:?}");
            assert!(account.bundles.values().all(|left| *left >= Decimal::ZERO), "{id}: {account:?}");
            assert_eq!(
                account.granted,
                account.used + account.expired + account.plan + bundles,
                "granted = used + expired + remaining of {id}"
            );
        }
    }

    fn account(&mut self, id: WalletId) -> &mut Account {
        self.accounts.entry(id).or_default()
    }

    fn grant_plan(&mut self, id: WalletId, amount: Amount, meters: &[MeterId]) {
        let account = self.account(id);
        account.plan += amount.decimal();
        account.granted += amount.decimal();
        account.meters = meters.to_vec();
    }

    fn expire_plan(&mut self, id: WalletId, amount: Amount) {
        let account = self.account(id);
        account.plan -= amount.decimal();
        account.expired += amount.decimal();
    }

    fn enter_one(&mut self, fact: &Fact) {
        match &fact.event {
            Event::Wallet(WalletEvent::Credited(event)) if event.customer_id.is_some() => {
                self.account(event.wallet_id).balance += event.amount.decimal();
            }
            Event::Subscription(SubscriptionEvent::Started(event)) => {
                let old = self.cycles.insert(event.subscriber.subscription_id, event.cycle.end);
                assert!(old.is_none(), "a subscription begins once");
                self.grant_plan(event.subscriber.wallet_id, event.granted, &event.terms.meter_ids);
            }
            Event::Subscription(SubscriptionEvent::Renewed(event)) => {
                let id = event.subscriber.subscription_id;
                let end = self.cycles.insert(id, event.cycle.end).unwrap();
                // What could not be paid until it was over is left out, and nothing else is.
                let failed = self.unpaid.remove(&id).is_some();
                let follows = event.cycle.start == end || failed && event.cycle.start > end;
                assert!(follows, "cycles have no gap but of those that could not be paid: {event:?}");
                assert!(event.cycle.end > event.cycle.start);
                self.grant_plan(event.subscriber.wallet_id, event.granted, &event.terms.meter_ids);
            }
            Event::Subscription(SubscriptionEvent::Upgraded(event)) => {
                self.cycles.insert(event.subscriber.subscription_id, event.cycle.end);
                self.grant_plan(event.subscriber.wallet_id, event.granted, &event.terms.meter_ids);
            }
            Event::Subscription(SubscriptionEvent::RenewalFailed(event)) => {
                self.unpaid.insert(event.subscriber.subscription_id, fact.occurred_at);
            }
            Event::Subscription(SubscriptionEvent::CycleEnded(event)) => {
                let id = event.subscriber.wallet_id;
                assert_eq!(self.cycles[&event.subscriber.subscription_id], event.ended_at);
                assert_eq!(
                    self.account(id).plan,
                    event.carried_over.plus(event.expired).unwrap().decimal(),
                    "what is left is carried over or expires"
                );
                self.expire_plan(id, event.expired);
                let account = self.account(id);
                for bundle in &event.expired_bundles {
                    *account.bundles.get_mut(&bundle.payment_id).unwrap() -= bundle.amount.decimal();
                    account.expired += bundle.amount.decimal();
                }
            }
            Event::Subscription(SubscriptionEvent::Cancelled(event)) => {
                self.expire_plan(event.subscriber.wallet_id, event.expired);
                assert_eq!(
                    self.account(event.subscriber.wallet_id).plan,
                    Decimal::ZERO,
                    "nothing outlives it"
                );
            }
            Event::Subscription(SubscriptionEvent::BundlePurchased(event)) => {
                let account = self.account(event.wallet_id);
                account.bundles.insert(event.payment_id, event.granted.decimal());
                account.bought.push(event.payment_id);
                account.granted += event.granted.decimal();
            }
            Event::Payment(PaymentEvent::Succeeded(event)) => {
                let customer = event.customer_id.unwrap();
                assert!(!self.deleted.contains(&customer), "money of a customer who is no more is kept");
                assert_eq!(self.payments.insert(event.payment_id, true), None, "a payment ends once");
            }
            Event::Payment(PaymentEvent::Declined(event)) => {
                assert_eq!(self.payments.insert(event.payment_id, false), None, "a payment ends once");
            }
            Event::Payment(PaymentEvent::Voided(event)) => {
                assert_eq!(self.payments.insert(event.payment_id, false), None, "a payment ends once");
                assert!(self.deleted.contains(&event.customer_id.unwrap()), "its customer is there");
            }
            Event::Customer(CustomerEvent::Deleted(event)) => {
                self.deleted.insert(event.customer_id);
            }
            Event::Request(RequestEvent::Opened(event)) => {
                self.meters.insert(event.request_id, event.terms.as_ref().map(|terms| terms.meter_id));
            }
            Event::Wallet(WalletEvent::Debited(event)) if event.customer_id.is_some() => {
                let meter = self.meters[&event.request_id];
                let account = self.account(event.wallet_id);
                let may_draw_plan =
                    account.meters.is_empty() || meter.is_some_and(|meter| account.meters.contains(&meter));
                let mut left = event.amount.decimal();
                let mut expected = Vec::new();
                let plan = account.plan.min(left);
                if may_draw_plan && plan > Decimal::ZERO {
                    left -= plan;
                    expected.push(plan);
                }
                for id in &account.bought {
                    let part = account.bundles[id].min(left);
                    if part > Decimal::ZERO {
                        left -= part;
                        expected.push(part);
                    }
                }
                if left > Decimal::ZERO {
                    expected.push(left);
                }
                let drawn: Vec<_> = event.sources.iter().map(|part| part.amount.decimal()).collect();
                assert_eq!(drawn, expected, "plan credit, then bundles, oldest first, then the balance");
                for part in &event.sources {
                    let amount = part.amount.decimal();
                    match part.source {
                        Source::Balance => account.balance -= amount,
                        Source::PlanCredit(_) => {
                            account.plan -= amount;
                            account.used += amount;
                        }
                        Source::BundleCredit(id) => {
                            *account.bundles.get_mut(&id).unwrap() -= amount;
                            account.used += amount;
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// One merchant and a few customers, for years.
pub(crate) struct Years {
    pub(crate) machine: DateTime<Utc>,
    pub(crate) made: u128,
    pub(crate) till: Till,
    pub(crate) books: CreditBooks,
    pub(crate) merchant: MerchantId,
    pub(crate) secret_key: KeyHash,
    pub(crate) customers: Vec<CustomerId>,
    pub(crate) meters: Vec<MeterId>,
    pub(crate) plans: Vec<PlanId>,
    pub(crate) bundles: Vec<CreditBundleId>,
    pub(crate) calls: Vec<RequestId>,
}

pub(crate) fn cents(cents: u32) -> Amount {
    Decimal::new(cents.into(), 2).to_string().parse().unwrap()
}

impl Years {
    pub(crate) fn begin() -> Self {
        let secret_key = ServerKey::from_hex(&"5a".repeat(32)).unwrap().hash("key");
        let mut years = Self {
            // Cycles that begin today meet short months.
            machine: "2026-01-31T10:00:00.250Z".parse().unwrap(),
            made: 0,
            till: Till::default(),
            books: CreditBooks::default(),
            merchant: MerchantId::new(Ulid::from_parts(1, 1)),
            secret_key: secret_key.clone(),
            customers: Vec::new(),
            meters: Vec::new(),
            plans: Vec::new(),
            bundles: Vec::new(),
            calls: Vec::new(),
        };
        let first_key = IssueSecretKey {
            merchant_id: years.merchant,
            secret_key_id: SecretKeyId::new(years.ulid()),
            key_hash: secret_key,
            hint: "abcd".into(),
            name: "first".into(),
            now: years.machine,
        };
        let wallet_id = WalletId::new(years.ulid());
        let register = RegisterMerchant { wallet_id, name: "shop".into(), first_key, now: years.machine };
        years.execute(&register).unwrap();
        for _ in 0..3 {
            years.customer();
        }
        for _ in 0..2 {
            years.meter();
        }
        years
    }

    pub(crate) fn ulid(&mut self) -> Ulid {
        self.made += 1;
        Ulid::from_parts(u64::try_from(self.machine.timestamp_millis()).unwrap(), self.made)
    }

    pub(crate) fn execute<C: farthing_core::command::Command>(
        &mut self,
        command: &C,
    ) -> Result<C::Outcome, Refusal> {
        let (outcome, appended) = self.till.execute(command)?;
        self.books.enter(&self.till.facts[self.till.facts.len() - appended..]);
        Ok(outcome)
    }

    pub(crate) fn customer(&mut self) {
        let customer_id = CustomerId::new(self.ulid());
        let wallet_id = WalletId::new(self.ulid());
        self.execute(&CreateCustomer {
            merchant_id: self.merchant,
            customer_id,
            wallet_id,
            reference_id: None,
            metadata: BTreeMap::new(),
            personal: PersonalData::default(),
            now: self.machine,
        })
        .unwrap();
        let payment_method_id = PaymentMethodId::new(self.ulid());
        self.execute(&AddPaymentMethod {
            merchant_id: self.merchant,
            payee: Payee::Customer(customer_id),
            payment_method_id,
            processor: "test".into(),
            token: "tok".into(),
            card: Card { brand: "visa".into(), last4: "4242".into(), exp_month: 12, exp_year: 2040 },
            now: self.machine,
        })
        .unwrap();
        self.customers.push(customer_id);
    }

    pub(crate) fn meter(&mut self) {
        let meter_id = MeterId::new(self.ulid());
        let tiers = [(0, "2"), (1_000_000, "0.5")];
        let tiers = tiers.map(|(start, rate)| Tier { start: start.into(), rate: rate.parse().unwrap() });
        let price = Price {
            rate_type: RateType::Fixed,
            tier_type: TierType::Tokens1m,
            tiers: Tiers::new(tiers.to_vec()).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Wallet,
            on_disconnect: OnDisconnect::Complete,
        };
        let slug = Slug::Made("meter".into());
        let name = "meter".into();
        let define =
            DefineMeter { merchant_id: self.merchant, meter_id, slug, name, price, now: self.machine };
        self.execute(&define).unwrap();
        self.meters.push(meter_id);
    }

    pub(crate) fn subscription(&self, customer: CustomerId) -> Option<Box<Subscription>> {
        self.till.stored("subscription").into_iter().find_map(|state| match state {
            State::Subscription(found) if found.subscriber.customer_id == customer => Some(found),
            _ => None,
        })
    }

    pub(crate) fn open_payments(&self) -> Vec<OpenPayment> {
        let payments = self.till.stored("payment").into_iter();
        payments
            .map(|state| match state {
                State::Payment(payment) => *payment,
                other => panic!("{other:?} under a payment's key"),
            })
            .collect()
    }

    fn pick<T: Copy>(of: &[T], number: u8) -> Option<T> {
        if of.is_empty() { None } else { Some(of[usize::from(number) % of.len()]) }
    }

    fn happen(&mut self, happening: &Happening) {
        self.machine += TimeDelta::milliseconds(7);
        let (merchant_id, now) = (self.merchant, self.machine);
        let customer = |number: u8, years: &Self| Self::pick(&years.customers, number).unwrap();
        match happening {
            Happening::Plan { .. } => self.create_plan(happening),
            Happening::ChangePlan { plan, credit, rollover } => {
                let Some(plan_id) = Self::pick(&self.plans, *plan) else { return };
                let edits = PlanEdits {
                    included_credit: Some(cents(*credit)),
                    rollover_type: Some(if *rollover { Rollover::Full } else { Rollover::None }),
                    ..PlanEdits::default()
                };
                match self.execute(&UpdatePlan { merchant_id, plan_id, edits, now }) {
                    Ok(()) | Err(Refusal::Plan(PlanRefusal::NotFound | PlanRefusal::CreditAbovePrice)) => {}
                    Err(refusal) => panic!("{refusal:?}"),
                }
            }
            Happening::DeletePlan { plan } => {
                let Some(plan_id) = Self::pick(&self.plans, *plan) else { return };
                let _ = self.execute(&DeletePlan { merchant_id, plan_id, now });
            }
            Happening::Subscribe { customer: number, plan } => {
                let Some(plan) = Self::pick(&self.plans, *plan) else { return };
                self.subscribe(customer(*number, self), plan);
            }
            Happening::Downgrade { customer: number, plan } => {
                let Some(plan) = Self::pick(&self.plans, *plan) else { return };
                self.edit(customer(*number, self), SubscriptionEdit::Downgrade(plan));
            }
            Happening::Cancel { customer: number } => {
                self.edit(customer(*number, self), SubscriptionEdit::Cancel);
            }
            Happening::AutoTopUp { customer: number, on } => {
                let bundle = Self::pick(&self.bundles, *number).filter(|_| *on);
                let edit = bundle.map_or(Edit::Clear, Edit::Set);
                self.edit(customer(*number, self), SubscriptionEdit::AutoTopUp(edit));
            }
            Happening::Autopay { customer: number, cents: amount } => {
                let payee = Payee::Customer(customer(*number, self));
                let autopay = amount.map(|amount| Autopay { threshold: cents(50), amount: cents(amount) });
                let edits = AutopayEdits::all(autopay);
                let _ = self.execute(&SetAutopay { merchant_id, payee, edits, now });
            }
            Happening::BuyBundle { customer: number } => {
                let Some(bundle) = Self::pick(&self.bundles, *number) else { return };
                self.pay_for(customer(*number, self), Purchase::Bundle(bundle));
            }
            Happening::Fund { customer: number, cents: amount } => {
                self.pay_for(customer(*number, self), Purchase::Fund(cents(*amount)));
            }
            Happening::Call { customer: number, meter, output_limit } => {
                self.call(customer(*number, self), *meter, *output_limit);
            }
            Happening::Settle { call, tokens } => self.settle(*call, *tokens),
            Happening::Pay { payment, accepts } => self.pay(*payment, *accepts),
            Happening::DeleteCustomer { customer: number } => {
                let customer_id = customer(*number, self);
                if self.execute(&DeleteCustomer { merchant_id, customer_id, now }).is_ok() {
                    self.customers.retain(|known| *known != customer_id);
                    self.customer();
                }
            }
            Happening::PassTime { hours, by_test_clock: true } => {
                let seconds = i64::from(*hours) * 3_600 + 1;
                let before = self.till.facts.last().unwrap().occurred_at;
                let told = self.execute(&AdvanceClock { merchant_id, seconds, now }).unwrap();
                assert!(told > before && self.till.facts.last().unwrap().occurred_at < told);
            }
            Happening::PassTime { hours, by_test_clock: false } => {
                self.machine += TimeDelta::hours((*hours).into());
            }
            Happening::Schedule => self.schedule(),
            Happening::HardTimes => {
                for _ in 0..4 {
                    self.schedule();
                    while !self.open_payments().is_empty() {
                        self.pay(0, false);
                    }
                    self.machine += TimeDelta::hours(25);
                }
            }
            Happening::Forget => self.till.states.clear(),
        }
    }

    fn create_plan(&mut self, happening: &Happening) {
        let Happening::Plan { cents: price, credit, interval, rollovers, only_first_meter, bundle } =
            happening
        else {
            return;
        };
        let plan_id = PlanId::new(self.ulid());
        let credit_bundle_id = CreditBundleId::new(self.ulid());
        let rollover = |bit: u8| if rollovers & bit == 0 { Rollover::None } else { Rollover::Full };
        let offer = BundleOffer { name: "more".into(), cost: cents(*bundle), credit_amount: cents(*bundle) };
        let terms = PlanTerms {
            name: "plan".into(),
            period_amount: cents(*price),
            included_credit: cents(*credit),
            billing_interval: BillingInterval::ALL[usize::from(*interval)],
            rollover_type: rollover(1),
            bundle_rollover_type: rollover(2),
            meter_ids: if *only_first_meter { vec![self.meters[0]] } else { Vec::new() },
            default_auto_top_up_bundle_id: (*bundle > 0 && bundle % 2 == 0).then_some(credit_bundle_id),
        };
        let bundles = vec![NewBundle { credit_bundle_id, offer }];
        let create = CreatePlan { merchant_id: self.merchant, plan_id, terms, bundles, now: self.machine };
        self.execute(&create).unwrap();
        self.plans.push(plan_id);
        self.bundles.push(credit_bundle_id);
    }

    pub(crate) fn subscribe(&mut self, customer: CustomerId, plan_id: PlanId) {
        let before = self.subscription(customer);
        let subscription_id = SubscriptionId::new(self.ulid());
        let start = StartSubscription {
            merchant_id: self.merchant,
            customer: CustomerRef::Id(customer),
            subscription_id,
            plan_id,
            auto_top_up_bundle_id: None,
            now: self.machine,
        };
        match self.execute(&start) {
            Ok(_) => assert!(before.is_none()),
            Err(Refusal::Plan(PlanRefusal::NotFound)) => {}
            Err(
                Refusal::Plan(PlanRefusal::NotFree)
                | Refusal::Subscription(SubscriptionRefusal::AlreadyActive),
            ) => {
                self.pay_for(customer, Purchase::Plan(plan_id, subscription_id));
            }
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    pub(crate) fn pay_for(&mut self, customer: CustomerId, purchase: Purchase) {
        let request = RequestPayment {
            merchant_id: self.merchant,
            payment_id: PaymentId::new(self.ulid()),
            payee: Payee::Customer(customer),
            payment_method_id: None,
            purchase,
            offered: None,
            checkout_session_id: None,
            now: self.machine,
        };
        match self.execute(&request) {
            Ok(())
            | Err(
                Refusal::Plan(
                    PlanRefusal::NotFound | PlanRefusal::BundleNotFound | PlanRefusal::BundlePlanMismatch,
                )
                | Refusal::Subscription(SubscriptionRefusal::NotFound | SubscriptionRefusal::AlreadyActive)
                | Refusal::Wallet(WalletRefusal::AmountNotPositive),
            ) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    pub(crate) fn edit(&mut self, customer: CustomerId, edit: SubscriptionEdit) {
        let Some(subscription) = self.subscription(customer) else { return };
        let update = UpdateSubscription {
            merchant_id: self.merchant,
            subscription_id: subscription.subscriber.subscription_id,
            edit,
            now: self.machine,
        };
        match self.execute(&update) {
            Ok(())
            | Err(Refusal::Plan(
                PlanRefusal::NotFound | PlanRefusal::BundleNotFound | PlanRefusal::BundlePlanMismatch,
            )) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    fn call(&mut self, customer: CustomerId, meter: u8, output_limit: u32) {
        let request_id = RequestId::new(self.ulid());
        let open = OpenRequest {
            request_id,
            gateway_id: GatewayId::new(Ulid::from_parts(1, 1)),
            caller: Caller::SecretKey(self.secret_key.clone()),
            customer: Some(CustomerRef::Id(customer)),
            meter: Self::pick(&self.meters, meter).map(MeterRef::Id),
            billing: Billing::Usual,
            provider: "other".into(),
            provider_key_type: ProviderKeyType::Unmanaged,
            endpoint: "POST https://example.com/".into(),
            model: None,
            list_price: ListPrice::Nothing,
            metadata: BTreeMap::new(),
            size: SizeHint { input_bytes: 100, max_output_tokens: Some(output_limit.into()) },
            settings: RequestSettings {
                service_charge_rate: "0.019".parse().unwrap(),
                default_hold: cents(10),
                hold_cap: cents(150),
            },
            now: self.machine,
        };
        match self.execute(&open) {
            Ok(_) => self.calls.push(request_id),
            Err(Refusal::Wallet(WalletRefusal::InsufficientBalance { .. })) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    fn settle(&mut self, call: u8, tokens: Option<u32>) {
        let Some(request_id) = Self::pick(&self.calls, call) else { return };
        self.calls.retain(|open| *open != request_id);
        let settled = match tokens {
            Some(tokens) => Settled::Metered(Metered {
                http_status: 200,
                usage: Some(Usage { tokens: Split { input: tokens.into(), output: 0 }, ..Usage::default() }),
                ending: Ending::Whole,
                raw_usage: None,
                response_id: None,
                model: None,
                provider_timestamp: None,
            }),
            None => Settled::Failed(Failed::because(FailureReason::ProviderGone)),
        };
        let before = self.till.facts.len();
        self.execute(&SettleRequest { request_id, settled, now: self.machine }).unwrap();
        let overrun = self.till.facts[before..].iter().any(
            |fact| matches!(&fact.event, Event::Request(RequestEvent::Metered(event)) if event.marks.contains(&Mark::Overrun)),
        );
        let settled = &self.till.facts[before..];
        // What is the merchant's is said to be so.
        for fact in settled {
            if let Event::Request(RequestEvent::Metered(event)) = &fact.event {
                assert_eq!(event.overrun.is_positive(), overrun);
            }
        }
    }

    fn pay(&mut self, payment: u8, accepts: bool) {
        let payments = self.open_payments();
        if payments.is_empty() {
            return;
        }
        let payment_id = payments[usize::from(payment) % payments.len()].requested.payment_id;
        let paid = if accepts {
            Paid::Accepted("ref".into())
        } else {
            Paid::Declined(DeclineReason::InsufficientFunds)
        };
        let mut complete = CompletePayment { payment_id, paid, now: self.machine };
        let customer = payments[usize::from(payment) % payments.len()].requested.customer_id.unwrap();
        if accepts && !self.customers.contains(&customer) {
            let before = self.till.facts.len();
            assert_eq!(
                self.execute(&complete),
                Err(Refusal::Customer(CustomerRefusal::NotFound)),
                "the money is to be given back"
            );
            assert_eq!(self.till.facts.len(), before);
            complete.paid = Paid::TakenBack(Some("refund".into()));
        }
        self.execute(&complete).unwrap();
        assert_eq!(
            self.execute(&complete),
            Err(Refusal::Payment(PaymentRefusal::NotOpen)),
            "a second answer changes nothing"
        );
    }

    /// Two schedulers ask for all that is due, one after the other: the second finds nothing to do.
    pub(crate) fn schedule(&mut self) {
        let subscriptions = self.till.stored("subscription");
        for state in subscriptions {
            let State::Subscription(subscription) = state else {
                panic!("{state:?} under a subscription's key")
            };
            let subscription_id = subscription.subscriber.subscription_id;
            // At most the days of the years that pass in one test.
            for _ in 0..4_000 {
                let payment_id = PaymentId::new(self.ulid());
                let advance = AdvanceSubscription { subscription_id, payment_id, now: self.machine };
                match self.execute(&advance) {
                    Ok(Advanced::Done) => {}
                    Ok(Advanced::NothingDue | Advanced::ToBePaid(_))
                    | Err(Refusal::Subscription(SubscriptionRefusal::NotFound)) => {
                        break;
                    }
                    Err(refusal) => panic!("{refusal:?}"),
                }
            }
            let payment_id = PaymentId::new(self.ulid());
            let again = AdvanceSubscription { subscription_id, payment_id, now: self.machine };
            assert!(matches!(
                self.execute(&again),
                Ok(Advanced::NothingDue) | Err(Refusal::Subscription(SubscriptionRefusal::NotFound))
            ));
        }
    }

    /// The stored wallets hold what the books say.
    pub(crate) fn check(&self) {
        for (_, (key, json)) in self.till.store.iter().filter(|((kind, _), _)| *kind == "wallet") {
            let (farthing_core::state::StateKey::Wallet(id), State::Wallet(wallet)) =
                (key, State::from_json(key, json).unwrap())
            else {
                panic!("{key:?}");
            };
            let Some(account) = self.books.accounts.get(id) else { continue };
            assert_eq!(wallet.balance.decimal(), account.balance, "balance of {id}");
            assert_eq!(wallet.plan_credit().decimal(), account.plan, "plan credit of {id}");
            let bundles: Decimal = account.bundles.values().sum();
            assert_eq!(wallet.bundle_credit().unwrap().decimal(), bundles, "bundle credit of {id}");
        }
    }
}

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

/// The test above proves nothing of what its years never see.
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
                    see("an overrun")
                }
                Event::Request(RequestEvent::Opened(event)) if event.hold.beside_plan => {
                    see("a hold beside the plan")
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
