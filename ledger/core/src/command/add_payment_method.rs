//! `AddPaymentMethod`: adds a payment method to a wallet (completion.md section 7).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::payee::Payee;
use crate::event::{Card, Event, PaymentMethodAdded};
use crate::ids::{MerchantId, PaymentMethodId};
use crate::state::StateCache;

/// Adds a payment method that the processor knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddPaymentMethod {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The owner of the wallet.
    pub payee: Payee,
    /// A new id.
    pub payment_method_id: PaymentMethodId,
    /// The payment processor.
    pub processor: String,
    /// The processor's token for it.
    pub token: String,
    /// The details that may be shown.
    pub card: Card,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// A new payment method that was entered with a checkout session or a payment. It is added in the append that completes
/// the session or records the payment's success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewMethod {
    /// A new id.
    pub payment_method_id: PaymentMethodId,
    /// The payment processor.
    pub processor: String,
    /// The processor's token for it.
    pub token: String,
    /// The details that may be shown.
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
