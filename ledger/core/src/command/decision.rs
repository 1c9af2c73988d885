//! Commands and the decisions about them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::personal_data::PersonalChange;
use super::refusal::{
    CheckoutRefusal, CustomerRefusal, MerchantRefusal, MeterRefusal, PaymentRefusal, PlanRefusal, Refusal,
    RequestRefusal, SecretKeyRefusal, SpendKeyRefusal, SubscriptionRefusal, WalletRefusal, WebhookRefusal,
};
use crate::event::{Event, Fact};
use crate::ids::{CustomerId, MerchantId};
use crate::money;
use crate::state::{Missing, StateCache};

/// The result of deciding a command: facts to append and an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<O> {
    /// The facts to append, in order.
    pub facts: Vec<Fact>,
    /// The change of personal data to write in the same transaction.
    pub personal: Option<(CustomerId, PersonalChange)>,
    /// The outcome to return once the facts are durable.
    pub outcome: O,
}

impl<O> Decision<O> {
    /// Appends `events` of `merchant_id` at `now` and returns `outcome`.
    pub(super) fn append(
        merchant_id: MerchantId,
        now: DateTime<Utc>,
        events: Vec<Event>,
        outcome: O,
    ) -> Self {
        let fact = |event| Fact { merchant_id, occurred_at: now, event };
        Self { facts: events.into_iter().map(fact).collect(), personal: None, outcome }
    }

    /// Appends nothing: the requested change was applied before.
    pub(super) fn already(outcome: O) -> Self {
        Self { facts: Vec::new(), personal: None, outcome }
    }

    /// The decision with another form of its outcome.
    pub(super) fn map<P>(self, form: impl FnOnce(O) -> P) -> Decision<P> {
        let Self { facts, personal, outcome } = self;
        Decision { facts, personal, outcome: form(outcome) }
    }
}

/// A request to change the ledger. [`decide`] turns it into events or a refusal.
pub trait Command: Send + 'static {
    /// The value returned once the events are durable.
    type Outcome: Send + 'static;

    /// The bytes of text that the command holds beside its own fields, where a caller chooses their length. Queues of
    /// commands are bounded by it.
    fn text_bytes(&self) -> usize {
        0
    }

    /// Decides by the states; an error names a state that is not loaded.
    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, DecideError>;
}

/// The bytes of all keys and values of `metadata`.
pub(super) fn metadata_bytes(metadata: &BTreeMap<String, String>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// The bytes of all texts of the lists.
pub(super) fn list_bytes<'a>(lists: impl IntoIterator<Item = &'a Vec<String>>) -> usize {
    lists.into_iter().flatten().map(String::len).sum()
}

/// Decides `command` and moves each fact from the machine's time to the time of its merchant's clock.
pub fn decide<C: Command>(command: &C, states: &StateCache) -> Result<Decision<C::Outcome>, DecideError> {
    let mut decision = command.decide(states)?;
    for fact in &mut decision.facts {
        fact.occurred_at = states.now(fact.merchant_id, fact.occurred_at)?;
    }
    Ok(decision)
}

/// Why a command is not decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecideError {
    /// A state must be loaded first.
    Missing(Missing),
    /// The command is refused.
    Refused(Refusal),
}

impl From<Missing> for DecideError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

impl From<Refusal> for DecideError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<money::Error> for DecideError {
    fn from(error: money::Error) -> Self {
        Self::Refused(error.into())
    }
}

macro_rules! refused {
    ($($refusal:ident)+) => {$(
        impl From<$refusal> for DecideError {
            fn from(refusal: $refusal) -> Self {
                Self::Refused(refusal.into())
            }
        }
    )+};
}

refused! {
    MerchantRefusal SecretKeyRefusal CustomerRefusal MeterRefusal SpendKeyRefusal WalletRefusal RequestRefusal PlanRefusal SubscriptionRefusal PaymentRefusal CheckoutRefusal WebhookRefusal
}
