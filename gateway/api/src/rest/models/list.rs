//! `GET /models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::model_endpoints::is_served;
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
    id: String,
    object: &'static str,
    /// The day of its price, in seconds since 1970. The catalogue has no creation dates.
    created: i64,
    owned_by: String,
}

/// 200 with all models that have a price and that a model endpoint serves. A spend key lists only its allowed models.
#[utoipa::path(
    get, path = "/models", operation_id = "list_models", tag = "models",
    responses(
        (status = 200, description = "Every model that has a price and that a model endpoint serves.", body = Models),
        (status = 401, description = "spend_key_invalid spend_key_expired"),
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
        is_served(&app.providers, provider, model)
            && settings.is_none_or(|settings| {
                allows(settings.allowed_models.as_ref(), model)
                    && allows(settings.allowed_providers.as_ref(), provider)
            })
    });
    let data = allowed.map(|(provider, model, listed)| Model {
        id: model.to_owned(),
        object: "model",
        created: listed.taken_at.timestamp(),
        owned_by: provider.to_owned(),
    });
    Json(Models { object: "list", data: data.collect() })
}
