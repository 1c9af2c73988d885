//! Requests: the records of forwarded calls (interface.md, Request; completion.md section 3).

mod create;
pub(super) mod filter;
mod find;
mod list;
mod report;
mod resource;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) use self::resource::Request;
use crate::app::App;

/// The routes of requests.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list, create::create)).routes(routes!(find::find))
}
