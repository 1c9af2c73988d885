//! Payments: what the ledger asks to be paid is charged at the payment processor, and what comes of it is appended.
//!
//! Invariant: a payment is charged under its own id as the processor's idempotency key, and ends in the log once. So any
//! number of processes may carry out the same payment, and one that dies in between harms nothing: the next one asks
//! the processor again and is told the same.

mod patience;
mod processor;
mod runner;
mod schedule;
mod test_processor;

use std::sync::Arc;
use std::time::Duration;

use farthing_ledger::command::{CompletePayment, FillUp, Paid, Refusal};
use farthing_ledger::event::{DeclineReason, Event, PaymentRequested, codec};
use farthing_ledger::ids::{CreditId, PaymentId};
use farthing_ledger::log::appender;
use farthing_ledger::money::Amount;
use farthing_ledger::state::{State, StateKey};
use tokio_postgres::Client;

use self::processor::Unavailable;
pub(crate) use self::processor::{CardInput, CardRefused, Charge, Processor};
pub(crate) use self::runner::run;
pub(crate) use self::test_processor::TestProcessor;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::within;

/// How long the processor may take to answer. What was asked for is asked again, under the same key.
const PROCESSOR_TIMEOUT: Duration = Duration::from_secs(30);

/// How a payment ended.
const ENDED: &str =
    "SELECT kind, schema_version, body::text FROM ledger.events WHERE key = $1 OR key = $2 OR key = $3";

const CREDITED: &str = "SELECT kind, schema_version, body::text FROM ledger.events WHERE key = $1";

/// Charges an open payment and appends what came of it; how it ended, where it has already. A customer who is no more is
/// not charged; what was charged by then is given back.
pub(crate) async fn carry_out(app: &App, payment_id: PaymentId) -> Result<Paid, ApiError> {
    let Some(State::Payment(payment)) = app.state(StateKey::Payment(payment_id)).await? else {
        return ended(app, payment_id).await;
    };
    let requested = payment.requested;
    let wanted = if is_anybodys(app, &requested).await? { Wanted::Charged } else { Wanted::TakenBack };
    if let Some(paid) = end(app, payment_id, ask(app, &requested, wanted).await?).await? {
        return Ok(paid);
    }
    // The customer was deleted while the processor was asked.
    let taken_back = ask(app, &requested, Wanted::TakenBack).await?;
    let ended = end(app, payment_id, taken_back).await?;
    ended.ok_or_else(|| ApiError::Internal(format!("{payment_id} was taken back and does not end")))
}

/// Is there somebody whose wallet it is for?
async fn is_anybodys(app: &App, requested: &PaymentRequested) -> Result<bool, ApiError> {
    match requested.customer_id {
        Some(id) => Ok(app.state(StateKey::Customer(id)).await?.is_some()),
        None => Ok(true),
    }
}

/// What is asked of the processor.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Charged,
    TakenBack,
}

/// What the processor says.
async fn ask(app: &App, requested: &PaymentRequested, wanted: Wanted) -> Result<Paid, ApiError> {
    let method = match &requested.brings {
        Some(brought) => Some((brought.processor.clone(), brought.token.clone())),
        None => match app.state(StateKey::PaymentMethod(requested.payment_method_id)).await? {
            Some(State::PaymentMethod(method)) => Some((method.added.processor, method.added.token)),
            Some(_) | None => None,
        },
    };
    let token = match (method, wanted) {
        (Some((processor, token)), _) if processor == app.processor.name() => token,
        (None, Wanted::Charged) => return Ok(Paid::Declined(DeclineReason::MethodRemoved)),
        // Only the processor that keeps the card knows whether it has charged it already.
        (Some(_), _) | (None, Wanted::TakenBack) => {
            let why = "it waits for the payment processor that it was asked of";
            return Err(ApiError::LedgerUnavailable(format!("{}: {why}", requested.payment_id)));
        }
    };
    let (payment_id, amount) = (requested.payment_id, requested.amount);
    let charge = Charge { payment_id, token: &token, amount };
    let answer = async {
        match wanted {
            Wanted::Charged => app.processor.charge(charge).await,
            Wanted::TakenBack => app.processor.take_back(charge).await.map(Paid::TakenBack),
        }
    };
    let answer = tokio::time::timeout(PROCESSOR_TIMEOUT, answer).await;
    let answer = answer.unwrap_or_else(|_| Err(Unavailable("no answer in time".to_owned())));
    answer.map_err(|why| ApiError::LedgerUnavailable(format!("the payment processor: {why}")))
}

/// Ends a payment so; how it ended. None where money was taken of a customer who is no more.
async fn end(app: &App, payment_id: PaymentId, paid: Paid) -> Result<Option<Paid>, ApiError> {
    let complete = CompletePayment { payment_id, paid, now: app.now() };
    match app.ledger.submit(complete).await {
        Ok(paid) => Ok(Some(paid)),
        // Somebody else carried it out meanwhile.
        Err(appender::Error::Refused(Refusal::PaymentNotOpen)) => ended(app, payment_id).await.map(Some),
        Err(appender::Error::Refused(Refusal::CustomerNotFound)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How a payment that is not open ended, by the log.
async fn ended(app: &App, payment_id: PaymentId) -> Result<Paid, ApiError> {
    let connection = app.connection().await?;
    within(read_ended(&connection, payment_id)).await
}

async fn read_ended(client: &Client, payment_id: PaymentId) -> Result<Paid, ApiError> {
    let [succeeded, declined, voided] =
        ["succeeded", "declined", "voided"].map(|end| format!("{payment_id}/{end}"));
    let unknown = || ApiError::Internal(format!("{payment_id} is not open and has no end in the log"));
    let row = client.query_opt(ENDED, &[&succeeded, &declined, &voided]).await?.ok_or_else(unknown)?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let event = event.map_err(|error| ApiError::Internal(error.to_string()))?;
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

/// The balance of the wallet right after the money of a payment came into it.
pub(crate) async fn balance_after(app: &App, payment_id: PaymentId) -> Result<Amount, ApiError> {
    let connection = app.connection().await?;
    within(read_balance_after(&connection, payment_id)).await
}

async fn read_balance_after(client: &Client, payment_id: PaymentId) -> Result<Amount, ApiError> {
    let credited = CreditId::new(payment_id.ulid());
    let unknown = || ApiError::Internal(format!("{payment_id} brought no money into a balance"));
    let row = client.query_opt(CREDITED, &[&format!("{credited}/credited")]).await?.ok_or_else(unknown)?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let event = event.map_err(|error| ApiError::Internal(error.to_string()))?;
    if let Event::WalletCredited(event) = event { Ok(event.balance_after) } else { Err(unknown()) }
}

/// Has the wallet that a call was refused for ask for money, where it does so by itself. The call stays refused: money
/// comes when the processor has said so.
pub(crate) async fn fill_up(app: &App, refused: &ApiError) {
    let ApiError::InsufficientBalance { needed, asks_by_itself: Some(short), .. } = *refused else {
        return;
    };
    let now = app.now();
    let payment_id = PaymentId::new(app.mint.next(now));
    match app.ledger.submit(FillUp { short, payment_id, hold: needed, now }).await {
        Ok(Some(_)) => app.payments_due.notify_one(),
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(wallet_id = %short.wallet_id, %error, "a wallet could not ask for money");
        }
    }
}

/// Has the runner of this process look at once for what is to be paid or is due.
pub(crate) fn nudge(app: &Arc<App>) {
    app.payments_due.notify_one();
}
