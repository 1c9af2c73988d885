//! The ledger: events, the entries of wallets and their statements, the trial balance and proofs (completion.md section 13).

mod entries;
mod events;
mod proof;
mod resource;
mod statement;
mod trial_balance;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of the ledger.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(routes!(events::list))
        .routes(routes!(entries::list))
        .routes(routes!(statement::show))
        .routes(routes!(trial_balance::show))
        .routes(routes!(proof::show))
}
