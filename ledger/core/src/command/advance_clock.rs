//! `AdvanceClock`: advances a merchant's clock on an instance in test mode, so that a year can be tested in seconds.
//! The advance is an event, so a replay gives the same result.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::MerchantRefusal;
use crate::event::{ClockAdvanced, Event};
use crate::ids::MerchantId;
use crate::state::StateCache;

/// The largest lead of a clock, in seconds: a hundred years.
pub const MAX_AHEAD_SECONDS: i64 = 100 * 366 * 86_400;

/// Advances a merchant's clock and returns its new time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvanceClock {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The advance in seconds; above zero.
    pub seconds: i64,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for AdvanceClock {
    type Outcome = DateTime<Utc>;

    fn decide(&self, states: &StateCache) -> Result<Decision<DateTime<Utc>>, DecideError> {
        let merchant = states.merchant(self.merchant_id)?.ok_or(MerchantRefusal::NotFound)?;
        let ahead_seconds = merchant.clock_ahead_seconds.checked_add(self.seconds);
        let ahead_seconds = ahead_seconds.filter(|ahead| *ahead <= MAX_AHEAD_SECONDS && self.seconds > 0);
        let ahead_seconds = ahead_seconds.ok_or(MerchantRefusal::ClockOutOfRange)?;
        let event = ClockAdvanced { merchant_id: self.merchant_id, seconds: self.seconds, ahead_seconds };
        let mut after = merchant.clone();
        after.clock_ahead_seconds = ahead_seconds;
        let now = after.now(self.now);
        Ok(Decision::append(self.merchant_id, self.now, vec![Event::from(event)], now))
    }
}
