//! What a body says that is to change of a plan. Its price and its interval never change: a body may name those as they
//! are, and is refused where it names them otherwise.

use std::collections::BTreeSet;

use farthing_core::command::{BundleEdit, Edit, MeterRef, PlanEdits};
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, MeterId};
use farthing_core::money::Amount;
use farthing_core::plan::{PlanTerms, Rollover};
use utoipa::ToSchema;

use super::configuration::{
    INTERVALS, MAX_BUNDLES, ROLLOVERS, cost, credit_amount, included_credit, meters, new_bundle,
    period_amount,
};
use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::fields::Fields;
use crate::rules;

/// What is wrong with another value of what never changes.
const NEVER_CHANGES: &str = "cannot be changed";

/// The body, as the document describes it; [`Changes::read`] reads it. What is absent stays; `null` clears the meters
/// and the default bundle, and all else stays.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read by hand")]
pub(super) struct PlanChanges {
    name: Option<values::Text>,
    /// Not above `period_amount` where that is above zero.
    included_credit: Option<values::AmountInput>,
    rollover_type: Option<Rollover>,
    bundle_rollover_type: Option<Rollover>,
    /// All of them from now on.
    meter_ids: Option<values::Meters>,
    /// The same in the older word.
    product_ids: Option<values::Meters>,
    /// One of the plan's bundles.
    default_auto_top_up_bundle_id: Option<CreditBundleId>,
    /// With an id: that bundle is changed, or removed with `is_deleted`. Without: a new one. What is not named stays.
    #[schema(max_items = 100)]
    credit_bundles: Option<Vec<BundleForm>>,
}

/// What is to become of one bundle.
#[derive(ToSchema)]
#[schema(as = CreditBundleChanges)]
#[expect(dead_code, reason = "describes what is read by hand")]
struct BundleForm {
    credit_bundle_id: Option<CreditBundleId>,
    name: Option<values::Text>,
    cost: Option<values::BundlePriceInput>,
    credit_amount: Option<values::CreditInput>,
    is_deleted: Option<bool>,
}

/// What is to change; what is none stays.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    name: Option<String>,
    included_credit: Option<Amount>,
    rollover_type: Option<Rollover>,
    bundle_rollover_type: Option<Rollover>,
    /// Empty where they are cleared.
    pub(super) meters: Option<Vec<MeterRef>>,
    default_auto_top_up_bundle_id: Edit<CreditBundleId>,
    bundles: Vec<BundleChange>,
}

/// What is to become of one bundle.
#[derive(Debug, PartialEq, Eq)]
enum BundleChange {
    Create(BundleOffer),
    Edit(BundleEdit),
}

impl Changes {
    /// Reads the body `json` about a plan of these terms.
    pub(super) fn read(json: &str, present: &PlanTerms) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let name = body.text("name", rules::MAX_TEXT);
        if period_amount(&mut body).is_some_and(|amount| amount != present.period_amount) {
            body.refuse("period_amount", NEVER_CHANGES);
        }
        if body
            .choice("billing_interval", INTERVALS)
            .is_some_and(|interval| interval != present.billing_interval)
        {
            body.refuse("billing_interval", NEVER_CHANGES);
        }
        let included_credit = included_credit(&mut body);
        let rollover_type = body.choice("rollover_type", ROLLOVERS);
        let bundle_rollover_type = body.choice("bundle_rollover_type", ROLLOVERS);
        let cleared = ["meter_ids", "product_ids"].into_iter().any(|name| body.is_null(name));
        let meters = meters(&mut body).or_else(|| cleared.then(Vec::new));
        let default_auto_top_up_bundle_id =
            body.edit("default_auto_top_up_bundle_id", |body, name| body.ruled(name, rules::id));
        let mut named = BTreeSet::new();
        let bundles = body.objects("credit_bundles", MAX_BUNDLES, |bundle| bundle_change(bundle, &mut named));
        body.checked()?;
        Ok(Self {
            name,
            included_credit,
            rollover_type,
            bundle_rollover_type,
            meters,
            default_auto_top_up_bundle_id,
            bundles: bundles.unwrap_or_default(),
        })
    }

    /// The edits: with the ids of the meters, and fresh ids for new bundles.
    pub(super) fn edits(
        self,
        meter_ids: Option<Vec<MeterId>>,
        mut fresh: impl FnMut() -> CreditBundleId,
    ) -> PlanEdits {
        let bundles = self.bundles.into_iter().map(|change| match change {
            BundleChange::Create(offer) => BundleEdit::Create(fresh(), offer),
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

fn bundle_change(bundle: &mut Fields<'_>, named: &mut BTreeSet<CreditBundleId>) -> Option<BundleChange> {
    // Either word for it: were one not known, a change would be taken for a new bundle.
    let is_named = bundle.has("credit_bundle_id") || bundle.has("id");
    let id = bundle.either("id", "credit_bundle_id", rules::id);
    let is_deleted = bundle.flag("is_deleted").unwrap_or(false);
    if !is_named {
        if is_deleted {
            bundle.refuse("credit_bundle_id", "is required");
            return None;
        }
        return new_bundle(bundle).map(BundleChange::Create);
    }
    let id = id?;
    if !named.insert(id) {
        bundle.refuse("credit_bundle_id", "names a bundle a second time");
    }
    if is_deleted {
        return Some(BundleChange::Edit(BundleEdit::Delete(id)));
    }
    let name = bundle.text("name", rules::MAX_TEXT);
    let (cost, credit_amount) = (cost(bundle), credit_amount(bundle));
    Some(BundleChange::Edit(BundleEdit::Update { id, name, cost, credit_amount }))
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

    fn refused(body: &Value) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = Changes::read(&body.to_string(), &terms())
        else {
            panic!("{body} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn what_is_absent_stays_and_null_clears_what_can_be_cleared() {
        let read = |body: Value| Changes::read(&body.to_string(), &terms()).unwrap();
        assert_eq!(read(json!({})), Changes::default());
        assert_eq!(read(json!({"period_amount": 10, "billing_interval": "month"})), Changes::default());
        let cleared = read(json!({"meter_ids": null, "default_auto_top_up_bundle_id": null, "name": null}));
        assert_eq!((cleared.meters, cleared.name), (Some(Vec::new()), None));
        assert_eq!(cleared.default_auto_top_up_bundle_id, Edit::Clear);
    }

    #[test]
    fn bundles_are_told_apart_by_their_id() {
        let id: CreditBundleId = ID.parse().unwrap();
        for word in ["credit_bundle_id", "id"] {
            let body = json!({"credit_bundles": [{word: ID, "is_deleted": true}]});
            let changes = Changes::read(&body.to_string(), &terms()).unwrap();
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
    fn price_and_interval_never_change() {
        let other = json!({"period_amount": "9", "billing_interval": "year"});
        assert_eq!(refused(&other), ["period_amount", "billing_interval"]);
    }
}
