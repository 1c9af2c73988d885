//! `GET /webhooks`.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::ids::{MerchantId, WebhookId};
use farthing_core::state::{self, StateKey};
use farthing_log::reader;

use super::resource::Webhook;
use crate::app::App;
use crate::error::{ApiError, InputError};
use crate::read_turns::Reader;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;

/// 200 with a page of the merchant's webhooks, without their secrets.
#[utoipa::path(
    get, path = "/webhooks", operation_id = "list_webhooks", tag = "webhooks",
    params(PageQuery),
    responses((status = 200, description = "A page of webhooks.", body = List<Webhook>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Params(page): Params<PageQuery>,
) -> Result<Reply<List<Webhook>>, ApiError> {
    // Newest first. A merchant has few webhooks.
    let mut ids = match app.state(merchant_id, StateKey::Webhooks(merchant_id)).await? {
        Some(state::State::Webhooks(ids)) => ids,
        Some(_) | None => Vec::new(),
    };
    let after = match page.cursor() {
        None => None,
        Some(cursor) => Some(webhook_of(&app, merchant_id, &ids, cursor).await?),
    };
    ids.sort_unstable();
    ids.reverse();
    ids.retain(|id| after.is_none_or(|after| *id < after));
    let has_more = ids.len() > usize::from(page.limit());
    ids.truncate(usize::from(page.limit()));
    let keys: Vec<_> = ids.iter().map(|id| StateKey::Webhook(*id)).collect();
    let found = app.ledger.states_of(app.partition(merchant_id), Some(merchant_id), &keys).await?;
    let shown = ids.iter().zip(found).filter_map(|(id, found)| match found {
        Some(state::State::Webhook(webhook)) => Some(Webhook::new(*id, *webhook)),
        // The webhook has just been deleted.
        Some(_) | None => None,
    });
    let last = ids.last().map(ToString::to_string);
    Ok(Reply::ok(List::new(shown.collect(), has_more, last)))
}

/// The webhook that a cursor names. It may be deleted since, unless its creation was archived, too.
async fn webhook_of(
    app: &App,
    merchant_id: MerchantId,
    own: &[WebhookId],
    cursor: &str,
) -> Result<WebhookId, ApiError> {
    let id: WebhookId = cursor.parse().map_err(|_| ApiError::Input(InputError::CursorInvalid))?;
    if own.contains(&id) {
        return Ok(id);
    }
    let (connection, key) = (app.short_read(Reader::Merchant(merchant_id)).await?, format!("{id}/created"));
    let keys = [key.as_str()];
    let created = reader::find_in_table(&connection, app.partitions.of(merchant_id), &keys);
    let created = connection.within(created).await?;
    let is_own = created.iter().any(|recorded| recorded.fact.merchant_id == merchant_id);
    if is_own { Ok(id) } else { Err(ApiError::Input(InputError::CursorInvalid)) }
}
