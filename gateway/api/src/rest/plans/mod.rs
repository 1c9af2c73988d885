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
const ALIASES: [&str; 2] = [UNDERSCORED, "/subscription-configs"];

/// The older path whose list has pages.
const UNDERSCORED: &str = "/subscription_configs";

/// The routes of plans, also at their older paths. Only the list at the dashed path is a bare array.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(also_at("/plans", UNDERSCORED, routes!(list::list)))
        .routes(routes!(configs::list))
        .routes(at_all(routes!(create::create)))
        .routes(at_all(routes!(find::find, update::update, delete::delete)))
}

fn at_all(routes: UtoipaMethodRouter<Arc<App>>) -> UtoipaMethodRouter<Arc<App>> {
    also_at_each("/plans", &ALIASES, routes)
}
