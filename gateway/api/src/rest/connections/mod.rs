//! Connections: the links between a merchant and its customers' wallets, in the older form (interface.md,
//! Connection; completion.md section 7).

mod delete;
mod find;
mod list;
mod payment_methods;
mod resource;
mod subscription;
mod wallet;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of connections.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(routes!(list::list))
        .routes(routes!(find::find, delete::delete))
        .routes(routes!(subscription::subscription))
        .routes(routes!(wallet::find, wallet::update))
        .routes(routes!(payment_methods::list))
}
