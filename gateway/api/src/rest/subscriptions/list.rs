//! `GET /subscriptions`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::subscriptions::query::{self, SubscriptionFilter};
use utoipa::ToSchema;

use super::resource::Subscription;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::named::{Customer, CustomerQuery};
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// Which subscriptions are wanted.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SubscriptionStatusFilter)]
#[expect(dead_code, reason = "describes what `status` reads")]
enum StatusFilter {
    Active,
    Cancelled,
    All,
}

/// 200 with a page of the merchant's subscriptions, of any status unless one is named.
#[utoipa::path(
    get, path = "/subscriptions", operation_id = "list_subscriptions", tag = "subscriptions",
    params(
        PageQuery,
        CustomerQuery,
        ("status" = inline(Option<StatusFilter>), Query, description = "Only those of this status; `all` when absent."),
    ),
    responses((status = 200, description = "A page of subscriptions.", body = List<Subscription>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    mut params: Params,
) -> Result<Reply<List<Subscription>>, ApiError> {
    let page = params.page();
    let status = params.ruled("status", status).flatten();
    let customer = Customer::read(&mut params);
    params.checked()?;
    let customer_id = match customer {
        None => None,
        Some(customer) => match customer.id(&app, merchant_id).await? {
            Some(id) => Some(id),
            None => return Ok(Reply::ok(List::new(Vec::new(), false, None))),
        },
    };
    let connection = reads.caught_up(ReadModel::Subscriptions).await?;
    let filter = SubscriptionFilter { status, customer_id };
    let listed = within(query::list(&connection, merchant_id, page.as_query(), filter)).await?;
    let last = listed.items.last().map(|row| row.subscription_id.to_string());
    let shown: Result<Vec<_>, _> =
        listed.items.into_iter().map(|row| Subscription::of_row(merchant_id, row)).collect();
    Ok(Reply::ok(List::new(shown?, listed.has_more, last)))
}

#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
fn status(word: String) -> Result<Option<query::SubscriptionStatus>, String> {
    match word.as_str() {
        "active" => Ok(Some(query::SubscriptionStatus::Active)),
        "cancelled" => Ok(Some(query::SubscriptionStatus::Cancelled)),
        "all" => Ok(None),
        _ => Err("must be one of: active, cancelled, all".to_owned()),
    }
}
