//! Commands between gateways: a gateway that does not lead a merchant's partition sends its commands to the leader as
//! JSON, and gets the same outcome or refusal as from its own decision.
//!
//! A command is written as `{"its_name": {its fields}}`, an answer as `{"Ok": outcome}` or `{"Err": refusal}`. Both may
//! hold personal data and the hashes of keys, so they travel between gateways of one instance only. Ranges that the
//! sender checks, such as [`MAX_COUNT`](crate::usage::MAX_COUNT), are not checked again.
//!
//! Two releases run together during an upgrade. A receiver refuses a command, and a field of a command, that it does
//! not know. So a field that is added is optional and left out while it is `None`: a leader of the release before
//! decides the commands that do not use it. A field added to a type of an event, such as [`Price`](crate::meter::Price),
//! is ignored by that leader; a command that uses such a field needs a name of its own, unless nothing is decided by it.

#[cfg(test)]
mod sample_values;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    AddPaymentMethod, AdvanceClock, AdvanceSubscription, Advanced, AlreadyApplied, AutoRecharge, Command,
    CompleteCheckoutSession, CompletePayment, CreateCheckoutCustomer, CreateCheckoutSession, CreateCustomer,
    CreatePlan, CreateSpendKey, CreateWebhook, CreatedCustomer, CreditTarget, CreditWallet, Credited,
    DecideError, Decision, DefineMeter, DeleteCustomer, DeleteMeter, DeletePlan, DeleteSpendKey,
    DeleteWebhook, IssueSecretKey, OpenRequest, Opened, Paid, PayCheckoutSession, Refusal, RegisterMerchant,
    ReportRequest, Reported, RequestPayment, RevokeSecretKey, Revoker, RotateSpendKey, SetAutopay,
    SettleRequest, SpendKeySnapshot, StartSubscription, Started, Timed, UpdateCustomer, UpdateMeter,
    UpdatePlan, UpdateSpendKey, UpdateSubscription, UpdateWebhook,
};
use crate::event::{CheckoutSessionCreated, FailureReason};
use crate::ids::{MerchantId, PaymentId};
use crate::state::{Meter, StateCache, Webhook};

/// A command that the leader can decide for another gateway.
///
/// Only the table of this module and [`Timed`] implement it. A function that sends commands requires it, so a command
/// that is not in the table does not compile there.
pub trait WireCommand: Command<Outcome: Serialize + DeserializeOwned> + Into<AnyCommand> {
    /// The name on the wire. A [`Timed`] command has the name of the command in it.
    const NAME: &'static str;

    /// The merchant that the command names: see [`AnyCommand::merchant_id`].
    fn merchant_id(&self) -> Option<MerchantId>;
}

/// The name of [`Timed`] on the wire.
const TIMED: &str = "timed";

/// The merchant of a command: its field `merchant_id`, or what the expression of its row returns.
macro_rules! merchant_id {
    ($command:ident) => {
        Some($command.merchant_id)
    };
    ($command:ident, $merchant_id:expr) => {{
        let merchant_id: fn(&Self) -> Option<MerchantId> = $merchant_id;
        merchant_id($command)
    }};
}

/// Declares the commands, each as `Command = "name on the wire" => outcome;`, with the merchant if the command has no
/// field `merchant_id`.
macro_rules! commands {
    ($($command:ident = $name:literal => $outcome:ty $(, $merchant_id:expr)?;)+) => {
        /// The names of all commands.
        pub const NAMES: &[&str] = &[$($name),+];

        /// A command of any type. [`fmt::Debug`] writes its name only.
        #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each variant holds the command that documents it")]
        pub enum AnyCommand {
            $(#[serde(rename = $name)] $command($command),)+
            #[serde(rename = "timed")]
            Timed(Box<Timed<AnyCommand>>),
        }

        /// The outcome of a command of any type, written as the outcome itself.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[expect(missing_docs, reason = "each variant holds the outcome of the command of its name")]
        #[serde(untagged)]
        pub enum AnyOutcome {
            $($command($outcome),)+
            Timed(Box<(AnyOutcome, DateTime<Utc>)>),
        }

        impl AnyCommand {
            /// The name on the wire. A [`Timed`] command has the name of the command in it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$command(_) => $name,)+
                    Self::Timed(timed) => timed.command.name(),
                }
            }

            /// The merchant that the command names. It is `None` for a command that names something else:
            ///
            /// | command | names |
            /// |---|---|
            /// | [`SettleRequest`] | a request |
            /// | [`AutoRecharge`] | a wallet |
            /// | [`AdvanceSubscription`] | a subscription |
            /// | [`CompletePayment`] | a payment |
            /// | [`CreditWallet`] of a customer | the customer |
            /// | [`RevokeSecretKey`] by the operator | a secret key |
            /// | [`AlreadyApplied`] | nothing |
            ///
            /// A [`Timed`] command always names its merchant.
            pub fn merchant_id(&self) -> Option<MerchantId> {
                match self {
                    $(Self::$command(command) => WireCommand::merchant_id(command),)+
                    Self::Timed(timed) => Some(timed.merchant_id),
                }
            }
        }

        impl Command for AnyCommand {
            type Outcome = AnyOutcome;

            fn decide(&self, states: &StateCache) -> Result<Decision<AnyOutcome>, DecideError> {
                match self {
                    $(Self::$command(command) => {
                        command.decide(states).map(|decision| decision.map(AnyOutcome::$command))
                    })+
                    Self::Timed(timed) => {
                        let decision = timed.decide(states)?;
                        Ok(decision.map(|outcome| AnyOutcome::Timed(Box::new(outcome))))
                    }
                }
            }
        }

        $(
            impl From<$command> for AnyCommand {
                fn from(command: $command) -> Self {
                    Self::$command(command)
                }
            }

            impl WireCommand for $command {
                const NAME: &'static str = $name;

                fn merchant_id(&self) -> Option<MerchantId> {
                    merchant_id!(self $(, $merchant_id)?)
                }
            }
        )+
    };
}

commands! {
    AddPaymentMethod = "add_payment_method" => ();
    AdvanceClock = "advance_clock" => DateTime<Utc>;
    AdvanceSubscription = "advance_subscription" => Advanced, |_| None;
    AlreadyApplied = "already_applied" => (), |_| None;
    AutoRecharge = "auto_recharge" => Option<PaymentId>, |_| None;
    CompleteCheckoutSession = "complete_checkout_session" => ();
    CompletePayment = "complete_payment" => Paid, |_| None;
    CreateCheckoutCustomer = "create_checkout_customer" => CreatedCustomer, |it| Some(it.create.merchant_id);
    CreateCheckoutSession = "create_checkout_session" => CheckoutSessionCreated;
    CreateCustomer = "create_customer" => CreatedCustomer;
    CreatePlan = "create_plan" => DateTime<Utc>;
    CreateSpendKey = "create_spend_key" => SpendKeySnapshot;
    CreateWebhook = "create_webhook" => Webhook;
    CreditWallet = "credit_wallet" => Credited, |it| match it.target {
        CreditTarget::Customer(_) => None,
        CreditTarget::Merchant(id) => Some(id),
    };
    DefineMeter = "define_meter" => String;
    DeleteCustomer = "delete_customer" => ();
    DeleteMeter = "delete_meter" => ();
    DeletePlan = "delete_plan" => ();
    DeleteSpendKey = "delete_spend_key" => ();
    DeleteWebhook = "delete_webhook" => ();
    IssueSecretKey = "issue_secret_key" => ();
    OpenRequest = "open_request" => Opened;
    PayCheckoutSession = "pay_checkout_session" => (), |it| Some(it.payment.merchant_id);
    RegisterMerchant = "register_merchant" => (), |it| Some(it.first_key.merchant_id);
    ReportRequest = "report_request" => Reported;
    RequestPayment = "request_payment" => ();
    RevokeSecretKey = "revoke_secret_key" => MerchantId, |it| match it.revoker {
        Revoker::Merchant(id) => Some(id),
        Revoker::Operator => None,
    };
    RotateSpendKey = "rotate_spend_key" => SpendKeySnapshot;
    SetAutopay = "set_autopay" => ();
    SettleRequest = "settle_request" => Option<FailureReason>, |_| None;
    StartSubscription = "start_subscription" => Started;
    UpdateCustomer = "update_customer" => ();
    UpdateMeter = "update_meter" => Box<Meter>;
    UpdatePlan = "update_plan" => ();
    UpdateSpendKey = "update_spend_key" => SpendKeySnapshot;
    UpdateSubscription = "update_subscription" => ();
    UpdateWebhook = "update_webhook" => Box<Webhook>;
}

impl<C: WireCommand> From<Timed<C>> for AnyCommand {
    fn from(Timed { command, merchant_id, now }: Timed<C>) -> Self {
        Self::Timed(Box::new(Timed { command: command.into(), merchant_id, now }))
    }
}

impl<C: WireCommand> WireCommand for Timed<C> {
    const NAME: &'static str = C::NAME;

    fn merchant_id(&self) -> Option<MerchantId> {
        Some(self.merchant_id)
    }
}

impl fmt::Debug for AnyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyCommand({})", self.name())
    }
}

impl AnyCommand {
    /// Writes the command as JSON.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("commands have string keys and finite numbers")
    }

    /// Reads a command of any type.
    pub fn decode(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|source| Error::of_command(text, source))
    }
}

impl AnyOutcome {
    /// The outcome as it is written to other gateways. That of a settlement has no value in this release, because a gateway of
    /// the release before would take one for a lost answer; the release after this one, whose peers all read it, writes it.
    #[must_use]
    pub fn for_peers(self) -> Self {
        match self {
            Self::SettleRequest(_) => Self::SettleRequest(None),
            Self::Timed(timed) => {
                let (outcome, at) = *timed;
                Self::Timed(Box::new((outcome.for_peers(), at)))
            }
            other => other,
        }
    }
}

/// Writes the leader's answer to a command as JSON.
pub fn encode_answer(answer: &Result<AnyOutcome, Refusal>) -> String {
    serde_json::to_string(answer).expect("outcomes have string keys and finite numbers")
}

/// Reads the leader's answer to the command `C`.
pub fn decode_answer<C: WireCommand>(text: &str) -> Result<Result<C::Outcome, Refusal>, Error> {
    serde_json::from_str(text).map_err(|source| Error::Answer { command: C::NAME, source })
}

/// A command or an answer that this program cannot read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command that this program does not know.
    #[error("command {0:?} is unknown")]
    UnknownCommand(String),
    /// The fields of a known command are malformed, or one of them is unknown.
    #[error("command {command:?}: {source}")]
    Fields {
        /// The name of the command.
        command: &'static str,
        /// The error of serde.
        source: serde_json::Error,
    },
    /// The text is not a JSON object with one member.
    #[error("not a command: {0}")]
    NotACommand(serde_json::Error),
    /// The outcome is not one of the command, or the refusal is unknown.
    #[error("answer to {command:?}: {source}")]
    Answer {
        /// The name of the command.
        command: &'static str,
        /// The error of serde.
        source: serde_json::Error,
    },
}

impl Error {
    /// The error of a command `text` that serde cannot read because of `source`.
    fn of_command(text: &str, source: serde_json::Error) -> Self {
        let Some(name) = name_in(text) else { return Self::NotACommand(source) };
        match NAMES.iter().find(|known| **known == name) {
            Some(command) => Self::Fields { command, source },
            None => Self::UnknownCommand(name),
        }
    }
}

/// The name of the command in `text`, whether it is known or not.
fn name_in(text: &str) -> Option<String> {
    let (name, fields) = only_member(text)?;
    if name != TIMED {
        return Some(name);
    }
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(fields).ok()?;
    only_member(fields.remove("command")?.get()).map(|(name, _)| name)
}

/// The name and the value of the only member of a JSON object.
fn only_member(text: &str) -> Option<(String, &str)> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let [(name, value)] = <[_; 1]>::try_from(Vec::from_iter(members)).ok()?;
    Some((name, value.get()))
}
