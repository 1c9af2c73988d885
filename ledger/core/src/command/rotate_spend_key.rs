//! `RotateSpendKey`: replaces the raw key. The old one is invalid from the append on; everything else stays.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::SpendKeyRefusal;
use super::spend_key_snapshot::SpendKeySnapshot;
use crate::event::{Event, KeyRotated};
use crate::ids::{MerchantId, SpendKeyId};
use crate::secret::KeyHash;
use crate::state::{SpendKey, StateCache};

/// Rotates a spend key and returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateSpendKey {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The spend key.
    pub spend_key_id: SpendKeyId,
    /// The keyed hash of the new raw key.
    pub key_hash: KeyHash,
    /// The part of the new raw key that may be shown.
    pub key_preview: String,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for RotateSpendKey {
    type Outcome = SpendKeySnapshot;

    fn decide(&self, states: &StateCache) -> Result<Decision<SpendKeySnapshot>, DecideError> {
        let key = states.spend_key(self.spend_key_id)?.filter(|key| key.merchant_id == self.merchant_id);
        let key = key.ok_or(SpendKeyRefusal::NotFound)?;
        let spending = states.spending(self.spend_key_id)?.ok_or(SpendKeyRefusal::NotFound)?;
        let rotation = key.rotation + 1;
        let event = Event::from(KeyRotated {
            spend_key_id: self.spend_key_id,
            customer_id: key.customer_id,
            rotation,
            old_key_hash: key.key_hash.clone(),
            key_hash: self.key_hash.clone(),
            key_preview: self.key_preview.clone(),
        });
        let rotated = SpendKey {
            key_hash: self.key_hash.clone(),
            key_preview: self.key_preview.clone(),
            rotation,
            ..key.clone()
        };
        let now = SpendKeySnapshot { key: rotated, spending: spending.clone() };
        Ok(Decision::append(self.merchant_id, self.now, vec![event], now))
    }
}
