//! `GET /subscriptions`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::subscriptions::query::{self, SubscriptionFilter};
use serde::Deserialize;
use utoipa::ToSchema;

use super::resource::Subscription;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::{self, CustomerQuery};
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// The status of a subscription, as the filter names it.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SubscriptionStatusFilter)]
pub(super) enum StatusFilter {
    Active,
    Cancelled,
    All,
}

/// The filter by status.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct StatusQuery {
    /// Only subscriptions of this status; by default `all`.
    #[param(inline)]
    status: Option<StatusFilter>,
}

/// 200 with a page of the merchant's subscriptions.
#[utoipa::path(
    get, path = "/subscriptions", operation_id = "list_subscriptions", tag = "subscriptions",
    params(
        PageQuery,
        CustomerQuery,
        StatusQuery,
    ),
    responses((status = 200, description = "A page of subscriptions.", body = List<Subscription>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, StatusQuery { status }, customer)): Params<(PageQuery, StatusQuery, CustomerQuery)>,
) -> Result<Reply<List<Subscription>>, ApiError> {
    let mut issues = Issues::default();
    let customer = customer.customer(&mut issues);
    issues.checked()?;
    let customer_id = match &customer {
        None => None,
        Some(customer) => older_and_newer_names::customer_id(&app, merchant_id, customer).await?,
    };
    if customer.is_some() && customer_id.is_none() {
        // The cursor must be one of the list all the same.
        if page.cursor().is_some() {
            let connection = reads.caught_up(ReadModel::Subscriptions, merchant_id).await?;
            within(query::check_cursor(connection.partition(), merchant_id, page.as_query())).await?;
        }
        return Ok(Reply::ok(List::new(Vec::new(), false, None)));
    }
    let connection = reads.caught_up(ReadModel::Subscriptions, merchant_id).await?;
    let status = match status {
        Some(StatusFilter::Active) => Some(query::SubscriptionStatus::Active),
        Some(StatusFilter::Cancelled) => Some(query::SubscriptionStatus::Cancelled),
        Some(StatusFilter::All) | None => None,
    };
    let filter = SubscriptionFilter { status, customer_id };
    let listed = within(query::list(connection.partition(), merchant_id, page.as_query(), filter)).await?;
    let last = listed.items.last().map(|row| row.subscription_id.to_string());
    let shown: Result<Vec<_>, _> =
        listed.items.into_iter().map(|row| Subscription::of_row(merchant_id, row)).collect();
    Ok(Reply::ok(List::new(shown?, listed.has_more, last)))
}
