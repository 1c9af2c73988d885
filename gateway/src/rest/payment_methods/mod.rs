//! The payment methods of the merchant's own wallet (completion.md section 7). Those of customers are added on checkout
//! pages, by their owners.

mod create;
mod list;
mod resource;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of payment methods.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list, create::create))
}
