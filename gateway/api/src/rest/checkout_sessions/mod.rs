//! Checkout sessions: hosted pages that a customer completes once (interface.md, Checkout session; completion.md
//! section 8). The module `crate::checkout` serves the page.

mod body;
mod create;
mod find;
mod list;
mod resource;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of checkout sessions.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list, create::create)).routes(routes!(find::find))
}
