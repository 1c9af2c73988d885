//! Customers: the people and companies a merchant bills (interface.md, Customer; completion.md section 7).

mod create;
mod delete;
mod find;
mod list;
mod payment_methods;
pub(super) mod resource;
pub(super) mod subscription;
mod update;
mod wallet;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of customers.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(routes!(list::list, create::create))
        .routes(routes!(find::find, update::update, delete::delete))
        .routes(routes!(subscription::subscription))
        .routes(routes!(wallet::find, wallet::update))
        .routes(routes!(payment_methods::list))
}
