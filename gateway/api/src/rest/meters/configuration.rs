//! What a body says about a meter, in either of its two forms: the fields of completion.md section 4, or the
//! product configuration of interface.md item 5. Both come to the same price.

use farthing_core::command::Slug;
use farthing_core::meter::{
    MAX_TIERS, OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TiersError, TokenBasis,
};
use rust_decimal::Decimal;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::fields::Fields;
use crate::rules;

pub(super) const PAYERS: &[(&str, Payer)] = &[("wallet", Payer::Wallet), ("merchant", Payer::Merchant)];

pub(super) const RATE_TYPES: &[(&str, RateType)] =
    &[("fixed", RateType::Fixed), ("percentage", RateType::Percentage)];

pub(super) const TIER_TYPES: &[(&str, TierType)] = &[
    ("tokens_1m", TierType::Tokens1m),
    ("characters_1m", TierType::Characters1m),
    ("minutes", TierType::Minutes),
    ("requests", TierType::Requests),
];

pub(super) const ON_DISCONNECT: &[(&str, OnDisconnect)] =
    &[("complete", OnDisconnect::Complete), ("cancel", OnDisconnect::Cancel)];

pub(super) const TOKEN_BASES: &[(&str, TokenBasis)] =
    &[("input+output", TokenBasis::InputOutput), ("output", TokenBasis::Output)];

/// `billingBasis` and the tier type that counts the same thing.
pub(super) const BILLING_BASES: &[(&str, TierType)] = &[
    ("requests", TierType::Requests),
    ("tokens", TierType::Tokens1m),
    ("characters", TierType::Characters1m),
    ("duration", TierType::Minutes),
];

/// Characters of a made slug; leaves room for a number behind it.
const MAX_MADE_SLUG: usize = 200;

/// A meter to create, in either of two forms.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
pub(super) enum NewMeter {
    /// A meter.
    Meter(MeterForm),
    /// A product configuration.
    Product(ProductForm),
}

/// A meter in the newer words.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
pub(super) struct MeterForm {
    name: values::Text,
    meter_slug: Option<values::MeterSlug>,
    rate_type: Option<RateType>,
    tier_type: TierType,
    /// In ascending order; the first starts at 0.
    #[schema(min_items = 1, max_items = 100)]
    tiers: Vec<TierForm>,
    token_basis: Option<TokenBasis>,
    base_cost_payer: Option<Payer>,
    service_charge_payer: Option<Payer>,
    on_disconnect: Option<OnDisconnect>,
}

/// One step of the price.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
pub(super) struct TierForm {
    /// The position, in counted units, at which the tier begins.
    start: values::PositionInput,
    rate: values::AmountInput,
}

/// A meter as a product configuration (interface.md, item 5).
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
pub(super) struct ProductForm {
    #[schema(rename = "name")]
    name: Option<values::Text>,
    #[schema(rename = "meter_slug")]
    meter_slug: Option<values::MeterSlug>,
    /// `other` for a custom provider.
    provider: Option<values::Text>,
    /// `false` for a custom provider.
    #[schema(value_type = Option<bool>)]
    managed_keys: Option<bool>,
    fee_structure: FeeStructure,
    billing_basis: BillingBasis,
}

/// What a product costs, in one of two ways.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
enum FeeStructure {
    /// A fee per unit.
    Fixed(FixedFee),
    /// A part of the provider's cost.
    Percentage(PercentageFee),
}

/// A fee per unit.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
struct FixedFee {
    /// Dollars per call, token, character or second.
    #[schema(value_type = f64, minimum = 0, maximum = 1_000_000)]
    fixed_fee: Decimal,
}

/// A part of the provider's cost.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
struct PercentageFee {
    /// Percent points of the provider's cost.
    #[schema(value_type = f64, minimum = 0, maximum = 1_000_000)]
    percentage_fee: Decimal,
}

/// What a product counts.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
enum BillingBasis {
    Requests,
    Tokens,
    Characters,
    Duration,
}

/// A meter as it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    /// Its display name.
    pub(super) name: String,
    /// Its slug, given or made from the name.
    pub(super) slug: Slug,
    /// Its price.
    pub(super) price: Price,
}

impl Configuration {
    /// Reads the body `json`.
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let name = body.text("name", rules::MAX_TEXT);
        let slug = body.ruled("meter_slug", rules::slug);
        let as_product = body.has("billingBasis") || body.has("feeStructure");
        let rates = if as_product { product_rates(&mut body) } else { meter_rates(&mut body) };
        let token_basis = body.choice("token_basis", TOKEN_BASES).unwrap_or_default();
        let base_cost_payer = body.choice("base_cost_payer", PAYERS).unwrap_or(Payer::Wallet);
        let service_charge_payer = body.choice("service_charge_payer", PAYERS).unwrap_or(Payer::Wallet);
        let on_disconnect = body.choice("on_disconnect", ON_DISCONNECT).unwrap_or_default();
        // A product configuration has no name of its own; a slug serves as one.
        let name = name.or_else(|| slug.clone()).or_else(|| default_name(as_product, rates.as_ref()));
        if name.is_none() && !as_product && !body.has("meter_slug") {
            body.required("name", None::<String>);
        }
        body.checked()?;
        let (Rates { rate_type, tier_type, tiers }, name) = rates.zip(name).ok_or_else(unread)?;
        let slug = slug.map_or_else(|| Slug::Made(made_slug(&name)), Slug::Given);
        let price = Price {
            rate_type,
            tier_type,
            tiers,
            token_basis,
            base_cost_payer,
            service_charge_payer,
            on_disconnect,
        };
        Ok(Self { name, slug, price })
    }
}

/// What is counted, and at which rates.
pub(super) struct Rates {
    /// How they are meant.
    pub(super) rate_type: RateType,
    tier_type: TierType,
    /// The rates.
    pub(super) tiers: Tiers,
}

/// A part is missing that no issue tells of: a fault of this reader.
fn unread() -> ApiError {
    ApiError::internal("a meter's body was neither read nor refused")
}

/// The name of a product configuration without one.
fn default_name(as_product: bool, rates: Option<&Rates>) -> Option<String> {
    let rates = rates.filter(|_| as_product)?;
    let (basis, _) = BILLING_BASES.iter().find(|(_, named)| *named == rates.tier_type)?;
    Some(match rates.rate_type {
        RateType::Fixed => format!("Fee per {basis}"),
        RateType::Percentage => "Percentage fee".to_owned(),
    })
}

/// `rate_type`, `tier_type` and `tiers`.
fn meter_rates(body: &mut Fields<'_>) -> Option<Rates> {
    let rate_type = body.choice("rate_type", RATE_TYPES).unwrap_or(RateType::Fixed);
    let mut tier_type = body.choice("tier_type", TIER_TYPES);
    let wrong_type = tier_type.is_none() && body.has("tier_type");
    let tiers = read_tiers(body, &mut tier_type);
    if rate_type == RateType::Percentage && !wrong_type {
        // A percentage needs no unit but to split a cost over several tiers.
        tier_type = tier_type.or(Some(TierType::Tokens1m));
    }
    if tier_type.is_none() && !wrong_type {
        body.refuse("tier_type", "is required");
    }
    let tiers = body.required("tiers", tiers)?;
    let tiers = checked_tiers(body, tiers)?;
    tier_type.map(|tier_type| Rates { rate_type, tier_type, tiers })
}

/// `tiers` as they are given; all of one type, which they may name themselves.
pub(super) fn read_tiers(body: &mut Fields<'_>, tier_type: &mut Option<TierType>) -> Option<Vec<Tier>> {
    body.objects("tiers", MAX_TIERS, |item| {
        let start = item.whole("start");
        let start = item.required("start", start);
        let rate = item.amount("rate");
        let rate = item.required("rate", rate);
        if let Some(named) = item.choice("type", TIER_TYPES)
            && *tier_type.get_or_insert(named) != named
        {
            item.refuse("type", "must be the same for all tiers");
        }
        Some(Tier { start: start?, rate: rate? })
    })
}

/// The tiers, if they are graduated tiers; notes which one is wrong.
pub(super) fn checked_tiers(body: &mut Fields<'_>, tiers: Vec<Tier>) -> Option<Tiers> {
    match Tiers::new(tiers) {
        Ok(tiers) => Some(tiers),
        Err(error) => {
            let message = error.to_string();
            match error {
                TiersError::Count => body.refuse("tiers", message),
                TiersError::FirstStart => body.refuse_at(["tiers", "0", "start"], message),
                TiersError::Start(at) => body.refuse_at(["tiers", &at.to_string(), "start"], message),
                TiersError::Rate(at) => body.refuse_at(["tiers", &at.to_string(), "rate"], message),
            }
            None
        }
    }
}

/// `provider`, `managedKeys`, `feeStructure` and `billingBasis`: one tier from 0 on.
pub(super) fn product_rates(body: &mut Fields<'_>) -> Option<Rates> {
    if body.has("tiers") {
        body.refuse("tiers", "cannot stand beside feeStructure and billingBasis");
    }
    let provider = body.text("provider", rules::MAX_TEXT);
    if body.flag("managedKeys") == Some(true) && provider.is_none_or(|provider| provider == "other") {
        body.refuse("managedKeys", "must be false for a custom provider");
    }
    let tier_type = body.choice("billingBasis", BILLING_BASES);
    let tier_type = body.required("billingBasis", tier_type);
    let fee = body.object("feeStructure", |fees| {
        let fixed = fees.number("fixedFee");
        let percentage = fees.number("percentageFee");
        if fees.has("fixedFee") && fixed.is_none() || fees.has("percentageFee") && percentage.is_none() {
            return None;
        }
        // One beside the other may only say that there is none of it.
        let is_some = |fee: Option<Decimal>| fee.is_some_and(|fee| !fee.is_zero());
        let (rate_type, name, fee) = match (is_some(fixed), percentage) {
            (true, Some(percentage)) if !percentage.is_zero() => {
                fees.refuse("percentageFee", "cannot stand beside fixedFee");
                return None;
            }
            (false, Some(percentage)) => (RateType::Percentage, "percentageFee", percentage),
            (_, _) => (RateType::Fixed, "fixedFee", fees.required("fixedFee", fixed)?),
        };
        let tier_type = tier_type?;
        let units = match rate_type {
            RateType::Fixed => tier_type.units_per_rate(),
            RateType::Percentage => Decimal::ONE,
        };
        match only_tier(fee, units) {
            Ok(tiers) => Some(Rates { rate_type, tier_type, tiers }),
            Err(message) => {
                fees.refuse(name, message);
                None
            }
        }
    });
    body.required("feeStructure", fee).filter(|_| tier_type.is_some())
}

/// The single tier of a fee of which a rate pays for `units`, exactly.
fn only_tier(fee: Decimal, units: Decimal) -> Result<Tiers, String> {
    let exact = fee.checked_mul(units).ok_or("is out of range")?;
    let rate = exact.normalize().to_string().parse().map_err(|_| "is out of range or has too many digits")?;
    Tiers::new(vec![Tier { start: Decimal::ZERO, rate }]).map_err(|error| error.to_string())
}

/// A slug made from a name: lower-case letters and digits, all else dashes.
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

    fn read(body: &Value) -> Configuration {
        Configuration::read(&body.to_string()).unwrap()
    }

    fn refused(body: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = Configuration::read(body) else {
            panic!("{body} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    fn rates(configuration: &Configuration) -> Vec<(String, String)> {
        let tiers = configuration.price.tiers.as_slice().iter();
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
    fn a_product_configuration_comes_to_the_rate_of_its_basis() {
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
            let meter = Configuration::read(&body).unwrap();
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
    fn tiers_are_refused_at_the_tier_that_is_wrong() {
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
    }

    #[test]
    fn what_is_required_is_told() {
        assert_eq!(refused("{}"), ["tier_type", "tiers", "name"]);
        assert_eq!(refused(r#"{"billingBasis":"tokens"}"#), ["feeStructure"]);
        assert_eq!(refused(r#"{"feeStructure":{"fixedFee":1}}"#), ["billingBasis"]);
        assert_eq!(
            refused(r#"{"name":"x","tier_type":"hours","tiers":[{"start":0,"rate":"1"}]}"#),
            ["tier_type"]
        );
    }

    #[test]
    fn slugs_are_made_of_plain_letters() {
        for (name, slug) in
            [("Chat 4.1 (EU)", "chat-4-1-eu"), ("Übersicht", "bersicht"), ("日本", "meter"), ("-", "meter")]
        {
            assert_eq!(made_slug(name), slug);
        }
        assert_eq!(made_slug(&"x".repeat(255)).len(), MAX_MADE_SLUG);
    }
}
