//! The outcome of a payment, read from the log.

use farthing_core::command::Paid;
use farthing_core::event::{Event, PaymentEvent, WalletEvent, codec};
use farthing_core::ids::{CreditId, PaymentId};
use farthing_core::money::Amount;
use tokio_postgres::Client;

use super::error::Error;

const ENDED: &str =
    "SELECT kind, schema_version, body::text FROM ledger.events WHERE key = $1 OR key = $2 OR key = $3";

const CREDITED: &str = "SELECT kind, schema_version, body::text FROM ledger.events WHERE key = $1";

/// The result of an ended payment.
pub(super) async fn ended(client: &Client, payment_id: PaymentId) -> Result<Paid, Error> {
    let [succeeded, declined, voided] =
        ["succeeded", "declined", "voided"].map(|end| format!("{payment_id}/{end}"));
    let unknown = || Error::Internal(format!("{payment_id} is not open and has no end in the log"));
    let row = client.query_opt(ENDED, &[&succeeded, &declined, &voided]).await?.ok_or_else(unknown)?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let event = event.map_err(|error| Error::Internal(error.to_string()))?;
    if let Event::Payment(PaymentEvent::Succeeded(event)) = event {
        Ok(Paid::Accepted(event.reference))
    } else if let Event::Payment(PaymentEvent::Declined(event)) = event {
        Ok(Paid::Declined(event.reason))
    } else if let Event::Payment(PaymentEvent::Voided(event)) = event {
        Ok(Paid::Voided(event.refund))
    } else {
        Err(unknown())
    }
}

/// The balance right after a payment was credited.
pub(super) async fn balance_after(client: &Client, payment_id: PaymentId) -> Result<Amount, Error> {
    let credited = CreditId::new(payment_id.ulid());
    let unknown = || Error::Internal(format!("{payment_id} was not credited to a wallet"));
    let row = client.query_opt(CREDITED, &[&format!("{credited}/credited")]).await?.ok_or_else(unknown)?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let event = event.map_err(|error| Error::Internal(error.to_string()))?;
    if let Event::Wallet(WalletEvent::Credited(event)) = event {
        Ok(event.balance_after)
    } else {
        Err(unknown())
    }
}
