//! Subscriptions: a customer's on a plan, with the credit of its cycles (completion.md section 8).

mod cancel;
mod create;
mod find;
mod list;
pub(super) mod resource;
mod update;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of subscriptions.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list, create::create)).routes(routes!(
        find::find,
        update::update,
        cancel::cancel
    ))
}
