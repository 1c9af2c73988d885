//! `RotateSpendKey`: a new raw key; the old one is dead from the append on, everything else stays.

use chrono::{DateTime, Utc};

use super::{Command, Decision, Refusal, Stop};
use crate::event::{Event, KeyRotated};
use crate::ids::{MerchantId, SpendKeyId};
use crate::secret::KeyHash;
use crate::state::World;

/// Rotates a spend key.
#[derive(Debug, Clone)]
pub struct RotateSpendKey {
    /// Whose key.
    pub merchant_id: MerchantId,
    /// Which key.
    pub spend_key_id: SpendKeyId,
    /// The keyed hash of the new raw key.
    pub key_hash: KeyHash,
    /// What may be shown of the new raw key.
    pub key_preview: String,
    /// Now, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for RotateSpendKey {
    type Outcome = ();

    fn decide(&self, world: &World) -> Result<Decision<()>, Stop> {
        let key = world.spend_key(self.spend_key_id)?.filter(|key| key.merchant_id == self.merchant_id);
        let key = key.ok_or(Refusal::SpendKeyNotFound)?;
        let event = Event::KeyRotated(KeyRotated {
            spend_key_id: self.spend_key_id,
            rotation: key.rotation + 1,
            old_key_hash: key.key_hash.clone(),
            key_hash: self.key_hash.clone(),
            key_preview: self.key_preview.clone(),
        });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
