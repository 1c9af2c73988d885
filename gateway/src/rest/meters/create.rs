//! `POST /meters` and its alias `POST /products`.

use std::sync::Arc;

use axum::extract::State;
use chrono::Utc;
use farthing_ledger::command::{DefineMeter, to_millisecond};
use farthing_ledger::ids::MeterId;

use super::configuration::Configuration;
use super::resource::Meter;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply, Timestamp};

/// 201 with the new meter and its secret.
pub(in crate::rest) async fn create(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    JsonText(json): JsonText,
) -> Result<Reply<Meter>, ApiError> {
    let Configuration { name, slug, price } = Configuration::read(&json)?;
    let now = to_millisecond(Utc::now());
    let meter_id = MeterId::new(app.mint.next(now));
    let command = DefineMeter { merchant_id, meter_id, slug, name: name.clone(), price: price.clone(), now };
    let meter_slug = app.ledger.submit(command).await?;
    Ok(Reply::created(Meter::new(meter_id, meter_slug, name, price, Timestamp(now), &app.server_key)))
}
