//! `DELETE /meters/{id}` and its alias `DELETE /products/{id}`, by id or slug: new calls on it are refused; earlier
//! calls keep its id.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::DeleteMeter;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;

/// 200 with the id.
#[utoipa::path(
    delete, path = "/meters/{id}", operation_id = "delete_meter", tag = "meters",
    params(("id" = String, Path, description = "The meter's id or slug.")),
    responses(
        (status = 200, description = "The meter is gone; calls made on it stay.", body = Deleted),
        (status = 404, description = "meter_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let meter = app.meter(merchant_id, &name).await?;
    let (meter_id, _) = meter.ok_or(ApiError::NotFound(Resource::Meter))?;
    app.submit(merchant_id, DeleteMeter { merchant_id, meter_id, now: app.now() }).await?;
    Ok(Reply::ok(Deleted::id(meter_id)))
}
