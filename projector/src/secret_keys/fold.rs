//! The fold: a row per issued key, and the end of those that were revoked.

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, Recorded, SecretKeyEvent};
use farthing_schema::read_model::ReadModel;

use crate::column::storable;
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, column by column, and revocations.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) secret_key_id: Vec<String>,
    pub(super) merchant_id: Vec<String>,
    pub(super) name: Vec<String>,
    pub(super) hint: Vec<String>,
    pub(super) created_at: Vec<DateTime<Utc>>,
    pub(super) revoked_id: Vec<String>,
    pub(super) revoked_at: Vec<DateTime<Utc>>,
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::SecretKeys;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::SecretKey(SecretKeyEvent::Issued(event)) => {
                self.secret_key_id.push(event.secret_key_id.to_string());
                self.merchant_id.push(fact.merchant_id.to_string());
                self.name.push(storable(&event.name).into_owned());
                self.hint.push(storable(&event.hint).into_owned());
                self.created_at.push(fact.occurred_at);
            }
            Event::SecretKey(SecretKeyEvent::Revoked(event)) => {
                self.revoked_id.push(event.secret_key_id.to_string());
                self.revoked_at.push(fact.occurred_at);
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
        self.secret_key_id.is_empty() && self.revoked_id.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert(db).await?;
        self.revoke(db).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn a_key_that_is_issued_and_revoked_in_one_batch_is_both() {
        let id = "key_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let issued = json!({"secret_key_id": id, "key_hash": "", "hint": "abcd", "name": "a"});
        let revoked = json!({"secret_key_id": id, "key_hash": ""});
        let events =
            vec![sample::event("secret_key.issued", &issued), sample::event("secret_key.revoked", &revoked)];
        let batch: Batch = sample::fold(events);
        assert_eq!((&batch.secret_key_id, &batch.revoked_id), (&vec![id.to_owned()], &vec![id.to_owned()]));
        assert!(!batch.is_empty());
    }
}
