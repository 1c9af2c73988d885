//! What a body says of a plan to create, and the rules that a plan's values keep whenever they are said.

use farthing_core::command::MeterRef;
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, MerchantId, MeterId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, Rollover};
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::openapi::values;
use crate::rest::fields::Fields;
use crate::rules;

/// The most bundles that one body may name.
pub(super) const MAX_BUNDLES: usize = 100;

/// The most meters of a plan.
const MAX_METERS: usize = 100;

/// The highest price of a cycle or a bundle, in dollars.
const MAX_PRICE: i64 = 10_000;

/// The most credit that a cycle or a bundle brings, in dollars.
const MAX_CREDIT: i64 = 1_000_000;

pub(super) const ROLLOVERS: &[(&str, Rollover)] = &[("full", Rollover::Full), ("none", Rollover::None)];

pub(super) const INTERVALS: &[(&str, BillingInterval)] = &[
    ("day", BillingInterval::Day),
    ("week", BillingInterval::Week),
    ("month", BillingInterval::Month),
    ("year", BillingInterval::Year),
];

/// A plan to create.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Configuration::read` reads")]
pub(super) struct NewPlan {
    name: values::Text,
    /// What a cycle costs; never changes.
    period_amount: values::PriceInput,
    /// The credit that a cycle brings; `period_amount` when absent, and not above that where that is above zero.
    included_credit: Option<values::AmountInput>,
    /// `month` when absent; never changes.
    billing_interval: Option<BillingInterval>,
    /// What becomes of a cycle's credit at its end; `none` when absent: it expires.
    rollover_type: Option<Rollover>,
    /// What becomes of bundle credit at a cycle's end; `full` when absent: it stays.
    bundle_rollover_type: Option<Rollover>,
    /// Only calls on these meters draw the credit; any call where there are none.
    meter_ids: Option<values::Meters>,
    /// The same in the older word.
    product_ids: Option<values::Meters>,
    /// A new plan's bundles have no ids yet: this is set by PATCH.
    default_auto_top_up_bundle_id: Option<CreditBundleId>,
    #[schema(max_items = 100)]
    credit_bundles: Option<Vec<NewBundle>>,
}

/// A credit bundle to create.
#[derive(ToSchema)]
#[schema(as = NewCreditBundle)]
#[expect(dead_code, reason = "describes what `new_bundle` reads")]
struct NewBundle {
    name: values::Text,
    /// What it costs.
    cost: values::BundlePriceInput,
    /// The credit it brings.
    credit_amount: values::CreditInput,
}

/// A plan as it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) name: String,
    pub(super) period_amount: Amount,
    pub(super) included_credit: Amount,
    pub(super) billing_interval: BillingInterval,
    pub(super) rollover_type: Rollover,
    pub(super) bundle_rollover_type: Rollover,
    pub(super) meters: Vec<MeterRef>,
    pub(super) default_auto_top_up_bundle_id: Option<CreditBundleId>,
    pub(super) bundles: Vec<BundleOffer>,
}

impl Configuration {
    /// Reads the body `json`.
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let name = body.text("name", rules::MAX_TEXT);
        let name = body.required("name", name);
        let period_amount = period_amount(&mut body);
        let period_amount = body.required("period_amount", period_amount);
        let included_credit = included_credit(&mut body);
        if let (Some(price), Some(credit)) = (period_amount, included_credit)
            && price.is_positive()
            && credit > price
        {
            body.refuse("included_credit", "must not be above period_amount, where that is above zero");
        }
        let billing_interval = body.choice("billing_interval", INTERVALS);
        let rollover_type = body.choice("rollover_type", ROLLOVERS);
        let bundle_rollover_type = body.choice("bundle_rollover_type", ROLLOVERS);
        let meters = meters(&mut body);
        let default_auto_top_up_bundle_id = body.ruled("default_auto_top_up_bundle_id", rules::id);
        let bundles = body.objects("credit_bundles", MAX_BUNDLES, new_bundle);
        body.checked()?;
        let period_amount = period_amount.unwrap_or(Amount::ZERO);
        Ok(Self {
            name: name.unwrap_or_default(),
            period_amount,
            included_credit: included_credit.unwrap_or(period_amount),
            billing_interval: billing_interval.unwrap_or(BillingInterval::Month),
            rollover_type: rollover_type.unwrap_or(Rollover::None),
            bundle_rollover_type: bundle_rollover_type.unwrap_or(Rollover::Full),
            meters: meters.unwrap_or_default(),
            default_auto_top_up_bundle_id,
            bundles: bundles.unwrap_or_default(),
        })
    }
}

/// What a cycle costs.
pub(super) fn period_amount(body: &mut Fields<'_>) -> Option<Amount> {
    let amount = body.payable("period_amount")?;
    if amount.is_negative() || amount.decimal() > MAX_PRICE.into() {
        body.refuse("period_amount", "must be between 0 and 10000");
    }
    Some(amount)
}

/// The credit that a cycle brings.
pub(super) fn included_credit(body: &mut Fields<'_>) -> Option<Amount> {
    let amount = body.amount("included_credit")?;
    if amount.is_negative() || amount.decimal() > MAX_CREDIT.into() {
        body.refuse("included_credit", "must be between 0 and 1000000");
    }
    Some(amount)
}

/// What a bundle costs.
pub(super) fn cost(bundle: &mut Fields<'_>) -> Option<Amount> {
    let amount = bundle.payable("cost")?;
    if !amount.is_positive() || amount.decimal() > MAX_PRICE.into() {
        bundle.refuse("cost", "must be above 0, at most 10000");
    }
    Some(amount)
}

/// The credit that a bundle brings.
pub(super) fn credit_amount(bundle: &mut Fields<'_>) -> Option<Amount> {
    let amount = bundle.amount("credit_amount")?;
    if !amount.is_positive() || amount.decimal() > MAX_CREDIT.into() {
        bundle.refuse("credit_amount", "must be above 0, at most 1000000");
    }
    Some(amount)
}

/// `name`, `cost` and `credit_amount` of a bundle that is new.
pub(super) fn new_bundle(bundle: &mut Fields<'_>) -> Option<BundleOffer> {
    let name = bundle.text("name", rules::MAX_TEXT);
    let name = bundle.required("name", name);
    let cost = cost(bundle);
    let cost = bundle.required("cost", cost);
    let credit_amount = credit_amount(bundle);
    let credit_amount = bundle.required("credit_amount", credit_amount);
    Some(BundleOffer { name: name?, cost: cost?, credit_amount: credit_amount? })
}

/// `meter_ids` or `product_ids`; both may be given when they agree.
pub(super) fn meters(body: &mut Fields<'_>) -> Option<Vec<MeterRef>> {
    let by_older = body.ruled_list("product_ids", MAX_METERS, rules::meter);
    let by_newer = body.ruled_list("meter_ids", MAX_METERS, rules::meter);
    match rules::either("product_ids", by_older, by_newer) {
        Ok(meters) => meters,
        Err(message) => {
            body.refuse("meter_ids", message);
            None
        }
    }
}

impl App {
    /// Ids and slugs of the merchant's meters, each once.
    pub(super) async fn linked_meters(
        &self,
        merchant_id: MerchantId,
        meters: &[MeterRef],
    ) -> Result<Vec<(MeterId, String)>, ApiError> {
        let mut linked: Vec<(MeterId, String)> = Vec::with_capacity(meters.len());
        for meter in meters {
            let name = match meter {
                MeterRef::Id(id) | MeterRef::Secret(id) => id.to_string(),
                MeterRef::Slug(slug) => slug.clone(),
            };
            let (id, meter) =
                self.meter(merchant_id, &name).await?.ok_or(ApiError::NotFound(Resource::Meter))?;
            if linked.iter().all(|(known, _)| *known != id) {
                linked.push((id, meter.meter_slug));
            }
        }
        Ok(linked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn refused(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = Configuration::read(json) else {
            panic!("{json} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn the_credit_is_the_price_unless_it_is_named() {
        let read = |json: &str| Configuration::read(json).unwrap();
        assert_eq!(read(r#"{"name":"p","period_amount":"20"}"#).included_credit.to_string(), "20.0000000000");
        let free = read(r#"{"name":"p","period_amount":0,"included_credit":"5"}"#);
        assert_eq!(free.included_credit.to_string(), "5.0000000000");
        assert_eq!(
            (free.billing_interval, free.rollover_type, free.bundle_rollover_type),
            (BillingInterval::Month, Rollover::None, Rollover::Full)
        );
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        assert_eq!(refused("{}"), ["name", "period_amount"]);
        for (json, path) in [
            (r#"{"name":"p","period_amount":"10000.01"}"#, "period_amount"),
            (r#"{"name":"p","period_amount":"-1"}"#, "period_amount"),
            (r#"{"name":"p","period_amount":"9.999"}"#, "period_amount"),
            (r#"{"name":"p","period_amount":"0.5","included_credit":"0.6"}"#, "included_credit"),
            (r#"{"name":"p","period_amount":0,"included_credit":-1}"#, "included_credit"),
            (r#"{"name":"p","period_amount":0,"billing_interval":"hour"}"#, "billing_interval"),
            (r#"{"name":"p","period_amount":0,"rollover_type":"half"}"#, "rollover_type"),
            (r#"{"name":"p","period_amount":0,"bundle_rollover_type":1}"#, "bundle_rollover_type"),
            (r#"{"name":"p","period_amount":0,"meter_ids":["prd_1"]}"#, "meter_ids.0"),
            (r#"{"name":"p","period_amount":0,"meter_ids":["a"],"product_ids":["b"]}"#, "meter_ids"),
            (
                r#"{"name":"p","period_amount":0,"default_auto_top_up_bundle_id":"x"}"#,
                "default_auto_top_up_bundle_id",
            ),
            (
                r#"{"name":"p","period_amount":0,"credit_bundles":[{"name":"b","cost":"0","credit_amount":"1"}]}"#,
                "credit_bundles.0.cost",
            ),
            (
                r#"{"name":"p","period_amount":0,"credit_bundles":[{"name":"b","cost":"1.0010","credit_amount":"1"}]}"#,
                "credit_bundles.0.cost",
            ),
            (
                r#"{"name":"p","period_amount":0,"credit_bundles":[{"name":"b","cost":"1"}]}"#,
                "credit_bundles.0.credit_amount",
            ),
        ] {
            assert_eq!(refused(json), [path], "{json}");
        }
    }
}
