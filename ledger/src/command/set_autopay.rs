//! `SetAutopay`: when a wallet is filled up by itself (completion.md section 7).

use chrono::{DateTime, Utc};

use super::request_payment::Payee;
use super::{Command, Decision, Refusal, Stop};
use crate::event::{Autopay, AutopayChanged, Event};
use crate::ids::MerchantId;
use crate::state::World;

/// Says when a wallet is filled up by itself.
#[derive(Debug, Clone, Copy)]
pub struct SetAutopay {
    /// Whose wallet's merchant.
    pub merchant_id: MerchantId,
    /// Whose wallet.
    pub payee: Payee,
    /// From now on; none where it is not.
    pub autopay: Option<Autopay>,
    /// Now, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for SetAutopay {
    type Outcome = ();

    fn decide(&self, world: &World) -> Result<Decision<()>, Stop> {
        let (wallet_id, customer_id) = self.payee.wallet(world, self.merchant_id)?;
        let wallet = world.wallet(wallet_id)?.expect("a customer or merchant has a wallet");
        if wallet.autopay == self.autopay {
            return Ok(Decision::already(()));
        }
        if self.autopay.is_some() && wallet.payment_method_id.is_none() {
            return Err(Refusal::NoPaymentMethod.into());
        }
        let event = Event::AutopayChanged(AutopayChanged {
            wallet_id,
            customer_id,
            revision: wallet.autopay_revision + 1,
            autopay: self.autopay,
        });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
