//! The body that creates a checkout session. Each mode has its own required fields.

use farthing_core::event::CheckoutMode;
use farthing_core::ids::{CreditBundleId, PlanId};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::input::Issues;
use crate::values;

/// A checkout session to create.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewCheckoutSession)]
pub(super) struct NewCheckoutSessionBody {
    checkout_mode: CheckoutMode,
    /// The http or https URL of the merchant's app. Its origin may frame the page and receives the page's messages.
    origin_url: values::OriginUrl,
    /// An existing customer, by id or `reference_id`.
    connection_id: Option<values::ReferenceOrId>,
    /// The newer name of `connection_id`.
    customer_id: Option<values::ReferenceOrId>,
    /// A customer that the page creates if it does not exist. Mode `credit_bundle` needs an existing customer.
    reference_id: Option<values::ReferenceId>,
    /// The plan; required in mode `subscription`.
    subscription_config_id: Option<PlanId>,
    /// The newer name of `subscription_config_id`.
    plan_id: Option<PlanId>,
    /// The bundle; required in mode `credit_bundle`.
    credit_bundle_id: Option<CreditBundleId>,
}

/// A checked session to create.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewSession {
    pub(super) checkout_mode: CheckoutMode,
    pub(super) origin_url: String,
    /// By id or reference id.
    pub(super) customer: Option<String>,
    pub(super) reference_id: Option<String>,
    pub(super) plan_id: Option<PlanId>,
    pub(super) credit_bundle_id: Option<CreditBundleId>,
}

impl NewCheckoutSessionBody {
    /// Checks the rules between the fields.
    pub(super) fn checked(self) -> Result<NewSession, ApiError> {
        let mut issues = Issues::default();
        let is_customer_named =
            self.connection_id.is_some() || self.customer_id.is_some() || self.reference_id.is_some();
        let customer =
            issues.either(("connection_id", self.connection_id), ("customer_id", self.customer_id));
        let plan_id =
            issues.either(("subscription_config_id", self.subscription_config_id), ("plan_id", self.plan_id));
        match self.checkout_mode {
            CheckoutMode::Subscription => {
                issues.required("plan_id", plan_id);
            }
            CheckoutMode::CreditBundle => {
                issues.required("credit_bundle_id", self.credit_bundle_id);
                issues.required("customer_id", is_customer_named.then_some(()));
            }
            CheckoutMode::Onboarding | CheckoutMode::Topup => {}
        }
        issues.checked()?;
        Ok(NewSession {
            checkout_mode: self.checkout_mode,
            origin_url: self.origin_url.0,
            customer: customer.map(|customer| customer.0),
            reference_id: self.reference_id.map(|reference| reference.0),
            plan_id,
            credit_bundle_id: self.credit_bundle_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;
    use crate::input;

    fn read(json: &str) -> Result<NewSession, ApiError> {
        input::body::<NewCheckoutSessionBody>(json)?.checked()
    }

    fn refused(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = read(json) else {
            panic!("accepted: {json}")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn each_mode_has_required_fields() {
        let of = |mode: &str, rest: &str| {
            format!(r#"{{"checkout_mode":"{mode}","origin_url":"https://app.example"{rest}}}"#)
        };
        assert_eq!(refused("{}"), ["checkout_mode", "origin_url"]);
        assert_eq!(refused(&of("subscription", "")), ["plan_id"]);
        assert_eq!(refused(&of("credit_bundle", "")), ["credit_bundle_id", "customer_id"]);
        assert_eq!(refused(&of("gift", "")), ["checkout_mode"]);
        assert_eq!(refused(&of("topup", r#","plan_id":"x""#)), ["plan_id"]);
        for mode in ["onboarding", "topup"] {
            assert!(read(&of(mode, "")).is_ok(), "{mode}");
        }
        let plan = r#","subscription_config_id":"sc_01ARZ3NDEKTSV4RRFFQ69G5FAV""#;
        assert!(read(&of("subscription", plan)).is_ok());
        let bundle = r#","credit_bundle_id":"cb_01ARZ3NDEKTSV4RRFFQ69G5FAV","reference_id":"ada""#;
        assert!(read(&of("credit_bundle", bundle)).is_ok());
    }
}
