//! The events of meters.

use serde::{Deserialize, Serialize};

use super::kind::area;
use crate::ids::MeterId;
use crate::meter::Price;

area! {
    /// The events of a meter.
    Event::Meter(MeterEvent) {
        Defined(MeterDefined) = "meter.defined",
        Updated(MeterUpdated) = "meter.updated",
        Deleted(MeterDeleted) = "meter.deleted",
    }
}

impl MeterEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Defined(event) => format!("{}/defined", event.meter_id),
            Self::Updated(event) => format!("{}/updated/{}", event.meter_id, event.revision),
            Self::Deleted(event) => format!("{}/deleted", event.meter_id),
        }
    }
}

/// A meter (in the older words a product) was defined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterDefined {
    /// The meter.
    pub meter_id: MeterId,
    /// Unique among the merchant's meters.
    pub meter_slug: String,
    /// Its display name.
    pub name: String,
    /// Its price.
    #[serde(flatten)]
    pub price: Price,
}

/// A meter's name or price was changed; calls admitted before keep the terms they were admitted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterUpdated {
    /// The meter.
    pub meter_id: MeterId,
    /// Counts the changes of this meter, from 1.
    pub revision: u32,
    /// Its display name from now on.
    pub name: String,
    /// Its price from now on.
    #[serde(flatten)]
    pub price: Price,
}

/// A meter is no more: calls that name it are refused, its slug is free again. Calls made on it keep naming it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterDeleted {
    /// The meter.
    pub meter_id: MeterId,
    /// The slug that is free again.
    pub meter_slug: String,
}
