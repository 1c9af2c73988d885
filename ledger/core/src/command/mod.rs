//! Commands, in the imperative, and the decisions about them. A decision is pure: it sees states and values, and
//! returns events or a refusal. A refusal appends nothing.

mod add_payment_method;
mod advance_clock;
mod advance_subscription;
mod already_applied;
mod auto_recharge;
mod bill;
mod complete_checkout_session;
mod complete_payment;
mod create_checkout_customer;
mod create_checkout_session;
mod create_customer;
mod create_plan;
mod create_spend_key;
mod create_webhook;
mod credit_wallet;
mod define_meter;
mod delete_customer;
mod delete_meter;
mod delete_plan;
mod delete_spend_key;
mod delete_webhook;
mod issue_secret_key;
mod key_limits;
mod open_request;
mod pay_checkout_session;
mod payee;
mod refusal;
mod register_merchant;
mod report_request;
mod request_payment;
mod revoke_secret_key;
mod rotate_spend_key;
mod set_autopay;
mod settle_request;
mod start_subscription;
mod timed;
mod update_customer;
mod update_meter;
mod update_plan;
mod update_spend_key;
mod update_subscription;
mod update_webhook;

use chrono::{DateTime, Utc};

pub use self::add_payment_method::{AddPaymentMethod, NewMethod};
pub use self::advance_clock::{AdvanceClock, MAX_AHEAD_SECONDS};
pub use self::advance_subscription::{AdvanceSubscription, Advanced};
pub use self::already_applied::AlreadyApplied;
pub use self::auto_recharge::AutoRecharge;
pub use self::bill::{RequestSettings, service_charge_payer};
pub use self::complete_checkout_session::CompleteCheckoutSession;
pub use self::complete_payment::{CompletePayment, Paid};
pub use self::create_checkout_customer::CreateCheckoutCustomer;
pub use self::create_checkout_session::CreateCheckoutSession;
pub use self::create_customer::{CreateCustomer, CustomerMade};
pub use self::create_plan::{CreatePlan, NewBundle};
pub use self::create_spend_key::CreateSpendKey;
pub use self::create_webhook::CreateWebhook;
pub use self::credit_wallet::{CreditTarget, CreditWallet, Credited};
pub use self::define_meter::{DefineMeter, Slug};
pub use self::delete_customer::DeleteCustomer;
pub use self::delete_meter::DeleteMeter;
pub use self::delete_plan::DeletePlan;
pub use self::delete_spend_key::DeleteSpendKey;
pub use self::delete_webhook::DeleteWebhook;
pub use self::issue_secret_key::IssueSecretKey;
pub use self::open_request::{Billing, Caller, CustomerRef, MeterRef, OpenRequest, Opened};
pub use self::pay_checkout_session::PayCheckoutSession;
pub use self::payee::Payee;
pub use self::refusal::{
    CheckoutRefusal, CustomerRefusal, MerchantRefusal, MeterRefusal, PaymentRefusal, PlanRefusal, Refusal,
    RequestRefusal, SecretKeyRefusal, SpendKeyRefusal, SubscriptionRefusal, WalletRefusal, WalletShortfall,
    WebhookRefusal,
};
pub use self::register_merchant::RegisterMerchant;
pub use self::report_request::{ReportRequest, Reported};
pub use self::request_payment::{Offered, Purchase, RequestPayment};
pub use self::revoke_secret_key::{RevokeSecretKey, Revoker};
pub use self::rotate_spend_key::RotateSpendKey;
pub use self::set_autopay::{AutopayEdits, SetAutopay};
pub use self::settle_request::{Ending, Failed, Metered, SettleRequest, Settled};
pub use self::start_subscription::{StartSubscription, Started};
pub use self::timed::Timed;
pub use self::update_customer::UpdateCustomer;
pub use self::update_meter::UpdateMeter;
pub use self::update_plan::{BundleEdit, PlanEdits, UpdatePlan};
pub use self::update_spend_key::{SpendKeyEdits, UpdateSpendKey};
pub use self::update_subscription::{SubscriptionEdit, UpdateSubscription};
pub use self::update_webhook::UpdateWebhook;
use crate::event::{ContactPart, Event, Fact};
use crate::ids::{CustomerId, MerchantId};
use crate::money;
use crate::spending::Spending;
use crate::state::{Missing, SpendKey, StateCache};

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

macro_rules! refused {
    ($($refusal:ident)+) => {$(
        impl From<$refusal> for Stop {
            fn from(refusal: $refusal) -> Self {
                Self::Refused(refusal.into())
            }
        }
    )+};
}

refused! {
    MerchantRefusal SecretKeyRefusal CustomerRefusal MeterRefusal SpendKeyRefusal WalletRefusal RequestRefusal PlanRefusal SubscriptionRefusal PaymentRefusal CheckoutRefusal WebhookRefusal
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

/// What becomes of a customer's personal data, in the transaction of the fact that tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonalChange {
    /// These parts are as in the data from now on; the others stay.
    Write {
        /// Which parts.
        parts: Vec<ContactPart>,
        /// What they are; none where a part is cleared.
        data: PersonalData,
    },
    /// Nothing of it is kept.
    Erase,
}

/// What an update does to something that need not be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Edit<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is there no more.
    Clear,
    /// It is this from now on.
    Set(T),
}

/// A spend key with its counters, as a command leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendKeyNow {
    /// The key.
    pub key: SpendKey,
    /// Its counters.
    pub spending: Spending,
}

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
    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, Stop>;
}

/// Decides `command` and gives each fact the time of its merchant's clock: what a decision appends happens at the
/// machine's now, put forward as far as the merchant's clock is.
pub fn decide<C: Command>(command: &C, states: &StateCache) -> Result<Decision<C::Outcome>, Stop> {
    let mut decision = command.decide(states)?;
    for fact in &mut decision.facts {
        fact.occurred_at = states.now(fact.merchant_id, fact.occurred_at)?;
    }
    Ok(decision)
}

/// The instant `at` cut to the millisecond, as the log keeps it.
pub fn to_millisecond(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at)
}
