//! The outcome of a payment, read from the log.

use farthing_core::command::Paid;
use farthing_core::event::{Event, PaymentEvent, WalletEvent};
use farthing_core::ids::{CreditId, PaymentId};
use farthing_core::money::Amount;
use farthing_core::partition::Partition;
use farthing_log::reader;
use tokio_postgres::Client;

use super::error::Error;

/// The result of an ended payment of `partition`.
pub(super) async fn ended(
    client: &Client,
    partition: Partition,
    payment_id: PaymentId,
) -> Result<Paid, Error> {
    let keys = ["succeeded", "declined", "voided"].map(|end| format!("{payment_id}/{end}"));
    let found = reader::find(client, partition, &keys.each_ref().map(String::as_str)).await?;
    match found.into_iter().next().map(|recorded| recorded.fact.event) {
        Some(Event::Payment(PaymentEvent::Succeeded(event))) => Ok(Paid::Accepted(event.reference)),
        Some(Event::Payment(PaymentEvent::Declined(event))) => Ok(Paid::Declined(event.reason)),
        Some(Event::Payment(PaymentEvent::Voided(event))) => Ok(Paid::Voided(event.refund)),
        Some(_) | None => Err(Error::Internal(format!("{payment_id} is not open and has no end in the log"))),
    }
}

/// The balance of the wallet right after a payment of `partition` was credited to it.
pub async fn balance_after(
    client: &Client,
    partition: Partition,
    payment_id: PaymentId,
) -> Result<Amount, Error> {
    let credited = CreditId::new(payment_id.ulid());
    let found = reader::find(client, partition, &[&format!("{credited}/credited")]).await?;
    match found.into_iter().next().map(|recorded| recorded.fact.event) {
        Some(Event::Wallet(WalletEvent::Credited(event))) => Ok(event.balance_after),
        Some(_) | None => Err(Error::Internal(format!("{payment_id} was not credited to a wallet"))),
    }
}
