//! Calls that the gateway signs: those with AWS credentials, the caller's or the instance's, instead of a key that is sent.
//! A signature covers every byte, so a call is signed once nothing more is changed in it.

use std::time::SystemTime;

use http::Request;

use super::credential::Found;
use super::request_body::RequestBody;
use crate::app::App;
use crate::body_memory::beside_others;
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
    sign_beside_others(outgoing, &body, credentials, scope, app.now().into()).map_err(|error| match error {
        SignatureError::Header(name) => ApiError::issue([name.as_str()], "must be ASCII, to be signed"),
        SignatureError::Refused(why) => ApiError::internal(format!("a call cannot be signed: {why}")),
    })
}

/// Signs a call, whose body may be long.
fn sign_beside_others<B>(
    outgoing: &mut Request<B>,
    body: &[u8],
    credentials: &AwsCredentials,
    scope: SigningScope<'_>,
    now: SystemTime,
) -> Result<(), SignatureError> {
    beside_others(body.len(), || sign(outgoing, body, credentials, scope, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body_memory::tests::is_beside_others;

    #[test]
    fn a_long_body_is_signed_beside_other_tasks() {
        let text = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let credentials = AwsCredentials::within(text).unwrap().unwrap();
        for (length, is_long) in [(1_000_000, true), (1_000, false)] {
            let mut request = Request::post("https://h/x").body(()).unwrap();
            let mut work = || {
                let scope = SigningScope { region: "eu-west-1", service: SERVICE };
                let signed = sign_beside_others(
                    &mut request,
                    &vec![b' '; length],
                    &credentials,
                    scope,
                    SystemTime::UNIX_EPOCH,
                );
                assert_eq!(signed, Ok(()));
            };
            assert_eq!(is_beside_others(&mut work), is_long);
            work();
            assert!(request.headers().contains_key("authorization"));
        }
    }
}
