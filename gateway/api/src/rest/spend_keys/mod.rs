//! Spend keys: restricted keys of a wallet; `/spend_keys` and `/manage/spend_keys` are the same resource
//! (interface.md, Spend keys; completion.md section 6).

mod create;
mod delete;
mod find;
mod list;
mod resource;
mod rotate;
mod settings;
mod update;

use std::sync::Arc;

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

pub(super) use self::resource::SpendKey;
use crate::app::App;
use crate::openapi::also_at;

/// The routes of spend keys, at both of their paths.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(at_both(routes!(list::list, create::create)))
        .routes(at_both(routes!(find::find, update::update, delete::delete)))
        .routes(at_both(routes!(rotate::rotate)))
}

fn at_both(routes: UtoipaMethodRouter<Arc<App>>) -> UtoipaMethodRouter<Arc<App>> {
    also_at("/spend_keys", "/manage/spend_keys", routes)
}
