//! Meters: a merchant's prices for usage. A meter's terms are frozen into each request at admission, so
//! replay never needs current prices (completion.md sections 3 and 4).

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::ids::MeterId;
use crate::money::Amount;

/// Who pays a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Payer {
    /// The customer's wallet.
    Wallet,
    /// The merchant's own wallet.
    Merchant,
}

/// The unit of a meter's rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RateType {
    /// Dollars per unit.
    Fixed,
    /// Percent points of the provider's cost.
    Percentage,
}

/// The quantity that a meter counts. A rate is per the unit in the name; tier usage is in plain tokens, characters,
/// seconds or calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TierType {
    /// Rate per 1,000,000 tokens.
    #[serde(rename = "tokens_1m")]
    Tokens1m,
    /// Rate per 1,000,000 characters.
    #[serde(rename = "characters_1m")]
    Characters1m,
    /// Rate per 60 seconds; tier usage in seconds.
    #[serde(rename = "minutes")]
    Minutes,
    /// Rate per call.
    #[serde(rename = "requests")]
    Requests,
}

impl TierType {
    /// How many counted units (tokens, characters, seconds, calls) one rate pays for.
    pub fn units_per_rate(self) -> Decimal {
        match self {
            Self::Tokens1m | Self::Characters1m => Decimal::from(1_000_000),
            Self::Minutes => Decimal::from(60),
            Self::Requests => Decimal::ONE,
        }
    }

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens1m => "tokens_1m",
            Self::Characters1m => "characters_1m",
            Self::Minutes => "minutes",
            Self::Requests => "requests",
        }
    }
}

/// The direction of the tokens, characters or seconds of a call that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TokenBasis {
    /// Both directions.
    #[default]
    #[serde(rename = "input+output")]
    InputOutput,
    /// Output only.
    #[serde(rename = "output")]
    Output,
}

/// What happens to a call whose caller disconnects before the response is complete (completion.md section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The gateway reads the response up to its usage and charges it.
    #[default]
    Complete,
    /// The gateway cancels the call at the provider and charges the usage reported so far.
    Cancel,
}

impl OnDisconnect {
    /// The default, which older prices do not state.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_complete(&self) -> bool {
        *self == Self::Complete
    }
}

/// One step of a graduated price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// The usage, in counted units, at which the tier begins.
    pub start: Decimal,
    /// Dollars per unit of the tier type, or percent points of the provider's cost.
    pub rate: Amount,
}

/// Graduated tiers. Invariant: at least one, the first starts at 0, starts ascend, no rate is negative.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Tier>", into = "Vec<Tier>")]
pub struct Tiers(Vec<Tier>);

/// The most tiers a meter may have.
pub const MAX_TIERS: usize = 100;

/// Why a list of tiers is invalid; `usize` is the index of the invalid tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TiersError {
    /// The list is empty or has more than [`MAX_TIERS`] tiers.
    #[error("must hold between 1 and 100 tiers")]
    Count,
    /// The first tier does not start at 0.
    #[error("the first tier must start at 0")]
    FirstStart,
    /// A start is not a whole number above the previous one, or is above 10^15.
    #[error("tier starts must be whole numbers in ascending order, at most 10^15")]
    Start(usize),
    /// A rate is negative. An amount is at most 10^12.
    #[error("a rate must be between 0 and 1000000000000")]
    Rate(usize),
}

impl Tiers {
    /// Validates `tiers`.
    pub fn new(tiers: Vec<Tier>) -> Result<Self, TiersError> {
        if tiers.is_empty() || tiers.len() > MAX_TIERS {
            return Err(TiersError::Count);
        }
        if !tiers.first().is_some_and(|first| first.start.is_zero()) {
            return Err(TiersError::FirstStart);
        }
        let mut before = Decimal::NEGATIVE_ONE;
        for (at, tier) in tiers.iter().enumerate() {
            let plain = tier.start.is_integer() && tier.start <= Decimal::from(1_000_000_000_000_000_u64);
            if !plain || tier.start <= before {
                return Err(TiersError::Start(at));
            }
            if tier.rate.is_negative() {
                return Err(TiersError::Rate(at));
            }
            before = tier.start;
        }
        Ok(Self(tiers))
    }

    /// The tiers in ascending order.
    pub fn as_slice(&self) -> &[Tier] {
        &self.0
    }

    /// Each tier with the usage at which it ends (`None` for the last).
    pub fn spans(&self) -> impl Iterator<Item = (&Tier, Option<Decimal>)> {
        let ends = self.0.iter().skip(1).map(|next| Some(next.start)).chain(std::iter::once(None));
        self.0.iter().zip(ends)
    }

    /// The tier of the next unit after `tier_usage`.
    pub fn at(&self, tier_usage: Decimal) -> Option<&Tier> {
        self.0.iter().rev().find(|tier| tier.start <= tier_usage)
    }

    /// The highest rate of any unit at or after `tier_usage`.
    pub fn highest_rate_from(&self, tier_usage: Decimal) -> Amount {
        self.spans()
            .filter(|(_, end)| end.is_none_or(|end| end > tier_usage))
            .map(|(tier, _)| tier.rate)
            .max()
            .unwrap_or(Amount::ZERO)
    }
}

impl TryFrom<Vec<Tier>> for Tiers {
    type Error = TiersError;

    fn try_from(tiers: Vec<Tier>) -> Result<Self, TiersError> {
        Self::new(tiers)
    }
}

impl From<Tiers> for Vec<Tier> {
    fn from(tiers: Tiers) -> Self {
        tiers.0
    }
}

/// A meter's price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// The unit of the rates.
    pub rate_type: RateType,
    /// The quantity that is counted.
    pub tier_type: TierType,
    /// The graduated rates.
    pub tiers: Tiers,
    /// Which direction is counted.
    pub token_basis: TokenBasis,
    /// Who pays the provider's cost.
    pub base_cost_payer: Payer,
    /// Who pays the service charge.
    pub service_charge_payer: Payer,
    /// What happens to a call whose caller disconnects.
    #[serde(default, skip_serializing_if = "OnDisconnect::is_complete")]
    pub on_disconnect: OnDisconnect,
    /// The largest fee of one call, in dollars. A reported usage that makes a larger one is not believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_fee: Option<Amount>,
}

impl Price {
    /// Whether `fee` is more than one call may cost, so that the usage behind it is not believed. A fixed fee per call
    /// does not depend on a usage.
    pub(crate) fn is_above_max(&self, fee: Amount) -> bool {
        let is_by_usage = self.rate_type == RateType::Percentage || self.tier_type != TierType::Requests;
        is_by_usage && self.max_fee.is_some_and(|max| fee > max)
    }
}

/// The terms of one call: its meter's price at admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The meter.
    pub meter_id: MeterId,
    /// Its price.
    pub price: Price,
    /// The service charge as a share of the fee (0.019 = 1.9 %).
    pub service_charge_rate: Decimal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_without_later_fields_reads_and_writes_back_the_same() {
        let old = r#"{"rate_type":"fixed","tier_type":"requests","tiers":[{"start":"0","rate":"1.0000000000"}],"token_basis":"input+output","base_cost_payer":"wallet","service_charge_payer":"wallet"}"#;
        let mut price: Price = serde_json::from_str(old).unwrap();
        assert_eq!(price.on_disconnect, OnDisconnect::Complete);
        assert_eq!(serde_json::to_string(&price).unwrap(), old);
        price.on_disconnect = OnDisconnect::Cancel;
        let written = serde_json::to_string(&price).unwrap();
        assert!(written.ends_with(r#","on_disconnect":"cancel"}"#), "{written}");
        assert_eq!(serde_json::from_str::<Price>(&written).unwrap(), price);
        price.max_fee = Some("2.5".parse().unwrap());
        let written = serde_json::to_string(&price).unwrap();
        assert!(written.ends_with(r#","max_fee":"2.5000000000"}"#), "{written}");
        assert_eq!(serde_json::from_str::<Price>(&written).unwrap(), price);
    }
}
