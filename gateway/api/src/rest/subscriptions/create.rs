//! `POST /subscriptions`: to a plan that costs nothing; all others begin with a payment.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{CustomerRef, StartSubscription, Started};
use farthing_core::ids::{CreditBundleId, PlanId, SubscriptionId};
use farthing_projector::customers::query::{self, Contact};
use farthing_projector::subscriptions::query::SubscriptionRow;
use utoipa::ToSchema;

use super::resource::Subscription;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::idempotency::Answer;
use crate::openapi::values;
use crate::rest::body::Reply;
use crate::rest::fields::Fields;
use crate::rest::writes::Writes;
use crate::rules;

/// A subscription to begin.
#[derive(ToSchema)]
#[expect(
    dead_code,
    clippy::struct_field_names,
    reason = "describes what `Wanted::read` reads, as the interface names it"
)]
struct NewSubscription {
    /// By id or `reference_id`; this or `connection_id` is required.
    customer_id: Option<values::Text>,
    /// The same in the older word.
    connection_id: Option<values::Text>,
    /// A plan that costs nothing; this or `subscription_config_id` is required.
    plan_id: Option<PlanId>,
    /// The same in the older word.
    subscription_config_id: Option<PlanId>,
    /// One of the plan's bundles; the plan's own choice when absent.
    auto_top_up_bundle_id: Option<CreditBundleId>,
}

/// 201 with the new subscription; its first cycle's credit is there.
#[utoipa::path(
    post, path = "/subscriptions", operation_id = "create_subscription", tag = "subscriptions",
    request_body = NewSubscription,
    responses(
        (status = 201, description = "The new subscription.", body = Subscription),
        (status = 400, description = "plan_not_free credit_bundle_plan_mismatch"),
        (status = 404, description = "customer_not_found plan_not_found credit_bundle_not_found"),
        (status = 409, description = "subscription_already_active"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<Answer, ApiError> {
    let merchant_id = writes.merchant_id;
    let Wanted { customer, plan_id, auto_top_up_bundle_id } = Wanted::read(writes.json()?)?;
    let customer_id = app.customer_id(merchant_id, &customer).await?;
    let customer_id = customer_id.ok_or(ApiError::NotFound(Resource::Customer))?;
    let connection = app.connection().await?;
    let contact = within(query::contact(&connection, customer_id)).await?;
    drop(connection);
    let now = app.now();
    let command = StartSubscription {
        merchant_id,
        customer: CustomerRef::Id(customer_id),
        subscription_id: SubscriptionId::new(app.mint.next(now)),
        plan_id,
        auto_top_up_bundle_id,
        now,
    };
    let render = move |started: &Started| {
        let shown = Subscription::of_row(merchant_id, begun(started, contact.clone()));
        Reply::created(shown.expect("the decision has added the credit up"))
    };
    writes.submit(command, render).await
}

/// The row of a subscription that has begun.
fn begun(started: &Started, contact: Contact) -> SubscriptionRow {
    let event = &started.event;
    SubscriptionRow {
        subscription_id: event.subscriber.subscription_id,
        customer_id: event.subscriber.customer_id,
        wallet_id: event.subscriber.wallet_id,
        plan_id: event.plan_id,
        terms: event.terms.clone(),
        anchor: event.cycle.start,
        cycle_start: event.cycle.start,
        cycle_end: event.cycle.end,
        auto_top_up_bundle_id: event.auto_top_up_bundle_id,
        pending_change: None,
        credit: event.granted,
        bundle_credit: started.bundle_credit,
        started_at: started.started_at,
        cancelled_at: None,
        contact,
    }
}

/// What the body asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    customer: String,
    plan_id: PlanId,
    auto_top_up_bundle_id: Option<CreditBundleId>,
}

impl Wanted {
    fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let text = |name: String| rules::text(name, rules::MAX_TEXT);
        let customer = body.either("connection_id", "customer_id", text);
        if !body.has("connection_id") {
            body.required("customer_id", None::<()>);
        }
        let plan_id = body.either("subscription_config_id", "plan_id", rules::id);
        if !body.has("subscription_config_id") {
            body.required("plan_id", None::<()>);
        }
        let auto_top_up_bundle_id = body.ruled("auto_top_up_bundle_id", rules::id);
        body.checked()?;
        match (customer, plan_id) {
            (Some(customer), Some(plan_id)) => Ok(Self { customer, plan_id, auto_top_up_bundle_id }),
            (None, _) | (_, None) => Err(ApiError::internal("a required member was not missed")),
        }
    }
}
