//! What gateways of one instance ask each other: a command for the leader of a partition, or states that it knows.
//!
//! A request that is sent twice has one effect. A call that was opened is not opened again, and one that has ended is
//! not ended again; every other command is sent once.

use std::fmt;
use std::pin::Pin;

use chrono::{DateTime, Utc};
use farthing_core::command::Refusal;
use farthing_core::command::wire::AnyCommand;
use farthing_core::idempotency::{Claim, ClaimId, ClaimStatus};
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::partition::Partition;
use farthing_core::state::StateKey;
use farthing_telemetry::traces::Span;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::appender::{ClaimEnd, Error};

/// What a gateway asks another one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The version of this form of requests.
    version: u16,
    /// The partition that the receiver should lead.
    pub(super) partition: i16,
    /// The term of the receiver's lease. In another term it refuses.
    pub(super) term: i64,
    /// When it was sent, by Postgres's clock.
    pub(super) sent_at: DateTime<Utc>,
    /// The span that it is asked within (`traceparent`), if its call is traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    /// What is asked.
    pub(super) work: Work,
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    /// Decide a command.
    Command(AnyCommand),
    /// Decide the end of a call that was sent to its provider.
    Settle(AnyCommand),
    /// Open a call, and answer as soon as this is decided.
    OpenEarly(AnyCommand),
    /// Open a call whose answer may have been lost, and answer when this is durable.
    OpenAgain(AnyCommand),
    /// Open a call whose opening is lost, and answer when this is durable.
    OpenLost(AnyCommand),
    /// Open a call under an idempotency key.
    Open { command: AnyCommand, claim: Claim },
    /// End a call, and its idempotency key with it.
    Close { command: AnyCommand, claim_id: ClaimId, request_id: RequestId, end: ClaimEnd },
    /// Read states, for a merchant or for none.
    States { keys: Vec<StateKey>, merchant_id: Option<MerchantId> },
}

impl Work {
    /// The merchant that the command names.
    pub(super) fn merchant_id(&self) -> Option<MerchantId> {
        match self {
            Self::Command(command)
            | Self::Settle(command)
            | Self::OpenEarly(command)
            | Self::OpenAgain(command)
            | Self::OpenLost(command)
            | Self::Open { command, .. }
            | Self::Close { command, .. } => command.merchant_id(),
            Self::States { merchant_id, .. } => *merchant_id,
        }
    }
}

/// The answer of a gateway.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The command was decided: the outcome or the refusal, as `farthing_core::command::wire` writes it.
    Decided(Box<RawValue>),
    /// The idempotency key was used before.
    Repeated(ClaimStatus),
    /// The states, as the leader stores them.
    States {
        /// Their shape.
        shape: i16,
        /// The states.
        states: Vec<Option<Box<RawValue>>>,
    },
    /// The command was not decided, or failed.
    Failed(Failed),
}

/// Why a gateway did not do what it was asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failed {
    /// It does not lead the partition.
    Moved,
    /// Its queue is full.
    Overloaded,
    /// The log cannot be written.
    Unavailable(String),
    /// The command would fail again.
    Internal(String),
    /// It stopped before it knew whether the command is durable.
    Unknown(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Moved => Self::Moved,
            Error::Overloaded => Self::Overloaded,
            Error::Unavailable(why) => Self::Unavailable(why),
            Error::Internal(why) => Self::Internal(why),
            Error::Unknown(why) => Self::Unknown(why),
            Error::Refused(refusal) => Self::Internal(refusal.to_string()),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Moved => Self::Moved,
            Failed::Overloaded => Self::Overloaded,
            Failed::Unavailable(why) => Self::Unavailable(why),
            Failed::Internal(why) => Self::Internal(why),
            Failed::Unknown(why) => Self::Unknown(why),
        }
    }
}

/// Why there is no answer of another gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoReply {
    /// The request was not sent: it has no effect.
    #[error("the gateway cannot be reached: {0}")]
    NotSent(String),
    /// The request may have been carried out.
    #[error("the gateway did not answer: {0}")]
    Unknown(String),
}

impl NoReply {
    /// The partition has got another leader before the answer came.
    pub fn moved() -> Self {
        Self::Unknown("another gateway leads the partition now".to_owned())
    }
}

/// The way to the other gateways.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Sends `request` to the gateway at `address`.
    fn send(
        &self,
        address: String,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Reply, NoReply>> + Send + '_>>;
}

/// The version of requests and replies. Increment it when their form changes, or that of a command; a gateway then still
/// answers the version of the release before, because both run side by side during an upgrade.
const VERSION: u16 = 1;

/// The part of a request that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u16,
}

impl Request {
    /// A request for the leader of `partition` in `term`, within the current span.
    pub(super) fn new(partition: Partition, term: i64, sent_at: DateTime<Utc>, work: Work) -> Self {
        let within = Span::current().traceparent();
        Self { version: VERSION, partition: partition.number(), term, sent_at, within, work }
    }

    /// Reads a request of another gateway. The error is the answer to one that this program does not understand: nothing
    /// was done, and the caller may try again once the upgrade is over.
    pub fn read(json: &[u8]) -> Result<Self, Reply> {
        let refused = |why: String| Reply::Failed(Failed::Unavailable(why));
        let other = |version| {
            format!(
                "the leader of the partition is of another release: it reads version {VERSION} of commands, not {version}"
            )
        };
        match serde_json::from_slice::<Self>(json) {
            Ok(request) if request.version == VERSION => Ok(request),
            Ok(request) => Err(refused(other(request.version))),
            Err(error) => Err(match serde_json::from_slice(json) {
                Ok(Versioned { version }) if version != VERSION => refused(other(version)),
                Ok(_) | Err(_) => refused(format!("the leader does not know the command: {error}")),
            }),
        }
    }

    /// The partition that the receiver should lead.
    pub const fn partition(&self) -> Partition {
        Partition::new(self.partition)
    }

    /// The span that it is asked within, as `traceparent` names it.
    pub fn within(&self) -> Option<&str> {
        self.within.as_deref()
    }
}

/// Writes an outcome or a refusal.
pub(super) fn raw<T: Serialize>(answer: &Result<T, Refusal>) -> Reply {
    match serde_json::value::to_raw_value(answer) {
        Ok(answer) => Reply::Decided(answer),
        Err(error) => Reply::Failed(Failed::Internal(error.to_string())),
    }
}
