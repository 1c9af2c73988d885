//! `PATCH /meters/{id}` and its alias `PATCH /products/{id}`, by id or slug: name, tiers and payers.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::UpdateMeter;

use super::changes::{Changes, MeterChanges};
use super::resource::Meter;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::fields::Fields;
use crate::rest::params::Named;

/// 200 with the meter as it is now. Calls already admitted keep the terms they were admitted on.
#[utoipa::path(
    patch, path = "/meters/{id}", operation_id = "update_meter", tag = "meters",
    params(("id" = String, Path, description = "The meter's id or slug.")),
    request_body = MeterChanges,
    responses(
        (status = 200, description = "The meter as it is now.", body = Meter),
        (status = 404, description = "meter_not_found"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
    JsonText(json): JsonText,
) -> Result<Reply<Meter>, ApiError> {
    // What cannot be read at all is refused whatever it is about.
    Fields::of(&json)?;
    let meter = app.meter(merchant_id, &name).await?;
    let (meter_id, present) = meter.ok_or(ApiError::NotFound(Resource::Meter))?;
    let Changes { name, tiers, base_cost_payer, service_charge_payer, on_disconnect } =
        Changes::read(&json, &present.meter_slug, &present.price)?;
    let command = UpdateMeter {
        merchant_id,
        meter_id,
        name,
        tiers,
        base_cost_payer,
        service_charge_payer,
        on_disconnect,
        now: app.now(),
    };
    let updated = app.ledger.submit(command).await?;
    Ok(Reply::ok(Meter::of_state(meter_id, *updated, &app.server_key)))
}
