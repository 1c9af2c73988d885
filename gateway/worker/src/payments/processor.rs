//! The interface to a payment processor. A real one is another implementation of [`Processor`].

use std::future::Future;
use std::pin::Pin;

use farthing_core::command::Paid;
use farthing_core::event::Card;
use farthing_core::ids::PaymentId;
use farthing_core::money::Amount;

/// A card as its owner typed it. It is sent only to the processor: it has no `Debug` and is never stored.
pub struct CardInput {
    /// Digits; spaces and hyphens are ignored.
    pub number: String,
    /// 1 to 12.
    pub exp_month: u8,
    /// Four digits.
    pub exp_year: u16,
    /// Three or four digits.
    pub cvc: String,
}

/// A card that the processor has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCard {
    /// The processor's own id of the card.
    pub token: String,
    /// The part that may be shown.
    pub card: Card,
}

/// Why the processor refuses a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CardRefused {
    /// The number is invalid.
    #[error("is not a valid card number")]
    Number,
    /// The card has expired, or there is no such month.
    #[error("must be the current month or a later one")]
    Expiry,
    /// The security code is invalid.
    #[error("must be three or four digits")]
    Cvc,
}

/// The processor did not answer. It is unknown whether the request had its effect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// An amount to charge to a card.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// The idempotency key: a repeated request under it is the same charge and has the same response.
    pub payment_id: PaymentId,
    /// The card, as in [`StoredCard::token`].
    pub token: &'a str,
    /// In dollars.
    pub amount: Amount,
}

/// The future of a processor's response.
pub(crate) type Response<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// A payment processor.
pub trait Processor: Send + Sync {
    /// Its name, which payment methods in the log refer to.
    fn name(&self) -> &'static str;

    /// Stores a card.
    fn store(&self, card: CardInput) -> Response<'_, Result<StoredCard, CardRefused>>;

    /// Charges a payment. Repeated calls charge it once.
    fn charge<'a>(&'a self, charge: Charge<'a>) -> Response<'a, Paid>;

    /// Voids a payment: it can no longer be charged, and an earlier charge is refunded. Returns the processor's id of
    /// the refund, if there is one. A repeated call refunds nothing more and has the same response.
    fn void<'a>(&'a self, charge: Charge<'a>) -> Response<'a, Option<String>>;
}
