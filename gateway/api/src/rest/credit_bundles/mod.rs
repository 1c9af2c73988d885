//! Credit bundles: credit that a plan's subscribers may buy (interface.md, Credit bundle). They are created with their plan.

mod find;
mod list;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of credit bundles.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list)).routes(routes!(find::find))
}
