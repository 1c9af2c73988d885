//! Secret keys: listed and revoked here, issued only by an operator (interface.md, Secret keys; completion.md
//! section 9).

mod create;
mod delete;
mod list;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of secret keys.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list, create::create)).routes(routes!(delete::delete))
}
