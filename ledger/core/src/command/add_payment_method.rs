//! `AddPaymentMethod`: a wallet can pay with it from now on (completion.md section 7).

use chrono::{DateTime, Utc};

use super::decision::{Command, DecideError, Decision};
use super::payee::Payee;
use crate::event::{Card, Event, PaymentMethodAdded};
use crate::ids::{MerchantId, PaymentMethodId};
use crate::state::StateCache;

/// Adds a payment method, as the processor knows it.
#[derive(Debug, Clone)]
pub struct AddPaymentMethod {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Whose wallet.
    pub payee: Payee,
    /// A new id.
    pub payment_method_id: PaymentMethodId,
    /// Which processor.
    pub processor: String,
    /// The processor's own name for it.
    pub token: String,
    /// What may be shown of it.
    pub card: Card,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// A payment method that comes with something else: with the end of a session, and is added in the same append; with a
/// payment, and is added once that has succeeded.
#[derive(Debug, Clone)]
pub struct NewMethod {
    /// A new id.
    pub payment_method_id: PaymentMethodId,
    /// Which processor.
    pub processor: String,
    /// The processor's own name for it.
    pub token: String,
    /// What may be shown of it.
    pub card: Card,
}

impl NewMethod {
    /// The command that adds it to a wallet.
    pub(super) fn added_to(
        self,
        merchant_id: MerchantId,
        payee: Payee,
        now: DateTime<Utc>,
    ) -> AddPaymentMethod {
        let Self { payment_method_id, processor, token, card } = self;
        AddPaymentMethod { merchant_id, payee, payment_method_id, processor, token, card, now }
    }
}

impl Command for AddPaymentMethod {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let (wallet_id, customer_id) = self.payee.wallet(states, self.merchant_id)?;
        let event = Event::from(PaymentMethodAdded {
            payment_method_id: self.payment_method_id,
            wallet_id,
            customer_id,
            processor: self.processor.clone(),
            token: self.token.clone(),
            card: self.card.clone(),
        });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
