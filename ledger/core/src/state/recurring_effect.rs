//! What the events of plans, subscriptions, payments and checkout sessions do to which states.

use chrono::{DateTime, Utc};

use super::recurring::{
    CheckoutSession, CreditBundle, OpenPayment, PaymentMethod, Phase, Plan, Subscription,
};
use super::{BundleCredit, Effect, PlanCredit, State, StateKey, Wallet};
use crate::event::{
    Autopay, Event, ExpiredBundle, Fact, PaymentRequested, Purpose, SubscriptionRenewed, SubscriptionUpdated,
    SubscriptionUpgraded,
};
use crate::ids::{CreditBundleId, PaymentId, PaymentMethodId};
use crate::money::{Amount, Error};
use crate::plan::PlanTerms;

/// What happens to a wallet's credit, or to how it is paid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreditChange {
    /// A cycle brings credit, beside what is left of an earlier one.
    GrantPlan(PlanCredit),
    /// Some of the plan's credit expires.
    ExpirePlan(Amount),
    /// The subscription is no more.
    EndPlan,
    /// The bundle that is bought when the plan's credit is used up.
    TopUpWith(Option<CreditBundleId>),
    /// A bundle was bought.
    GrantBundle(BundleCredit),
    /// Bundle credit expires.
    ExpireBundles(Vec<ExpiredBundle>),
    /// What payments are made with from now on.
    PayWith(PaymentMethodId),
    /// It is filled up so, or not any more; counts the changes.
    Autopay(Option<Autopay>, u32),
    /// A payment that it asked for by itself is under way.
    AutoRecharge(PaymentId),
    /// The payment has ended; nothing is asked for by itself before then.
    PaymentEnded(PaymentId, Option<DateTime<Utc>>),
    /// Its customer is no more: it asks for nothing by itself again.
    Orphan,
}

/// What happens to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanChange {
    /// Other terms; counts the changes.
    Terms(Box<PlanTerms>, u32),
    /// One bundle more.
    AddBundle(CreditBundleId),
    /// One bundle less.
    RemoveBundle(CreditBundleId),
}

impl Plan {
    pub(super) fn change(&mut self, change: PlanChange) {
        match change {
            PlanChange::Terms(terms, revision) => {
                self.terms = *terms;
                self.revision = revision;
            }
            PlanChange::AddBundle(id) => self.credit_bundle_ids.push(id),
            PlanChange::RemoveBundle(id) => self.credit_bundle_ids.retain(|known| *known != id),
        }
    }
}

/// What happens to a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionChange {
    /// Other settings.
    Update(Box<SubscriptionUpdated>),
    /// Its cycle has ended, at this instant.
    EndCycle(DateTime<Utc>),
    /// A renewal is being paid, for this many times now.
    Pay(PaymentId, u32),
    /// That payment failed, for this many times now; again then.
    Fail(u32, DateTime<Utc>),
    /// A new cycle.
    Renew(Box<SubscriptionRenewed>),
    /// Another plan.
    Upgrade(Box<SubscriptionUpgraded>),
}

pub(super) fn of_plans(fact: &Fact) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, ref event } = *fact;
    match event {
        Event::PlanCreated(event) => {
            let plan = Plan {
                merchant_id,
                terms: event.terms.clone(),
                credit_bundle_ids: Vec::new(),
                revision: 0,
                created_at,
            };
            vec![(StateKey::Plan(event.plan_id), Effect::Create(State::Plan(Box::new(plan))))]
        }
        Event::PlanUpdated(event) => {
            let change = PlanChange::Terms(Box::new(event.terms.clone()), event.revision);
            vec![(StateKey::Plan(event.plan_id), Effect::Plan(change))]
        }
        Event::PlanDeleted(event) => {
            let bundles = event.credit_bundle_ids.iter();
            let bundles = bundles.map(|id| (StateKey::CreditBundle(*id), Effect::Remove));
            bundles.chain([(StateKey::Plan(event.plan_id), Effect::Remove)]).collect()
        }
        Event::CreditBundleCreated(event) => {
            let id = event.credit_bundle_id;
            let bundle = CreditBundle {
                merchant_id,
                plan_id: event.plan_id,
                offer: event.offer.clone(),
                revision: 0,
                created_at,
            };
            vec![
                (StateKey::CreditBundle(id), Effect::Create(State::CreditBundle(bundle))),
                (StateKey::Plan(event.plan_id), Effect::Plan(PlanChange::AddBundle(id))),
            ]
        }
        Event::CreditBundleUpdated(event) => vec![(
            StateKey::CreditBundle(event.credit_bundle_id),
            Effect::Offer(event.offer.clone(), event.revision),
        )],
        Event::CreditBundleDeleted(event) => {
            let id = event.credit_bundle_id;
            vec![
                (StateKey::CreditBundle(id), Effect::Remove),
                (StateKey::Plan(event.plan_id), Effect::Plan(PlanChange::RemoveBundle(id))),
            ]
        }
        other => unreachable!("no event of plans: {other:?}"),
    }
}

pub(super) fn of_subscriptions(fact: &Fact) -> Vec<(StateKey, Effect)> {
    let merchant_id = fact.merchant_id;
    match &fact.event {
        Event::SubscriptionStarted(event) => {
            let subscriber = event.subscriber;
            let subscription = Subscription {
                merchant_id,
                subscriber,
                plan_id: event.plan_id,
                terms: event.terms.clone(),
                started_at: fact.occurred_at,
                anchor: event.cycle.start,
                cycle: event.cycle,
                phase: Phase::Running,
                payment_method_id: event.payment_method_id,
                auto_top_up_bundle_id: event.auto_top_up_bundle_id,
                pending_change: None,
                revision: 0,
                due_ms: None,
            };
            let id = subscriber.subscription_id;
            let credit = PlanCredit {
                subscription_id: id,
                cycle_start: event.cycle.start,
                remaining: event.granted,
                meter_ids: event.terms.meter_ids.clone(),
                auto_top_up_bundle_id: event.auto_top_up_bundle_id,
            };
            let subscription = Box::new(subscription.scheduled());
            vec![
                (StateKey::Subscription(id), Effect::Create(State::Subscription(subscription))),
                (StateKey::Customer(subscriber.customer_id), Effect::Subscribe(Some(id))),
                (StateKey::Wallet(subscriber.wallet_id), Effect::Credits(CreditChange::GrantPlan(credit))),
            ]
        }
        Event::SubscriptionUpdated(event) => {
            let top_up = CreditChange::TopUpWith(event.auto_top_up_bundle_id);
            vec![
                (
                    StateKey::Subscription(event.subscriber.subscription_id),
                    Effect::Subscription(SubscriptionChange::Update(event.clone())),
                ),
                (StateKey::Wallet(event.subscriber.wallet_id), Effect::Credits(top_up)),
            ]
        }
        Event::CycleEnded(event) => {
            let wallet = StateKey::Wallet(event.subscriber.wallet_id);
            let expired_bundles = CreditChange::ExpireBundles(event.expired_bundles.clone());
            vec![
                (
                    StateKey::Subscription(event.subscriber.subscription_id),
                    Effect::Subscription(SubscriptionChange::EndCycle(event.ended_at)),
                ),
                (wallet.clone(), Effect::Credits(CreditChange::ExpirePlan(event.expired))),
                (wallet, Effect::Credits(expired_bundles)),
            ]
        }
        Event::SubscriptionRenewed(event) => {
            let id = event.subscriber.subscription_id;
            let credit = PlanCredit {
                subscription_id: id,
                cycle_start: event.cycle.start,
                remaining: event.granted,
                meter_ids: event.terms.meter_ids.clone(),
                // What there is stays.
                auto_top_up_bundle_id: None,
            };
            vec![
                (StateKey::Subscription(id), Effect::Subscription(SubscriptionChange::Renew(event.clone()))),
                (
                    StateKey::Wallet(event.subscriber.wallet_id),
                    Effect::Credits(CreditChange::GrantPlan(credit)),
                ),
            ]
        }
        Event::RenewalFailed(event) => {
            let change = SubscriptionChange::Fail(event.attempt, event.retry_at);
            vec![(StateKey::Subscription(event.subscriber.subscription_id), Effect::Subscription(change))]
        }
        Event::SubscriptionUpgraded(event) => {
            let id = event.subscriber.subscription_id;
            let credit = PlanCredit {
                subscription_id: id,
                cycle_start: event.cycle.start,
                remaining: event.granted,
                meter_ids: event.terms.meter_ids.clone(),
                auto_top_up_bundle_id: None,
            };
            vec![
                (
                    StateKey::Subscription(id),
                    Effect::Subscription(SubscriptionChange::Upgrade(event.clone())),
                ),
                (
                    StateKey::Wallet(event.subscriber.wallet_id),
                    Effect::Credits(CreditChange::GrantPlan(credit)),
                ),
            ]
        }
        Event::SubscriptionCancelled(event) => {
            let wallet = StateKey::Wallet(event.subscriber.wallet_id);
            vec![
                (StateKey::Subscription(event.subscriber.subscription_id), Effect::Remove),
                (StateKey::Customer(event.subscriber.customer_id), Effect::Subscribe(None)),
                (wallet.clone(), Effect::Credits(CreditChange::ExpirePlan(event.expired))),
                (wallet, Effect::Credits(CreditChange::EndPlan)),
            ]
        }
        Event::BundlePurchased(event) => {
            let credit = BundleCredit { payment_id: event.payment_id, remaining: event.granted };
            vec![(StateKey::Wallet(event.wallet_id), Effect::Credits(CreditChange::GrantBundle(credit)))]
        }
        other => unreachable!("no event of subscriptions: {other:?}"),
    }
}

pub(super) fn of_payments(fact: &Fact) -> Vec<(StateKey, Effect)> {
    let merchant_id = fact.merchant_id;
    match &fact.event {
        Event::PaymentMethodAdded(event) => {
            let id = event.payment_method_id;
            let method = Box::new(PaymentMethod { merchant_id, added: event.clone() });
            vec![
                (StateKey::PaymentMethod(id), Effect::Create(State::PaymentMethod(method))),
                (StateKey::Wallet(event.wallet_id), Effect::Credits(CreditChange::PayWith(id))),
            ]
        }
        Event::AutopayChanged(event) => {
            let change = CreditChange::Autopay(event.autopay, event.revision);
            vec![(StateKey::Wallet(event.wallet_id), Effect::Credits(change))]
        }
        Event::PaymentRequested(event) => payment_requested(fact, event),
        Event::PaymentSucceeded(event) => {
            let id = event.payment_id;
            vec![
                (StateKey::Payment(id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Credits(CreditChange::PaymentEnded(id, None))),
            ]
        }
        Event::PaymentDeclined(event) => {
            let id = event.payment_id;
            let ended = CreditChange::PaymentEnded(id, event.not_again_before);
            let mut effects = vec![
                (StateKey::Payment(id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Credits(ended)),
            ];
            if let (Some(_), Some(customer_id)) = (event.not_started, event.customer_id) {
                effects.push((StateKey::Customer(customer_id), Effect::Subscribe(None)));
            }
            let session = event.checkout_session_id.map(StateKey::CheckoutSession);
            effects.extend(session.map(|session| (session, Effect::AwaitPayment(None))));
            effects
        }
        Event::PaymentVoided(event) => {
            let id = event.payment_id;
            let mut effects = vec![
                (StateKey::Payment(id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Credits(CreditChange::PaymentEnded(id, None))),
            ];
            let session = event.checkout_session_id.map(StateKey::CheckoutSession);
            effects.extend(session.map(|session| (session, Effect::AwaitPayment(None))));
            effects
        }
        Event::CheckoutSessionCreated(event) => {
            let session = CheckoutSession {
                merchant_id,
                created: event.clone(),
                payment_id: None,
                customer_id: event.customer_id,
            };
            let create = Effect::Create(State::CheckoutSession(Box::new(session)));
            vec![(StateKey::CheckoutSession(event.checkout_session_id), create)]
        }
        Event::CheckoutSessionCompleted(event) => {
            vec![(StateKey::CheckoutSession(event.checkout_session_id), Effect::Remove)]
        }
        other => unreachable!("no event of payments: {other:?}"),
    }
}

fn payment_requested(fact: &Fact, event: &PaymentRequested) -> Vec<(StateKey, Effect)> {
    let id = event.payment_id;
    let payment = OpenPayment {
        merchant_id: fact.merchant_id,
        requested_at: fact.occurred_at,
        requested: event.clone(),
    };
    let mut effects = vec![(StateKey::Payment(id), Effect::Create(State::Payment(Box::new(payment))))];
    match &event.purpose {
        Purpose::Fund | Purpose::Bundle { .. } | Purpose::Upgrade { .. } => {}
        Purpose::Autopay | Purpose::AutoTopUp { .. } => {
            effects
                .push((StateKey::Wallet(event.wallet_id), Effect::Credits(CreditChange::AutoRecharge(id))));
        }
        Purpose::Subscribe { subscription_id, .. } => {
            let customer = event.customer_id.map(StateKey::Customer);
            effects.extend(customer.map(|customer| (customer, Effect::Subscribe(Some(*subscription_id)))));
        }
        Purpose::Renewal { subscription_id, attempt, .. } => {
            let change = SubscriptionChange::Pay(id, *attempt);
            effects.push((StateKey::Subscription(*subscription_id), Effect::Subscription(change)));
        }
    }
    let session = event.checkout_session_id.map(StateKey::CheckoutSession);
    let awaited = Some((id, event.customer_id));
    effects.extend(session.map(|session| (session, Effect::AwaitPayment(awaited))));
    effects
}

/// The wallet after `change`.
pub(super) fn credit(wallet: &mut Wallet, change: CreditChange) -> Result<(), Error> {
    match change {
        CreditChange::GrantPlan(granted) => {
            let kept = wallet.plan.as_ref().and_then(|plan| plan.auto_top_up_bundle_id);
            let plan = PlanCredit {
                remaining: wallet.plan_credit().plus(granted.remaining)?,
                auto_top_up_bundle_id: granted.auto_top_up_bundle_id.or(kept),
                ..granted
            };
            wallet.set_plan(Some(plan));
        }
        CreditChange::ExpirePlan(amount) => {
            if let Some(plan) = &mut wallet.plan {
                plan.remaining = plan.remaining.minus(amount)?;
            }
        }
        CreditChange::EndPlan => wallet.set_plan(None),
        CreditChange::TopUpWith(bundle) => {
            if let Some(plan) = &mut wallet.plan {
                plan.auto_top_up_bundle_id = bundle;
            }
        }
        CreditChange::GrantBundle(bundle) => {
            if bundle.remaining.is_positive() {
                wallet.bundles.push(bundle);
            }
        }
        CreditChange::ExpireBundles(expired) => wallet.expire_bundles(&expired)?,
        CreditChange::PayWith(id) => {
            wallet.payment_method_id = Some(id);
            wallet.not_again_before = None;
        }
        CreditChange::Autopay(autopay, revision) => {
            wallet.autopay = autopay;
            wallet.autopay_revision = revision;
            wallet.not_again_before = None;
        }
        CreditChange::AutoRecharge(payment_id) => wallet.filling_up = Some(payment_id),
        CreditChange::PaymentEnded(payment_id, not_again_before) => {
            if wallet.filling_up == Some(payment_id) {
                wallet.filling_up = None;
                wallet.not_again_before = not_again_before;
            }
        }
        CreditChange::Orphan => {
            wallet.autopay = None;
            wallet.set_plan(None);
        }
    }
    Ok(())
}

/// The subscription after `change`.
pub(super) fn subscription(mut subscription: Subscription, change: SubscriptionChange) -> Subscription {
    match change {
        SubscriptionChange::Update(event) => {
            subscription.revision = event.revision;
            subscription.auto_top_up_bundle_id = event.auto_top_up_bundle_id;
            subscription.payment_method_id = event.payment_method_id;
            subscription.pending_change = event.pending_change;
        }
        SubscriptionChange::EndCycle(ended_at) => {
            subscription.phase = Phase::Renewing { attempts: 0, payment_id: None, retry_at: ended_at };
        }
        SubscriptionChange::Pay(payment_id, attempts) => {
            let retry_at = subscription.cycle.end;
            subscription.phase = Phase::Renewing { attempts, payment_id: Some(payment_id), retry_at };
        }
        SubscriptionChange::Fail(attempts, retry_at) => {
            subscription.phase = Phase::Renewing { attempts, payment_id: None, retry_at };
        }
        SubscriptionChange::Renew(event) => {
            subscription.pending_change = subscription.outlasting(event.plan_id, event.cycle.end);
            subscription.plan_id = event.plan_id;
            subscription.terms = event.terms;
            subscription.cycle = event.cycle;
            subscription.phase = Phase::Running;
            if event.cycle.number == 0 {
                subscription.anchor = event.cycle.start;
            }
        }
        SubscriptionChange::Upgrade(event) => {
            subscription.revision = event.revision;
            subscription.plan_id = event.plan_id;
            subscription.terms = event.terms;
            subscription.anchor = event.cycle.start;
            subscription.cycle = event.cycle;
            subscription.phase = Phase::Running;
            subscription.pending_change = None;
            subscription.payment_method_id = event.payment_method_id.or(subscription.payment_method_id);
        }
    }
    subscription.scheduled()
}
