//! Random years of plans, calls, top-ups, changes and failures. Credit granted = credit used + expired + remaining, for
//! every wallet, at every position of the log, by books kept here from the facts alone.

mod calls;
mod credit_books;
mod happening;
mod payments;
mod properties;
mod subscriptions;

use std::collections::BTreeMap;

use self::credit_books::CreditBooks;
use self::happening::Happening;
use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::command::{
    AddPaymentMethod, AdvanceClock, AutopayEdits, CreateCustomer, DefineMeter, DeleteCustomer, DeletePlan,
    Edit, IssueSecretKey, Payee, PersonalData, PlanEdits, PlanRefusal, Purchase, Refusal, RegisterMerchant,
    SetAutopay, Slug, SubscriptionEdit, UpdatePlan,
};
use farthing_core::event::{Autopay, Card};
use farthing_core::ids::{
    CreditBundleId, CustomerId, MerchantId, MeterId, PaymentMethodId, PlanId, RequestId, SecretKeyId,
    WalletId,
};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::money::Amount;
use farthing_core::plan::Rollover;
use farthing_core::secret::{KeyHash, ServerKey};
use farthing_core::state::{State, Subscription, shape};
use rust_decimal::Decimal;
use ulid::Ulid;

use crate::till::{SentCommand, Till};

/// One merchant and a few customers over years.
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
            // Cycles that start on the 31st meet short months.
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

    pub(crate) fn execute<C: SentCommand>(&mut self, command: &C) -> Result<C::Outcome, Refusal> {
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
            metadata_literals: std::collections::BTreeSet::new(),
            personal: PersonalData::default(),
            now: self.machine,
        })
        .unwrap();
        self.card(customer_id);
        self.customers.push(customer_id);
    }

    /// Adds a card to the customer's wallet, which is the one that it pays with from then on.
    pub(crate) fn card(&mut self, customer_id: CustomerId) -> PaymentMethodId {
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
        payment_method_id
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
            max_fee: None,
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

    /// Checks that the stored wallets agree with the books.
    pub(crate) fn check(&self) {
        self.till.check_accounts();
        for (_, (key, json)) in self.till.store.iter().filter(|((kind, _), _)| *kind == "wallet") {
            let (farthing_core::state::StateKey::Wallet(id), State::Wallet(wallet)) =
                (key, State::from_json(key, shape(), json).unwrap())
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
