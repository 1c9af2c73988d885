//! `POST /subscriptions`: to a free plan. Other plans start with a checkout session.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{CustomerRef, PlanRefusal, Refusal, StartSubscription, Started};
use farthing_core::ids::{CreditBundleId, PlanId, SubscriptionId};
use farthing_projector::customers::query::{self, Contact};
use farthing_projector::query::PartitionClient;
use farthing_projector::subscriptions::query::SubscriptionRow;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::resource::Subscription;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::StoredResponse;
use crate::input::{self, Issues};
use crate::read_turns::Reader;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::existing_customer;
use crate::rest::writes::Writes;
use crate::values;

/// A subscription to start.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewSubscription)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
struct NewSubscriptionBody {
    /// The customer, by id or `reference_id`. This or `connection_id` is required.
    customer_id: Option<values::Text>,
    /// The older name of `customer_id`.
    connection_id: Option<values::Text>,
    /// A free plan. This or `subscription_config_id` is required.
    plan_id: Option<PlanId>,
    /// The older name of `plan_id`.
    subscription_config_id: Option<PlanId>,
    /// One of the plan's bundles; by default the plan's own choice.
    auto_top_up_bundle_id: Option<CreditBundleId>,
}

impl NewSubscriptionBody {
    /// The customer's id or reference id, and the plan.
    fn checked(self) -> Result<(String, PlanId), ApiError> {
        let mut issues = Issues::default();
        let customer =
            issues.either(("connection_id", self.connection_id), ("customer_id", self.customer_id));
        let plan_id =
            issues.either(("subscription_config_id", self.subscription_config_id), ("plan_id", self.plan_id));
        let (customer, plan_id) =
            (issues.required("customer_id", customer), issues.required("plan_id", plan_id));
        issues.checked()?;
        match (customer, plan_id) {
            (Some(customer), Some(plan_id)) => Ok((customer.0, plan_id)),
            (None, _) | (_, None) => Err(ApiError::internal("a required field was not checked")),
        }
    }
}

/// The plan that a body names, read before anything else.
#[derive(Deserialize)]
struct NamedPlan {
    plan_id: Option<Box<RawValue>>,
    subscription_config_id: Option<Box<RawValue>>,
}

impl NamedPlan {
    /// The plan of a body, whatever else is in it.
    fn of(json: &str) -> Option<PlanId> {
        let Self { plan_id, subscription_config_id } = serde_json::from_str(json).ok()?;
        let mut named = [plan_id, subscription_config_id].into_iter().flatten();
        named.find_map(|id| serde_json::from_str(id.get()).ok())
    }
}

/// A subscription that was started.
#[derive(Debug, Serialize, ToSchema)]
struct StartedSubscription {
    subscription: Subscription,
}

/// 201 with the new subscription. A plan that is not free is refused before anything else is looked at. The credit of its first cycle is available.
#[utoipa::path(
    post, path = "/subscriptions", operation_id = "create_subscription", tag = "subscriptions",
    request_body = NewSubscriptionBody,
    responses(
        (status = 201, description = "The new subscription.", body = StartedSubscription),
        (status = 400, description = "plan_not_free credit_bundle_plan_mismatch"),
        (status = 404, description = "customer_not_found plan_not_found credit_bundle_not_found"),
        (status = 409, description = "subscription_already_active"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    let merchant_id = writes.merchant_id;
    let json = writes.json()?;
    if let Some(plan_id) = NamedPlan::of(json)
        && app.plan(merchant_id, plan_id).await?.is_some_and(|plan| !plan.terms.is_free())
    {
        return Err(Refusal::Plan(PlanRefusal::NotFree).into());
    }
    let body: NewSubscriptionBody = input::body(json)?;
    let auto_top_up_bundle_id = body.auto_top_up_bundle_id;
    let (customer, plan_id) = body.checked()?;
    let customer_id = existing_customer(&app, merchant_id, &customer, Resource::Customer).await?;
    let connection = app.short_read(Reader::Merchant(merchant_id)).await?;
    let rows = PartitionClient::new(&connection, &app.schemas, app.partitions.of(merchant_id));
    let contact = connection.within(query::contact(rows, customer_id)).await?;
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
        let shown = Subscription::of_row(merchant_id, started_row(started, contact.clone()));
        let subscription = shown.expect("the command has checked the sum of the credit");
        Reply::created(StartedSubscription { subscription })
    };
    writes.submit(command, render).await
}

/// The row of a subscription that has just started.
fn started_row(started: &Started, contact: Contact) -> SubscriptionRow {
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
