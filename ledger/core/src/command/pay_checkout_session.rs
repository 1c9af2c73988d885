//! `PayCheckoutSession`: requests the payment of a session, with a new card or with the wallet's payment method, in one
//! append, so a form that is sent twice makes one payment. A new card becomes the wallet's once its payment succeeds; a
//! declined card never does (completion.md section 8).

use serde::{Deserialize, Serialize};

use super::add_payment_method::NewMethod;
use super::complete_checkout_session::write_contact;
use super::decision::{Command, DecideError, Decision};
use super::personal_data::PersonalData;
use super::refusal::PaymentRefusal;
use super::request_payment::RequestPayment;
use crate::event::CardBrought;
use crate::ids::CustomerId;
use crate::state::StateCache;

/// Requests the payment that completes a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PayCheckoutSession {
    /// The payment, which names the session. Without a new card, its payment method is the saved card that was shown; if
    /// that is no longer the wallet's payment method, the command is refused with [`PaymentRefusal::OfferChanged`].
    pub payment: RequestPayment,
    /// The customer, which must exist, and its contact details if they change; absent parts stay.
    pub contact: Option<(CustomerId, PersonalData)>,
    /// The new card; `None` to use the wallet's payment method.
    pub method: Option<NewMethod>,
}

impl Command for PayCheckoutSession {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let RequestPayment { merchant_id, now, .. } = self.payment;
        let mut payment = self.payment;
        let brings = self.method.as_ref().map(|method| {
            payment.payment_method_id = Some(method.payment_method_id);
            let NewMethod { processor, token, card, .. } = method.clone();
            CardBrought { processor, token, card }
        });
        let asked = payment.decide_with(states, brings)?;
        if self.method.is_none()
            && let Some(shown) = payment.payment_method_id
        {
            let (wallet_id, _) = payment.payee.wallet(states, merchant_id)?;
            let saved = states.wallet(wallet_id)?.and_then(|wallet| wallet.payment_method_id);
            if saved != Some(shown) {
                return Err(PaymentRefusal::OfferChanged.into());
            }
        }
        let Some((customer_id, contact)) = &self.contact else { return Ok(asked) };
        let mut written = write_contact(merchant_id, *customer_id, contact, now).decide(states)?;
        written.facts.extend(asked.facts);
        Ok(written)
    }
}
