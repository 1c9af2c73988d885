//! `GET /secret_keys`.

use farthing_core::ids::SecretKeyId;
use farthing_projector::ReadModel;
use farthing_projector::secret_keys::query::{self, SecretKeyRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// A secret key, without the key itself.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(in crate::rest) struct SecretKey {
    secret_key_id: SecretKeyId,
    name: String,
    secret_key_hint: String,
    created_at: Timestamp,
}

impl From<SecretKeyRow> for SecretKey {
    fn from(row: SecretKeyRow) -> Self {
        Self {
            secret_key_id: row.secret_key_id,
            name: row.name,
            secret_key_hint: row.hint,
            created_at: Timestamp(row.created_at),
        }
    }
}

/// 200 with a page of the merchant's active keys.
#[utoipa::path(
    get, path = "/secret_keys", operation_id = "list_secret_keys", tag = "secret_keys",
    params(PageQuery),
    responses((status = 200, description = "A page of secret keys.", body = List<SecretKey>)),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params(page): Params<PageQuery>,
) -> Result<Reply<List<SecretKey>>, ApiError> {
    let connection = reads.caught_up(ReadModel::SecretKeys, merchant_id).await?;
    let listed = within(query::list(connection.partition(), merchant_id, page.as_query())).await?;
    let last = listed.items.last().map(|row| row.secret_key_id.to_string());
    let shown = listed.items.into_iter().map(SecretKey::from).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
