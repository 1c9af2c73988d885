//! The execution of a payment: the request to the processor, and the command that ends the payment in the log.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::command::{
    AutoRecharge, CompletePayment, CustomerRefusal, Paid, PaymentRefusal, Refusal, WalletShortfall,
};
use farthing_core::event::{DeclineReason, PaymentRequested};
use farthing_core::ids::{Mint, PaymentId, RequestId};
use farthing_core::money::Amount;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};
use farthing_log::appender;
use farthing_log::clock::Clock;
use farthing_log::ledger::Ledger;
use farthing_log::reads::{ReadPool, within};
use tokio::sync::Notify;

use super::error::{Error, NoProcessor};
use super::metrics::PaymentMetrics;
use super::outcome;
use super::processor::{CardInput, CardRefused, Charge, Processor, StoredCard, Unavailable};

/// The limit on one request to the processor. A request that timed out is sent again under the same key.
const PROCESSOR_TIMEOUT: Duration = Duration::from_secs(30);

/// The payments of one gateway process: the processor that charges them and the ledger that records their outcomes.
/// Without a processor nothing is charged: payments that are requested all the same stay open.
pub struct Payments {
    pub(super) ledger: Ledger,
    pub(super) reads: ReadPool,
    pub(super) clock: Arc<Clock>,
    pub(super) mint: Arc<Mint>,
    processor: Option<Arc<dyn Processor>>,
    /// Notified when a payment was requested or a renewal may be due.
    pub(super) due: Notify,
    metrics: PaymentMetrics,
}

/// What the processor answers in time.
async fn answered<T>(response: impl Future<Output = Result<T, Unavailable>>) -> Result<T, Error> {
    let response = tokio::time::timeout(PROCESSOR_TIMEOUT, response).await;
    let response = response.unwrap_or_else(|_| Err(Unavailable("no response in time".to_owned())));
    response.map_err(|error| Error::Unavailable(format!("the payment processor: {error}")))
}

impl Payments {
    /// Payments that `processor` charges; `None` if the instance has no processor.
    pub fn new(
        ledger: Ledger,
        reads: ReadPool,
        clock: Arc<Clock>,
        mint: Arc<Mint>,
        processor: Option<Arc<dyn Processor>>,
        metrics: PaymentMetrics,
    ) -> Self {
        Self { ledger, reads, clock, mint, processor, due: Notify::new(), metrics }
    }

    /// The payment processor; an error if the instance has none.
    pub fn processor(&self) -> Result<&dyn Processor, NoProcessor> {
        self.processor.as_deref().ok_or(NoProcessor)
    }

    /// Stores a card at the payment processor, and returns the processor's name with it.
    pub async fn store(
        &self,
        card: CardInput,
    ) -> Result<Result<(&'static str, StoredCard), CardRefused>, Error> {
        let processor = self.processor()?;
        let stored = answered(processor.store(card)).await?;
        Ok(stored.map(|stored| (processor.name(), stored)))
    }

    /// Wakes this process's runner: there may be a payment to charge or a renewal due.
    pub fn wake(&self) {
        self.due.notify_one();
    }

    /// Charges an open payment of `partition`, appends the outcome and returns it. A payment that has already ended is only read. If
    /// the customer was deleted, the payment is voided instead: nothing is charged, or the charge is refunded.
    pub async fn carry_out(&self, partition: Partition, payment_id: PaymentId) -> Result<Paid, Error> {
        let paid = self.try_to_carry_out(partition, payment_id).await;
        if paid.is_err() {
            self.metrics.failed.inc();
        }
        paid
    }

    async fn try_to_carry_out(&self, partition: Partition, payment_id: PaymentId) -> Result<Paid, Error> {
        let Some(State::Payment(payment)) =
            self.ledger.state(partition, None, StateKey::Payment(payment_id)).await?
        else {
            return self.ended(partition, payment_id).await;
        };
        let requested = payment.requested;
        let action = if self.has_owner(partition, &requested).await? { Action::Charge } else { Action::Void };
        if let Some(paid) =
            self.end(partition, payment_id, self.request(partition, &requested, action).await?).await?
        {
            return Ok(paid);
        }
        // The customer was deleted during the request.
        let voided = self.request(partition, &requested, Action::Void).await?;
        let ended = self.end(partition, payment_id, voided).await?;
        ended.ok_or_else(|| Error::Internal(format!("{payment_id} was voided and does not end")))
    }

    /// Whether the wallet's owner still exists. A merchant always does.
    async fn has_owner(&self, partition: Partition, requested: &PaymentRequested) -> Result<bool, Error> {
        match requested.customer_id {
            Some(id) => Ok(self.ledger.state(partition, None, StateKey::Customer(id)).await?.is_some()),
            None => Ok(true),
        }
    }

    /// Sends a payment to the processor.
    async fn request(
        &self,
        partition: Partition,
        requested: &PaymentRequested,
        action: Action,
    ) -> Result<Paid, Error> {
        let processor = self.processor()?;
        let method = match &requested.brings {
            Some(brought) => Some((brought.processor.clone(), brought.token.clone())),
            None => match self
                .ledger
                .state(partition, None, StateKey::PaymentMethod(requested.payment_method_id))
                .await?
            {
                Some(State::PaymentMethod(method)) => Some((method.added.processor, method.added.token)),
                Some(_) | None => None,
            },
        };
        let token = match (method, action) {
            (Some((name, token)), _) if name == processor.name() => token,
            (None, Action::Charge) => return Ok(Paid::Declined(DeclineReason::MethodRemoved)),
            // Only the processor that stores the card knows whether it has charged it already.
            (Some(_), _) | (None, Action::Void) => {
                let why = "its payment processor is not the one that this gateway uses";
                return Err(Error::Unavailable(format!("{}: {why}", requested.payment_id)));
            }
        };
        let (payment_id, amount) = (requested.payment_id, requested.amount);
        let charge = Charge { payment_id, token: &token, amount };
        let response = async {
            match action {
                Action::Charge => processor.charge(charge).await,
                Action::Void => processor.void(charge).await.map(Paid::Voided),
            }
        };
        answered(response).await
    }

    /// Appends the end of a payment and returns it as the log has it. `None` if money was taken from a customer who has
    /// been deleted.
    async fn end(
        &self,
        partition: Partition,
        payment_id: PaymentId,
        paid: Paid,
    ) -> Result<Option<Paid>, Error> {
        let complete = CompletePayment { payment_id, paid, now: self.clock.now() };
        match self.ledger.submit(partition, complete).await {
            Ok(paid) => {
                self.metrics.ended(&paid);
                Ok(Some(paid))
            }
            // Another process has ended the payment.
            Err(appender::Error::Refused(Refusal::Payment(PaymentRefusal::NotOpen))) => {
                self.ended(partition, payment_id).await.map(Some)
            }
            Err(appender::Error::Refused(Refusal::Customer(CustomerRefusal::NotFound))) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The result of an ended payment of `partition`, from the log.
    async fn ended(&self, partition: Partition, payment_id: PaymentId) -> Result<Paid, Error> {
        let connection = self.reads.connection().await?;
        within(outcome::ended(&connection, partition, payment_id)).await?
    }

    /// Requests the automatic top-up or autopay of a wallet in `partition` whose money did not cover the call `request_id`, if the
    /// wallet has one.
    /// The call stays refused: the money arrives when the processor has confirmed the charge. Without a processor nothing
    /// is requested.
    pub async fn auto_recharge(
        &self,
        partition: Partition,
        request_id: RequestId,
        short: WalletShortfall,
        hold: Amount,
    ) {
        if self.processor.is_none() {
            return;
        }
        let now = self.clock.now();
        let payment_id = PaymentId::new(self.mint.next(now));
        match self.ledger.submit(partition, AutoRecharge { short, payment_id, hold, now }).await {
            Ok(Some(_)) => self.wake(),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    event = "payment.auto_recharge_failed",
                    %request_id,
                    wallet_id = %short.wallet_id,
                    %error,
                    "auto-recharge could not be requested"
                );
            }
        }
    }
}

/// A request to the processor.
#[derive(Debug, Clone, Copy)]
enum Action {
    Charge,
    Void,
}
