//! `UpdateSpendKey`: changes the settings or the status of a spend key; absent fields stay (completion.md section 6).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision, list_bytes};
use super::edit::Edit;
use super::refusal::SpendKeyRefusal;
use super::spend_key_snapshot::SpendKeySnapshot;
use crate::event::{
    Event, RateLimit, RequestLimit, RequestShape, SpendKeyStatus, SpendKeyUpdated, SpendLimit,
};
use crate::ids::{MerchantId, SpendKeyId};
use crate::state::{SpendKey, StateCache};

/// The changes of a spend key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpendKeyEdits {
    /// Its display name, if it changes.
    pub name: Option<String>,
    /// Its status, if it changes.
    pub status: Option<SpendKeyStatus>,
    /// Only these models.
    pub allowed_models: Edit<Vec<String>>,
    /// Only these providers.
    pub allowed_providers: Edit<Vec<String>>,
    /// Money per cycle.
    pub spend_limit: Edit<SpendLimit>,
    /// Calls per cycle.
    pub request_limit: Edit<RequestLimit>,
    /// Calls per minute.
    pub rate_limit: Edit<RateLimit>,
    /// When the key expires.
    pub expires_at: Edit<DateTime<Utc>>,
    /// The API format that its owner uses.
    pub request_shape: Edit<RequestShape>,
}

impl SpendKeyEdits {
    fn apply(&self, key: &mut SpendKey) {
        let settings = &mut key.settings;
        edit(&mut settings.allowed_models, &self.allowed_models);
        edit(&mut settings.allowed_providers, &self.allowed_providers);
        edit(&mut settings.spend_limit, &self.spend_limit);
        edit(&mut settings.request_limit, &self.request_limit);
        edit(&mut settings.rate_limit, &self.rate_limit);
        edit(&mut settings.expires_at, &self.expires_at);
        edit(&mut settings.request_shape, &self.request_shape);
        if let Some(name) = &self.name {
            settings.name.clone_from(name);
        }
        key.status = self.status.unwrap_or(key.status);
    }
}

fn edit<T: Clone>(setting: &mut Option<T>, edit: &Edit<T>) {
    match edit {
        Edit::Keep => {}
        Edit::Clear => *setting = None,
        Edit::Set(value) => *setting = Some(value.clone()),
    }
}

/// Changes a spend key and returns it. A change without effect appends nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateSpendKey {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The spend key.
    pub spend_key_id: SpendKeyId,
    /// The changes.
    pub edits: SpendKeyEdits,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for UpdateSpendKey {
    type Outcome = SpendKeySnapshot;

    fn text_bytes(&self) -> usize {
        let lists = [&self.edits.allowed_models, &self.edits.allowed_providers];
        list_bytes(lists.into_iter().filter_map(|edit| match edit {
            Edit::Set(list) => Some(list),
            Edit::Keep | Edit::Clear => None,
        }))
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<SpendKeySnapshot>, DecideError> {
        let key = states.spend_key(self.spend_key_id)?.filter(|key| key.merchant_id == self.merchant_id);
        let key = key.ok_or(SpendKeyRefusal::NotFound)?;
        let spending = states.spending(self.spend_key_id)?.ok_or(SpendKeyRefusal::NotFound)?;
        let mut updated = key.clone();
        self.edits.apply(&mut updated);
        if updated == *key {
            return Ok(Decision::already(SpendKeySnapshot { key: updated, spending: spending.clone() }));
        }
        updated.revision += 1;
        let event = Event::from(SpendKeyUpdated {
            spend_key_id: self.spend_key_id,
            revision: updated.revision,
            status: updated.status,
            settings: updated.settings.clone(),
        });
        let now = SpendKeySnapshot { key: updated, spending: spending.clone() };
        Ok(Decision::append(self.merchant_id, self.now, vec![event], now))
    }
}
