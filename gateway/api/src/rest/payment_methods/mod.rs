//! Payment methods of the merchant's own wallet (completion.md section 7). Customers add theirs on checkout pages; they are
//! listed under the customer.

mod create;
mod list;
mod resource;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(in crate::rest) use self::list::PaymentMethods;
use crate::app::App;

/// The routes of payment methods.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(list::list, create::create))
}
