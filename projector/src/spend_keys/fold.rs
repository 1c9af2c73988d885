//! The fold: one row per spend key. Of several rotations within a batch only the last is written.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_ledger::event::{Event, Recorded};
use farthing_ledger::ids::SpendKeyId;
use farthing_schema::read_model::ReadModel;

use crate::column::{json, storable};
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, column by column, and the last rotation of each key that was rotated.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) spend_key_id: Vec<String>,
    pub(super) merchant_id: Vec<String>,
    pub(super) wallet_id: Vec<String>,
    pub(super) connection_id: Vec<Option<String>>,
    pub(super) key_preview: Vec<String>,
    pub(super) settings: Vec<String>,
    pub(super) created_at: Vec<DateTime<Utc>>,
    pub(super) rotated: BTreeMap<SpendKeyId, Rotated>,
}

/// How a key is shown after a rotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rotated {
    pub(super) rotation: i32,
    pub(super) key_preview: String,
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::SpendKeys;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::SpendKeyCreated(event) => {
                self.spend_key_id.push(event.spend_key_id.to_string());
                self.merchant_id.push(fact.merchant_id.to_string());
                self.wallet_id.push(event.wallet_id.to_string());
                self.connection_id.push(event.customer_id.map(|id| id.to_string()));
                self.key_preview.push(storable(&event.key_preview).into_owned());
                self.settings.push(json(&event.settings));
                self.created_at.push(fact.occurred_at);
            }
            Event::KeyRotated(event) => {
                let rotated = Rotated {
                    rotation: i32::try_from(event.rotation).unwrap_or(i32::MAX),
                    key_preview: storable(&event.key_preview).into_owned(),
                };
                self.rotated.insert(event.spend_key_id, rotated);
            }
            Event::MerchantRegistered(_)
            | Event::SecretKeyIssued(_)
            | Event::CustomerCreated(_)
            | Event::MeterDefined(_)
            | Event::WalletCredited(_)
            | Event::RequestOpened(_)
            | Event::RequestMetered(_)
            | Event::WalletDebited(_)
            | Event::RequestFailed(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.spend_key_id.is_empty() && self.rotated.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert(db).await?;
        self.rotate(db).await
    }
}

#[cfg(test)]
mod tests {
    use farthing_ledger::ids::Mint;
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn of_several_rotations_the_last_counts() {
        let id = SpendKeyId::new(Mint::default().next(DateTime::UNIX_EPOCH));
        let rotated = |rotation: u32, preview: &str| {
            let body = json!({"spend_key_id": id, "rotation": rotation, "old_key_hash": "", "key_hash": "",
                              "key_preview": preview});
            sample::event("key.rotated", &body)
        };
        let batch: Batch = sample::fold(vec![rotated(1, "spk_aaaa****"), rotated(2, "spk_bbbb****")]);
        let last = Rotated { rotation: 2, key_preview: "spk_bbbb****".to_owned() };
        assert_eq!(batch.rotated.into_iter().collect::<Vec<_>>(), [(id, last)]);
        assert!(batch.spend_key_id.is_empty());
    }
}
