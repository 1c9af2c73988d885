//! The API reference at `/docs`: Swagger UI for the OpenAPI document. It is for reading: the API is at another origin, and
//! no key belongs on a page. Invariant: the page and its assets come from this program, and the page loads nothing from
//! other hosts.

mod document;

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read as _};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::HeaderName;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;

pub(crate) use self::document::{check, document_route};
use crate::app::App;
use crate::error::{ApiError, Resource};

/// The page. `{docs}` is the relative path to its assets.
const PAGE: &str = include_str!("page.html");

/// Starts Swagger UI in the page.
const START: &str = include_str!("start.js");

/// The content security policy. Swagger UI needs `data:` images for its icons and inline styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files of Swagger UI that the page loads, with their content types.
const VENDORED: [(&str, &str); 2] = [
    ("swagger-ui.css", "text/css; charset=utf-8"),
    ("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
];

/// One hour; the assets change only with the program.
const CACHED: &str = "public, max-age=3600";

/// The files of Swagger UI, unpacked at the first request.
static ASSETS: LazyLock<io::Result<BTreeMap<&'static str, Bytes>>> = LazyLock::new(unpack);

/// The page's routes, at the root. They are not part of the REST interface or its OpenAPI document.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/docs", get(async || page("docs/")))
        .route("/docs/", get(async || page("")))
        .route("/docs/openapi.json", get(document::serve))
        .route("/docs/{asset}", get(asset))
}

fn page(docs: &str) -> Response {
    let page = PAGE.replace("{docs}", docs);
    let headers: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, page).into_response()
}

async fn asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    let (content_type, bytes) = if name == "start.js" {
        ("text/javascript; charset=utf-8", Bytes::from_static(START.as_bytes()))
    } else {
        let known = VENDORED.iter().find(|(file, _)| *file == name);
        let (file, content_type) = known.ok_or(ApiError::NotFound(Resource::Route))?;
        let assets = ASSETS.as_ref().map_err(|error| ApiError::internal(format!("Swagger UI: {error}")))?;
        (*content_type, assets[file].clone())
    };
    let headers =
        [(CONTENT_TYPE, content_type), (X_CONTENT_TYPE_OPTIONS, "nosniff"), (CACHE_CONTROL, CACHED)];
    Ok((headers, bytes).into_response())
}

fn unpack() -> io::Result<BTreeMap<&'static str, Bytes>> {
    let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED))?;
    let mut assets = BTreeMap::new();
    for (file, _) in VENDORED {
        let inside = format!("/dist/{file}");
        let index = (0..archive.len()).find(|index| {
            let name = archive.by_index_raw(*index).and_then(|entry| Ok(entry.name()?.ends_with(&inside)));
            name.unwrap_or(false)
        });
        let mut bytes = Vec::new();
        archive.by_index(index.ok_or(io::ErrorKind::NotFound)?)?.read_to_end(&mut bytes)?;
        assets.insert(file, bytes.into());
    }
    Ok(assets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_swagger_ui_that_is_served_is_in_the_archive() {
        let assets = ASSETS.as_ref().unwrap();
        for (file, _) in VENDORED {
            assert!(assets[file].len() > 10_000, "{file}");
        }
    }
}
