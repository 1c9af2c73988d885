//! `Timed`: wraps a command and adds the instant of its decision, by the merchant's clock, to its outcome. So the
//! response shows the same time as the facts.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use crate::ids::MerchantId;
use crate::state::StateCache;

/// A command of one merchant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed<C> {
    /// The command, which must have the same `now`.
    pub command: C,
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl<C: Command> Command for Timed<C> {
    /// The command's own outcome, and the instant of its decision.
    type Outcome = (C::Outcome, DateTime<Utc>);

    fn text_bytes(&self) -> usize {
        self.command.text_bytes()
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, DecideError> {
        let Decision { facts, personal, outcome } = self.command.decide(states)?;
        let at = states.now(self.merchant_id, self.now)?;
        Ok(Decision { facts, personal, outcome: (outcome, at) })
    }
}
