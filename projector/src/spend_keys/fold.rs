//! The fold: one row per spend key, and one per cycle in which it was used. Of several changes to a key within a
//! batch only the last is written; what it spent only ever adds up.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{Cycle, Event, KeyUse, Recorded, RequestEvent, SpendKeyEvent, SpendKeyStatus};
use farthing_core::ids::SpendKeyId;
use farthing_core::money::Amount;
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use crate::column::{json, storable, word};
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, column by column, and what becomes of keys.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) fresh: Fresh,
    pub(super) rotated: BTreeMap<SpendKeyId, Rotated>,
    pub(super) updated: BTreeMap<SpendKeyId, Updated>,
    pub(super) used: BTreeMap<SpendKeyId, DateTime<Utc>>,
    pub(super) spending: BTreeMap<(SpendKeyId, Cycle, DateTime<Utc>), Spending>,
    pub(super) deleted: BTreeMap<SpendKeyId, DateTime<Utc>>,
}

/// New rows of the table `spend_keys`.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub(super) spend_key_id: Vec<String>,
    pub(super) merchant_id: Vec<String>,
    pub(super) wallet_id: Vec<String>,
    pub(super) connection_id: Vec<Option<String>>,
    pub(super) key_preview: Vec<String>,
    pub(super) settings: Vec<String>,
    pub(super) spend_cycle: Vec<String>,
    pub(super) request_cycle: Vec<String>,
    pub(super) created_at: Vec<DateTime<Utc>>,
}

/// How a key is shown after a rotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rotated {
    pub(super) rotation: i32,
    pub(super) key_preview: String,
}

/// What a key allows after an update.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Updated {
    pub(super) status: SpendKeyStatus,
    pub(super) settings: String,
    pub(super) spend_cycle: Cycle,
    pub(super) request_cycle: Cycle,
}

/// What comes to a cycle of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spending {
    pub(super) spent: Decimal,
    pub(super) requests: i64,
}

impl Batch {
    fn admit(&mut self, key: Option<KeyUse>) {
        let Some(KeyUse { spend_key_id, admitted_at }) = key else { return };
        self.used.insert(spend_key_id, admitted_at);
        for cycle in Cycle::ALL {
            let spending = self.spending.entry((spend_key_id, cycle, cycle.start(admitted_at)));
            spending.or_default().requests += 1;
        }
    }

    /// A call counts in the cycles of its admission, as the decisions have it.
    fn settle(&mut self, key: Option<KeyUse>, cost: Amount) {
        let Some(KeyUse { spend_key_id, admitted_at }) = key else { return };
        for cycle in Cycle::ALL {
            let spending = self.spending.entry((spend_key_id, cycle, cycle.start(admitted_at)));
            // Amounts have 22 digits at most: a batch of them stays within a decimal's 28.
            spending.or_default().spent += cost.decimal();
        }
    }
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::SpendKeys;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::SpendKey(SpendKeyEvent::Created(event)) => {
                let fresh = &mut self.fresh;
                fresh.spend_key_id.push(event.spend_key_id.to_string());
                fresh.merchant_id.push(fact.merchant_id.to_string());
                fresh.wallet_id.push(event.wallet_id.to_string());
                fresh.connection_id.push(event.customer_id.map(|id| id.to_string()));
                fresh.key_preview.push(storable(&event.key_preview).into_owned());
                fresh.settings.push(json(&event.settings));
                fresh.spend_cycle.push(word(event.settings.spend_cycle()));
                fresh.request_cycle.push(word(event.settings.request_cycle()));
                fresh.created_at.push(fact.occurred_at);
            }
            Event::SpendKey(SpendKeyEvent::Rotated(event)) => {
                let rotated = Rotated {
                    rotation: i32::try_from(event.rotation).unwrap_or(i32::MAX),
                    key_preview: storable(&event.key_preview).into_owned(),
                };
                self.rotated.insert(event.spend_key_id, rotated);
            }
            Event::SpendKey(SpendKeyEvent::Updated(event)) => {
                let updated = Updated {
                    status: event.status,
                    settings: json(&event.settings),
                    spend_cycle: event.settings.spend_cycle(),
                    request_cycle: event.settings.request_cycle(),
                };
                self.updated.insert(event.spend_key_id, updated);
            }
            Event::SpendKey(SpendKeyEvent::Deleted(event)) => {
                self.deleted.insert(event.spend_key_id, fact.occurred_at);
            }
            Event::Request(RequestEvent::Opened(event)) => self.admit(event.spend_key),
            Event::Request(RequestEvent::Metered(event)) => {
                self.settle(event.spend_key, event.total_request_cost)
            }
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::Wallet(_)
            | Event::Request(RequestEvent::Failed(_))
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.fresh.spend_key_id.is_empty()
            && self.rotated.is_empty()
            && self.updated.is_empty()
            && self.used.is_empty()
            && self.spending.is_empty()
            && self.deleted.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert(db).await?;
        self.rotate(db).await?;
        self.update(db).await?;
        self.mark_used(db).await?;
        self.add_spending(db).await?;
        // Last: nothing but its place in the list is left of a key that was deleted, whatever else the batch says.
        self.delete(db).await
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::RequestOpened;
    use farthing_core::ids::Mint;
    use serde_json::json;

    use super::*;
    use crate::sample;

    fn key() -> SpendKeyId {
        SpendKeyId::new(Mint::default().next(DateTime::UNIX_EPOCH))
    }

    #[test]
    fn of_several_rotations_the_last_counts() {
        let id = key();
        let rotated = |rotation: u32, preview: &str| {
            let body = json!({"spend_key_id": id, "rotation": rotation, "old_key_hash": "", "key_hash": "",
                              "key_preview": preview});
            sample::event("key.rotated", &body)
        };
        let batch: Batch = sample::fold(vec![rotated(1, "spk_aaaa****"), rotated(2, "spk_bbbb****")]);
        let last = Rotated { rotation: 2, key_preview: "spk_bbbb****".to_owned() };
        assert_eq!(batch.rotated.into_iter().collect::<Vec<_>>(), [(id, last)]);
        assert!(batch.fresh.spend_key_id.is_empty());
    }

    #[test]
    fn a_call_counts_in_every_cycle_of_its_admission() {
        let spend_key_id = key();
        let opened = |at: &str| {
            let spend_key = Some(KeyUse { spend_key_id, admitted_at: at.parse().unwrap() });
            Event::from(Box::new(RequestOpened { spend_key, ..sample::opened() }))
        };
        // A Sunday's last millisecond and the Monday after it.
        let (sunday, monday) = ("2026-11-22T23:59:59.999Z", "2026-11-23T00:00:00Z");
        let batch: Batch = sample::fold(vec![opened(sunday), opened(monday), opened(monday)]);
        let requests = |cycle: Cycle, start: &str| {
            batch.spending[&(spend_key_id, cycle, start.parse().unwrap())].requests
        };
        assert_eq!(requests(Cycle::Daily, "2026-11-22T00:00:00Z"), 1);
        assert_eq!(requests(Cycle::Daily, "2026-11-23T00:00:00Z"), 2);
        assert_eq!(requests(Cycle::Weekly, "2026-11-16T00:00:00Z"), 1);
        assert_eq!(requests(Cycle::Weekly, "2026-11-23T00:00:00Z"), 2);
        assert_eq!(requests(Cycle::Monthly, "2026-11-01T00:00:00Z"), 3);
        assert_eq!(requests(Cycle::Total, "1970-01-01T00:00:00Z"), 3);
        assert_eq!(batch.used[&spend_key_id], monday.parse::<DateTime<Utc>>().unwrap());
    }
}
