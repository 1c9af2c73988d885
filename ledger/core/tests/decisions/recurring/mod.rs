//! Examples of decisions about recurring money.

mod auto_recharge;
mod checkout;
mod credit;
mod payments;
mod renewals;
mod upgrades;

use chrono::TimeDelta;
use farthing_core::command::{
    Billing, Caller, CompletePayment, Completeness, CreatePlan, CreditTarget, CreditWallet, CustomerRef,
    DefineMeter, MeterRef, Metered, NewBundle, OpenRequest, Paid, Payee, Purchase, Refusal, ReportRequest,
    RequestPayment, RequestSettings, SettleRequest, Settled, Slug, SubscriptionEdit, UpdateSubscription,
};
use farthing_core::event::{
    BundleOffer, DeclineReason, Event, Mark, PaymentEvent, PaymentRequested, ProviderKeyType, Purpose,
    RequestEvent,
};
use farthing_core::ids::{
    CreditBundleId, CreditId, CustomerId, GatewayId, MeterId, PaymentId, PlanId, RequestId,
};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::model_price::ListPrice;
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use farthing_core::pricing::SizeHint;
use farthing_core::state::{State, StateKey, Wallet, shape};
use rust_decimal::Decimal;
use ulid::Ulid;

use crate::years::{Years, cents};

fn dollars(text: &str) -> Amount {
    text.parse().unwrap()
}

/// Monthly terms with this price and credit, without rollover.
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

    /// Creates a plan with the bundle of its auto top-up; no bundle if its price is zero.
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

    /// Completes every open payment and returns them.
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

    /// Subscribes or upgrades the customer to the plan.
    fn joins(&mut self, customer: CustomerId, plan: PlanId) {
        self.subscribe(customer, plan);
        self.pay_all();
        assert_eq!(self.subscription(customer).unwrap().plan_id, plan);
    }

    /// Lets days pass and does the due work; payments are requested but not made.
    fn days(&mut self, days: i64) {
        self.machine += TimeDelta::days(days);
        self.schedule();
    }

    /// Defines a meter with this price per call.
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
            max_fee: None,
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
            merchant_id: self.merchant,
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
            size: SizeHint { input_bytes: 1, ..SizeHint::default() },
            settings: RequestSettings {
                service_charge_rate: Decimal::ZERO,
                default_hold: cents(10),
                hold_cap: cents(150),
            },
            now: self.machine,
        })?;
        Ok(request_id)
    }

    /// Ends a call as metered and returns the events.
    fn end(&mut self, request_id: RequestId) -> Vec<Event> {
        let before = self.till.facts.len();
        let settled = Settled::Metered(metered());
        self.execute(&SettleRequest { request_id, settled, now: self.machine }).unwrap();
        self.till.facts[before..].iter().map(|fact| fact.event.clone()).collect()
    }

    /// Opens and ends a call and returns the automatic payments that it triggered.
    fn call_on(&mut self, customer: CustomerId, meter: MeterId) -> Result<Vec<PaymentRequested>, Refusal> {
        let request_id = self.open(customer, meter)?;
        Ok(self.end(request_id).into_iter().filter_map(asked).collect())
    }

    /// Reports a call and returns the automatic payments that it triggered.
    fn report(&mut self, customer: CustomerId, meter: MeterId) -> Vec<PaymentRequested> {
        let before = self.till.facts.len();
        let request_id = RequestId::new(self.ulid());
        self.execute(&ReportRequest {
            merchant_id: self.merchant,
            reported_id: format!("report {}", self.made),
            request_id,
            gateway_id: GatewayId::new(Ulid::from_parts(1, 1)),
            customer: Some(CustomerRef::Id(customer)),
            meter: Some(MeterRef::Id(meter)),
            provider: "other".into(),
            endpoint: "POST https://example.com/".into(),
            metadata: std::collections::BTreeMap::new(),
            list_price: ListPrice::Nothing,
            metered: metered(),
            service_charge_rate: Decimal::ZERO,
            now: self.machine,
        })
        .unwrap();
        self.till.facts[before..].iter().map(|fact| fact.event.clone()).filter_map(asked).collect()
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
        let wallets =
            self.till.store.values().filter_map(|(key, json)| match State::from_json(key, shape(), json) {
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

/// A complete response without usage.
fn metered() -> Metered {
    Metered {
        http_status: 200,
        usage: None,
        ending: Completeness::Whole,
        counted: None,
        raw_usage: None,
        response_id: None,
        model: None,
        provider_timestamp: None,
    }
}

fn asked(event: Event) -> Option<PaymentRequested> {
    if let Event::Payment(PaymentEvent::Requested(payment)) = event { Some(*payment) } else { None }
}

fn bundle_of(payment: &PaymentRequested) -> CreditBundleId {
    let Purpose::AutoTopUp { credit_bundle_id, .. } = payment.purpose else { panic!("{payment:?}") };
    credit_bundle_id
}

/// Checks that the merchant paid the whole call, and that the events state it.
fn borne_by_the_merchant(events: &[Event], cost: &str) {
    let Event::Request(RequestEvent::Metered(metered)) = &events[0] else { panic!("{events:?}") };
    let cost = dollars(cost);
    assert_eq!((metered.total_request_cost, metered.total_wallet_cost), (cost, Amount::ZERO));
    assert_eq!((metered.total_merchant_cost, metered.overrun), (cost, cost));
    assert_eq!(metered.marks.iter().filter(|mark| **mark == Mark::Overrun).count(), 1);
}
