//! `IssueSecretKey`: issues a secret key for a merchant; for operators only.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::MerchantRefusal;
use crate::event::{Event, SecretKeyIssued};
use crate::ids::{MerchantId, SecretKeyId};
use crate::secret::KeyHash;
use crate::state::StateCache;

/// Issues a secret key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssueSecretKey {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id for it.
    pub secret_key_id: SecretKeyId,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
    /// The last four characters of the raw key.
    pub hint: String,
    /// Its name, chosen by the operator.
    pub name: String,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl IssueSecretKey {
    pub(super) fn event(&self) -> Event {
        Event::from(SecretKeyIssued {
            secret_key_id: self.secret_key_id,
            key_hash: self.key_hash.clone(),
            hint: self.hint.clone(),
            name: self.name.clone(),
        })
    }
}

impl Command for IssueSecretKey {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        states.merchant(self.merchant_id)?.ok_or(MerchantRefusal::NotFound)?;
        Ok(Decision::append(self.merchant_id, self.now, vec![self.event()], ()))
    }
}
