//! The events of a merchant's secret keys.

use serde::{Deserialize, Serialize};

use super::kind::area;
use crate::ids::SecretKeyId;
use crate::secret::KeyHash;

area! {
    /// The events of a merchant's secret keys.
    Event::SecretKey(SecretKeyEvent) {
        Issued(SecretKeyIssued) = "secret_key.issued",
        Revoked(SecretKeyRevoked) = "secret_key.revoked",
    }
}

impl SecretKeyEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Issued(event) => format!("{}/issued", event.secret_key_id),
            Self::Revoked(event) => format!("{}/revoked", event.secret_key_id),
        }
    }
}

/// A secret key of a merchant was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKeyIssued {
    /// The key's id.
    pub secret_key_id: SecretKeyId,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
    /// The last four characters of the raw key.
    pub hint: String,
    /// Its name, chosen by the operator.
    pub name: String,
}

/// A secret key was revoked: it is invalid from this position on. A merchant's last key is never revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKeyRevoked {
    /// The key's id.
    pub secret_key_id: SecretKeyId,
    /// The hash, which is invalid now.
    pub key_hash: KeyHash,
}
