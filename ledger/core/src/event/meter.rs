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

/// A meter (formerly a product) was defined.
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

/// A meter's name or price was changed. Open calls keep the terms of their admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterUpdated {
    /// The meter.
    pub meter_id: MeterId,
    /// Counts the changes of this meter, from 1.
    pub revision: u32,
    /// Its new display name.
    pub name: String,
    /// Its new price.
    #[serde(flatten)]
    pub price: Price,
}

/// A meter was deleted: new calls on it are refused and its slug is free. Earlier calls still refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterDeleted {
    /// The meter.
    pub meter_id: MeterId,
    /// Its slug, which is free again.
    pub meter_slug: String,
}
