//! The fold: one row per spend key, and one per cycle in which it was used. Of several changes of a key within a batch
//! only the last is written. Spending is only ever added.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{Cycle, Event, KeyUse, Recorded, RequestEvent, SpendKeyEvent, SpendKeyStatus};
use farthing_core::ids::{CustomerId, MerchantId, SpendKeyId, WalletId};
use farthing_core::money::Amount;
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use crate::column::{json, storable};
use crate::engine::Projection;

/// New rows, and the changes of keys.
#[derive(Debug, Default)]
pub(crate) struct SpendKeyBatch {
    pub(super) new: Vec<NewSpendKey>,
    pub(super) rotated: BTreeMap<SpendKeyId, RotatedSpendKey>,
    pub(super) updated: BTreeMap<SpendKeyId, UpdatedSpendKey>,
    pub(super) used: BTreeMap<SpendKeyId, DateTime<Utc>>,
    pub(super) spending: BTreeMap<(SpendKeyId, Cycle, DateTime<Utc>), Spending>,
    pub(super) deleted: BTreeMap<SpendKeyId, DateTime<Utc>>,
}

/// A row of the table `spend_keys`.
#[derive(Debug)]
pub(super) struct NewSpendKey {
    pub(super) spend_key_id: SpendKeyId,
    pub(super) merchant_id: MerchantId,
    pub(super) wallet_id: WalletId,
    pub(super) connection_id: Option<CustomerId>,
    pub(super) key_preview: String,
    pub(super) settings: String,
    pub(super) spend_cycle: Cycle,
    pub(super) request_cycle: Cycle,
    pub(super) created_at: DateTime<Utc>,
}

/// The new values of a rotated key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RotatedSpendKey {
    pub(super) rotation: i32,
    pub(super) key_preview: String,
}

/// The new values of an updated key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UpdatedSpendKey {
    pub(super) status: SpendKeyStatus,
    pub(super) settings: String,
    pub(super) spend_cycle: Cycle,
    pub(super) request_cycle: Cycle,
}

/// The spending that is added to a cycle of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spending {
    pub(super) spent: Decimal,
    pub(super) requests: i64,
}

impl SpendKeyBatch {
    fn admit(&mut self, key: Option<KeyUse>) {
        let Some(KeyUse { spend_key_id, admitted_at, .. }) = key else { return };
        self.used.insert(spend_key_id, admitted_at);
        for cycle in Cycle::ALL {
            let spending = self.spending.entry((spend_key_id, cycle, cycle.start(admitted_at)));
            spending.or_default().requests += 1;
        }
    }

    /// Adds the cost of a call to the cycles of its admission, by the same rule as the decisions.
    fn settle(&mut self, key: Option<KeyUse>, cost: Amount) {
        let Some(KeyUse { spend_key_id, admitted_at, .. }) = key else { return };
        for cycle in Cycle::ALL {
            let spending = self.spending.entry((spend_key_id, cycle, cycle.start(admitted_at)));
            // Amounts have at most 22 digits, so the sum of a batch has at most 28.
            spending.or_default().spent += cost.decimal();
        }
    }
}

impl Projection for SpendKeyBatch {
    const MODEL: ReadModel = ReadModel::SpendKeys;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::SpendKey(SpendKeyEvent::Created(event)) => {
                self.new.push(NewSpendKey {
                    spend_key_id: event.spend_key_id,
                    merchant_id: fact.merchant_id,
                    wallet_id: event.wallet_id,
                    connection_id: event.customer_id,
                    key_preview: storable(&event.key_preview),
                    settings: json(&event.settings),
                    spend_cycle: event.settings.spend_cycle(),
                    request_cycle: event.settings.request_cycle(),
                    created_at: fact.occurred_at,
                });
            }
            Event::SpendKey(SpendKeyEvent::Rotated(event)) => {
                let rotated = RotatedSpendKey {
                    rotation: i32::try_from(event.rotation).unwrap_or(i32::MAX),
                    key_preview: storable(&event.key_preview),
                };
                self.rotated.insert(event.spend_key_id, rotated);
            }
            Event::SpendKey(SpendKeyEvent::Updated(event)) => {
                let updated = UpdatedSpendKey {
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
                self.settle(event.spend_key, event.total_request_cost);
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
        self.new.is_empty()
            && self.rotated.is_empty()
            && self.updated.is_empty()
            && self.used.is_empty()
            && self.spending.is_empty()
            && self.deleted.is_empty()
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
    fn of_several_rotations_the_last_is_written() {
        let id = key();
        let rotated = |rotation: u32, preview: &str| {
            let body = json!({"spend_key_id": id, "rotation": rotation, "old_key_hash": "", "key_hash": "",
                              "key_preview": preview});
            sample::event("key.rotated", &body)
        };
        let batch: SpendKeyBatch = sample::fold(vec![rotated(1, "spk_aaaa****"), rotated(2, "spk_bbbb****")]);
        let last = RotatedSpendKey { rotation: 2, key_preview: "spk_bbbb****".to_owned() };
        assert_eq!(batch.rotated.into_iter().collect::<Vec<_>>(), [(id, last)]);
        assert!(batch.new.is_empty());
    }

    #[test]
    fn a_call_counts_in_every_cycle_of_its_admission() {
        let spend_key_id = key();
        let opened = |at: &str| {
            let spend_key = Some(KeyUse { spend_key_id, admitted_at: at.parse().unwrap(), held: None });
            Event::from(Box::new(RequestOpened { spend_key, ..sample::opened() }))
        };
        // A Sunday's last millisecond and the Monday after it.
        let (sunday, monday) = ("2026-11-22T23:59:59.999Z", "2026-11-23T00:00:00Z");
        let batch: SpendKeyBatch = sample::fold(vec![opened(sunday), opened(monday), opened(monday)]);
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
