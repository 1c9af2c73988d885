//! Active subscriptions, in the older form (interface.md, Active subscription).

mod list;
mod resource;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of active subscriptions.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list))
}
