//! `PATCH /meters/{id}` and its alias `PATCH /products/{id}`, by id or slug: name, tiers and payers.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::UpdateMeter;

use super::changes::{MeterChanges, MeterChangesBody};
use super::resource::Meter;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::input;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::params::Named;

/// 200 with the updated meter. Running calls keep their terms.
#[utoipa::path(
    patch, path = "/meters/{id}", operation_id = "update_meter", tag = "meters",
    params(("id" = String, Path, description = "The meter's id or slug.")),
    request_body = MeterChangesBody,
    responses(
        (status = 200, description = "The updated meter.", body = Meter),
        (status = 404, description = "meter_not_found"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<Meter>, ApiError> {
    // A body that is not a JSON object is refused before the path is looked up.
    input::check_object(&json)?;
    let meter = app.meter(merchant_id, &name).await?;
    let (meter_id, present) = meter.ok_or(ApiError::NotFound(Resource::Meter))?;
    let MeterChanges { name, tiers, base_cost_payer, service_charge_payer, on_disconnect, max_fee } =
        input::body::<MeterChangesBody>(&json)?.checked(&present.meter_slug, &present.price)?;
    let command = UpdateMeter {
        merchant_id,
        meter_id,
        name,
        tiers,
        base_cost_payer,
        service_charge_payer,
        on_disconnect,
        max_fee,
        now: app.now(),
    };
    let updated = app.submit(merchant_id, command).await?;
    Ok(Reply::ok(Meter::of_state(meter_id, *updated, &app.server_key)))
}
