//! The fold: one row per meter. A meter that is defined and changed within one batch is written once.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, MeterEvent, Recorded};
use farthing_core::ids::MeterId;
use farthing_core::meter::Price;
use farthing_schema::read_model::ReadModel;

use crate::column::{json, storable};
use crate::engine::Projection;

/// New rows, and the changes of existing ones.
#[derive(Debug, Default)]
pub(crate) struct MeterBatch {
    pub(super) new: BTreeMap<MeterId, NewMeter>,
    pub(super) updated: BTreeMap<MeterId, MeterUpdate>,
    pub(super) deleted: BTreeMap<MeterId, DateTime<Utc>>,
}

/// A row of the table `meters`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewMeter {
    pub(super) merchant_id: String,
    pub(super) meter_slug: String,
    pub(super) current: MeterUpdate,
    pub(super) created_at: DateTime<Utc>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
}

/// The new values of an updated meter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MeterUpdate {
    pub(super) name: String,
    /// JSON text.
    pub(super) price: String,
}

impl MeterUpdate {
    fn of(name: &str, price: &Price) -> Self {
        Self { name: storable(name), price: json(price) }
    }
}

impl Projection for MeterBatch {
    const MODEL: ReadModel = ReadModel::Meters;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Meter(MeterEvent::Defined(event)) => {
                let row = NewMeter {
                    merchant_id: fact.merchant_id.to_string(),
                    meter_slug: storable(&event.meter_slug),
                    current: MeterUpdate::of(&event.name, &event.price),
                    created_at: fact.occurred_at,
                    deleted_at: None,
                };
                self.new.insert(event.meter_id, row);
            }
            Event::Meter(MeterEvent::Updated(event)) => {
                let current = MeterUpdate::of(&event.name, &event.price);
                match self.new.get_mut(&event.meter_id) {
                    Some(row) => row.current = current,
                    None => drop(self.updated.insert(event.meter_id, current)),
                }
            }
            Event::Meter(MeterEvent::Deleted(event)) => match self.new.get_mut(&event.meter_id) {
                Some(row) => row.deleted_at = Some(fact.occurred_at),
                None => drop(self.deleted.insert(event.meter_id, fact.occurred_at)),
            },
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
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
        self.new.is_empty() && self.updated.is_empty() && self.deleted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::{MeterDefined, MeterDeleted, MeterUpdated};
    use farthing_core::ids::Mint;
    use farthing_core::meter::{OnDisconnect, Payer, RateType, Tier, TierType, Tiers, TokenBasis};
    use rust_decimal::Decimal;

    use super::*;
    use crate::sample;

    fn price(rate: &str) -> Price {
        Price {
            rate_type: RateType::Fixed,
            tier_type: TierType::Requests,
            tiers: Tiers::new(vec![Tier { start: Decimal::ZERO, rate: rate.parse().unwrap() }]).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Wallet,
            on_disconnect: OnDisconnect::Complete,
            max_fee: None,
        }
    }

    fn life(meter_id: MeterId) -> [Event; 3] {
        let meter_slug = "calls".to_owned();
        [
            Event::from(MeterDefined {
                meter_id,
                meter_slug: meter_slug.clone(),
                name: "Calls".to_owned(),
                price: price("1"),
            }),
            Event::from(MeterUpdated {
                meter_id,
                revision: 1,
                name: "Calls, cheaper".to_owned(),
                price: price("0.5"),
            }),
            Event::from(MeterDeleted { meter_id, meter_slug }),
        ]
    }

    #[test]
    fn a_meter_that_is_defined_and_deleted_in_one_batch_is_one_row() {
        let id = MeterId::new(Mint::default().next(DateTime::UNIX_EPOCH));
        let batch: MeterBatch = sample::fold(life(id).into());
        assert!(batch.updated.is_empty() && batch.deleted.is_empty());
        let row = &batch.new[&id];
        assert_eq!(row.current, MeterUpdate::of("Calls, cheaper", &price("0.5")));
        assert_eq!(row.deleted_at, Some(DateTime::UNIX_EPOCH));
    }

    #[test]
    fn a_meter_of_an_earlier_batch_is_changed_in_its_row() {
        let id = MeterId::new(Mint::default().next(DateTime::UNIX_EPOCH));
        let [_, updated, deleted] = life(id);
        let batch: MeterBatch = sample::fold(vec![updated, deleted]);
        assert!(batch.new.is_empty() && !batch.is_empty());
        assert_eq!(batch.updated[&id].name, "Calls, cheaper");
        assert_eq!(batch.deleted[&id], DateTime::UNIX_EPOCH);
    }
}
