//! The ledger: the entries of wallets and their statements (completion.md section 13).

mod entries;
mod resource;
mod statement;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of the ledger.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(entries::list)).routes(routes!(statement::show))
}
