//! `DeleteMeter`: deletes a meter. New calls on it are refused and its slug is free. Earlier calls still refer to it;
//! those in flight settle on the terms of their admission (completion.md section 4).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::MeterRefusal;
use crate::event::{Event, MeterDeleted};
use crate::ids::{MerchantId, MeterId};
use crate::state::StateCache;

/// Deletes a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteMeter {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The meter.
    pub meter_id: MeterId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for DeleteMeter {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let meter = states.meter(self.meter_id)?.filter(|meter| meter.merchant_id == self.merchant_id);
        let meter_slug = meter.ok_or(MeterRefusal::NotFound)?.meter_slug.clone();
        let event = Event::from(MeterDeleted { meter_id: self.meter_id, meter_slug });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
