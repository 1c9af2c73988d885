//! Webhooks: URLs that events are delivered to, and their deliveries (completion.md section 9).

mod create;
mod delete;
mod deliveries;
mod find;
mod list;
mod payload;
mod resend;
mod resource;
mod settings;
mod update;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use self::payload::Payloads;
use crate::app::App;

/// The routes of webhooks.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(routes!(list::list, create::create))
        .routes(routes!(find::find, update::update, delete::delete))
        .routes(routes!(deliveries::deliveries))
        .routes(routes!(resend::resend))
}
