//! Payments: what the ledger asks to be paid is charged at the payment processor, and what comes of it is appended.
//!
//! Invariant: a payment is charged under its own id as the processor's idempotency key, and ends in the log once. So any
//! number of processes may carry out the same payment, and one that dies in between harms nothing: the next one asks
//! the processor again and is told the same.

mod processor;
mod retry_backoff;
mod runner;
mod schedule;
mod test_processor;

use std::sync::Arc;
use std::time::Duration;

use farthing_core::command::{AutoRecharge, CompletePayment, Paid, Refusal, WalletShortfall};
use farthing_core::event::{DeclineReason, Event, PaymentRequested, codec};
use farthing_core::ids::{CreditId, Mint, PaymentId};
use farthing_core::money::Amount;
use farthing_core::state::{State, StateKey};
use farthing_log::appender::{self, Appender};
use farthing_log::clock::Clock;
use farthing_log::reads::{self, ReadPool, within};
use tokio::sync::Notify;
use tokio_postgres::Client;

pub use self::processor::{CardInput, CardRefused, Charge, Processor, StoredCard, Unavailable};
pub use self::runner::run;
pub use self::test_processor::TestProcessor;

/// How long the processor may take to answer. What was asked for is asked again, under the same key.
const PROCESSOR_TIMEOUT: Duration = Duration::from_secs(30);

/// How a payment ended.
const ENDED: &str =
    "SELECT kind, schema_version, body::text FROM ledger.events WHERE key = $1 OR key = $2 OR key = $3";

const CREDITED: &str = "SELECT kind, schema_version, body::text FROM ledger.events WHERE key = $1";

/// Why a payment has no outcome yet.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger refused the command.
    #[error(transparent)]
    Refused(Refusal),
    /// Postgres or the payment processor is unavailable.
    #[error("{0}")]
    Unavailable(String),
    /// The log or a state contradicts the payment.
    #[error("{0}")]
    Internal(String),
}

impl From<appender::Error> for Error {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(refusal) => Self::Refused(refusal),
            appender::Error::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

impl From<reads::Error> for Error {
    fn from(error: reads::Error) -> Self {
        match error {
            reads::Error::Unavailable(why) => Self::Unavailable(why),
            reads::Error::Internal(why) => Self::Internal(why),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        reads::Error::from(error).into()
    }
}

/// The payments of one gateway process: what charges them and where their outcomes go.
pub struct Payments {
    ledger: Appender,
    reads: ReadPool,
    clock: Arc<Clock>,
    mint: Arc<Mint>,
    processor: Arc<dyn Processor>,
    /// Notified when a payment was requested or a renewal may be due.
    due: Notify,
}

impl Payments {
    /// Payments that `processor` charges.
    pub fn new(
        ledger: Appender,
        reads: ReadPool,
        clock: Arc<Clock>,
        mint: Arc<Mint>,
        processor: Arc<dyn Processor>,
    ) -> Self {
        Self { ledger, reads, clock, mint, processor, due: Notify::new() }
    }

    /// The payment processor.
    pub fn processor(&self) -> &dyn Processor {
        self.processor.as_ref()
    }

    /// Wakes this process's runner: there may be a payment to charge or a renewal due.
    pub fn wake(&self) {
        self.due.notify_one();
    }

    /// Charges an open payment and appends what came of it; how it ended, where it has already. A customer who is no more is
    /// not charged; what was charged by then is given back.
    pub async fn carry_out(&self, payment_id: PaymentId) -> Result<Paid, Error> {
        let Some(State::Payment(payment)) = self.reads.state(StateKey::Payment(payment_id)).await? else {
            return self.ended(payment_id).await;
        };
        let requested = payment.requested;
        let wanted = if self.is_anybodys(&requested).await? { Wanted::Charged } else { Wanted::TakenBack };
        if let Some(paid) = self.end(payment_id, self.ask(&requested, wanted).await?).await? {
            return Ok(paid);
        }
        // The customer was deleted while the processor was asked.
        let taken_back = self.ask(&requested, Wanted::TakenBack).await?;
        let ended = self.end(payment_id, taken_back).await?;
        ended.ok_or_else(|| Error::Internal(format!("{payment_id} was taken back and does not end")))
    }

    /// Is there somebody whose wallet it is for?
    async fn is_anybodys(&self, requested: &PaymentRequested) -> Result<bool, Error> {
        match requested.customer_id {
            Some(id) => Ok(self.reads.state(StateKey::Customer(id)).await?.is_some()),
            None => Ok(true),
        }
    }

    /// What the processor says.
    async fn ask(&self, requested: &PaymentRequested, wanted: Wanted) -> Result<Paid, Error> {
        let method = match &requested.brings {
            Some(brought) => Some((brought.processor.clone(), brought.token.clone())),
            None => match self.reads.state(StateKey::PaymentMethod(requested.payment_method_id)).await? {
                Some(State::PaymentMethod(method)) => Some((method.added.processor, method.added.token)),
                Some(_) | None => None,
            },
        };
        let token = match (method, wanted) {
            (Some((processor, token)), _) if processor == self.processor.name() => token,
            (None, Wanted::Charged) => return Ok(Paid::Declined(DeclineReason::MethodRemoved)),
            // Only the processor that keeps the card knows whether it has charged it already.
            (Some(_), _) | (None, Wanted::TakenBack) => {
                let why = "it waits for the payment processor that it was asked of";
                return Err(Error::Unavailable(format!("{}: {why}", requested.payment_id)));
            }
        };
        let (payment_id, amount) = (requested.payment_id, requested.amount);
        let charge = Charge { payment_id, token: &token, amount };
        let answer = async {
            match wanted {
                Wanted::Charged => self.processor.charge(charge).await,
                Wanted::TakenBack => self.processor.take_back(charge).await.map(Paid::TakenBack),
            }
        };
        let answer = tokio::time::timeout(PROCESSOR_TIMEOUT, answer).await;
        let answer = answer.unwrap_or_else(|_| Err(Unavailable("no answer in time".to_owned())));
        answer.map_err(|why| Error::Unavailable(format!("the payment processor: {why}")))
    }

    /// Ends a payment so; how it ended. None where money was taken of a customer who is no more.
    async fn end(&self, payment_id: PaymentId, paid: Paid) -> Result<Option<Paid>, Error> {
        let complete = CompletePayment { payment_id, paid, now: self.clock.now() };
        match self.ledger.submit(complete).await {
            Ok(paid) => Ok(Some(paid)),
            // Somebody else carried it out meanwhile.
            Err(appender::Error::Refused(Refusal::PaymentNotOpen)) => self.ended(payment_id).await.map(Some),
            Err(appender::Error::Refused(Refusal::CustomerNotFound)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// How a payment that is not open ended, by the log.
    async fn ended(&self, payment_id: PaymentId) -> Result<Paid, Error> {
        let connection = self.reads.connection().await?;
        within(read_ended(&connection, payment_id)).await?
    }

    /// The balance of the wallet right after the money of a payment came into it.
    pub async fn balance_after(&self, payment_id: PaymentId) -> Result<Amount, Error> {
        let connection = self.reads.connection().await?;
        within(read_balance_after(&connection, payment_id)).await?
    }

    /// Requests the automatic top-up or autopay of a wallet whose money did not cover a call, where the wallet has one. The
    /// call stays refused: the money arrives when the processor has confirmed the charge.
    pub async fn auto_recharge(&self, short: WalletShortfall, hold: Amount) {
        let now = self.clock.now();
        let payment_id = PaymentId::new(self.mint.next(now));
        match self.ledger.submit(AutoRecharge { short, payment_id, hold, now }).await {
            Ok(Some(_)) => self.wake(),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    event = "payment.auto_recharge_failed",
                    wallet_id = %short.wallet_id,
                    %error,
                    "auto-recharge could not be requested"
                );
            }
        }
    }
}

/// What is asked of the processor.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Charged,
    TakenBack,
}

async fn read_ended(client: &Client, payment_id: PaymentId) -> Result<Paid, Error> {
    let [succeeded, declined, voided] =
        ["succeeded", "declined", "voided"].map(|end| format!("{payment_id}/{end}"));
    let unknown = || Error::Internal(format!("{payment_id} is not open and has no end in the log"));
    let row = client.query_opt(ENDED, &[&succeeded, &declined, &voided]).await?.ok_or_else(unknown)?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let event = event.map_err(|error| Error::Internal(error.to_string()))?;
    if let Event::PaymentSucceeded(event) = event {
        Ok(Paid::Accepted(event.reference))
    } else if let Event::PaymentDeclined(event) = event {
        Ok(Paid::Declined(event.reason))
    } else if let Event::PaymentVoided(event) = event {
        Ok(Paid::TakenBack(event.refund))
    } else {
        Err(unknown())
    }
}

async fn read_balance_after(client: &Client, payment_id: PaymentId) -> Result<Amount, Error> {
    let credited = CreditId::new(payment_id.ulid());
    let unknown = || Error::Internal(format!("{payment_id} brought no money into a balance"));
    let row = client.query_opt(CREDITED, &[&format!("{credited}/credited")]).await?.ok_or_else(unknown)?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let event = event.map_err(|error| Error::Internal(error.to_string()))?;
    if let Event::WalletCredited(event) = event { Ok(event.balance_after) } else { Err(unknown()) }
}
