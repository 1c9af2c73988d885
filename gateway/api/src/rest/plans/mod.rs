//! Plans, formerly subscription configs: a recurring price and the credit of a cycle (completion.md section 8).

mod changes;
mod configs;
mod create;
mod delete;
mod find;
mod list;
mod new_plan;
mod resource;
mod update;

use std::sync::Arc;

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

pub(super) use self::resource::CreditBundle;
use crate::app::App;
use crate::openapi::{also_at, also_at_each};

/// The older paths of plans.
const ALIASES: [&str; 2] = ["/subscription_configs", "/subscription-configs"];

/// The routes of plans, also at their older paths. Only the older list is a bare array.
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
