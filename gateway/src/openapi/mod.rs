//! The interface described by itself: OpenAPI 3.1 generated from the handlers, at `/v1/openapi.json`. Invariant: a
//! route is made from its handler's description ([`utoipa_axum::routes`]), so none is left out of the document.

mod conventions;
mod errors;
pub(crate) mod values;

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::{forward, rest};

/// What the whole document says of the service.
const ABOUT: &str = "\
Farthing forwards calls to AI providers, meters them and bills wallets, to the last fraction of a cent.

A customer is also a connection, a meter is also a product: each thing has a name in the older and in the newer words, \
resources carry both, and requests and filters take either. Amounts are decimal strings with ten fractional digits. \
Lists are newest first; the cursor of the next page is the last id of this one. Every error has the same envelope. \
`HEAD` is taken wherever `GET` is; any other method that a path does not name, `OPTIONS` included, is 405 with `Allow`.";

/// The document as it is served.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

/// The whole document.
pub(crate) fn document() -> Value {
    let mut described = rest::routes().into_openapi();
    described.merge(forward::routes().into_openapi());
    let mut document = serde_json::to_value(described).expect("a description has string keys");
    document["info"] = json!({
        "title": "Farthing",
        "version": "1.0.0",
        "description": ABOUT,
        "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
    });
    document["servers"] = json!([{"url": "/v1"}]);
    conventions::apply(&mut document);
    document
}

/// 200 with this document. It needs no key: it says nothing that the published interface does not say.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "get_openapi", tag = "openapi", security(()),
    responses((status = 200, description = "The OpenAPI 3.1 document.", body = values::AnyObject)),
)]
pub(crate) async fn serve() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], DOCUMENT.clone()).into_response()
}

/// Makes the document, so that a description that contradicts itself ends the process at its start.
pub(crate) fn check() {
    LazyLock::force(&DOCUMENT);
}

/// `routes`, whose paths begin with `path`, also at `alias` in its place.
pub(crate) fn also_at<S: Clone>(
    path: &str,
    alias: &str,
    routes: UtoipaMethodRouter<S>,
) -> UtoipaMethodRouter<S> {
    also_at_each(path, &[alias], routes)
}

/// `routes`, whose paths begin with `path`, also at each of `aliases` in its place.
pub(crate) fn also_at_each<S: Clone>(
    path: &str,
    aliases: &[&str],
    (schemas, paths, router): UtoipaMethodRouter<S>,
) -> UtoipaMethodRouter<S> {
    let mut all = Paths::new();
    for (at, item) in paths.paths {
        let rest = at.strip_prefix(path).unwrap_or_else(|| panic!("{at} does not begin with {path}"));
        for alias in aliases {
            let (mut other, suffix) = (item.clone(), alias.replace('/', "_"));
            for operation in operations(&mut other) {
                operation.operation_id =
                    operation.operation_id.take().map(|name| format!("{name}_at{suffix}"));
            }
            all.paths.insert(format!("{alias}{rest}"), other);
        }
        all.paths.insert(at, item);
    }
    (schemas, all, router)
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    [get, put, post, delete, options, head, patch, trace].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_tells_its_answers_its_errors_and_its_name() {
        let document = document();
        let mut names = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let at = format!("{method} {path}");
                assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{at}");
                assert!(operation["summary"].is_string(), "{at}");
                let responses = operation["responses"].as_object().unwrap();
                // This document is there before anybody asks: nothing can go wrong with it.
                assert_eq!(responses.contains_key("500"), path != "/openapi.json", "{at}");
                let answers = responses.keys().any(|status| status.starts_with('2'));
                assert!(answers || path == "/secret_keys", "{at}");
            }
        }
        assert!(names.contains("create_customer"));
    }

    #[test]
    fn every_reference_leads_somewhere() {
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
            let place = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(place).is_some(), "{reference}");
        }
    }

    #[test]
    fn an_alias_stands_in_the_document() {
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
