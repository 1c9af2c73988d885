//! What a payment processor does for us. A real one is one more implementation of [`Processor`].

use std::future::Future;
use std::pin::Pin;

use farthing_core::command::Paid;
use farthing_core::event::Card;
use farthing_core::ids::PaymentId;
use farthing_core::money::Amount;

/// A card as its owner typed it. It goes to the processor and nowhere else: it has no `Debug`, and is never kept.
pub struct CardInput {
    /// Digits; spaces and hyphens between them do not matter.
    pub number: String,
    /// 1 to 12.
    pub exp_month: u8,
    /// Four digits.
    pub exp_year: u16,
    /// Three or four digits.
    pub cvc: String,
}

/// A card in the processor's keeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCard {
    /// The processor's own name for it.
    pub token: String,
    /// What may be shown of it.
    pub card: Card,
}

/// Why the processor does not take a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CardRefused {
    /// Not the number of a card.
    #[error("is not the number of a card")]
    Number,
    /// The card's time is over, or no such month.
    #[error("is not a month to come")]
    Expiry,
    /// Not a security code.
    #[error("must be three or four digits")]
    Cvc,
}

/// The processor does not answer; nothing is known of what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Money to be taken.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// The idempotency key: a charge asked for again under it is the same charge, and has the same answer.
    pub payment_id: PaymentId,
    /// The card.
    pub token: &'a str,
    /// How much, in dollars.
    pub amount: Amount,
}

/// What a processor answers, some time.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// A payment processor.
pub trait Processor: Send + Sync {
    /// Its name, as payment methods in the log tell whose they are.
    fn name(&self) -> &'static str;

    /// Takes a card into its keeping.
    fn store(&self, card: CardInput) -> Answer<'_, Result<StoredCard, CardRefused>>;

    /// Takes money, once per payment.
    fn charge<'a>(&'a self, charge: Charge<'a>) -> Answer<'a, Paid>;

    /// Takes nothing for this payment from now on, and gives back all that was taken; its own id of that, where anything
    /// was. Asked again, it gives nothing back a second time, and answers the same.
    fn take_back<'a>(&'a self, charge: Charge<'a>) -> Answer<'a, Option<String>>;
}
