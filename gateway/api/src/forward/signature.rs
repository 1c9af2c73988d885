//! Calls that the gateway signs: those with AWS credentials, the caller's or the instance's, instead of a key that is sent.
//! A signature covers every byte, so a call is signed once nothing more is changed in it.

use http::Request;

use super::credential::Found;
use super::request_body::RequestBody;
use crate::app::App;
use crate::error::{ApiError, ForwardError, Issue};
use crate::providers::{AwsCredentials, Recognised, SignatureError, SigningScope, sign};

/// The name of Bedrock in signatures.
const SERVICE: &str = "bedrock";

/// The AWS credentials in the provider key of a token, for a call to `provider`.
pub(super) fn credentials_of_token(
    provider: Recognised<'_>,
    found: &Found,
) -> Result<Option<AwsCredentials>, ApiError> {
    let Some(key) = found.credential.provider_key.as_deref() else { return Ok(None) };
    provider.credentials_within(key).map_err(|invalid| {
        let issue = Issue::new(["provider_key"], invalid.to_string());
        ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue]))
    })
}

/// Signs the call to `provider` with `credentials`, for the region of its host.
pub(super) fn sign_call(
    app: &App,
    provider: Recognised<'_>,
    credentials: &AwsCredentials,
    outgoing: &mut Request<RequestBody>,
) -> Result<(), ApiError> {
    let region = provider.region_of(outgoing.uri()).ok_or_else(|| {
        let why = "names no AWS region in its host, which the signature of a call needs";
        ApiError::Forward(ForwardError::UrlInvalid(why))
    })?;
    let body = outgoing.body().in_memory().ok_or_else(|| {
        ApiError::issue(["body"], "must be JSON of at most 256 KiB, with its type, to be signed")
    })?;
    let scope = SigningScope { region: &region, service: SERVICE };
    sign(outgoing, &body, credentials, scope, app.now().into()).map_err(|error| match error {
        SignatureError::Header(name) => ApiError::issue([name.as_str()], "must be ASCII, to be signed"),
        SignatureError::Refused(why) => ApiError::internal(format!("a call cannot be signed: {why}")),
    })
}
