//! The form of a request's target and of its `Host` (RFC 9112, section 3.2). A request whose host is not clear may mean one
//! thing to a proxy and another to the gateway.

use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{Request, Version};

use crate::error::{ApiError, ProtocolError};

/// The longest path with its query, in bytes.
const MAX_TARGET_BYTES: usize = 32 * 1024;

/// Refuses a request with too long a target, or without exactly one valid `Host`, which HTTP/1.0 may leave out.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), ApiError> {
    let target = request.uri().path_and_query().map_or("", PathAndQuery::as_str);
    if target.len() > MAX_TARGET_BYTES {
        return Err(ApiError::Protocol(ProtocolError::UriTooLong));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let message = match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host.as_bytes()) => return Ok(()),
        (None, _) if request.version() == Version::HTTP_10 => return Ok(()),
        (None, _) => "is required",
        (Some(_), None) => "must be a host with an optional port",
        (Some(_), Some(_)) => "must be given once",
    };
    Err(ApiError::issue(["host"], message))
}

/// A name of the DNS or an address, with a port or without one.
fn is_host(value: &[u8]) -> bool {
    Authority::try_from(value).is_ok_and(|authority| {
        let host = authority.host();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_host = !host.is_empty() && (host.starts_with('[') || host.bytes().all(is_name));
        // What is before the host, such as a user, makes this `None`.
        let port = authority.as_str().strip_prefix(host).and_then(|rest| match rest {
            "" => Some(rest),
            _ => rest.strip_prefix(':'),
        });
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        is_host && port.is_some_and(|port| is_port(port) && (port.is_empty() || port.parse::<u16>().is_ok()))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn checked(version: Version, hosts: &[&[u8]]) -> Result<(), ApiError> {
        let mut request = Request::new(());
        *request.version_mut() = version;
        for host in hosts {
            request.headers_mut().append(HOST, HeaderValue::from_bytes(host).unwrap());
        }
        check(&request)
    }

    #[test]
    fn a_request_has_one_host() {
        let valid: [&[u8]; 7] = [
            b"a",
            b"api.example",
            b"api.example:8080",
            b"127.0.0.1:1",
            b"[::1]",
            b"[::1]:65535",
            b"a_b.example.",
        ];
        for host in valid {
            assert_eq!(checked(Version::HTTP_11, &[host]), Ok(()), "{host:?}");
            assert!(checked(Version::HTTP_11, &[host, host]).is_err(), "{host:?} twice");
            assert!(checked(Version::HTTP_10, &[host, b"other"]).is_err(), "{host:?} and another");
        }
        let invalid: [&[u8]; 17] = [
            b"",
            b"a b",
            b"a/b",
            b"a?b",
            b"a#b",
            b"u@a",
            b"a@a",
            b"a:+1",
            b"a*b",
            b"u:p@a",
            b"a,b",
            b"a:x",
            b"a:65536",
            b":80",
            b"[::1",
            b"\xff",
            b"http://a",
        ];
        for host in invalid {
            assert!(checked(Version::HTTP_11, &[host]).is_err(), "{}", String::from_utf8_lossy(host));
            assert!(checked(Version::HTTP_10, &[host]).is_err(), "{}", String::from_utf8_lossy(host));
        }
        assert!(checked(Version::HTTP_11, &[]).is_err());
        assert_eq!(checked(Version::HTTP_10, &[]), Ok(()));
    }

    #[test]
    fn a_target_has_a_length() {
        let of = |length: usize| {
            let target = format!("/{}", "x".repeat(length - 1));
            check(&Request::get(target).header(HOST, "a").body(()).unwrap())
        };
        assert_eq!(of(MAX_TARGET_BYTES), Ok(()));
        assert_eq!(of(MAX_TARGET_BYTES + 1), Err(ApiError::Protocol(ProtocolError::UriTooLong)));
    }
}
