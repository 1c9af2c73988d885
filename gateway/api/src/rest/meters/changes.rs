//! What a body says that is to change of a meter. What a meter counts, and how its rates are meant, never changes:
//! a body may name those as they are, and is refused where it names them otherwise.

use farthing_core::meter::{OnDisconnect, Payer, Price, Tiers};
use utoipa::ToSchema;

use super::configuration::{
    BILLING_BASES, ON_DISCONNECT, PAYERS, RATE_TYPES, TIER_TYPES, TOKEN_BASES, TierForm, checked_tiers,
    product_rates, read_tiers,
};
use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::fields::Fields;
use crate::rules;

/// What is wrong with another value of what never changes.
const NEVER_CHANGES: &str = "cannot be changed";

/// The body, as the document describes it; [`Changes::read`] reads it. What is absent or null stays.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read by hand")]
pub(super) struct MeterChanges {
    name: Option<values::Text>,
    /// All tiers from now on, in ascending order; the first starts at 0.
    #[schema(min_items = 1, max_items = 100)]
    tiers: Option<Vec<TierForm>>,
    base_cost_payer: Option<Payer>,
    service_charge_payer: Option<Payer>,
    on_disconnect: Option<OnDisconnect>,
}

/// The changes of a meter; what is none stays.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Its display name.
    pub(super) name: Option<String>,
    /// Its rates.
    pub(super) tiers: Option<Tiers>,
    /// Who bears the provider's cost.
    pub(super) base_cost_payer: Option<Payer>,
    /// Who bears the service charge.
    pub(super) service_charge_payer: Option<Payer>,
    /// What becomes of a call whose caller goes.
    pub(super) on_disconnect: Option<OnDisconnect>,
}

impl Changes {
    /// Reads the body `json` about a meter of this slug and price. Nothing of a meter can be cleared, so `null` counts
    /// as absent.
    pub(super) fn read(json: &str, slug: &str, price: &Price) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let name = body.text("name", rules::MAX_TEXT);
        if body.ruled("meter_slug", rules::slug).is_some_and(|named| named != slug) {
            body.refuse("meter_slug", NEVER_CHANGES);
        }
        unchanged(&mut body, "rate_type", RATE_TYPES, price.rate_type);
        unchanged(&mut body, "tier_type", TIER_TYPES, price.tier_type);
        unchanged(&mut body, "billingBasis", BILLING_BASES, price.tier_type);
        unchanged(&mut body, "token_basis", TOKEN_BASES, price.token_basis);
        let tiers = if body.has("feeStructure") {
            let rates = product_rates(&mut body);
            if rates.as_ref().is_some_and(|rates| rates.rate_type != price.rate_type) {
                // Percent points would be taken for dollars, or dollars for points.
                body.refuse("feeStructure", NEVER_CHANGES);
            }
            rates.map(|rates| rates.tiers)
        } else {
            let tiers = read_tiers(&mut body, &mut Some(price.tier_type));
            tiers.and_then(|tiers| checked_tiers(&mut body, tiers))
        };
        let base_cost_payer = body.choice("base_cost_payer", PAYERS);
        let service_charge_payer = body.choice("service_charge_payer", PAYERS);
        let on_disconnect = body.choice("on_disconnect", ON_DISCONNECT);
        body.checked()?;
        Ok(Self { name, tiers, base_cost_payer, service_charge_payer, on_disconnect })
    }
}

/// Refuses a value of the member `name` that is not the `present` one.
fn unchanged<T: Copy + PartialEq>(body: &mut Fields<'_>, name: &str, choices: &[(&str, T)], present: T) {
    if body.choice(name, choices).is_some_and(|named| named != present) {
        body.refuse(name, NEVER_CHANGES);
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
        }
    }

    fn read(body: &Value) -> Changes {
        Changes::read(&body.to_string(), "chat", &price()).unwrap()
    }

    #[test]
    fn what_is_absent_or_null_stays() {
        assert_eq!(read(&json!({})), Changes::default());
        let null =
            json!({"name": null, "tiers": null, "base_cost_payer": null, "service_charge_payer": null});
        assert_eq!(read(&null), Changes::default());
    }

    #[test]
    fn name_tiers_payers_and_what_becomes_of_an_abandoned_call_change() {
        let changes = read(&json!({
            "name": "New", "tiers": [{"start": 0, "rate": "4", "type": "tokens_1m"}, {"start": "10", "rate": 3}],
            "base_cost_payer": "merchant", "service_charge_payer": "merchant", "on_disconnect": "cancel",
        }));
        assert_eq!(changes.on_disconnect, Some(OnDisconnect::Cancel));
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
    fn what_a_meter_counts_may_be_named_as_it_is_and_never_otherwise() {
        let same = json!({"meter_slug": "chat", "rate_type": "fixed", "tier_type": "tokens_1m",
                          "token_basis": "input+output", "billingBasis": "tokens"});
        assert_eq!(read(&same), Changes::default());
        let other = json!({"meter_slug": "talk", "rate_type": "percentage", "tier_type": "requests",
                           "token_basis": "output", "billingBasis": "duration",
                           "tiers": [{"start": 0, "rate": "1", "type": "minutes"}], "base_cost_payer": "nobody", "on_disconnect": "hang up"});
        let Err(ApiError::Input(InputError::Validation(issues))) =
            Changes::read(&other.to_string(), "chat", &price())
        else {
            panic!("accepted")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        let all = [
            "meter_slug",
            "rate_type",
            "tier_type",
            "billingBasis",
            "token_basis",
            "tiers.0.type",
            "base_cost_payer",
            "on_disconnect",
        ];
        assert_eq!(paths, all);
    }

    #[test]
    fn a_fee_never_becomes_a_percentage() {
        let body = json!({"billingBasis": "tokens", "feeStructure": {"percentageFee": 10}});
        let Err(ApiError::Input(InputError::Validation(issues))) =
            Changes::read(&body.to_string(), "chat", &price())
        else {
            panic!("accepted")
        };
        assert_eq!(issues.first().map(|issue| issue.path.join(".")).as_deref(), Some("feeStructure"));
    }
}
