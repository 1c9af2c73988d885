//! The fold: one row per issued key, and its revocation.

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, Recorded, SecretKeyEvent};
use farthing_core::ids::{MerchantId, SecretKeyId};
use farthing_schema::read_model::ReadModel;

use crate::column::storable;
use crate::engine::Projection;

/// New rows, and the keys that were revoked.
#[derive(Debug, Default)]
pub(crate) struct SecretKeyBatch {
    pub(super) new: Vec<NewSecretKey>,
    pub(super) revoked: Vec<RevokedSecretKey>,
}

/// A row of the table `secret_keys`.
#[derive(Debug)]
pub(super) struct NewSecretKey {
    pub(super) secret_key_id: SecretKeyId,
    pub(super) merchant_id: MerchantId,
    pub(super) name: String,
    pub(super) hint: String,
    pub(super) created_at: DateTime<Utc>,
}

/// The end of a key.
#[derive(Debug)]
pub(super) struct RevokedSecretKey {
    pub(super) secret_key_id: SecretKeyId,
    pub(super) revoked_at: DateTime<Utc>,
}

impl Projection for SecretKeyBatch {
    const MODEL: ReadModel = ReadModel::SecretKeys;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::SecretKey(SecretKeyEvent::Issued(event)) => {
                self.new.push(NewSecretKey {
                    secret_key_id: event.secret_key_id,
                    merchant_id: fact.merchant_id,
                    name: storable(&event.name),
                    hint: storable(&event.hint),
                    created_at: fact.occurred_at,
                });
            }
            Event::SecretKey(SecretKeyEvent::Revoked(event)) => {
                let secret_key_id = event.secret_key_id;
                self.revoked.push(RevokedSecretKey { secret_key_id, revoked_at: fact.occurred_at });
            }
            Event::Merchant(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Wallet(_)
            | Event::Request(_)
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.revoked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn a_key_that_is_issued_and_revoked_in_one_batch_is_a_row_and_a_revocation() {
        let id = "key_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let issued = json!({"secret_key_id": id, "key_hash": "", "hint": "abcd", "name": "a"});
        let revoked = json!({"secret_key_id": id, "key_hash": ""});
        let events =
            vec![sample::event("secret_key.issued", &issued), sample::event("secret_key.revoked", &revoked)];
        let batch: SecretKeyBatch = sample::fold(events);
        let ids = (batch.new[0].secret_key_id.to_string(), batch.revoked[0].secret_key_id.to_string());
        assert_eq!(ids, (id.to_owned(), id.to_owned()));
        assert!(!batch.is_empty());
    }
}
