//! The body that creates a plan.

use farthing_core::command::MeterRef;
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, MerchantId, MeterId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, Rollover};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::input::{Given, Issues};
use crate::values;

/// The most bundles that one body names.
pub(super) const MAX_BUNDLES: usize = 100;

/// A plan to create.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewPlan)]
pub(super) struct NewPlanBody {
    name: values::Text,
    /// The price of a cycle. It cannot be changed later.
    period_amount: values::PriceInput,
    /// The credit of a cycle; by default `period_amount`. It must not exceed `period_amount` unless that is 0.
    #[serde(default)]
    #[schema(value_type = values::AmountInput)]
    included_credit: Given<values::AmountInput>,
    /// By default `month`. It cannot be changed later.
    #[serde(default)]
    #[schema(value_type = BillingInterval)]
    billing_interval: Given<BillingInterval>,
    /// Whether unused credit of a cycle is kept at its end; by default `none`: it expires.
    #[serde(default)]
    #[schema(value_type = Rollover)]
    rollover_type: Given<Rollover>,
    /// Whether unused bundle credit is kept at the end of a cycle; by default `full`: it is kept.
    #[serde(default)]
    #[schema(value_type = Rollover)]
    bundle_rollover_type: Given<Rollover>,
    /// Only calls on these meters use the credit; without meters, all calls do.
    meter_ids: Option<values::Meters>,
    /// The older name of `meter_ids`.
    product_ids: Option<values::Meters>,
    /// Must name an existing bundle. The bundles of a new plan have no ids yet, so set this by PATCH.
    default_auto_top_up_bundle_id: Option<CreditBundleId>,
    #[serde(default)]
    #[schema(value_type = Vec<NewBundleBody>, max_items = 100)]
    credit_bundles: Given<values::List<NewBundleBody, MAX_BUNDLES>>,
}

/// A credit bundle to create.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewCreditBundle)]
struct NewBundleBody {
    name: values::Text,
    /// Its price.
    cost: values::BundlePriceInput,
    /// The credit that it adds.
    credit_amount: values::CreditInput,
}

/// A checked plan to create.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewPlan {
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

impl NewPlanBody {
    /// Checks the rules between the fields.
    pub(super) fn checked(self) -> Result<NewPlan, ApiError> {
        let mut issues = Issues::default();
        let period_amount = self.period_amount.0;
        let included_credit = self.included_credit.0.map(|credit| credit.0);
        if period_amount.is_positive() && included_credit.is_some_and(|credit| credit > period_amount) {
            issues.refuse(["included_credit"], "must not exceed period_amount, unless that is 0");
        }
        let meters = meters(&mut issues, self.product_ids, self.meter_ids);
        issues.checked()?;
        Ok(NewPlan {
            name: self.name.0,
            period_amount,
            included_credit: included_credit.unwrap_or(period_amount),
            billing_interval: self.billing_interval.0.unwrap_or(BillingInterval::Month),
            rollover_type: self.rollover_type.0.unwrap_or(Rollover::None),
            bundle_rollover_type: self.bundle_rollover_type.0.unwrap_or(Rollover::Full),
            meters: meters.unwrap_or_default(),
            default_auto_top_up_bundle_id: self.default_auto_top_up_bundle_id,
            bundles: self
                .credit_bundles
                .0
                .map(|bundles| bundles.0.into_iter().map(BundleOffer::from).collect())
                .unwrap_or_default(),
        })
    }
}

impl From<NewBundleBody> for BundleOffer {
    fn from(body: NewBundleBody) -> Self {
        Self { name: body.name.0, cost: body.cost.0, credit_amount: body.credit_amount.0 }
    }
}

/// `meter_ids` or `product_ids`; if both are given, they must be equal.
pub(super) fn meters(
    issues: &mut Issues,
    product_ids: Option<values::Meters>,
    meter_ids: Option<values::Meters>,
) -> Option<Vec<MeterRef>> {
    issues.either(("product_ids", product_ids), ("meter_ids", meter_ids)).map(values::Meters::into_refs)
}

/// Ids and slugs of the merchant's meters, each once.
pub(super) async fn linked_meters(
    app: &App,
    merchant_id: MerchantId,
    meters: &[MeterRef],
) -> Result<Vec<(MeterId, String)>, ApiError> {
    let mut linked: Vec<(MeterId, String)> = Vec::with_capacity(meters.len());
    for meter in meters {
        let name = match meter {
            MeterRef::Id(id) | MeterRef::Secret(id) => id.to_string(),
            MeterRef::Slug(slug) => slug.clone(),
        };
        let (id, meter) = app.meter(merchant_id, &name).await?.ok_or(ApiError::NotFound(Resource::Meter))?;
        if linked.iter().all(|(known, _)| *known != id) {
            linked.push((id, meter.meter_slug));
        }
    }
    Ok(linked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;
    use crate::input;

    fn read(json: &str) -> Result<NewPlan, ApiError> {
        input::body::<NewPlanBody>(json)?.checked()
    }

    fn refused(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = read(json) else {
            panic!("{json} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn the_included_credit_is_the_price_by_default() {
        assert_eq!(
            read(r#"{"name":"p","period_amount":"20"}"#).unwrap().included_credit.to_string(),
            "20.0000000000"
        );
        let free = read(r#"{"name":"p","period_amount":0,"included_credit":"5"}"#).unwrap();
        assert_eq!(free.included_credit.to_string(), "5.0000000000");
        assert_eq!(
            (free.billing_interval, free.rollover_type, free.bundle_rollover_type),
            (BillingInterval::Month, Rollover::None, Rollover::Full)
        );
    }

    #[test]
    fn more_bundles_than_the_maximum_are_one_issue() {
        let valid = serde_json::json!({"name": "b", "cost": "1", "credit_amount": "1"});
        for bundle in [valid.clone(), serde_json::json!(7), serde_json::json!({})] {
            let bundles = vec![&bundle; MAX_BUNDLES + 1];
            let body = serde_json::json!({"name": "p", "period_amount": 0, "credit_bundles": bundles});
            assert_eq!(refused(&body.to_string()), ["credit_bundles"], "{bundle}");
        }
        let most =
            serde_json::json!({"name": "p", "period_amount": 0, "credit_bundles": vec![valid; MAX_BUNDLES]});
        assert_eq!(read(&most.to_string()).unwrap().bundles.len(), MAX_BUNDLES);
    }

    #[test]
    fn issues_name_their_path() {
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
