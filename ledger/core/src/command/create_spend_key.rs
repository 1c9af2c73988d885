//! `CreateSpendKey`: creates a restricted key on the merchant's or a customer's wallet (completion.md section 6).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision, list_bytes};
use super::refusal::{CustomerRefusal, MerchantRefusal};
use super::spend_key_snapshot::SpendKeySnapshot;
use crate::event::{Event, SpendKeyCreated, SpendKeySettings, SpendKeyStatus, SpendKeyUpdated};
use crate::ids::{CustomerId, MerchantId, SpendKeyId};
use crate::secret::KeyHash;
use crate::spending::Spending;
use crate::state::{SpendKey, StateCache};

/// Creates a spend key and returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSpendKey {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id.
    pub spend_key_id: SpendKeyId,
    /// The customer whose wallet it spends from; `None` if it is the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
    /// The part of the raw key that may be shown.
    pub key_preview: String,
    /// Its name and limits.
    pub settings: SpendKeySettings,
    /// Its status. Left out if it is active: a leader that does not know the field refuses it.
    #[serde(default, skip_serializing_if = "SpendKeyStatus::is_active")]
    pub status: SpendKeyStatus,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for CreateSpendKey {
    type Outcome = SpendKeySnapshot;

    fn text_bytes(&self) -> usize {
        let SpendKeySettings { allowed_models, allowed_providers, .. } = &self.settings;
        list_bytes(allowed_models.iter().chain(allowed_providers))
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<SpendKeySnapshot>, DecideError> {
        let wallet_id = match self.customer_id {
            Some(id) => {
                let customer =
                    states.customer(id)?.filter(|customer| customer.merchant_id == self.merchant_id);
                customer.ok_or(CustomerRefusal::NotFound)?.wallet_id
            }
            None => states.merchant(self.merchant_id)?.ok_or(MerchantRefusal::NotFound)?.wallet_id,
        };
        let created = Event::from(SpendKeyCreated {
            spend_key_id: self.spend_key_id,
            wallet_id,
            customer_id: self.customer_id,
            key_hash: self.key_hash.clone(),
            key_preview: self.key_preview.clone(),
            settings: self.settings.clone(),
        });
        // A key is created active, so readers of every release learn from the update that it is paused. No call comes between
        // events of one append.
        let paused = (!self.status.is_active()).then(|| {
            Event::from(SpendKeyUpdated {
                spend_key_id: self.spend_key_id,
                revision: 1,
                status: self.status,
                settings: self.settings.clone(),
            })
        });
        let created_at = states.now(self.merchant_id, self.now)?;
        let key = SpendKey {
            merchant_id: self.merchant_id,
            wallet_id,
            customer_id: self.customer_id,
            key_hash: self.key_hash.clone(),
            key_preview: self.key_preview.clone(),
            rotation: 0,
            revision: u32::from(paused.is_some()),
            status: self.status,
            settings: self.settings.clone(),
            created_at,
        };
        let now = SpendKeySnapshot { key, spending: Spending::new(self.settings.rate_limit, created_at) };
        let events = std::iter::once(created).chain(paused).collect();
        Ok(Decision::append(self.merchant_id, self.now, events, now))
    }
}
