//! `UpdateMeter`: changes the name or the price of a meter. The quantity that a meter counts and the terms of admitted
//! calls never change (completion.md section 4).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::edit::Edit;
use super::refusal::MeterRefusal;
use crate::event::{Event, MeterUpdated};
use crate::ids::{MerchantId, MeterId};
use crate::meter::{OnDisconnect, Payer, Price, Tiers};
use crate::money::Amount;
use crate::state::{Meter, StateCache};

/// Changes the fields of a meter that are present and returns the meter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateMeter {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The meter.
    pub meter_id: MeterId,
    /// Its display name.
    pub name: Option<String>,
    /// Its graduated rates.
    pub tiers: Option<Tiers>,
    /// Who pays the provider's cost.
    pub base_cost_payer: Option<Payer>,
    /// Who pays the service charge.
    pub service_charge_payer: Option<Payer>,
    /// What happens to a call whose caller disconnects.
    pub on_disconnect: Option<OnDisconnect>,
    /// The largest fee of one call.
    #[serde(default)]
    pub max_fee: Edit<Amount>,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for UpdateMeter {
    type Outcome = Box<Meter>;

    fn decide(&self, states: &StateCache) -> Result<Decision<Box<Meter>>, DecideError> {
        let meter = states.meter(self.meter_id)?.filter(|meter| meter.merchant_id == self.merchant_id);
        let meter = meter.ok_or(MeterRefusal::NotFound)?;
        let price = Price {
            tiers: self.tiers.clone().unwrap_or_else(|| meter.price.tiers.clone()),
            base_cost_payer: self.base_cost_payer.unwrap_or(meter.price.base_cost_payer),
            service_charge_payer: self.service_charge_payer.unwrap_or(meter.price.service_charge_payer),
            on_disconnect: self.on_disconnect.unwrap_or(meter.price.on_disconnect),
            max_fee: match self.max_fee {
                Edit::Keep => meter.price.max_fee,
                Edit::Clear => None,
                Edit::Set(amount) => Some(amount),
            },
            ..meter.price.clone()
        };
        let name = self.name.clone().unwrap_or_else(|| meter.name.clone());
        if name == meter.name && price == meter.price {
            return Ok(Decision::already(meter.clone().into()));
        }
        let revision = meter.revision + 1;
        let event = Event::from(MeterUpdated {
            meter_id: self.meter_id,
            revision,
            name: name.clone(),
            price: price.clone(),
        });
        let updated = Meter { name, price, revision, ..meter.clone() };
        Ok(Decision::append(self.merchant_id, self.now, vec![event], updated.into()))
    }
}
