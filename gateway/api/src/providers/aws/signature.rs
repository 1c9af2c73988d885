//! Signs a call with AWS credentials: Signature Version 4, in headers. The library computes it; here is what it covers.
//! Pure.
//!
//! Invariant: the signature covers the method, the URL, the host, the exact bytes of the body, and those headers that say
//! what is asked of AWS ([`is_signed`]). So a call is signed after everything else was done to it. Other headers are sent
//! without being signed, because a proxy on the way may change them: AWS would refuse the call then.

use std::time::SystemTime;

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings};
use aws_sigv4::sign::v4;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Request};

use super::AwsCredentials;
use crate::target;

/// The prefix of headers that belong to a signature, and that a caller may not choose for one of the gateway's.
const OF_AWS: &str = "x-amz-";

/// The prefix of headers by which a call chooses features of Amazon Bedrock.
const OF_BEDROCK: &str = "x-amzn-bedrock-";

/// The header of a trace within AWS. Its load balancers set it anew.
const TRACE: HeaderName = HeaderName::from_static("x-amzn-trace-id");

/// The headers of a signature that are secret.
const SECRET: [HeaderName; 2] = [AUTHORIZATION, HeaderName::from_static("x-amz-security-token")];

/// The region and the service that a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SigningScope<'a> {
    /// The region, such as `eu-west-1`.
    pub(crate) region: &'a str,
    /// The service's name in signatures.
    pub(crate) service: &'a str,
}

/// Why a call is not signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The value of a header is not text.
    #[error("the header {0} is not ASCII")]
    Header(HeaderName),
    /// The library refuses the call.
    #[error("{0}")]
    Refused(String),
}

/// Signs `request`, whose body consists of these bytes, at the instant `now`. Headers of another signature are removed.
pub(crate) fn sign<B>(
    request: &mut Request<B>,
    body: &[u8],
    credentials: &AwsCredentials,
    scope: SigningScope<'_>,
    now: SystemTime,
) -> Result<(), Error> {
    remove_signature(request);
    set_host(request)?;
    let headers = request.headers().iter().filter(|(name, _)| is_signed(name));
    let headers: Vec<(&str, &str)> = headers
        .map(|(name, value)| Ok((name.as_str(), value.to_str().map_err(|_| Error::Header(name.clone()))?)))
        .collect::<Result<_, Error>>()?;
    let refused = |error: &dyn std::error::Error| Error::Refused(error.to_string());
    let uri = request.uri().to_string();
    let signable =
        SignableRequest::new(request.method().as_str(), uri, headers.into_iter(), SignableBody::Bytes(body))
            .map_err(|error| refused(&error))?;
    let identity = credentials.of_library().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(scope.region)
        .name(scope.service)
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| refused(&error))?
        .into();
    let signed = aws_sigv4::http_request::sign(signable, &params).map_err(|error| refused(&error))?;
    let (instructions, _) = signed.into_parts();
    instructions.apply_to_request_http1x(request);
    for name in &SECRET {
        if let Some(value) = request.headers_mut().get_mut(name) {
            value.set_sensitive(true);
        }
    }
    Ok(())
}

/// Whether the signature covers a header.
fn is_signed(name: &HeaderName) -> bool {
    let begins = |prefix| name.as_str().starts_with(prefix);
    *name == HOST || *name == CONTENT_TYPE || begins(OF_AWS) || begins(OF_BEDROCK)
}

/// Removes what a caller sent of a signature of its own, and of its trace within AWS.
fn remove_signature<B>(request: &mut Request<B>) {
    let headers = request.headers_mut();
    headers.remove(AUTHORIZATION);
    headers.remove(TRACE);
    let given: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(OF_AWS)).cloned().collect();
    for name in given {
        headers.remove(name);
    }
}

/// Sets the host that is signed and sent: without a port if it is that of the scheme.
fn set_host<B>(request: &mut Request<B>) -> Result<(), Error> {
    let (host, port) = target::destination(request.uri());
    let usual = if request.uri().scheme_str() == Some("https") { 443 } else { 80 };
    let host = if port == usual { host } else { format!("{host}:{port}") };
    let host = HeaderValue::try_from(host).map_err(|_| Error::Header(HOST))?;
    request.headers_mut().insert(HOST, host);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// 2015-08-30T12:36:00Z, the instant of AWS's published examples.
    const PUBLISHED_AT: Duration = Duration::from_mins(24_015_636);

    fn credentials(token: &str) -> AwsCredentials {
        let text = format!("AKIDEXAMPLEAKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY{token}");
        AwsCredentials::within(&text).unwrap().unwrap()
    }

    fn signed(
        credentials: &AwsCredentials,
        body: &[u8],
        change: impl FnOnce(&mut Request<()>),
    ) -> Request<()> {
        let url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/a.nova%3A0/converse";
        let mut request = Request::post(url).header("content-type", "application/json").body(()).unwrap();
        change(&mut request);
        let scope = SigningScope { region: "eu-west-1", service: "bedrock" };
        sign(&mut request, body, credentials, scope, UNIX_EPOCH + PUBLISHED_AT).unwrap();
        request
    }

    fn header<'a>(request: &'a Request<()>, name: &str) -> &'a str {
        request.headers()[name].to_str().unwrap()
    }

    fn signature(request: &Request<()>) -> &str {
        header(request, "authorization").split_once("Signature=").unwrap().1
    }

    /// The signatures that AWS publishes: in its test suite (`get-vanilla`, `post-vanilla`) and in its guide to signing.
    #[test]
    fn the_published_examples_have_their_published_signatures() {
        for (method, url, content_type, service, expected) in [
            (
                "GET",
                "https://example.amazonaws.com/",
                None,
                "service",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                "https://example.amazonaws.com/",
                None,
                "service",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "GET",
                "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
                Some("application/x-www-form-urlencoded; charset=utf-8"),
                "iam",
                "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
            ),
        ] {
            let mut request = Request::builder().method(method).uri(url).body(()).unwrap();
            if let Some(content_type) = content_type {
                request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
            }
            let scope = SigningScope { region: "us-east-1", service };
            sign(&mut request, b"", &AwsCredentials::published(), scope, UNIX_EPOCH + PUBLISHED_AT).unwrap();
            assert_eq!(signature(&request), expected, "{method} {url}");
        }
    }

    #[test]
    fn any_byte_of_the_body_the_url_and_a_header_for_aws_changes_the_signature() {
        let credentials = credentials("");
        let first = signed(&credentials, b"{}", |_| {});
        let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLEAKIDEXAMPLE/20150830/eu-west-1/bedrock/aws4_request, \
                        SignedHeaders=content-type;host;x-amz-date, Signature=";
        assert!(header(&first, "authorization").starts_with(expected), "{first:?}");
        assert_eq!(header(&first, "x-amz-date"), "20150830T123600Z");
        assert_eq!(header(&first, "host"), "bedrock-runtime.eu-west-1.amazonaws.com");
        assert_eq!(signature(&first), signature(&signed(&credentials, b"{}", |_| {})));
        let others = [
            signed(&credentials, b"{ }", |_| {}),
            signed(&credentials, b"{}", |request| {
                let text = HeaderValue::from_static("application/json; charset=utf-8");
                request.headers_mut().insert("content-type", text);
            }),
            signed(&credentials, b"{}", |request| {
                let text = HeaderValue::from_static("*/*");
                request.headers_mut().insert("x-amzn-bedrock-accept", text);
            }),
            signed(&credentials, b"{}", |request| {
                *request.uri_mut() =
                    "https://bedrock-runtime.eu-west-1.amazonaws.com/model/a.nova%3A1/converse"
                        .parse()
                        .unwrap();
            }),
            signed(&credentials, b"{}", |request| {
                *request.uri_mut() =
                    "https://bedrock-runtime.eu-west-1.amazonaws.com:8443/model/a.nova%3A0/converse"
                        .parse()
                        .unwrap();
            }),
            signed(&credentials, b"{}", |request| *request.method_mut() = http::Method::PUT),
        ];
        for other in &others {
            assert_ne!(signature(other), signature(&first), "{other:?}");
        }
        assert_eq!(header(&others[4], "host"), "bedrock-runtime.eu-west-1.amazonaws.com:8443");
        let accepting = header(&others[2], "authorization");
        assert!(accepting.contains("SignedHeaders=content-type;host;x-amz-date;x-amzn-bedrock-accept,"));
    }

    #[test]
    fn headers_that_a_proxy_may_change_are_sent_without_being_signed() {
        let plain = signed(&credentials(""), b"{}", |_| {});
        let proxied = signed(&credentials(""), b"{}", |request| {
            for name in [
                "accept",
                "accept-encoding",
                "cache-control",
                "connection",
                "content-length",
                "forwarded",
                "user-agent",
                "via",
                "x-amzn-requestid",
                "x-forwarded-for",
                "x-request-id",
            ] {
                request.headers_mut().insert(name, HeaderValue::from_static("theirs"));
            }
            request.headers_mut().insert("x-odd", HeaderValue::from_bytes(b"\xff").unwrap());
            request.headers_mut().insert("x-amzn-trace-id", HeaderValue::from_static("Root=theirs"));
        });
        assert_eq!(header(&proxied, "authorization"), header(&plain, "authorization"));
        assert_eq!(header(&proxied, "via"), "theirs");
        assert!(proxied.headers().contains_key("x-odd"));
        assert!(!proxied.headers().contains_key("x-amzn-trace-id"), "it belongs to another call");
    }

    #[test]
    fn a_session_token_is_sent_and_signed_and_what_a_caller_sent_of_a_signature_is_removed() {
        let plain = signed(&credentials(""), b"{}", |_| {});
        assert!(!plain.headers().contains_key("x-amz-security-token"));
        let with_token = signed(&credentials(":FwoGZXIvYXdz"), b"{}", |request| {
            let headers = request.headers_mut();
            headers.insert("x-amz-security-token", HeaderValue::from_static("theirs"));
            headers.insert("x-amz-target", HeaderValue::from_static("theirs"));
            headers.insert("authorization", HeaderValue::from_static("theirs"));
        });
        assert_eq!(header(&with_token, "x-amz-security-token"), "FwoGZXIvYXdz");
        assert!(with_token.headers()["x-amz-security-token"].is_sensitive());
        assert!(with_token.headers()["authorization"].is_sensitive());
        assert!(!with_token.headers().contains_key("x-amz-target"));
        assert!(header(&with_token, "authorization").contains("x-amz-date;x-amz-security-token,"));
        assert_ne!(signature(&with_token), signature(&plain));
        assert!(!format!("{with_token:?}").contains("wJalr"), "the secret is never sent");
    }

    #[test]
    fn a_header_for_aws_that_is_not_text_cannot_be_signed() {
        let mut request = Request::post("https://h/x").body(()).unwrap();
        request.headers_mut().insert("x-amzn-bedrock-odd", HeaderValue::from_bytes(b"\xff").unwrap());
        let scope = SigningScope { region: "r", service: "s" };
        let refused = sign(&mut request, b"", &credentials(""), scope, UNIX_EPOCH);
        assert_eq!(refused, Err(Error::Header(HeaderName::from_static("x-amzn-bedrock-odd"))));
    }
}
