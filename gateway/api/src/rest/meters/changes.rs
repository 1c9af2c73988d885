//! The body that changes a meter. The units and the kind of its rates cannot be changed; a body may repeat them.

use farthing_core::command::Edit;
use farthing_core::meter::{MAX_TIERS, OnDisconnect, Payer, Price, RateType, TierType, Tiers, TokenBasis};
use farthing_core::money::Amount;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::new_meter::{TierBody, checked_tiers};
use super::product_price::{BillingBasis, FeeStructureBody, Product};
use crate::error::ApiError;
use crate::input::{self, Given, Issues, Patch};
use crate::values;

const CANNOT_CHANGE: &str = "cannot be changed";

/// What to change of a meter. An absent field stays. `meter_slug`, `rate_type`, `tier_type` and
/// `token_basis` may be repeated, but not changed.
#[derive(Debug, ToSchema)]
#[schema(as = MeterChanges)]
pub(super) struct MeterChangesBody {
    #[serde(flatten)]
    #[schema(inline)]
    meter: MeterFields,
    #[serde(flatten)]
    #[schema(inline)]
    product: ProductFields,
}

/// The members of both forms of a meter.
#[derive(Debug, Deserialize, ToSchema)]
struct MeterFields {
    #[serde(default)]
    #[schema(value_type = values::Text)]
    name: Given<values::Text>,
    /// Replaces all tiers. In ascending order; the first tier starts at 0.
    #[serde(default)]
    #[schema(value_type = Vec<TierBody>, min_items = 1, max_items = 100)]
    tiers: Given<values::List<TierBody, MAX_TIERS>>,
    #[serde(default)]
    #[schema(value_type = Payer)]
    base_cost_payer: Given<Payer>,
    #[serde(default)]
    #[schema(value_type = Payer)]
    service_charge_payer: Given<Payer>,
    #[serde(default)]
    #[schema(value_type = OnDisconnect)]
    on_disconnect: Given<OnDisconnect>,
    /// The largest fee of one call; `null` removes it.
    #[serde(default)]
    #[schema(value_type = Option<values::PositiveAmountInput>)]
    max_fee: Patch<values::PositiveAmountInput>,
    #[schema(ignore)]
    #[serde(default)]
    meter_slug: Given<values::MeterSlug>,
    #[schema(ignore)]
    #[serde(default)]
    rate_type: Given<RateType>,
    #[schema(ignore)]
    #[serde(default)]
    tier_type: Given<TierType>,
    #[schema(ignore)]
    #[serde(default)]
    token_basis: Given<TokenBasis>,
    /// The unit that the meter counts; required with `feeStructure`. It cannot be changed.
    #[serde(rename = "billingBasis", default)]
    #[schema(value_type = BillingBasis)]
    billing_basis: Given<BillingBasis>,
    #[serde(rename = "feeStructure", default)]
    #[schema(ignore)]
    has_fees: Given<IgnoredAny>,
}

/// The members of a product configuration (interface.md, item 5). They are read only with a fee structure.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct ProductFields {
    #[schema(ignore)]
    #[serde(default)]
    provider: Given<values::Text>,
    #[serde(rename = "managedKeys", default)]
    #[schema(ignore)]
    managed_keys: Given<bool>,
    /// Replaces all tiers by one rate; instead of `tiers`, and with `billingBasis`. `provider` and `managedKeys` may
    /// be given with it, as for a new product.
    #[serde(rename = "feeStructure", default)]
    #[schema(value_type = FeeStructureBody)]
    fee_structure: Given<FeeStructureBody>,
}

impl<'de> Deserialize<'de> for MeterChangesBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (meter, product) =
            input::read_two(deserializer, |meter: &MeterFields| meter.has_fees.0.is_some())?;
        Ok(Self { meter, product: product.unwrap_or_default() })
    }
}

/// The checked changes; `None` keeps a value.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MeterChanges {
    pub(super) name: Option<String>,
    pub(super) tiers: Option<Tiers>,
    pub(super) base_cost_payer: Option<Payer>,
    pub(super) service_charge_payer: Option<Payer>,
    pub(super) on_disconnect: Option<OnDisconnect>,
    pub(super) max_fee: Edit<Amount>,
}

impl MeterChangesBody {
    /// Checks the body against the meter's present slug and price.
    pub(super) fn checked(self, slug: &str, price: &Price) -> Result<MeterChanges, ApiError> {
        let Self { meter, product } = self;
        let mut issues = Issues::default();
        let slug_changes = meter.meter_slug.0.is_some_and(|named| named.0 != slug);
        let basis_changes = meter.billing_basis.0.is_some_and(|named| named.tier_type() != price.tier_type);
        for (name, changes) in [
            ("meter_slug", slug_changes),
            ("rate_type", meter.rate_type.0.is_some_and(|named| named != price.rate_type)),
            ("tier_type", meter.tier_type.0.is_some_and(|named| named != price.tier_type)),
            ("billingBasis", basis_changes),
            ("token_basis", meter.token_basis.0.is_some_and(|named| named != price.token_basis)),
        ] {
            if changes {
                issues.refuse([name], CANNOT_CHANGE);
            }
        }
        let tiers = if let Some(fees) = &product.fee_structure.0 {
            let product = Product {
                has_tiers: meter.tiers.0.is_some(),
                provider: product.provider.0.as_ref(),
                managed_keys: product.managed_keys.0,
                fees,
                billing_basis: meter.billing_basis.0,
            };
            let rates = product.rates(&mut issues);
            if rates.as_ref().is_some_and(|rates| rates.rate_type != price.rate_type) {
                // Percentage points would be read as dollars, or dollars as percentage points.
                issues.refuse(["feeStructure"], CANNOT_CHANGE);
            }
            rates.map(|rates| rates.tiers)
        } else {
            meter.tiers.0.and_then(|tiers| checked_tiers(&mut issues, tiers.0, Some(price.tier_type)))
        };
        issues.checked()?;
        Ok(MeterChanges {
            name: meter.name.0.map(|name| name.0),
            tiers,
            base_cost_payer: meter.base_cost_payer.0,
            service_charge_payer: meter.service_charge_payer.0,
            on_disconnect: meter.on_disconnect.0,
            max_fee: meter.max_fee.edit(|amount| amount.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::meter::{RateType, Tier, TierType, TokenBasis};
    use rust_decimal::Decimal;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::InputError;

    fn price() -> Price {
        Price {
            rate_type: RateType::Fixed,
            tier_type: TierType::Tokens1m,
            tiers: Tiers::new(vec![Tier { start: Decimal::ZERO, rate: "5".parse().unwrap() }]).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Wallet,
            on_disconnect: OnDisconnect::Complete,
            max_fee: None,
        }
    }

    fn check(body: &Value) -> Result<MeterChanges, ApiError> {
        input::body::<MeterChangesBody>(&body.to_string())?.checked("chat", &price())
    }

    fn read(body: &Value) -> MeterChanges {
        check(body).unwrap()
    }

    fn refused(body: &Value) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = check(body) else {
            panic!("{body} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn absent_fields_stay_and_null_is_refused() {
        assert_eq!(read(&json!({})), MeterChanges::default());
        for name in
            ["name", "tiers", "base_cost_payer", "service_charge_payer", "on_disconnect", "feeStructure"]
        {
            assert_eq!(refused(&json!({name: null})), [name]);
        }
        assert_eq!(refused(&json!({"billingBasis": null})), ["billingBasis"]);
        for name in ["provider", "managedKeys"] {
            let body = json!({name: null, "billingBasis": "tokens", "feeStructure": {"fixedFee": 1}});
            assert_eq!(refused(&body), [name]);
        }
    }

    #[test]
    fn name_tiers_payers_on_disconnect_and_the_largest_fee_can_change() {
        let changes = read(&json!({
            "name": "New", "tiers": [{"start": 0, "rate": "4", "type": "tokens_1m"}, {"start": "10", "rate": 3}],
            "base_cost_payer": "merchant", "service_charge_payer": "merchant", "on_disconnect": "cancel",
            "max_fee": "2.5",
        }));
        assert_eq!(changes.on_disconnect, Some(OnDisconnect::Cancel));
        assert_eq!(changes.max_fee, Edit::Set("2.5".parse().unwrap()));
        assert_eq!(read(&json!({"max_fee": null})).max_fee, Edit::Clear);
        assert_eq!(read(&json!({})).max_fee, Edit::Keep);
        assert_eq!(changes.name.as_deref(), Some("New"));
        assert_eq!(changes.tiers.unwrap().as_slice().len(), 2);
        assert_eq!(changes.base_cost_payer, Some(Payer::Merchant));
        assert_eq!(changes.service_charge_payer, Some(Payer::Merchant));
    }

    #[test]
    fn a_product_configuration_changes_the_one_rate() {
        let changes = read(&json!({"billingBasis": "tokens", "feeStructure": {"fixedFee": "0.000002"}}));
        let rates: Vec<_> =
            changes.tiers.unwrap().as_slice().iter().map(|tier| tier.rate.to_string()).collect();
        assert_eq!(rates, ["2.0000000000"]);
    }

    #[test]
    fn a_provider_and_its_keys_are_ignored_without_a_fee_structure() {
        for (provider, managed_keys) in [(json!(7), json!("x")), (json!(""), json!(true))] {
            let body = json!({"provider": provider, "managedKeys": managed_keys});
            assert_eq!(read(&body), MeterChanges::default());
            let fees = json!({"billingBasis": "tokens", "feeStructure": {"fixedFee": "x"},
                              "provider": provider, "managedKeys": 1});
            assert_eq!(refused(&fees).last().map(String::as_str), Some("feeStructure.fixedFee"));
        }
        let all = json!({"provider": 7, "managedKeys": "x", "feeStructure": 5, "billingBasis": "tokens"});
        assert_eq!(refused(&all), ["provider", "managedKeys", "feeStructure"]);
        let custom = json!({"managedKeys": true, "feeStructure": {"fixedFee": 1}, "billingBasis": "tokens"});
        assert_eq!(refused(&custom), ["managedKeys"]);
    }

    #[test]
    fn more_tiers_than_the_maximum_are_one_issue() {
        for tier in [json!({"start": 0, "rate": "1"}), json!(7), json!({})] {
            assert_eq!(refused(&json!({"tiers": vec![&tier; MAX_TIERS + 1]})), ["tiers"]);
        }
    }

    #[test]
    fn the_units_of_a_meter_can_be_repeated_but_not_changed() {
        let same = json!({"meter_slug": "chat", "rate_type": "fixed", "tier_type": "tokens_1m",
                          "token_basis": "input+output", "billingBasis": "tokens"});
        assert_eq!(read(&same), MeterChanges::default());
        let other = json!({"meter_slug": "talk", "rate_type": "percentage", "tier_type": "requests",
                           "token_basis": "output", "billingBasis": "duration",
                           "tiers": [{"start": 0, "rate": "1", "type": "minutes"}]});
        let Err(ApiError::Input(InputError::Validation(issues))) = check(&other) else { panic!("accepted") };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        let all = ["meter_slug", "rate_type", "tier_type", "billingBasis", "token_basis", "tiers.0.type"];
        assert_eq!(paths, all);
        let unknown = json!({"base_cost_payer": "nobody", "on_disconnect": "hang up"});
        let Err(ApiError::Input(InputError::Validation(issues))) = check(&unknown) else {
            panic!("accepted")
        };
        assert_eq!(issues.len(), 2);
    }

    #[test]
    fn a_fee_never_becomes_a_percentage() {
        let body = json!({"billingBasis": "tokens", "feeStructure": {"percentageFee": 10}});
        let Err(ApiError::Input(InputError::Validation(issues))) = check(&body) else { panic!("accepted") };
        assert_eq!(issues.first().map(|issue| issue.path.join(".")).as_deref(), Some("feeStructure"));
    }
}
