//! Extractors of the path and the query of a call.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query, RawPathParams};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::input;

/// The one parameter of the path, unchecked.
#[derive(Debug)]
pub(super) struct Named(pub(super) String);

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let no_route = || ApiError::NotFound(Resource::Route);
        let params = RawPathParams::from_request_parts(parts, app).await.map_err(|_| no_route())?;
        let name = params.iter().next().map(|(_, value)| Self(value.to_owned()));
        name.ok_or_else(no_route)
    }
}

/// The two parameters of the path, the outer one first, unchecked.
#[derive(Debug)]
pub(super) struct NamedWithin(pub(super) String, pub(super) String);

impl FromRequestParts<Arc<App>> for NamedWithin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let no_route = || ApiError::NotFound(Resource::Route);
        let params = RawPathParams::from_request_parts(parts, app).await.map_err(|_| no_route())?;
        let mut names = params.iter().map(|(_, value)| value.to_owned());
        let (outer, inner) = names.next().zip(names.next()).ok_or_else(no_route)?;
        Ok(Self(outer, inner))
    }
}

/// The parameters of the query. Unknown parameters are ignored. A tuple reads several structs at once.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let Query(pairs) =
            query.map_err(|_| ApiError::issue([""; 0], "the query must be URL-encoded UTF-8"))?;
        input::query(pairs).map(Self)
    }
}
