//! Commands and the decisions about them.

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

/// What a command comes to: facts to append and an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<O> {
    /// To be appended, in order.
    pub facts: Vec<Fact>,
    /// To be written beside the log in the same transaction.
    pub personal: Option<(CustomerId, PersonalChange)>,
    /// To be answered once the facts are durable.
    pub outcome: O,
}

impl<O> Decision<O> {
    /// `events` of `merchant_id` at `now`, answered with `outcome`.
    pub(super) fn append(
        merchant_id: MerchantId,
        now: DateTime<Utc>,
        events: Vec<Event>,
        outcome: O,
    ) -> Self {
        let fact = |event| Fact { merchant_id, occurred_at: now, event };
        Self { facts: events.into_iter().map(fact).collect(), personal: None, outcome }
    }

    /// Nothing to append: it is so already.
    pub(super) fn already(outcome: O) -> Self {
        Self { facts: Vec::new(), personal: None, outcome }
    }
}

/// Something a caller wants to be so.
pub trait Command: Send + 'static {
    /// The answer once it is so.
    type Outcome: Send + 'static;

    /// Decides, given the states; asks for those it lacks.
    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, DecideError>;
}

/// Decides `command` and gives each fact the time of its merchant's clock: what a decision appends happens at the
/// machine's now, put forward as far as the merchant's clock is.
pub fn decide<C: Command>(command: &C, states: &StateCache) -> Result<Decision<C::Outcome>, DecideError> {
    let mut decision = command.decide(states)?;
    for fact in &mut decision.facts {
        fact.occurred_at = states.now(fact.merchant_id, fact.occurred_at)?;
    }
    Ok(decision)
}

/// Why a decision stops.
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
