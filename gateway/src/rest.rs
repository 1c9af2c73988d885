//! The REST interface: one folder per resource, one file per verb, and beside them the conventions that all of
//! them share. A path and its alias are the same handlers.

mod answer;
mod authenticate;
mod body;
mod connections;
mod customers;
mod fields;
mod meters;
mod page;
mod params;
pub(crate) mod rate_limit;
mod reads;
mod requests;
pub(crate) mod rules;
mod secret_keys;
mod spend_keys;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

pub(crate) use self::answer::{SERVICE_REQUEST_ID, keep_conventions, method_not_allowed, route_not_found};
use crate::app::App;

/// The routes of the standard endpoints, to be mounted under `/v1` and wrapped in [`keep_conventions`].
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/customers", post(customers::create))
        .route("/customers/{id}", get(customers::find))
        .route("/connections", get(connections::list))
        .route("/connections/{id}", get(connections::find))
        .route("/meters", post(meters::create))
        .route("/products", post(meters::create))
        .route("/requests", get(requests::list))
        .route("/requests/{id}", get(requests::find))
        .route("/secret_keys", post(secret_keys::create))
        .merge(spend_key_routes("/spend_keys"))
        .merge(spend_key_routes("/manage/spend_keys"))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(route_not_found)
}

/// Both paths of the spend keys (completion.md section 6).
fn spend_key_routes(base: &str) -> Router<Arc<App>> {
    Router::new()
        .route(base, post(spend_keys::create))
        .route(&format!("{base}/{{id}}"), get(spend_keys::find))
        .route(&format!("{base}/{{id}}/rotate"), post(spend_keys::rotate))
}
