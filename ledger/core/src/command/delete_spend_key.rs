//! `DeleteSpendKey`: deletes a spend key. It is invalid from the append on; its calls in flight still settle.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::SpendKeyRefusal;
use crate::event::{Event, SpendKeyDeleted};
use crate::ids::{MerchantId, SpendKeyId};
use crate::state::StateCache;

/// Deletes a spend key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteSpendKey {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The spend key.
    pub spend_key_id: SpendKeyId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for DeleteSpendKey {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let key = states.spend_key(self.spend_key_id)?.filter(|key| key.merchant_id == self.merchant_id);
        let key_hash = key.ok_or(SpendKeyRefusal::NotFound)?.key_hash.clone();
        let event = Event::from(SpendKeyDeleted { spend_key_id: self.spend_key_id, key_hash });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
