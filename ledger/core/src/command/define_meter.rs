//! `DefineMeter`: defines a meter. Its slug is unique among the merchant's meters (completion.md section 4).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::MeterRefusal;
use crate::event::{Event, MeterDefined};
use crate::ids::{MerchantId, MeterId};
use crate::meter::Price;
use crate::state::{StateCache, StateKey};

/// The maximum number of numbered variants of a generated slug.
const MAX_VARIANTS: u32 = 50;

/// The origin of a slug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slug {
    /// The merchant chose it: a conflict is refused.
    Given(String),
    /// Generated from the name, and numbered until it is free.
    Made(String),
}

/// Defines a meter and returns its slug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefineMeter {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id.
    pub meter_id: MeterId,
    /// Its slug.
    pub slug: Slug,
    /// Its display name.
    pub name: String,
    /// Its price.
    pub price: Price,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl DefineMeter {
    fn free_slug(&self, states: &StateCache) -> Result<String, DecideError> {
        let base = match &self.slug {
            Slug::Given(slug) => {
                return match states.meter_slug(self.merchant_id, slug)? {
                    None => Ok(slug.clone()),
                    Some(_) => Err(MeterRefusal::SlugTaken.into()),
                };
            }
            Slug::Made(base) => base,
        };
        if states.meter_slug(self.merchant_id, base)?.is_none() {
            return Ok(base.clone());
        }
        let variants: Vec<_> = (2..=MAX_VARIANTS).map(|variant| format!("{base}-{variant}")).collect();
        states.require(variants.iter().map(|slug| StateKey::MeterSlug(self.merchant_id, slug.clone())))?;
        for slug in variants {
            if states.meter_slug(self.merchant_id, &slug)?.is_none() {
                return Ok(slug);
            }
        }
        Err(MeterRefusal::SlugTaken.into())
    }
}

impl Command for DefineMeter {
    type Outcome = String;

    fn decide(&self, states: &StateCache) -> Result<Decision<String>, DecideError> {
        let meter_slug = self.free_slug(states)?;
        let event = Event::from(MeterDefined {
            meter_id: self.meter_id,
            meter_slug: meter_slug.clone(),
            name: self.name.clone(),
            price: self.price.clone(),
        });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], meter_slug))
    }
}
