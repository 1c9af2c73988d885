//! A merchant's test clock: a year in seconds, on an instance in test mode (completion.md has time in cycles).

mod advance;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of the test clock.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(advance::advance))
}
