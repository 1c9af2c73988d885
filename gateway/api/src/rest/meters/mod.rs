//! Meters, formerly products: a merchant's prices for usage (completion.md section 4).

mod changes;
mod create;
mod delete;
mod find;
mod list;
mod new_meter;
mod product_price;
mod resource;
mod update;

use std::sync::Arc;

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::app::App;
use crate::openapi::also_at;

/// The routes of meters, which are also products.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(at_both(routes!(list::list, create::create))).routes(at_both(routes!(
        find::find,
        update::update,
        delete::delete
    )))
}

fn at_both(routes: UtoipaMethodRouter<Arc<App>>) -> UtoipaMethodRouter<Arc<App>> {
    also_at("/meters", "/products", routes)
}
