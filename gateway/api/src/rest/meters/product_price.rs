//! The price of a product configuration (interface.md, item 5): a fee per unit or a percentage of the provider's cost, and the
//! unit that it counts.

use farthing_core::meter::{RateType, Tier, TierType, Tiers};
use rust_decimal::Decimal;
use serde::Deserialize;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::input::{Given, Issues};
use crate::values;

/// The price of a product: a fee per unit or a percentage of the provider's cost. One of them may be 0 beside the other.
#[derive(Debug, Deserialize)]
pub(super) struct FeeStructureBody {
    #[serde(rename = "fixedFee", default)]
    fixed_fee: Given<values::Number>,
    #[serde(rename = "percentageFee", default)]
    percentage_fee: Given<values::Number>,
}

impl PartialSchema for FeeStructureBody {
    /// At least one of the two fees. A derived schema cannot require one of several members.
    fn schema() -> RefOr<Schema> {
        let with = |name: &str, description: &str| {
            let fee = ObjectBuilder::new().property(name, values::Number::schema()).required(name);
            fee.description(Some(description))
        };
        AnyOfBuilder::new()
            .item(with("fixedFee", "Dollars per call, token, character or second."))
            .item(with("percentageFee", "Percentage points of the provider's cost."))
            .description(Some("A fee per unit or a percentage. One of them may be 0 beside the other."))
            .into()
    }
}

impl ToSchema for FeeStructureBody {
    fn name() -> std::borrow::Cow<'static, str> {
        "FeeStructure".into()
    }
}

/// The unit that a product counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum BillingBasis {
    Requests,
    Tokens,
    Characters,
    Duration,
}

impl BillingBasis {
    /// The tier type that counts the same unit.
    pub(super) fn tier_type(self) -> TierType {
        match self {
            Self::Requests => TierType::Requests,
            Self::Tokens => TierType::Tokens1m,
            Self::Characters => TierType::Characters1m,
            Self::Duration => TierType::Minutes,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Characters => "characters",
            Self::Duration => "duration",
        }
    }
}

/// The fields of a product configuration that define its price.
pub(super) struct Product<'a> {
    pub(super) has_tiers: bool,
    pub(super) provider: Option<&'a values::Text>,
    pub(super) managed_keys: Option<bool>,
    pub(super) fees: &'a FeeStructureBody,
    pub(super) billing_basis: Option<BillingBasis>,
}

/// The rates of a price, and how they are meant.
pub(super) struct Rates {
    pub(super) rate_type: RateType,
    pub(super) tiers: Tiers,
}

impl Product<'_> {
    /// The rates: one tier that starts at 0.
    pub(super) fn rates(&self, issues: &mut Issues) -> Option<Rates> {
        if self.has_tiers {
            issues.refuse(["tiers"], "must not be given with feeStructure or billingBasis");
        }
        if self.managed_keys == Some(true) && self.provider.is_none_or(|provider| provider.0 == "other") {
            issues.refuse(["managedKeys"], "must be false for a custom provider");
        }
        let tier_type = issues.required("billingBasis", self.billing_basis)?.tier_type();
        let fixed = self.fees.fixed_fee.0.as_ref().map(|fee| fee.0);
        let percentage = self.fees.percentage_fee.0.as_ref().map(|fee| fee.0);
        let is_charged = |fee: Option<Decimal>| fee.is_some_and(|fee| !fee.is_zero());
        let (rate_type, name, fee) = match (fixed, percentage) {
            _ if is_charged(fixed) && is_charged(percentage) => {
                issues.refuse(["feeStructure", "percentageFee"], "must be 0 or absent beside fixedFee");
                return None;
            }
            (_, Some(percentage)) if !is_charged(fixed) => {
                (RateType::Percentage, "percentageFee", percentage)
            }
            (Some(fixed), _) => (RateType::Fixed, "fixedFee", fixed),
            (None, _) => {
                issues.refuse(["feeStructure", "fixedFee"], "is required");
                return None;
            }
        };
        let units = match rate_type {
            RateType::Fixed => tier_type.units_per_rate(),
            RateType::Percentage => Decimal::ONE,
        };
        match only_tier(fee, units) {
            Ok(tiers) => Some(Rates { rate_type, tiers }),
            Err(message) => {
                issues.refuse(["feeStructure", name], message);
                None
            }
        }
    }
}

/// The one tier of a fee per unit. A rate pays for `units` units; the product must be exact.
fn only_tier(fee: Decimal, units: Decimal) -> Result<Tiers, String> {
    let exact = fee.checked_mul(units).ok_or("is out of range")?;
    let rate = exact.normalize().to_string().parse().map_err(|_| "is out of range or has too many digits")?;
    Tiers::new(vec![Tier { start: Decimal::ZERO, rate }]).map_err(|error| error.to_string())
}
