//! `GET /customers`.

use farthing_projector::ReadModel;
use farthing_projector::customers::query;

use super::resource::Customer;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery, ReferenceQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's customers.
#[utoipa::path(
    get, path = "/customers", operation_id = "list_customers", tag = "customers",
    params(PageQuery, ReferenceQuery),
    responses((status = 200, description = "A page of customers.", body = List<Customer>)),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, reference)): Params<(PageQuery, ReferenceQuery)>,
) -> Result<Reply<List<Customer>>, ApiError> {
    let connection = reads.caught_up(ReadModel::Customers, merchant_id).await?;
    let listed = query::list(connection.partition(), merchant_id, page.as_query(), reference.reference_id());
    let listed = within(listed).await?;
    let last = listed.items.last().map(|row| row.customer_id.to_string());
    let shown = listed.items.into_iter().map(Customer::from).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
