//! The body that changes a plan. A plan's price and billing interval cannot be changed; a body may repeat them.

use std::collections::BTreeSet;

use farthing_core::command::{BundleEdit, Edit, MeterRef, PlanEdits};
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, MeterId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::new_plan::{MAX_BUNDLES, meters};
use crate::error::ApiError;
use crate::input::{self, Given, Issues, Patch};
use crate::values;

const CANNOT_CHANGE: &str = "cannot be changed";

/// What to change of a plan. An absent field stays. `null` clears the meters and the default bundle. `period_amount` and
/// `billing_interval` may be repeated, but not changed.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PlanChanges)]
pub(super) struct PlanChangesBody {
    #[serde(default)]
    #[schema(value_type = values::Text)]
    name: Given<values::Text>,
    #[schema(ignore)]
    #[serde(default)]
    period_amount: Given<values::PriceInput>,
    #[schema(ignore)]
    #[serde(default)]
    billing_interval: Given<BillingInterval>,
    /// Must not exceed `period_amount` unless that is 0.
    #[serde(default)]
    #[schema(value_type = values::AmountInput)]
    included_credit: Given<values::AmountInput>,
    #[serde(default)]
    #[schema(value_type = Rollover)]
    rollover_type: Given<Rollover>,
    #[serde(default)]
    #[schema(value_type = Rollover)]
    bundle_rollover_type: Given<Rollover>,
    /// Replaces all meters.
    #[serde(default)]
    #[schema(value_type = Option<values::Meters>)]
    meter_ids: Patch<values::Meters>,
    /// The older name of `meter_ids`.
    #[serde(default)]
    #[schema(value_type = Option<values::Meters>)]
    product_ids: Patch<values::Meters>,
    /// One of the plan's bundles.
    #[serde(default)]
    #[schema(value_type = Option<CreditBundleId>)]
    default_auto_top_up_bundle_id: Patch<CreditBundleId>,
    /// With an id: changes the bundle, or removes it with `is_deleted`. Without an id: a new bundle. Other bundles
    /// stay.
    #[serde(default)]
    #[schema(value_type = Vec<BundleChangesBody>, max_items = 100)]
    credit_bundles: Given<values::List<BundleChangesBody, MAX_BUNDLES>>,
}

/// A change of one bundle.
#[derive(Debug, ToSchema)]
#[schema(as = CreditBundleChanges)]
struct BundleChangesBody {
    #[serde(flatten)]
    #[schema(inline)]
    bundle: ChangedBundleBody,
    #[serde(flatten)]
    #[schema(inline)]
    offer: BundleOfferBody,
}

/// The bundle that changes.
#[derive(Debug, Deserialize, ToSchema)]
struct ChangedBundleBody {
    credit_bundle_id: Option<CreditBundleId>,
    /// The same as `credit_bundle_id`.
    id: Option<CreditBundleId>,
    /// Removes the bundle. The other members are then ignored.
    is_deleted: Option<bool>,
}

/// The new values of a bundle.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct BundleOfferBody {
    name: Option<values::Text>,
    cost: Option<values::BundlePriceInput>,
    credit_amount: Option<values::CreditInput>,
}

impl<'de> Deserialize<'de> for BundleChangesBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_kept = |bundle: &ChangedBundleBody| bundle.is_deleted != Some(true);
        let (bundle, offer) = input::read_two(deserializer, is_kept)?;
        Ok(Self { bundle, offer: offer.unwrap_or_default() })
    }
}

/// The checked changes; `None` keeps a value.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PlanChanges {
    name: Option<String>,
    included_credit: Option<Amount>,
    rollover_type: Option<Rollover>,
    bundle_rollover_type: Option<Rollover>,
    /// An empty list clears the meters.
    pub(super) meters: Option<Vec<MeterRef>>,
    default_auto_top_up_bundle_id: Edit<CreditBundleId>,
    bundles: Vec<BundleChange>,
}

/// A checked change of one bundle.
#[derive(Debug, PartialEq, Eq)]
enum BundleChange {
    Create(BundleOffer),
    Edit(BundleEdit),
}

impl PlanChangesBody {
    /// Checks the body against the present terms of the plan.
    pub(super) fn checked(self, present: &PlanTerms) -> Result<PlanChanges, ApiError> {
        let mut issues = Issues::default();
        if self.period_amount.0.is_some_and(|amount| amount.0 != present.period_amount) {
            issues.refuse(["period_amount"], CANNOT_CHANGE);
        }
        if self.billing_interval.0.is_some_and(|interval| interval != present.billing_interval) {
            issues.refuse(["billing_interval"], CANNOT_CHANGE);
        }
        let is_cleared = self.meter_ids == Patch::Null || self.product_ids == Patch::Null;
        let meters = meters(&mut issues, self.product_ids.value(), self.meter_ids.value())
            .or_else(|| is_cleared.then(Vec::new));
        let mut named = BTreeSet::new();
        let bundles = self
            .credit_bundles
            .0
            .into_iter()
            .flat_map(|bundles| bundles.0)
            .enumerate()
            .filter_map(|(index, bundle)| bundle.checked(index, &mut named, &mut issues))
            .collect();
        issues.checked()?;
        Ok(PlanChanges {
            name: self.name.0.map(|name| name.0),
            included_credit: self.included_credit.0.map(|credit| credit.0),
            rollover_type: self.rollover_type.0,
            bundle_rollover_type: self.bundle_rollover_type.0,
            meters,
            default_auto_top_up_bundle_id: self.default_auto_top_up_bundle_id.edit(|id| id),
            bundles,
        })
    }
}

impl BundleChangesBody {
    /// The change of the bundle at `index` of the list. `named` has the ids of the changes before it.
    fn checked(
        self,
        index: usize,
        named: &mut BTreeSet<CreditBundleId>,
        issues: &mut Issues,
    ) -> Option<BundleChange> {
        let mut inner = Issues::default();
        let ChangedBundleBody { credit_bundle_id, id, is_deleted } = self.bundle;
        let is_deleted = is_deleted.unwrap_or(false);
        // Both names of the id are read; otherwise a change under the other name would create a bundle.
        let is_named = id.is_some() || credit_bundle_id.is_some();
        let id = inner.either(("id", id), ("credit_bundle_id", credit_bundle_id));
        let name = self.offer.name.map(|name| name.0);
        let cost = self.offer.cost.map(|cost| cost.0);
        let credit_amount = self.offer.credit_amount.map(|credit| credit.0);
        let change = if let Some(id) = id {
            if !named.insert(id) {
                inner.refuse(["credit_bundle_id"], "must not name a bundle twice");
            }
            let edit = if is_deleted {
                BundleEdit::Delete(id)
            } else {
                BundleEdit::Update { id, name, cost, credit_amount }
            };
            Some(BundleChange::Edit(edit))
        } else if is_deleted {
            inner.required("credit_bundle_id", None::<CreditBundleId>);
            None
        } else if is_named {
            None
        } else {
            let name = inner.required("name", name);
            let cost = inner.required("cost", cost);
            let credit_amount = inner.required("credit_amount", credit_amount);
            name.zip(cost).zip(credit_amount).map(|((name, cost), credit_amount)| {
                BundleChange::Create(BundleOffer { name, cost, credit_amount })
            })
        };
        issues.extend(&["credit_bundles".to_owned(), index.to_string()], inner);
        change
    }
}

impl PlanChanges {
    /// The edits, with the ids of the meters and new ids for new bundles.
    pub(super) fn edits(
        self,
        meter_ids: Option<Vec<MeterId>>,
        mut new_id: impl FnMut() -> CreditBundleId,
    ) -> PlanEdits {
        let bundles = self.bundles.into_iter().map(|change| match change {
            BundleChange::Create(offer) => BundleEdit::Create(new_id(), offer),
            BundleChange::Edit(edit) => edit,
        });
        PlanEdits {
            name: self.name,
            included_credit: self.included_credit,
            rollover_type: self.rollover_type,
            bundle_rollover_type: self.bundle_rollover_type,
            meter_ids,
            default_auto_top_up_bundle_id: self.default_auto_top_up_bundle_id,
            bundles: bundles.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::plan::BillingInterval;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::InputError;

    const ID: &str = "cb_01ARZ3NDEKTSV4RRFFQ69G5FAV";

    fn terms() -> PlanTerms {
        PlanTerms {
            name: "Ten".to_owned(),
            period_amount: "10".parse().unwrap(),
            included_credit: "10".parse().unwrap(),
            billing_interval: BillingInterval::Month,
            rollover_type: Rollover::None,
            bundle_rollover_type: Rollover::Full,
            meter_ids: Vec::new(),
            default_auto_top_up_bundle_id: None,
        }
    }

    fn read(body: &Value) -> Result<PlanChanges, ApiError> {
        input::body::<PlanChangesBody>(&body.to_string())?.checked(&terms())
    }

    fn refused(body: &Value) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = read(body) else {
            panic!("{body} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn absent_fields_stay_and_null_clears_some() {
        let read = |body: Value| read(&body).unwrap();
        assert_eq!(read(json!({})), PlanChanges::default());
        assert_eq!(read(json!({"period_amount": 10, "billing_interval": "month"})), PlanChanges::default());
        let cleared = read(json!({"meter_ids": null, "default_auto_top_up_bundle_id": null}));
        assert_eq!(cleared.meters, Some(Vec::new()));
        assert_eq!(cleared.default_auto_top_up_bundle_id, Edit::Clear);
        for name in ["name", "included_credit", "rollover_type", "bundle_rollover_type", "credit_bundles"] {
            assert_eq!(refused(&json!({name: null})), [name]);
        }
    }

    #[test]
    fn bundles_with_an_id_are_changed() {
        let id: CreditBundleId = ID.parse().unwrap();
        for word in ["credit_bundle_id", "id"] {
            let body = json!({"credit_bundles": [{word: ID, "is_deleted": true}]});
            let changes = read(&body).unwrap();
            assert_eq!(changes.bundles, [BundleChange::Edit(BundleEdit::Delete(id))]);
        }
        for (bundles, path) in [
            (
                json!([{"credit_bundle_id": ID}, {"credit_bundle_id": ID}]),
                "credit_bundles.1.credit_bundle_id",
            ),
            (json!([{"is_deleted": true}]), "credit_bundles.0.credit_bundle_id"),
            (json!([{"credit_bundle_id": "cb_1", "name": "x"}]), "credit_bundles.0.credit_bundle_id"),
            (json!([{"name": "x", "cost": "1"}]), "credit_bundles.0.credit_amount"),
            (json!([{"credit_bundle_id": ID, "cost": 0}]), "credit_bundles.0.cost"),
        ] {
            assert_eq!(refused(&json!({"credit_bundles": bundles})), [path]);
        }
    }

    #[test]
    fn the_other_members_of_a_removed_bundle_are_ignored() {
        let removed =
            json!({"credit_bundle_id": ID, "is_deleted": true, "name": "", "cost": 0, "credit_amount": "x"});
        let changes = read(&json!({"credit_bundles": [removed]})).unwrap();
        assert_eq!(changes.bundles, [BundleChange::Edit(BundleEdit::Delete(ID.parse().unwrap()))]);
        let kept =
            json!({"credit_bundle_id": ID, "is_deleted": false, "name": "", "cost": 0, "credit_amount": "x"});
        let paths = ["name", "cost", "credit_amount"].map(|member| format!("credit_bundles.0.{member}"));
        assert_eq!(refused(&json!({"credit_bundles": [kept]})), paths);
        let unclear = json!({"credit_bundle_id": ID, "is_deleted": "yes", "cost": 0});
        let paths = ["credit_bundles.0.is_deleted", "credit_bundles.0.cost"];
        assert_eq!(refused(&json!({"credit_bundles": [unclear]})), paths);
    }

    #[test]
    fn more_bundles_than_the_maximum_are_one_issue() {
        for bundle in [json!({"name": "b", "cost": "1", "credit_amount": "1"}), json!(7), json!({})] {
            assert_eq!(
                refused(&json!({"credit_bundles": vec![&bundle; MAX_BUNDLES + 1]})),
                ["credit_bundles"]
            );
        }
    }

    #[test]
    fn the_number_of_issues_is_bounded() {
        let unnamed = vec![json!({}); MAX_BUNDLES];
        assert_eq!(refused(&json!({"credit_bundles": unnamed})).len(), MAX_BUNDLES, "of three times as many");
    }

    #[test]
    fn price_and_interval_cannot_change() {
        let other = json!({"period_amount": "9", "billing_interval": "year"});
        assert_eq!(refused(&other), ["period_amount", "billing_interval"]);
    }
}
