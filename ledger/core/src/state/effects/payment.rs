//! The effects of the events of payments, payment methods and checkout sessions.

use crate::event::{CheckoutEvent, Fact, PaymentEvent, PaymentRequested, Purpose};
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::payment::{CheckoutSession, OpenPayment, PaymentMethod};
use crate::state::subscription::SubscriptionChange;
use crate::state::wallet_change::WalletChange;

pub(super) fn effects(fact: &Fact, event: &PaymentEvent) -> Vec<(StateKey, Effect)> {
    let merchant_id = fact.merchant_id;
    match event {
        PaymentEvent::MethodAdded(event) => {
            let id = event.payment_method_id;
            let method = Box::new(PaymentMethod { merchant_id, added: event.clone() });
            vec![
                (StateKey::PaymentMethod(id), Effect::Create(State::PaymentMethod(method))),
                (StateKey::Wallet(event.wallet_id), Effect::Wallet(WalletChange::PayWith(id))),
            ]
        }
        PaymentEvent::Requested(event) => payment_requested(fact, event),
        PaymentEvent::Succeeded(event) => {
            let id = event.payment_id;
            vec![
                (StateKey::Payment(id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Wallet(WalletChange::PaymentEnded(id, None))),
            ]
        }
        PaymentEvent::Declined(event) => {
            let id = event.payment_id;
            let ended = WalletChange::PaymentEnded(id, event.not_again_before);
            let mut effects = vec![
                (StateKey::Payment(id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Wallet(ended)),
            ];
            if let (Some(_), Some(customer_id)) = (event.not_started, event.customer_id) {
                effects.push((StateKey::Customer(customer_id), Effect::Subscribe(None)));
            }
            let session = event.checkout_session_id.map(StateKey::CheckoutSession);
            effects.extend(session.map(|session| (session, Effect::AwaitPayment(None))));
            effects
        }
        PaymentEvent::Voided(event) => {
            let id = event.payment_id;
            let mut effects = vec![
                (StateKey::Payment(id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Wallet(WalletChange::PaymentEnded(id, None))),
            ];
            let session = event.checkout_session_id.map(StateKey::CheckoutSession);
            effects.extend(session.map(|session| (session, Effect::AwaitPayment(None))));
            effects
        }
    }
}

pub(super) fn checkout_effects(fact: &Fact, event: &CheckoutEvent) -> Vec<(StateKey, Effect)> {
    let merchant_id = fact.merchant_id;
    match event {
        CheckoutEvent::SessionCreated(event) => {
            let session = CheckoutSession {
                merchant_id,
                created: event.clone(),
                payment_id: None,
                customer_id: event.customer_id,
            };
            let create = Effect::Create(State::CheckoutSession(Box::new(session)));
            vec![(StateKey::CheckoutSession(event.checkout_session_id), create)]
        }
        CheckoutEvent::SessionCompleted(event) => {
            vec![(StateKey::CheckoutSession(event.checkout_session_id), Effect::Remove)]
        }
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
        Purpose::Fund | Purpose::Bundle { .. } => {}
        Purpose::Upgrade { .. } => {
            effects.push((StateKey::Wallet(event.wallet_id), Effect::Wallet(WalletChange::Upgrade(id))));
        }
        Purpose::Autopay | Purpose::AutoTopUp { .. } => {
            effects.push((StateKey::Wallet(event.wallet_id), Effect::Wallet(WalletChange::AutoRecharge(id))));
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
