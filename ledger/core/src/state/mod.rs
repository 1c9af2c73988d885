//! States: one row per thing, folded from events. They are a cache of the log that decisions read; the audit recomputes
//! them. Uniqueness (reference ids, slugs, key hashes) is kept in states too.
//!
//! `evolve` has two halves: [`effects`] lists the effects of an event on states, [`apply`] applies one of them to a state.

mod apply;
mod customer;
mod effect;
mod effects;
mod kinds;
mod merchant;
mod meter;
mod payment;
mod plan;
mod replay;
mod request;
mod selection;
mod shape;
mod size;
mod spend_key;
mod state_cache;
mod subscription;
mod wallet;
mod wallet_change;
mod webhook;

pub use self::apply::{InvariantBroken, apply};
pub use self::customer::Customer;
pub use self::effect::Effect;
pub use self::effects::effects;
pub use self::kinds::{Holder, State, StateKey};
pub use self::merchant::{IssuedKey, Merchant, SecretKey};
pub use self::meter::Meter;
pub use self::payment::{CheckoutSession, OpenPayment, PaymentMethod};
pub use self::plan::{CreditBundle, Plan, PlanChange};
pub use self::replay::Replay;
pub use self::request::AdmittedRequest;
pub use self::selection::{NoSubject, Selection, Subject};
pub use self::shape::{generation, shape};
pub use self::spend_key::SpendKey;
pub use self::state_cache::{CacheSize, EvolveError, Missing, StateCache};
pub use self::subscription::{Phase, Subscription, SubscriptionChange};
pub use self::wallet::{BundleCredit, CEILING, MAX_BUNDLES, PlanCredit, Wallet, WalletOwner};
pub use self::wallet_change::WalletChange;
pub use self::webhook::Webhook;
