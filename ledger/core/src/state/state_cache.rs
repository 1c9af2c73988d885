//! The states that decisions see: loaded from the database and changed by earlier decisions of the batch.

use std::collections::{HashMap, HashSet};

use rust_decimal::Decimal;

use super::apply::{InvariantBroken, apply};
use super::customer::Customer;
use super::effect::Effect;
use super::effects::effects;
use super::kinds::{Holder, State, StateKey};
use super::merchant::{IssuedKey, Merchant, SecretKey};
use super::meter::Meter;
use super::payment::{CheckoutSession, OpenPayment, PaymentMethod};
use super::plan::{CreditBundle, Plan};
use super::request::AdmittedRequest;
use super::spend_key::SpendKey;
use super::subscription::Subscription;
use super::wallet::Wallet;
use super::webhook::Webhook;
use crate::event::Fact;
use crate::ids::{
    CheckoutSessionId, CreditBundleId, CustomerId, MerchantId, MeterId, PaymentId, PaymentMethodId, PlanId,
    RequestId, SecretKeyId, SpendKeyId, SubscriptionId, WalletId, WebhookId,
};
use crate::secret::KeyHash;
use crate::spending::Spending;

/// A state that a decision needs and that is not loaded. The caller loads it and decides again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(pub StateKey);

/// Why facts cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvolveError {
    /// A state is not loaded.
    Missing(Missing),
    /// An invariant would be broken.
    InvariantBroken(InvariantBroken),
}

/// Known states; `None` marks a state that is known to be absent.
#[derive(Debug, Default)]
pub struct StateCache {
    known: HashMap<StateKey, Option<State>>,
    changed: HashSet<StateKey>,
}

macro_rules! lookup {
    ($(#[$doc:meta] $name:ident($($arg:ident: $ty:ty),+) = $key:expr => $variant:ident: $out:ty;)+) => {$(
        #[$doc]
        pub fn $name(&self, $($arg: $ty),+) -> Result<Option<&$out>, Missing> {
            match self.get($key)? {
                Some(State::$variant(state)) => Ok(Some(state)),
                Some(other) => unreachable!("a state of another kind under its key: {other:?}"),
                None => Ok(None),
            }
        }
    )+};
}

impl StateCache {
    fn get(&self, key: StateKey) -> Result<Option<&State>, Missing> {
        match self.known.get(&key) {
            Some(state) => Ok(state.as_ref()),
            None => Err(Missing(key)),
        }
    }

    lookup! {
        /// A merchant.
        merchant(id: MerchantId) = StateKey::Merchant(id) => Merchant: Merchant;
        /// A wallet.
        wallet(id: WalletId) = StateKey::Wallet(id) => Wallet: Wallet;
        /// The secret key with a hash.
        secret_key(hash: &KeyHash) = StateKey::SecretKey(hash.clone()) => SecretKey: SecretKey;
        /// The secret key with an id.
        issued_key(id: SecretKeyId) = StateKey::IssuedKey(id) => IssuedKey: IssuedKey;
        /// A customer.
        customer(id: CustomerId) = StateKey::Customer(id) => Customer: Customer;
        /// The customer with a reference id.
        reference(merchant: MerchantId, reference: &str)
            = StateKey::Reference(merchant, reference.to_owned()) => Reference: CustomerId;
        /// A meter.
        meter(id: MeterId) = StateKey::Meter(id) => Meter: Meter;
        /// The meter with a slug.
        meter_slug(merchant: MerchantId, slug: &str)
            = StateKey::MeterSlug(merchant, slug.to_owned()) => MeterSlug: MeterId;
        /// A spend key.
        spend_key(id: SpendKeyId) = StateKey::SpendKey(id) => SpendKey: SpendKey;
        /// The spend key with a hash.
        spend_key_of(hash: &KeyHash) = StateKey::SpendKeyHash(hash.clone()) => SpendKeyHash: SpendKeyId;
        /// The request reported under a merchant's own id.
        reported(merchant: MerchantId, reported: &str)
            = StateKey::Reported(merchant, reported.to_owned()) => Reported: RequestId;
        /// The counters of a spend key.
        spending(id: SpendKeyId) = StateKey::Spending(id) => Spending: Spending;
        /// A call in flight.
        request(id: RequestId) = StateKey::Request(id) => Request: AdmittedRequest;
        /// A plan.
        plan(id: PlanId) = StateKey::Plan(id) => Plan: Plan;
        /// A credit bundle.
        credit_bundle(id: CreditBundleId) = StateKey::CreditBundle(id) => CreditBundle: CreditBundle;
        /// A subscription.
        subscription(id: SubscriptionId) = StateKey::Subscription(id) => Subscription: Subscription;
        /// A payment method.
        payment_method(id: PaymentMethodId) = StateKey::PaymentMethod(id) => PaymentMethod: PaymentMethod;
        /// An open payment.
        payment(id: PaymentId) = StateKey::Payment(id) => Payment: OpenPayment;
        /// An open checkout session.
        checkout_session(id: CheckoutSessionId)
            = StateKey::CheckoutSession(id) => CheckoutSession: CheckoutSession;
        /// A webhook.
        webhook(id: WebhookId) = StateKey::Webhook(id) => Webhook: Webhook;
        /// The webhooks of a merchant, oldest first.
        webhooks(merchant: MerchantId) = StateKey::Webhooks(merchant) => Webhooks: Vec<WebhookId>;
    }

    /// The time of the merchant's clock when the machine's clock shows `machine`. They differ in test mode only.
    pub fn now(
        &self,
        merchant: MerchantId,
        machine: chrono::DateTime<chrono::Utc>,
    ) -> Result<chrono::DateTime<chrono::Utc>, Missing> {
        Ok(self.merchant(merchant)?.map_or(machine, |merchant| merchant.now(machine)))
    }

    /// The tier usage of a holder on a meter; zero before the first call of the period.
    pub fn tier_usage(
        &self,
        holder: Holder,
        meter: MeterId,
        period_start: chrono::DateTime<chrono::Utc>,
    ) -> Result<Decimal, Missing> {
        match self.get(StateKey::TierUsage(holder, meter, period_start))? {
            Some(State::TierUsage(position)) => Ok(*position),
            Some(other) => unreachable!("a state of another kind under its key: {other:?}"),
            None => Ok(Decimal::ZERO),
        }
    }

    /// Adds a loaded state; `None` if it does not exist.
    pub fn load(&mut self, key: StateKey, state: Option<State>) {
        self.known.insert(key, state);
    }

    /// Returns true if the state of `key` is known.
    pub fn knows(&self, key: &StateKey) -> bool {
        self.known.contains_key(key)
    }

    /// The number of known states.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns true if no state is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Removes all states.
    pub fn clear(&mut self) {
        self.known.clear();
        self.changed.clear();
    }

    /// Applies `facts`, all or none, and records the changes.
    pub fn evolve(&mut self, facts: &[Fact]) -> Result<(), EvolveError> {
        let mut fresh: HashMap<StateKey, Option<State>> = HashMap::with_capacity(facts.len() * 2);
        for (key, effect) in facts.iter().flat_map(effects) {
            let state = match (fresh.remove(&key), &effect) {
                (Some(state), _) => state,
                (None, Effect::Create(_)) => self.known.get(&key).cloned().flatten(),
                (None, _) => match self.known.get(&key) {
                    Some(state) => state.clone(),
                    None => return Err(EvolveError::Missing(Missing(key))),
                },
            };
            let next = apply(&key, state, effect).map_err(EvolveError::InvariantBroken)?;
            fresh.insert(key, next);
        }
        for (key, state) in fresh {
            self.changed.insert(key.clone());
            self.known.insert(key, state);
        }
        Ok(())
    }

    /// Applies a fact that another writer appended to the known states; unknown ones stay unknown.
    pub fn catch_up(&mut self, fact: &Fact) -> Result<(), InvariantBroken> {
        for (key, effect) in effects(fact) {
            if let Some(state) = self.known.get_mut(&key) {
                *state = apply(&key, state.take(), effect)?;
            }
        }
        Ok(())
    }

    /// The changes since the last call: the states to store; `None` for a state to delete.
    pub fn take_changes(&mut self) -> Vec<(StateKey, Option<String>)> {
        let mut changes = Vec::with_capacity(self.changed.len());
        for key in self.changed.drain() {
            let json = self.known.get(&key).and_then(Option::as_ref).map(State::to_json);
            if json.is_none()
                && matches!(key, StateKey::Request(_) | StateKey::Payment(_) | StateKey::CheckoutSession(_))
            {
                // Ended things are rarely read again, and to keep an entry for each of them would leak memory.
                self.known.remove(&key);
            }
            changes.push((key, json));
        }
        changes
    }
}
