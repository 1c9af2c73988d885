//! The REST interface: one folder per resource, one file per verb, and the conventions that all resources share. A path and
//! its alias have the same handlers.

mod active_subscriptions;
mod array;
mod authenticate;
mod body;
mod checkout_sessions;
mod connections;
mod credit_bundles;
mod customers;
mod ledger;
mod meters;
mod models;
mod older_and_newer_names;
mod page;
mod params;
mod payment_methods;
mod plans;
mod rate_limit;
mod reads;
mod requests;
mod response_headers;
mod secret_keys;
mod spend_keys;
mod subscriptions;
mod test_clock;
mod usage;
mod wallet;
pub(crate) mod webhooks;
mod writes;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

pub(crate) use self::rate_limit::RateLimits;
pub(crate) use self::response_headers::{keep_conventions, method_not_allowed, route_not_found};
pub(crate) use self::webhooks::Payloads;
use crate::app::App;

/// The routes of the standard endpoints, to be mounted under `/v1` and wrapped in [`keep_conventions`].
pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .merge(customers::routes())
        .merge(connections::routes())
        .merge(active_subscriptions::routes())
        .merge(plans::routes())
        .merge(subscriptions::routes())
        .merge(credit_bundles::routes())
        .merge(meters::routes())
        .merge(models::routes())
        .merge(requests::routes())
        .merge(secret_keys::routes())
        .merge(spend_keys::routes())
        .merge(usage::routes())
        .merge(checkout_sessions::routes())
        .merge(wallet::routes())
        .merge(ledger::routes())
        .merge(payment_methods::routes())
        .merge(test_clock::routes())
        .merge(webhooks::routes())
}
