//! The OpenAPI 3.1 document, generated from the handlers. Invariant: every route is made from its handler's description
//! ([`utoipa_axum::routes`]), so the document has every route.

mod conventions;
mod errors;

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa_axum::router::UtoipaMethodRouter;

/// The document's description of the service.
const ABOUT: &str = "\
Farthing forwards calls to AI providers, meters them and bills wallets, to the last fraction of a cent.

Connection is the older name of a customer, and product that of a meter. Resources carry the fields of both names, and \
requests and filters accept either. Amounts are decimal strings with ten fractional digits. \
Lists are newest first; the cursor of the next page is the last id of this one. Every error has the same envelope. \
Its `issues` list every problem of an input, up to 100; of an input with many problems that is larger than 10 kB, some \
may be missing. \
Every path with `GET` also accepts `HEAD`. Any other method that a path does not list, including `OPTIONS`, gets 405 with `Allow`.";

/// Completes the description of the routes to the whole document.
pub(crate) fn document(described: OpenApi) -> Value {
    let mut document = serde_json::to_value(described).expect("a description has string keys");
    document["info"] = json!({
        "title": "Farthing",
        "version": "1.0.0",
        "description": ABOUT,
        "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
    });
    document["servers"] = json!([{"url": "/v1"}]);
    name_wildcards(&mut document);
    conventions::apply(&mut document);
    document
}

/// Writes the router's `{*name}`, which takes slashes, as the `{name}` of a document.
fn name_wildcards(document: &mut Value) {
    let paths = document["paths"].as_object_mut().expect("there are paths");
    let named: Vec<String> = paths.keys().filter(|path| path.contains("{*")).cloned().collect();
    for path in named {
        if let Some(item) = paths.remove(&path) {
            paths.insert(path.replace("{*", "{"), item);
        }
    }
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

/// The operations of a path.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    [get, put, post, delete, options, head, patch, trace].into_iter().flatten()
}
