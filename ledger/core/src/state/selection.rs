//! The states that belong to one thing: a wallet, a key, a customer. A replay of the log folds these alone.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::effect::Effect;
use super::effects::effects;
use super::kinds::{Holder, State, StateKey};
use super::plan::PlanChange;
use crate::event::Fact;
use crate::ids::{
    CheckoutSessionId, CreditBundleId, CustomerId, MerchantId, MeterId, PaymentId, PaymentMethodId, PlanId,
    RequestId, SecretKeyId, SpendKeyId, SubscriptionId, WalletId, WebhookId,
};

/// The text is not the id of a thing that has a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an id such as wal_…, con_…, sk_…, key_…, prd_…, sc_…, sub_… or mer_…")]
pub struct NoSubject;

macro_rules! subjects {
    ($($(#[$doc:meta])* $name:ident($id:ty) = $key:expr;)+) => {
        /// A thing whose states can be shown.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Subject {
            $($(#[$doc])* $name($id),)+
        }

        impl Subject {
            /// The key of its own state.
            pub fn key(self) -> StateKey {
                match self {
                    $(Self::$name(id) => $key(id),)+
                }
            }
        }

        impl fmt::Display for Subject {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name(id) => id.fmt(f),)+
                }
            }
        }

        impl FromStr for Subject {
            type Err = NoSubject;

            fn from_str(text: &str) -> Result<Self, NoSubject> {
                $(if let Ok(id) = text.parse::<$id>() {
                    return Ok(Self::$name(id));
                })+
                Err(NoSubject)
            }
        }
    };
}

subjects! {
    /// A wallet.
    Wallet(WalletId) = StateKey::Wallet;
    /// A customer, with its wallet, its subscription and its tier usage.
    Customer(CustomerId) = StateKey::Customer;
    /// A spend key, with its counters.
    SpendKey(SpendKeyId) = StateKey::SpendKey;
    /// A secret key.
    SecretKey(SecretKeyId) = StateKey::IssuedKey;
    /// A meter.
    Meter(MeterId) = StateKey::Meter;
    /// A plan, with its credit bundles.
    Plan(PlanId) = StateKey::Plan;
    /// A credit bundle.
    CreditBundle(CreditBundleId) = StateKey::CreditBundle;
    /// A subscription.
    Subscription(SubscriptionId) = StateKey::Subscription;
    /// A merchant, with its own wallet and its tier usage.
    Merchant(MerchantId) = StateKey::Merchant;
    /// An open request.
    Request(RequestId) = StateKey::Request;
    /// An open payment.
    Payment(PaymentId) = StateKey::Payment;
    /// A payment method.
    PaymentMethod(PaymentMethodId) = StateKey::PaymentMethod;
    /// A checkout session.
    CheckoutSession(CheckoutSessionId) = StateKey::CheckoutSession;
    /// A webhook.
    Webhook(WebhookId) = StateKey::Webhook;
}

/// The states of a subject. It grows while the log is read: a customer's wallet is known from the event that created them.
#[derive(Debug)]
pub struct Selection {
    subject: Subject,
    keys: BTreeSet<StateKey>,
    /// The ids of these states. One of them stands in the line of each event that changes one.
    ids: Vec<String>,
}

impl Selection {
    /// The states of a subject.
    pub fn of(subject: Subject) -> Self {
        let mut keys = BTreeSet::from([subject.key()]);
        if let Subject::SpendKey(id) = subject {
            keys.insert(StateKey::Spending(id));
        }
        Self { subject, keys, ids: vec![subject.to_string()] }
    }

    /// Whether the event in this line may change one of the states.
    pub fn may_change(&self, line: &str) -> bool {
        self.ids.iter().any(|id| line.contains(id))
    }

    /// The effects of an event on the states.
    pub fn effects(&mut self, fact: &Fact) -> Vec<(StateKey, Effect)> {
        let effects = effects(fact);
        for (key, effect) in &effects {
            self.follow(key, effect);
        }
        effects.into_iter().filter(|(key, _)| self.has(key)).collect()
    }

    fn has(&self, key: &StateKey) -> bool {
        if let StateKey::TierUsage(holder, ..) = key {
            return match holder {
                Holder::Customer(id) => self.subject == Subject::Customer(*id),
                Holder::Merchant(id) => self.subject == Subject::Merchant(*id),
            };
        }
        self.keys.contains(key)
    }

    /// Adds what the subject's state refers to.
    fn follow(&mut self, key: &StateKey, effect: &Effect) {
        if *key != self.subject.key() {
            return;
        }
        if let Effect::Create(State::Customer(customer)) = effect {
            self.add(StateKey::Wallet(customer.wallet_id));
        } else if let Effect::Create(State::Merchant(merchant)) = effect {
            self.add(StateKey::Wallet(merchant.wallet_id));
        } else if let Effect::Subscribe(Some(id)) = effect {
            self.add(StateKey::Subscription(*id));
        } else if let Effect::Plan(PlanChange::AddBundle(id)) = effect {
            self.add(StateKey::CreditBundle(*id));
        }
    }

    fn add(&mut self, key: StateKey) {
        let id = key.stored().1;
        if self.keys.insert(key) {
            self.ids.push(id);
        }
    }
}
