//! Commands, in the imperative, and the decisions about them. A decision is pure: it sees states and values, and
//! returns events or a refusal. A refusal appends nothing.

mod create_customer;
mod create_spend_key;
mod credit_wallet;
mod define_meter;
mod issue_secret_key;
mod open_request;
mod register_merchant;
mod rotate_spend_key;
mod settle_request;

use chrono::{DateTime, Utc};

pub use self::create_customer::{CreateCustomer, CustomerMade};
pub use self::create_spend_key::CreateSpendKey;
pub use self::credit_wallet::{CreditTarget, CreditWallet, Credited};
pub use self::define_meter::{DefineMeter, Slug};
pub use self::issue_secret_key::IssueSecretKey;
pub use self::open_request::{Billing, CustomerRef, MeterRef, OpenRequest, Opened, RequestSettings};
pub use self::register_merchant::RegisterMerchant;
pub use self::rotate_spend_key::RotateSpendKey;
pub use self::settle_request::{Ending, Failed, Metered, SettleRequest, Settled};
use crate::event::{Event, Fact};
use crate::ids::{CustomerId, MerchantId};
use crate::money::{self, Amount};
use crate::state::{Missing, World};

/// Why a command is refused. Refusals know nothing of HTTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No secret key has this hash.
    #[error("the secret key is not valid")]
    SecretKeyInvalid,
    /// The connection secret names no connection of this merchant.
    #[error("the connection secret is not valid")]
    ConnectionSecretInvalid,
    /// The product secret names no meter of this merchant.
    #[error("the product secret is not valid")]
    ProductSecretInvalid,
    /// No such merchant.
    #[error("no such merchant")]
    MerchantNotFound,
    /// No such customer of this merchant.
    #[error("no such customer")]
    CustomerNotFound,
    /// No such meter of this merchant.
    #[error("no such meter")]
    MeterNotFound,
    /// No such spend key of this merchant.
    #[error("no such spend key")]
    SpendKeyNotFound,
    /// Another meter of the merchant has the slug.
    #[error("the meter slug is taken")]
    MeterSlugConflict,
    /// The money available does not cover the hold.
    #[error("the balance available ({available}) does not cover this call ({needed})")]
    InsufficientBalance {
        /// Balance minus open holds.
        available: Amount,
        /// The hold.
        needed: Amount,
    },
    /// An amount is not above zero, or out of range.
    #[error("the amount {0}")]
    Amount(money::Error),
    /// The amount must be above zero.
    #[error("the amount must be above zero")]
    AmountNotPositive,
    /// The request has ended, or never was.
    #[error("the request is not open")]
    RequestNotOpen,
}

impl From<money::Error> for Refusal {
    fn from(error: money::Error) -> Self {
        Self::Amount(error)
    }
}

/// Why a decision stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A state must be loaded first.
    Missing(Missing),
    /// The command is refused.
    Refused(Refusal),
}

impl From<Missing> for Stop {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<money::Error> for Stop {
    fn from(error: money::Error) -> Self {
        Self::Refused(error.into())
    }
}

/// Personal data of a customer; lives in a side table that can be erased, never in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersonalData {
    /// First name.
    pub first_name: Option<String>,
    /// Last name.
    pub last_name: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
    /// Phone number, E.164.
    pub phone: Option<String>,
}

/// What a command comes to: facts to append and an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<O> {
    /// To be appended, in order.
    pub facts: Vec<Fact>,
    /// To be written beside the log in the same transaction.
    pub personal: Option<(CustomerId, PersonalData)>,
    /// To be answered once the facts are durable.
    pub outcome: O,
}

impl<O> Decision<O> {
    /// `events` of `merchant_id` at `now`, answered with `outcome`.
    fn append(merchant_id: MerchantId, now: DateTime<Utc>, events: Vec<Event>, outcome: O) -> Self {
        let fact = |event| Fact { merchant_id, occurred_at: now, event };
        Self { facts: events.into_iter().map(fact).collect(), personal: None, outcome }
    }

    /// Nothing to append: it is so already.
    fn already(outcome: O) -> Self {
        Self { facts: Vec::new(), personal: None, outcome }
    }
}

/// Something a caller wants to be so.
pub trait Command: Send + 'static {
    /// The answer once it is so.
    type Outcome: Send + 'static;

    /// Decides, given the states; asks for those it lacks.
    fn decide(&self, world: &World) -> Result<Decision<Self::Outcome>, Stop>;
}

/// The instant `at` cut to the millisecond, as the log keeps it.
pub fn to_millisecond(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at)
}
