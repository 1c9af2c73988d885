//! Plans, in the older words subscription configs: what a customer pays for every so often, and the credit that comes
//! with it (completion.md section 8).

mod changes;
mod configs;
mod configuration;
mod create;
mod delete;
mod find;
mod list;
mod resource;
mod update;

use std::sync::Arc;

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

pub(super) use self::resource::CreditBundle;
use crate::app::App;
use crate::openapi::{also_at, also_at_each};

/// Where plans stand in the older words.
const ALIASES: [&str; 2] = ["/subscription_configs", "/subscription-configs"];

/// The routes of plans, which are also subscription configs; the list of those is a bare array.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    let [config, dashed] = ALIASES;
    OpenApiRouter::default()
        .routes(routes!(list::list))
        .routes(also_at(config, dashed, routes!(configs::list)))
        .routes(at_all(routes!(create::create)))
        .routes(at_all(routes!(find::find, update::update, delete::delete)))
}

fn at_all(routes: UtoipaMethodRouter<Arc<App>>) -> UtoipaMethodRouter<Arc<App>> {
    also_at_each("/plans", &ALIASES, routes)
}
