//! From when until when a certificate is valid.

use std::time::Duration;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

/// The last second that a certificate can name: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// The time in which a certificate is valid, in seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From here on.
    pub from: u64,
    /// Up to here.
    pub until: u64,
}

/// The validity of a certificate in DER; `None` if it is malformed. Who issued it does not matter.
///
/// The TLS library does not show these times, but it checks them before anything else, and its refusal names them: so it
/// is asked about the first and the last second there are.
pub fn validity(certificate: &[u8]) -> Option<Validity> {
    let certificate = CertificateDer::from(certificate);
    let parsed = ParsedCertificate::try_from(&certificate).ok()?;
    let from = match refusal(&parsed, 0) {
        Some(CertificateError::NotValidYetContext { not_before, .. }) => not_before.as_secs(),
        Some(CertificateError::BadEncoding) => return None,
        _ => 0,
    };
    let until = match refusal(&parsed, LAST_SECOND) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => not_after.as_secs(),
        Some(CertificateError::BadEncoding) => return None,
        _ => LAST_SECOND,
    };
    Some(Validity { from, until })
}

/// Why a certificate is refused at a second, by somebody who trusts no authority.
fn refusal(certificate: &ParsedCertificate<'_>, second: u64) -> Option<CertificateError> {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(second));
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all;
    let nobody = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(certificate, &nobody, &[], now, algorithms) {
        Err(Error::InvalidCertificate(error)) => Some(error),
        Err(_) | Ok(()) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_validity_is_that_of_the_certificate_whoever_issued_it() {
        let mut params = rcgen::CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let expected = Validity { from: 1_577_836_800, until: 1_609_459_200 };
        assert_eq!(validity(certificate.der()), Some(expected));
        let whole = certificate.der();
        assert_eq!(validity(&whole[..whole.len() / 2]), None, "it is cut off");
    }
}
