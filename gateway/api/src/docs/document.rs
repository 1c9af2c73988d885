//! The OpenAPI document at `/v1/openapi.json`, generated from the handlers.

use std::sync::{Arc, LazyLock};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::openapi;
use crate::{forward, rest};

/// The document as it is served.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

/// The whole document.
fn document() -> Value {
    let mut described = rest::routes().merge(document_route()).into_openapi();
    described.merge(forward::routes().into_openapi());
    openapi::document(described)
}

/// The document's own route, to be mounted under `/v1`.
pub(crate) fn document_route() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(serve))
}

/// Any JSON object.
#[derive(ToSchema)]
struct AnyObject {}

/// 200 with this document. It needs no key.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "get_openapi", tag = "openapi", security(()),
    responses((status = 200, description = "The OpenAPI 3.1 document.", body = AnyObject)),
)]
pub(super) async fn serve() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], DOCUMENT.clone()).into_response()
}

/// Builds the document, so that an inconsistent description stops the process at its start.
pub(crate) fn check() {
    LazyLock::force(&DOCUMENT);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_a_name_a_summary_and_answers() {
        let document = document();
        let mut names = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let at = format!("{method} {path}");
                assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{at}");
                assert!(operation["summary"].is_string(), "{at}");
                let responses = operation["responses"].as_object().unwrap();
                // The document is built at the start, so serving it cannot fail.
                assert_eq!(responses.contains_key("500"), path != "/openapi.json", "{at}");
                let answers = responses.keys().any(|status| status.starts_with('2'));
                assert!(answers || path == "/secret_keys", "{at}");
            }
        }
        assert!(names.contains("create_customer"));
    }

    #[test]
    fn every_reference_resolves() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    members.values().for_each(|member| references(member, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.contains("#/components/schemas/Customer"));
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn aliases_are_in_the_document() {
        let document = document();
        for (path, name) in [
            ("/products", "create_meter_at_products"),
            ("/manage/spend_keys", "create_spend_key_at_manage_spend_keys"),
            ("/forward/", "forward_at_forward__post"),
        ] {
            assert_eq!(document["paths"][path]["post"]["operationId"], name);
        }
    }
}
