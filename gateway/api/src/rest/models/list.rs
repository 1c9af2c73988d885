//! `GET /models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::model_endpoints::{AllowedProviders, listed_name};
use crate::rest::authenticate::Caller;

/// The list, in the form of the providers' client libraries.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Models {
    object: &'static str,
    data: Vec<Model>,
}

/// A model, by one of its names.
#[derive(Debug, Serialize, ToSchema)]
struct Model {
    /// The name by which a model endpoint calls it. No two models have the same.
    id: String,
    object: &'static str,
    /// The day of its price, in seconds since 1970. The catalogue has no creation dates.
    created: i64,
    owned_by: String,
}

/// 200 with all models that have a price and that a model endpoint serves. A spend key lists only its allowed models.
///
/// Of several providers that offer a model of one name, the one that a call of that name reaches is listed by it, and the others
/// as `provider/model`. The key travels as at the model endpoints: in any of their slots, alone or in a forward token.
#[utoipa::path(
    get, path = "/models", operation_id = "list_models", tag = "models",
    responses(
        (status = 200, description = "Every model that has a price and that a model endpoint serves.", body = Models),
        (status = 400, description = "forward_token_json_invalid"),
        (status = 401, description = "connection_secret_invalid product_secret_invalid spend_key_invalid spend_key_expired"),
        (status = 403, description = "spend_key_paused"),
    ),
)]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Json<Models> {
    let settings = match &caller {
        Caller::Merchant(_) => None,
        Caller::SpendKey(key) => Some(&key.settings),
    };
    let allows = |list: Option<&Vec<String>>, name: &str| {
        list.is_none_or(|allowed| allowed.iter().any(|allowed| allowed == name))
    };
    let allowed = app.providers.catalogue().models().filter(|(provider, model, _)| {
        settings.is_none_or(|settings| {
            allows(settings.allowed_models.as_ref(), model)
                && allows(settings.allowed_providers.as_ref(), provider)
        })
    });
    let providers = settings.and_then(|settings| settings.allowed_providers.clone());
    let providers = providers.map_or(AllowedProviders::All, AllowedProviders::Listed);
    let data = allowed.filter_map(|(provider, model, listed)| {
        Some(Model {
            id: listed_name(&app.providers, (provider, model), &providers)?,
            object: "model",
            created: listed.taken_at.timestamp(),
            owned_by: provider.to_owned(),
        })
    });
    Json(Models { object: "list", data: data.collect() })
}
