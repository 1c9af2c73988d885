//! `GET /requests`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::requests::query;

use super::filter::{MetadataQuery, RequestFilter, RequestQuery};
use super::resource::Request;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::{CustomerQuery, MeterQuery};
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's requests. A request must pass all given filters.
#[utoipa::path(
    get, path = "/requests", operation_id = "list_requests", tag = "requests",
    params(PageQuery, CustomerQuery, MeterQuery, MetadataQuery),
    responses((status = 200, description = "A page of requests.", body = List<Request>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, query)): Params<(PageQuery, RequestQuery)>,
) -> Result<Reply<List<Request>>, ApiError> {
    let mut issues = Issues::default();
    let filter = RequestFilter::checked(query, &mut issues);
    issues.checked()?;
    let Some(filter) = filter.resolved(&app, merchant_id).await? else {
        // The cursor must be one of the list all the same.
        if page.cursor().is_some() {
            let connection = reads.caught_up(ReadModel::Requests, merchant_id).await?;
            within(query::check_cursor(connection.partition(), merchant_id, page.as_query())).await?;
        }
        return Ok(Reply::ok(List::new(Vec::new(), false, None)));
    };
    let connection = reads.caught_up(ReadModel::Requests, merchant_id).await?;
    let listed = within(query::list(connection.partition(), merchant_id, page.as_query(), &filter)).await?;
    let shown: Vec<_> = listed.items.into_iter().map(Request::from).collect();
    let last = shown.last().map(|request| request.request_id.clone());
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
