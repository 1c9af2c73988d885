//! `RevokeSecretKey`: revokes a secret key on every gateway. Invariant: a merchant keeps at least one active key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::{MerchantRefusal, SecretKeyRefusal};
use crate::event::{Event, SecretKeyRevoked};
use crate::ids::{MerchantId, SecretKeyId};
use crate::state::StateCache;

/// The party that revokes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revoker {
    /// A merchant, which may revoke its own keys.
    Merchant(MerchantId),
    /// The operator, who may revoke any key.
    Operator,
}

/// Revokes a secret key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeSecretKey {
    /// The party that revokes it.
    pub revoker: Revoker,
    /// The secret key.
    pub secret_key_id: SecretKeyId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for RevokeSecretKey {
    /// The merchant that owned the key.
    type Outcome = MerchantId;

    fn decide(&self, states: &StateCache) -> Result<Decision<MerchantId>, DecideError> {
        let key = states.issued_key(self.secret_key_id)?.ok_or(SecretKeyRefusal::NotFound)?;
        let allowed = match self.revoker {
            Revoker::Merchant(merchant_id) => key.merchant_id == merchant_id,
            Revoker::Operator => true,
        };
        if !allowed {
            return Err(SecretKeyRefusal::NotFound.into());
        }
        let merchant = states.merchant(key.merchant_id)?.ok_or(MerchantRefusal::NotFound)?;
        if merchant.secret_keys <= 1 {
            return Err(SecretKeyRefusal::LastRemaining.into());
        }
        let revoked = SecretKeyRevoked { secret_key_id: self.secret_key_id, key_hash: key.key_hash.clone() };
        let events = vec![Event::from(revoked)];
        Ok(Decision::append(key.merchant_id, self.now, events, key.merchant_id))
    }
}
