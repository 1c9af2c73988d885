//! The states that decisions see: loaded from the database and changed by earlier decisions of the batch.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use ahash::RandomState;
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
use super::size::{bytes_of, is_long};
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

/// States that a decision needs and that are not loaded: at least one, and each once. The caller loads one or more of them
/// and decides again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(pub Vec<StateKey>);

/// Why facts cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvolveError {
    /// A state is not loaded.
    Missing(Missing),
    /// An invariant would be broken.
    InvariantBroken(InvariantBroken),
}

/// An amount of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// The number of states.
    pub states: usize,
    /// About how many bytes they take.
    pub bytes: usize,
}

impl CacheSize {
    /// Whether either is more than that of `most`.
    pub const fn exceeds(self, most: Self) -> bool {
        self.states > most.states || self.bytes > most.bytes
    }
}

/// A map by the keys of states, which every decision looks up. Keys hold texts of merchants: the hasher's seeds are random
/// in each process.
type ByKey<T> = HashMap<StateKey, T, RandomState>;

/// Known states; `None` marks a state that is known to be absent.
#[derive(Debug, Default)]
pub struct StateCache {
    known: ByKey<Option<State>>,
    /// About how many bytes the known states take.
    bytes: usize,
    /// The states changed since the last call of [`Self::take_changes`].
    changed: ByKey<Origin>,
    /// The states whose changes were taken and are not known to be stored.
    storing: HashSet<StateKey, RandomState>,
    /// Hashes of keys that were looked up and do not exist.
    unknown_keys: Vec<StateKey>,
}

/// Where a changed state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// It was created since the last change that was taken, so no store has it.
    New,
    /// A store may have an earlier version of it.
    Stored,
}

/// A state while facts are applied.
struct Fresh {
    state: Option<State>,
    origin: Origin,
    /// Whether the state existed at some time since.
    was_there: bool,
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
            None => Err(Missing(vec![key])),
        }
    }

    /// The state of `key`, of any kind.
    pub fn state(&self, key: &StateKey) -> Result<Option<&State>, Missing> {
        self.known.get(key).map(Option::as_ref).ok_or_else(|| Missing(vec![key.clone()]))
    }

    /// Fails with all of `keys` whose states are not loaded. A decision requires the states of a list before it reads or
    /// changes them one by one, so that they are loaded together.
    pub fn require(&self, keys: impl IntoIterator<Item = StateKey>) -> Result<(), Missing> {
        let mut seen = HashSet::new();
        let missing = keys.into_iter().filter(|key| !self.knows(key) && seen.insert(key.clone()));
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
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
        if state.is_none() && matches!(key, StateKey::SecretKey(_) | StateKey::SpendKeyHash(_)) {
            self.unknown_keys.push(key.clone());
        }
        self.know(key, state);
    }

    fn know(&mut self, key: StateKey, state: Option<State>) {
        self.bytes += bytes_of(state.as_ref());
        if let Some(before) = self.known.insert(key, state) {
            self.bytes -= bytes_of(before.as_ref());
        }
    }

    fn forget(&mut self, key: &StateKey) {
        if let Some(before) = self.known.remove(key) {
            self.bytes -= bytes_of(before.as_ref());
        }
    }

    /// Forgets the hashes of keys that do not exist: strangers choose them, and there is no end of them.
    pub fn forget_unknown_keys(&mut self) {
        for key in std::mem::take(&mut self.unknown_keys) {
            let is_absent = matches!(self.known.get(&key), Some(None));
            if is_absent && !self.changed.contains_key(&key) && !self.storing.contains(&key) {
                self.forget(&key);
            }
        }
    }

    /// Forgets states until no more than `most` is known. Too many are forgotten beginning with those that do not exist, and
    /// too many bytes beginning with the long ones, so that whoever makes states long does not push out those of others.
    /// States with changes that are not known to be stored stay.
    pub fn shrink_to(&mut self, most: CacheSize) {
        type Next = fn(Option<&State>, CacheSize, CacheSize) -> bool;
        const ABSENT: Next = |state, now, most| now.states > most.states && state.is_none();
        const LONG: Next = |state, now, most| now.bytes > most.bytes && is_long(state);
        const ANY: Next = |_, now, most| now.exceeds(most);
        for is_next in [ABSENT, LONG, ANY] {
            let mut now = self.size();
            let (changed, storing) = (&self.changed, &self.storing);
            self.known.retain(|key, state| {
                let state = state.as_ref();
                let is_pinned = || changed.contains_key(key) || storing.contains(key);
                let stays = !is_next(state, now, most) || is_pinned();
                if !stays {
                    now = CacheSize { states: now.states - 1, bytes: now.bytes - bytes_of(state) };
                }
                stays
            });
            self.bytes = now.bytes;
        }
    }

    /// Returns true if the state of `key` is known.
    pub fn knows(&self, key: &StateKey) -> bool {
        self.known.contains_key(key)
    }

    /// How much is known.
    pub fn size(&self) -> CacheSize {
        CacheSize { states: self.known.len(), bytes: self.bytes }
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
        self.bytes = 0;
        self.changed.clear();
        self.storing.clear();
        self.unknown_keys.clear();
    }

    /// Applies `facts`, all or none, and records the changes.
    pub fn evolve(&mut self, facts: &[Fact]) -> Result<(), EvolveError> {
        let mut fresh: ByKey<Fresh> = HashMap::with_capacity_and_hasher(facts.len() * 2, RandomState::new());
        for (key, effect) in facts.iter().flat_map(effects) {
            match fresh.entry(key) {
                Entry::Vacant(entry) => {
                    let first = self.first_change(entry.key(), effect)?;
                    entry.insert(first);
                }
                Entry::Occupied(mut entry) => {
                    let before = entry.get_mut().state.take();
                    let state = apply(entry.key(), before, effect).map_err(EvolveError::InvariantBroken)?;
                    let fresh = entry.get_mut();
                    fresh.was_there |= state.is_some();
                    fresh.state = state;
                }
            }
        }
        for (key, Fresh { state, origin, was_there }) in fresh {
            match self.known.get_mut(&key) {
                Some(known) => {
                    self.bytes += bytes_of(state.as_ref());
                    self.bytes -= bytes_of(known.as_ref());
                    *known = state;
                }
                None => self.know(key.clone(), state),
            }
            // An effect on something that is gone, and stays so, changes nothing.
            if was_there && let Entry::Vacant(entry) = self.changed.entry(key) {
                let origin = if self.storing.contains(entry.key()) { Origin::Stored } else { origin };
                entry.insert(origin);
            }
        }
        Ok(())
    }

    /// The state of `key` after `effect`, the first one on it.
    fn first_change(&self, key: &StateKey, effect: Effect) -> Result<Fresh, EvolveError> {
        let (before, origin) = match (self.known.get(key), &effect) {
            (known, Effect::Create(_)) => (known.and_then(Option::as_ref), Origin::New),
            (Some(state), _) => (state.as_ref(), Origin::Stored),
            (None, _) => return Err(EvolveError::Missing(Missing(vec![key.clone()]))),
        };
        let state = match (before, effect) {
            // As `apply` does, without a copy of the state.
            (Some(_), Effect::Remove) => None,
            (before, effect) => apply(key, before.cloned(), effect).map_err(EvolveError::InvariantBroken)?,
        };
        let was_there = before.is_some() || state.is_some();
        Ok(Fresh { state, origin, was_there })
    }

    /// The states that `facts` change and that are not known.
    pub fn unknown_states(&self, facts: &[Fact]) -> HashSet<StateKey> {
        let keys = facts.iter().flat_map(effects).map(|(key, _)| key);
        keys.filter(|key| !self.known.contains_key(key)).collect()
    }

    /// Whether a state was changed since the last call of [`Self::take_changes`].
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The changes since the last call: the states to store; `None` for a state to delete. A state that was created and
    /// removed since is not among them: no store has it. The states stay known until [`Self::confirm_stored`].
    ///
    /// Call it again only after the changes taken before were confirmed or put back.
    pub fn take_changes(&mut self) -> Vec<(StateKey, Option<String>)> {
        debug_assert!(self.storing.is_empty(), "one set of changes is stored at a time");
        let mut changes = Vec::with_capacity(self.changed.len());
        for (key, origin) in std::mem::take(&mut self.changed) {
            let json = self.known.get(&key).and_then(Option::as_ref).map(State::to_json);
            if json.is_none() && origin == Origin::New {
                if ends(&key) {
                    self.forget(&key);
                }
                continue;
            }
            self.storing.insert(key.clone());
            changes.push((key, json));
        }
        changes
    }

    /// The changes that were taken last are stored.
    pub fn confirm_stored(&mut self) {
        for key in std::mem::take(&mut self.storing) {
            if ends(&key) && !self.changed.contains_key(&key) && matches!(self.known.get(&key), Some(None)) {
                self.forget(&key);
            }
        }
    }

    /// It is not known whether the changes that were taken last are stored: they are taken again by the next call.
    pub fn put_changes_back(&mut self) {
        self.changed.extend(self.storing.drain().map(|key| (key, Origin::Stored)));
    }
}

/// Whether a state of this key ends for good: it is rarely read after that, and to remember the absence of each of them
/// would leak memory.
fn ends(key: &StateKey) -> bool {
    matches!(key, StateKey::Request(_) | StateKey::Payment(_) | StateKey::CheckoutSession(_))
}

#[cfg(test)]
mod tests;
