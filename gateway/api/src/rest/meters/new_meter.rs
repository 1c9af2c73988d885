//! The body that creates a meter, in one of two forms: the fields of completion.md section 4, or the product
//! configuration of interface.md item 5. Both define a price.

use farthing_core::command::Slug;
use farthing_core::meter::{
    MAX_TIERS, OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TiersError, TokenBasis,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::product_price::{BillingBasis, FeeStructureBody, Product, Rates};
use crate::error::ApiError;
use crate::input::{self, Given, Issues};
use crate::values;

/// The longest slug that is made from a name; the ledger may add a number to it.
const MAX_MADE_SLUG: usize = 200;

/// A meter to create, in one of two forms.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
#[schema(as = NewMeter)]
pub(super) enum NewMeterBody {
    /// A meter.
    Meter(MeterBody),
    /// A product configuration.
    Product(ProductBody),
}

/// A meter in the newer form.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = MeterForm)]
pub(super) struct MeterBody {
    /// Required without `meter_slug`, which is then the name.
    #[serde(default)]
    #[schema(value_type = values::Text)]
    name: Given<values::Text>,
    /// By default made from the name.
    #[serde(default)]
    #[schema(value_type = values::MeterSlug)]
    meter_slug: Given<values::MeterSlug>,
    /// By default `fixed`.
    #[serde(default)]
    #[schema(value_type = RateType)]
    rate_type: Given<RateType>,
    /// Required for fixed rates, unless a tier has a `type`.
    #[serde(default)]
    #[schema(value_type = TierType)]
    tier_type: Given<TierType>,
    /// In ascending order; the first tier starts at 0.
    #[schema(value_type = Vec<TierBody>, required = true, min_items = 1, max_items = 100)]
    tiers: Option<values::List<TierBody, MAX_TIERS>>,
    #[serde(default)]
    #[schema(value_type = TokenBasis)]
    token_basis: Given<TokenBasis>,
    #[serde(default)]
    #[schema(value_type = Payer)]
    base_cost_payer: Given<Payer>,
    #[serde(default)]
    #[schema(value_type = Payer)]
    service_charge_payer: Given<Payer>,
    #[serde(default)]
    #[schema(value_type = OnDisconnect)]
    on_disconnect: Given<OnDisconnect>,
    /// The largest fee of one call: a reported usage that makes a larger one is not believed. By default there is none.
    max_fee: Option<values::PositiveAmountInput>,
}

/// A tier of the price.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = TierForm)]
pub(super) struct TierBody {
    /// The usage, in counted units, at which the tier starts.
    start: values::PositionInput,
    rate: values::RateInput,
    /// The meter's `tier_type`.
    #[serde(rename = "type", default)]
    #[schema(value_type = TierType)]
    tier_type: Given<TierType>,
}

/// A meter as a product configuration (interface.md, item 5).
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ProductForm)]
pub(super) struct ProductBody {
    #[serde(default)]
    #[schema(value_type = values::Text)]
    name: Given<values::Text>,
    #[serde(default)]
    #[schema(value_type = values::MeterSlug)]
    meter_slug: Given<values::MeterSlug>,
    /// `other` for a custom provider.
    #[serde(default)]
    #[schema(value_type = values::Text)]
    provider: Given<values::Text>,
    /// `false` for a custom provider.
    #[serde(rename = "managedKeys")]
    #[serde(default)]
    #[schema(value_type = bool)]
    managed_keys: Given<bool>,
    #[serde(rename = "feeStructure")]
    fee_structure: FeeStructureBody,
    #[serde(rename = "billingBasis")]
    billing_basis: BillingBasis,
    #[schema(ignore)]
    #[serde(default)]
    tiers: Given<IgnoredAny>,
    #[serde(default)]
    #[schema(value_type = TokenBasis)]
    token_basis: Given<TokenBasis>,
    #[serde(default)]
    #[schema(value_type = Payer)]
    base_cost_payer: Given<Payer>,
    #[serde(default)]
    #[schema(value_type = Payer)]
    service_charge_payer: Given<Payer>,
    #[serde(default)]
    #[schema(value_type = OnDisconnect)]
    on_disconnect: Given<OnDisconnect>,
    /// The largest fee of one call: a reported usage that makes a larger one is not believed. By default there is none.
    max_fee: Option<values::PositiveAmountInput>,
}

/// A checked meter to create.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewMeter {
    /// Its display name.
    pub(super) name: String,
    /// Its slug, given or made from the name.
    pub(super) slug: Slug,
    /// Its price.
    pub(super) price: Price,
}

impl NewMeter {
    /// Reads the body `json`. It is a product configuration if it has one of that form's fields.
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        match NewMeterBody::read(json)? {
            NewMeterBody::Meter(body) => body.checked(),
            NewMeterBody::Product(body) => body.checked(),
        }
    }
}

impl NewMeterBody {
    fn read(json: &str) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct ProductFields {
            #[serde(rename = "billingBasis", default)]
            billing_basis: Given<IgnoredAny>,
            #[serde(rename = "feeStructure", default)]
            fee_structure: Given<IgnoredAny>,
        }

        let product: ProductFields = input::body(json)?;
        if product.billing_basis.0.is_some() || product.fee_structure.0.is_some() {
            input::body(json).map(Self::Product)
        } else {
            input::body(json).map(Self::Meter)
        }
    }
}

impl MeterBody {
    fn checked(self) -> Result<NewMeter, ApiError> {
        let mut issues = Issues::default();
        let rate_type = self.rate_type.0.unwrap_or(RateType::Fixed);
        let tier_type = self.tier_type.0.or_else(|| {
            let named = self.tiers.iter().flat_map(|tiers| &tiers.0).find_map(|tier| tier.tier_type.0);
            // A percentage needs a unit only to split a cost over several tiers.
            named.or_else(|| (rate_type == RateType::Percentage).then_some(TierType::Tokens1m))
        });
        let tier_type = issues.required("tier_type", tier_type);
        let tiers = issues.required("tiers", self.tiers);
        let tiers = tiers.and_then(|tiers| checked_tiers(&mut issues, tiers.0, tier_type));
        let slug = self.meter_slug.0.map(|slug| slug.0);
        let name = self.name.0.map(|name| name.0).or_else(|| slug.clone());
        let name = issues.required("name", name);
        issues.checked()?;
        let ((tier_type, tiers), name) = tier_type.zip(tiers).zip(name).ok_or_else(unchecked)?;
        let price = Price {
            rate_type,
            tier_type,
            tiers,
            token_basis: self.token_basis.0.unwrap_or_default(),
            base_cost_payer: self.base_cost_payer.0.unwrap_or(Payer::Wallet),
            service_charge_payer: self.service_charge_payer.0.unwrap_or(Payer::Wallet),
            on_disconnect: self.on_disconnect.0.unwrap_or_default(),
            max_fee: self.max_fee.map(|amount| amount.0),
        };
        Ok(NewMeter::new(name, slug, price))
    }
}

impl ProductBody {
    fn checked(self) -> Result<NewMeter, ApiError> {
        let mut issues = Issues::default();
        let product = Product {
            has_tiers: self.tiers.0.is_some(),
            provider: self.provider.0.as_ref(),
            managed_keys: self.managed_keys.0,
            fees: &self.fee_structure,
            billing_basis: Some(self.billing_basis),
        };
        let rates = product.rates(&mut issues);
        issues.checked()?;
        let Rates { rate_type, tiers } = rates.ok_or_else(unchecked)?;
        let slug = self.meter_slug.0.map(|slug| slug.0);
        // A product configuration needs no name.
        let name = self.name.0.map(|name| name.0).or_else(|| slug.clone());
        let name = name.unwrap_or_else(|| match rate_type {
            RateType::Fixed => format!("Fee per {}", self.billing_basis.name()),
            RateType::Percentage => "Percentage fee".to_owned(),
        });
        let price = Price {
            rate_type,
            tier_type: self.billing_basis.tier_type(),
            tiers,
            token_basis: self.token_basis.0.unwrap_or_default(),
            base_cost_payer: self.base_cost_payer.0.unwrap_or(Payer::Wallet),
            service_charge_payer: self.service_charge_payer.0.unwrap_or(Payer::Wallet),
            on_disconnect: self.on_disconnect.0.unwrap_or_default(),
            max_fee: self.max_fee.map(|amount| amount.0),
        };
        Ok(NewMeter::new(name, slug, price))
    }
}

impl NewMeter {
    fn new(name: String, slug: Option<String>, price: Price) -> Self {
        let slug = slug.map_or_else(|| Slug::Made(made_slug(&name)), Slug::Given);
        Self { name, slug, price }
    }
}

/// A part is missing although no issue was found: a fault of this module.
fn unchecked() -> ApiError {
    ApiError::internal("a required field of a meter was not checked")
}

/// The tiers, if they are graduated and all of type `tier_type`. Notes which tier is wrong.
pub(super) fn checked_tiers(
    issues: &mut Issues,
    tiers: Vec<TierBody>,
    tier_type: Option<TierType>,
) -> Option<Tiers> {
    for (index, tier) in tiers.iter().enumerate() {
        if tier.tier_type.0.is_some() && tier.tier_type.0 != tier_type {
            issues.refuse(["tiers", &index.to_string(), "type"], "must be the same for all tiers");
        }
    }
    let tiers = tiers.into_iter().map(|tier| Tier { start: tier.start.0, rate: tier.rate.0 });
    let error = match Tiers::new(tiers.collect()) {
        Ok(tiers) => return Some(tiers),
        Err(error) => error,
    };
    let message = error.to_string();
    match error {
        TiersError::Count => issues.refuse(["tiers"], message),
        TiersError::FirstStart => issues.refuse(["tiers", "0", "start"], message),
        TiersError::Start(index) => issues.refuse(["tiers", &index.to_string(), "start"], message),
        TiersError::Rate(index) => issues.refuse(["tiers", &index.to_string(), "rate"], message),
    }
    None
}

/// Makes a slug from a name: lower-case ASCII letters and digits, separated by dashes.
fn made_slug(name: &str) -> String {
    let letters = name.to_lowercase();
    let words = letters.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug: String = words.collect::<Vec<_>>().join("-").chars().take(MAX_MADE_SLUG).collect();
    if slug.is_empty() { "meter".to_owned() } else { slug }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::error::InputError;

    fn read(body: &Value) -> NewMeter {
        NewMeter::read(&body.to_string()).unwrap()
    }

    fn refused(body: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = NewMeter::read(body) else {
            panic!("{body} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    fn rates(meter: &NewMeter) -> Vec<(String, String)> {
        let tiers = meter.price.tiers.as_slice().iter();
        tiers.map(|tier| (tier.start.to_string(), tier.rate.to_string())).collect()
    }

    #[test]
    fn a_meter_reads_with_starts_as_numbers_or_strings() {
        let meter = read(&json!({
            "name": "Chat, large", "rate_type": "fixed", "tier_type": "tokens_1m", "token_basis": "output",
            "tiers": [{"start": 0, "rate": "5"}, {"start": "1000000", "rate": 3}], "service_charge_payer": "merchant",
        }));
        assert_eq!(meter.slug, Slug::Made("chat-large".to_owned()));
        assert_eq!(
            rates(&meter),
            [("0".to_owned(), "5.0000000000".to_owned()), ("1000000".to_owned(), "3.0000000000".to_owned())]
        );
        assert_eq!(meter.price.token_basis, TokenBasis::Output);
        assert_eq!(meter.price.base_cost_payer, Payer::Wallet);
        assert_eq!(meter.price.service_charge_payer, Payer::Merchant);
    }

    #[test]
    fn a_product_configuration_has_the_rate_of_its_basis() {
        for (basis, fee, tier_type, rate) in [
            ("requests", "0.01", TierType::Requests, "0.0100000000"),
            ("tokens", "0.000002", TierType::Tokens1m, "2.0000000000"),
            ("tokens", "2e-6", TierType::Tokens1m, "2.0000000000"),
            ("tokens", "0.0000000000000001", TierType::Tokens1m, "0.0000000001"),
            ("characters", "\"0.00000015\"", TierType::Characters1m, "0.1500000000"),
            ("duration", "0.001", TierType::Minutes, "0.0600000000"),
        ] {
            let body = format!(
                r#"{{"provider":"other","managedKeys":false,"billingBasis":"{basis}","feeStructure":{{"fixedFee":{fee}}}}}"#
            );
            let meter = NewMeter::read(&body).unwrap();
            assert_eq!(meter.price.tier_type, tier_type);
            assert_eq!(rates(&meter), [("0".to_owned(), rate.to_owned())]);
            assert_eq!(meter.name, format!("Fee per {basis}"));
        }
    }

    #[test]
    fn a_fee_that_does_not_fit_ten_digits_is_refused() {
        for (basis, fee) in [
            ("requests", "0.00000000001"),
            ("duration", "0.000000000001"),
            ("tokens", "0.00000000000000001"),
            ("tokens", "1e20"),
            ("tokens", "-1"),
            ("tokens", "\"x\""),
        ] {
            let body = format!(r#"{{"billingBasis":"{basis}","feeStructure":{{"fixedFee":{fee}}}}}"#);
            assert_eq!(refused(&body), ["feeStructure.fixedFee"], "{basis} {fee}");
        }
    }

    #[test]
    fn percentages_are_in_points_and_need_no_unit() {
        let meter =
            read(&json!({"name": "x", "rate_type": "percentage", "tiers": [{"start": 0, "rate": "10"}]}));
        assert_eq!(
            (meter.price.rate_type, meter.price.tier_type),
            (RateType::Percentage, TierType::Tokens1m)
        );
        assert_eq!(rates(&meter), [("0".to_owned(), "10.0000000000".to_owned())]);
        for fees in [json!({"percentageFee": 12.5}), json!({"fixedFee": 0, "percentageFee": "12.5"})] {
            let meter = read(&json!({"billingBasis": "duration", "feeStructure": fees}));
            assert_eq!(
                (meter.price.rate_type, meter.price.tier_type),
                (RateType::Percentage, TierType::Minutes)
            );
            assert_eq!(rates(&meter), [("0".to_owned(), "12.5000000000".to_owned())]);
            assert_eq!(meter.name, "Percentage fee");
        }
        let fixed =
            read(&json!({"billingBasis": "requests", "feeStructure": {"fixedFee": 1, "percentageFee": 0}}));
        assert_eq!(fixed.price.rate_type, RateType::Fixed);
        for (fees, issue) in [
            (json!({"fixedFee": 1, "percentageFee": 10}), "feeStructure.percentageFee"),
            (json!({"percentageFee": -1}), "feeStructure.percentageFee"),
            (json!({"percentageFee": "x"}), "feeStructure.percentageFee"),
        ] {
            let issues = refused(&json!({"billingBasis": "tokens", "feeStructure": fees}).to_string());
            assert_eq!(issues.first().map(String::as_str), Some(issue), "{fees}");
        }
    }

    #[test]
    fn issues_name_the_tier() {
        let with = |tiers: Value| json!({"name": "x", "tier_type": "requests", "tiers": tiers}).to_string();
        assert_eq!(refused(&with(json!([]))), ["tiers"]);
        assert_eq!(refused(&with(json!({}))), ["tiers"]);
        assert_eq!(refused(&with(json!([{"start": 1, "rate": "1"}]))), ["tiers.0.start"]);
        assert_eq!(refused(&with(json!([{"start": 0, "rate": "-1"}]))), ["tiers.0.rate"]);
        assert_eq!(refused(&with(json!([{"start": 0, "rate": 0.5}]))), ["tiers.0.rate"]);
        assert_eq!(refused(&with(json!([{"start": 0}]))), ["tiers.0.rate"]);
        let twice = json!([{"start": 0, "rate": "1"}, {"start": 5, "rate": "1"}, {"start": 5, "rate": "1"}]);
        assert_eq!(refused(&with(twice)), ["tiers.2.start"]);
        assert_eq!(refused(&with(json!([{"start": 0, "rate": "1", "type": "minutes"}]))), ["tiers.0.type"]);
        assert_eq!(refused(&with(json!([7]))), ["tiers.0"]);
        let valid: Vec<_> = (0..=MAX_TIERS).map(|start| json!({"start": start, "rate": "1"})).collect();
        for tiers in [json!(valid), json!(vec![7; MAX_TIERS + 1]), json!(vec![json!({}); MAX_TIERS + 1])] {
            assert_eq!(refused(&with(tiers)), ["tiers"], "one issue for too many tiers");
        }
        assert!(NewMeter::read(&with(json!(valid[..MAX_TIERS]))).is_ok());
    }

    #[test]
    fn required_fields_are_listed() {
        assert_eq!(refused("{}"), ["tier_type", "tiers", "name"]);
        assert_eq!(refused(r#"{"billingBasis":"tokens"}"#), ["feeStructure"]);
        assert_eq!(refused(r#"{"feeStructure":{"fixedFee":1}}"#), ["billingBasis"]);
        assert_eq!(
            refused(r#"{"name":"x","tier_type":"hours","tiers":[{"start":0,"rate":"1"}]}"#),
            ["tier_type"]
        );
    }

    #[test]
    fn null_is_refused_for_what_cannot_be_null() {
        let product = json!({"billingBasis": "tokens", "feeStructure": {"fixedFee": 1}});
        let meter = json!({"name": "x", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]});
        for (body, names) in [
            (
                product,
                ["tiers", "feeStructure", "billingBasis", "provider", "managedKeys", "token_basis"]
                    .as_slice(),
            ),
            (meter, &["tiers", "feeStructure", "billingBasis", "tier_type", "rate_type", "on_disconnect"]),
        ] {
            read(&body);
            for name in names {
                let mut body = body.clone();
                body[name] = Value::Null;
                assert_eq!(refused(&body.to_string()), [*name], "{body}");
            }
        }
        for (fees, name) in [
            (json!({"fixedFee": 1, "percentageFee": null}), "percentageFee"),
            (json!({"fixedFee": null, "percentageFee": 1}), "fixedFee"),
        ] {
            let body = json!({"billingBasis": "tokens", "feeStructure": fees}).to_string();
            assert_eq!(refused(&body), [format!("feeStructure.{name}")]);
        }
    }

    #[test]
    fn made_slugs_have_plain_letters() {
        for (name, slug) in
            [("Chat 4.1 (EU)", "chat-4-1-eu"), ("Übersicht", "bersicht"), ("日本", "meter"), ("-", "meter")]
        {
            assert_eq!(made_slug(name), slug);
        }
        assert_eq!(made_slug(&"x".repeat(255)).len(), MAX_MADE_SLUG);
    }
}
