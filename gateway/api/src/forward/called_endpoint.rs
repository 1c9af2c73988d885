//! The endpoints whose calls are forwarded to a provider.

use http::Method;

use crate::model_endpoints::ModelEndpoint;

/// The methods of the forward endpoint.
const FORWARDED: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The method of all other endpoints.
const POST: [Method; 1] = [Method::POST];

/// The endpoint that a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalledEndpoint {
    /// The caller names the provider's URL and speaks the provider's format.
    Forward,
    /// The model's name chooses the provider (completion.md section 11).
    Model(ModelEndpoint),
    /// The caller names the provider's URL and speaks a format of its own (completion.md section 12).
    Rewrite,
}

impl CalledEndpoint {
    /// Its path; of a rewrite, the part before the format.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Forward => "/v1/forward",
            Self::Model(endpoint) => endpoint.path(),
            Self::Rewrite => "/v1/rewrite",
        }
    }

    /// The methods that it takes.
    pub(super) const fn methods(self) -> &'static [Method] {
        match self {
            Self::Forward => &FORWARDED,
            Self::Model(_) | Self::Rewrite => &POST,
        }
    }
}
