//! `PayCheckoutSession`: a session's customer pays, with a card that comes with the payment or with the wallet's own, in
//! one append: a form that is sent twice is one payment. A card that comes with it is the wallet's once it has paid, so one
//! that is declined never is (completion.md section 8).

use super::add_payment_method::NewMethod;
use super::complete_checkout_session::write_contact;
use super::decision::{Command, DecideError, Decision};
use super::personal_data::PersonalData;
use super::request_payment::RequestPayment;
use crate::event::CardBrought;
use crate::ids::CustomerId;
use crate::state::StateCache;

/// Asks for the payment that completes a session.
#[derive(Debug, Clone)]
pub struct PayCheckoutSession {
    /// The payment; it names the session.
    pub payment: RequestPayment,
    /// The customer, which is there by now, and who it is, where that is to be written; parts that are not told stay.
    pub contact: Option<(CustomerId, PersonalData)>,
    /// What it is paid with; the wallet's own method where there is none.
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
        let Some((customer_id, contact)) = &self.contact else { return Ok(asked) };
        let mut written = write_contact(merchant_id, *customer_id, contact, now).decide(states)?;
        written.facts.extend(asked.facts);
        Ok(written)
    }
}
