//! `GET /webhooks/{webhook_id}/deliveries`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::webhooks::query;

use super::find::existing;
use super::resource::Delivery;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::{Named, Params};
use crate::rest::reads::Reads;

/// 200 with a page of the webhook's deliveries. Finished deliveries are kept for 30 days.
#[utoipa::path(
    get, path = "/webhooks/{webhook_id}/deliveries", operation_id = "list_webhook_deliveries", tag = "webhooks",
    params(("webhook_id" = String, Path, description = "The webhook's id."), PageQuery),
    responses(
        (status = 200, description = "A page of deliveries.", body = List<Delivery>),
        (status = 404, description = "webhook_not_found"),
    ),
)]
pub(super) async fn deliveries(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
    Params(page): Params<PageQuery>,
) -> Result<Reply<List<Delivery>>, ApiError> {
    let (webhook_id, _) = existing(&app, merchant_id, &name).await?;
    let connection = reads.outbox_caught_up(merchant_id).await?;
    let listed = within(query::list(connection.partition(), webhook_id, page.as_query())).await?;
    let last = listed.items.last().map(|row| row.event_id.to_string());
    let shown = listed.items.into_iter().map(Delivery::from).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
