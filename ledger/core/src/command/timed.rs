//! `Timed`: any command, answered with the instant it was decided at, by its merchant's clock: what is shown of it is what
//! its facts say.

use chrono::{DateTime, Utc};

use super::decision::{Command, DecideError, Decision};
use crate::ids::MerchantId;
use crate::state::StateCache;

/// A command of a merchant.
#[derive(Debug, Clone)]
pub struct Timed<C> {
    /// The command, whose now is this one's.
    pub command: C,
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl<C: Command> Command for Timed<C> {
    /// The command's own, and when it was decided.
    type Outcome = (C::Outcome, DateTime<Utc>);

    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, DecideError> {
        let Decision { facts, personal, outcome } = self.command.decide(states)?;
        let at = states.now(self.merchant_id, self.now)?;
        Ok(Decision { facts, personal, outcome: (outcome, at) })
    }
}
