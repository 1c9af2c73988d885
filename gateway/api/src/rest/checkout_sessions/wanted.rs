//! What a body asks for when a checkout session is created: each mode has members that it cannot do without.

use std::str::FromStr;

use farthing_core::event::CheckoutMode;
use farthing_core::ids::{CreditBundleId, PlanId};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::fields::Fields;
use crate::rules;

const MODES: &[(&str, CheckoutMode)] = &[
    ("onboarding", CheckoutMode::Onboarding),
    ("topup", CheckoutMode::Topup),
    ("subscription", CheckoutMode::Subscription),
    ("credit_bundle", CheckoutMode::CreditBundle),
];

/// A checkout session to create.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
pub(super) struct NewCheckoutSession {
    checkout_mode: CheckoutMode,
    /// The merchant's app: an http or https URL. Its origin may frame the page and is told of its end.
    origin_url: values::OriginUrl,
    /// A customer that is there, by its id or `reference_id`.
    connection_id: Option<values::ReferenceOrId>,
    /// The same in the newer word.
    customer_id: Option<values::ReferenceOrId>,
    /// A customer that need not be there: the page makes it. A credit bundle is for one that is.
    reference_id: Option<values::ReferenceId>,
    /// The plan; mode `subscription` needs one.
    subscription_config_id: Option<values::PlanName>,
    /// The same in the newer word.
    plan_id: Option<values::PlanName>,
    /// The bundle; mode `credit_bundle` needs one.
    credit_bundle_id: Option<values::CreditBundleName>,
}

/// A session as it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) checkout_mode: CheckoutMode,
    pub(super) origin_url: String,
    /// By id or reference id.
    pub(super) customer: Option<String>,
    pub(super) reference_id: Option<String>,
    pub(super) plan_id: Option<PlanId>,
    pub(super) credit_bundle_id: Option<CreditBundleId>,
}

impl Wanted {
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let checkout_mode = body.choice("checkout_mode", MODES);
        let checkout_mode = body.required("checkout_mode", checkout_mode);
        let origin_url = body.ruled("origin_url", rules::origin_url);
        let origin_url = body.required("origin_url", origin_url);
        let customer = body.either("connection_id", "customer_id", |name| rules::text(name, rules::MAX_TEXT));
        let reference_id = body.ruled("reference_id", rules::reference_id);
        let plan_id = body.either("subscription_config_id", "plan_id", |id| known(&id, "the id of a plan"));
        let credit_bundle_id = body.ruled("credit_bundle_id", |id| known(&id, "the id of a credit bundle"));
        let named = ["connection_id", "customer_id", "reference_id"].iter().any(|name| body.has(name));
        match checkout_mode {
            Some(CheckoutMode::Subscription) if !body.has("subscription_config_id") => {
                body.required("plan_id", plan_id);
            }
            Some(CheckoutMode::CreditBundle) => {
                body.required("credit_bundle_id", credit_bundle_id);
                if !named {
                    body.refuse("customer_id", "is required");
                }
            }
            Some(CheckoutMode::Onboarding | CheckoutMode::Topup | CheckoutMode::Subscription) | None => {}
        }
        body.checked()?;
        let missing = || ApiError::internal("a required member is missing");
        Ok(Self {
            checkout_mode: checkout_mode.ok_or_else(missing)?,
            origin_url: origin_url.ok_or_else(missing)?,
            customer,
            reference_id,
            plan_id,
            credit_bundle_id,
        })
    }
}

fn known<T: FromStr>(id: &str, what: &str) -> Result<T, String> {
    id.parse().map_err(|_| format!("must be {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn refused(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = Wanted::read(json) else {
            panic!("accepted: {json}")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn each_mode_needs_its_members() {
        let of = |mode: &str, rest: &str| {
            format!(r#"{{"checkout_mode":"{mode}","origin_url":"https://app.example"{rest}}}"#)
        };
        assert_eq!(refused("{}"), ["checkout_mode", "origin_url"]);
        assert_eq!(refused(&of("subscription", "")), ["plan_id"]);
        assert_eq!(refused(&of("credit_bundle", "")), ["credit_bundle_id", "customer_id"]);
        assert_eq!(refused(&of("gift", "")), ["checkout_mode"]);
        assert_eq!(refused(&of("topup", r#","plan_id":"x""#)), ["plan_id"]);
        for mode in ["onboarding", "topup"] {
            assert!(Wanted::read(&of(mode, "")).is_ok(), "{mode}");
        }
        let plan = r#","subscription_config_id":"sc_01ARZ3NDEKTSV4RRFFQ69G5FAV""#;
        assert!(Wanted::read(&of("subscription", plan)).is_ok());
        let bundle = r#","credit_bundle_id":"cb_01ARZ3NDEKTSV4RRFFQ69G5FAV","reference_id":"ada""#;
        assert!(Wanted::read(&of("credit_bundle", bundle)).is_ok());
    }
}
