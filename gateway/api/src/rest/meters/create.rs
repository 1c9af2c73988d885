//! `POST /meters` and its alias `POST /products`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{DefineMeter, Timed};
use farthing_core::ids::MeterId;

use super::new_meter::{NewMeter, NewMeterBody};
use super::resource::Meter;
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::StoredResponse;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::writes::Writes;

/// 201 with the new meter and its secret.
#[utoipa::path(
    post, path = "/meters", operation_id = "create_meter", tag = "meters",
    request_body = NewMeterBody,
    responses(
        (status = 201, description = "The new meter.", body = Meter),
        (status = 409, description = "meter_slug_conflict"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    let merchant_id = writes.merchant_id;
    let NewMeter { name, slug, price } = NewMeter::read(writes.json()?)?;
    let now = app.now();
    let meter_id = MeterId::new(app.mint.next(now));
    let command = DefineMeter { merchant_id, meter_id, slug, name: name.clone(), price: price.clone(), now };
    let render = move |(slug, at): &(String, DateTime<Utc>)| {
        let (slug, name, price) = (slug.clone(), name.clone(), price.clone());
        Reply::created(Meter::new(meter_id, slug, name, price, Timestamp(*at), &app.server_key))
    };
    writes.submit(Timed { command, merchant_id, now }, render).await
}
