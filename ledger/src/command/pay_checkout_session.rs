//! `PayCheckoutSession`: a session's customer pays, with a card that comes with the payment or with the wallet's own, in
//! one append: a form that is sent twice is one card and one payment (completion.md section 8).

use super::add_payment_method::NewMethod;
use super::{Command, Decision, RequestPayment, Stop};
use crate::state::World;

/// Asks for the payment that completes a session.
#[derive(Debug, Clone)]
pub struct PayCheckoutSession {
    /// The payment; it names the session.
    pub payment: RequestPayment,
    /// What it is paid with; the wallet's own method where there is none.
    pub method: Option<NewMethod>,
}

impl Command for PayCheckoutSession {
    type Outcome = ();

    fn decide(&self, world: &World) -> Result<Decision<()>, Stop> {
        let Some(method) = &self.method else { return self.payment.decide(world) };
        let RequestPayment { merchant_id, payee, now, .. } = self.payment;
        let payment_method_id = Some(method.payment_method_id);
        let payment = RequestPayment { payment_method_id, ..self.payment };
        let mut decision = payment.decide_with(world, payment_method_id)?;
        let mut facts = method.clone().added_to(merchant_id, payee, now).decide(world)?.facts;
        facts.append(&mut decision.facts);
        Ok(Decision { facts, ..decision })
    }
}
