//! Errors of the forward endpoint: its token, target, metadata and provider.

use http::StatusCode;

use super::input::Issue;
use crate::providers::Unpriced;

/// A forwarded call cannot be made, or the provider did not answer it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForwardError {
    /// 400: the forward token is not base64-encoded JSON of the documented form.
    #[error("The forward token must be base64-encoded JSON of the documented form; see the issues.")]
    TokenJsonInvalid(Vec<Issue>),
    /// 400: the query parameter `u` is missing.
    #[error("The query parameter u, the URL to forward to, is required.")]
    UrlMissing,
    /// 400: `u` is not a URL that can be forwarded to. The text is the end of the message.
    #[error("The URL to forward to {0}.")]
    UrlInvalid(&'static str),
    /// 400: `u` resolves to a blocked address.
    #[error("The URL to forward to resolves to a blocked address.")]
    UrlForbidden,
    /// 400: the metadata of a forwarded call breaks the rules listed.
    #[error("The metadata is not valid; see the issues.")]
    MetadataInvalid(Vec<Issue>),
    /// 400: a reported call is billed by a percentage of the provider's cost, and the catalogue has no price for it.
    #[error(
        "The meter's fee is a percentage of the provider's cost, and the operator's price catalogue does not list the \
         provider and the model, so the call cannot be billed."
    )]
    ModelNotPriced,
    /// 400: the call is billed by the provider's list price, and has none for the reason given.
    #[error("The call cannot be billed by a list price: {0}.")]
    Unpriced(Unpriced),
    /// 400: the provider requires a key, and neither the caller nor this instance has one.
    #[error(
        "The provider requires a key. Send your own as provider_key, or ask the operator to configure one."
    )]
    ProviderKeyMissing,
    /// 400: a field of the request has no counterpart in the provider's format. The issue names it.
    #[error("The field {} cannot be converted into the provider's format: {}.", .0.path.join("."), .0.message)]
    ConversionUnsupported(Issue),
    /// 502: the provider's response cannot be converted into the caller's format. The call is charged as it was metered,
    /// which may be nothing.
    #[error(
        "The provider's response cannot be converted into the caller's format. The call was made, and any charge for it \
         stands."
    )]
    ResponseNotConverted,
    /// 502: the provider's response broke off before anything of it passed.
    #[error("The provider's response broke off.")]
    ResponseBrokeOff,
    /// 502: no connection to the provider could be made.
    #[error("The provider could not be reached.")]
    ProviderUnreachable,
    /// 502: the provider's answer is not an HTTP/1.1 response: another protocol (101), or interim responses without end.
    /// It has the code of an unreachable provider, the only 502 of the specification.
    #[error("The provider did not answer with a response.")]
    ProviderProtocol,
    /// 504: the provider did not answer in time.
    #[error("The provider did not answer in time.")]
    ProviderTimeout,
}

impl ForwardError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::TokenJsonInvalid(_) => (StatusCode::BAD_REQUEST, "forward_token_json_invalid"),
            Self::UrlMissing => (StatusCode::BAD_REQUEST, "forward_url_missing"),
            Self::UrlInvalid(_) => (StatusCode::BAD_REQUEST, "forward_url_invalid"),
            Self::UrlForbidden => (StatusCode::BAD_REQUEST, "forward_url_forbidden"),
            Self::MetadataInvalid(_) => (StatusCode::BAD_REQUEST, "metadata_invalid"),
            Self::ModelNotPriced | Self::Unpriced(_) => (StatusCode::BAD_REQUEST, "model_not_priced"),
            Self::ProviderKeyMissing => (StatusCode::BAD_REQUEST, "provider_key_missing"),
            Self::ConversionUnsupported(_) => (StatusCode::BAD_REQUEST, "conversion_unsupported"),
            Self::ProviderUnreachable
            | Self::ProviderProtocol
            | Self::ResponseNotConverted
            | Self::ResponseBrokeOff => (StatusCode::BAD_GATEWAY, "provider_unreachable"),
            Self::ProviderTimeout => (StatusCode::GATEWAY_TIMEOUT, "provider_timeout"),
        }
    }

    pub(super) fn issues(&self) -> Option<&[Issue]> {
        match self {
            Self::TokenJsonInvalid(issues) | Self::MetadataInvalid(issues) => Some(issues),
            Self::ConversionUnsupported(issue) => Some(std::slice::from_ref(issue)),
            Self::UrlMissing
            | Self::UrlInvalid(_)
            | Self::UrlForbidden
            | Self::ModelNotPriced
            | Self::Unpriced(_)
            | Self::ProviderKeyMissing
            | Self::ProviderUnreachable
            | Self::ProviderProtocol
            | Self::ResponseNotConverted
            | Self::ResponseBrokeOff
            | Self::ProviderTimeout => None,
        }
    }
}
