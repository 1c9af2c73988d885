//! `GET /credit_bundles/{id}`.

use farthing_core::ids::CreditBundleId;
use farthing_projector::ReadModel;
use farthing_projector::plans::query;

use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::plans::CreditBundle;
use crate::rest::reads::Reads;

/// 200 with the credit bundle.
#[utoipa::path(
    get, path = "/credit_bundles/{id}", operation_id = "get_credit_bundle", tag = "plans",
    params(("id" = String, Path, description = "The credit bundle's id.")),
    responses(
        (status = 200, description = "The credit bundle.", body = CreditBundle),
        (status = 404, description = "credit_bundle_not_found"),
    ),
)]
pub(super) async fn find(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<CreditBundle>, ApiError> {
    let unknown = ApiError::NotFound(Resource::CreditBundle);
    let Ok(id) = name.parse::<CreditBundleId>() else { return Err(unknown) };
    let connection = reads.caught_up(ReadModel::Plans, merchant_id).await?;
    let row = within(query::find_bundle(connection.partition(), merchant_id, id)).await?.ok_or(unknown)?;
    Ok(Reply::ok(row.into()))
}
