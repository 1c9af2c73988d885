//! The path from the certificate of a server to an authority. The server chooses which certificates it sends, and a TLS library
//! that tries all paths through them can be kept busy for seconds: so one path is tried.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Of the certificates that a server sends beside its own, those beyond are not looked at.
const MAX_SENT: usize = 32;

/// The most certificates between that of the server and an authority. The TLS library allows no more either.
const MAX_BETWEEN: usize = 6;

/// The certificates on the path from `certificate`: each is the first of those that were `sent` whose name is that of the
/// issuer of the one before. No two have the same name. A server sends others if its operator listed too many, or to make a client busy.
pub(crate) fn between<'a>(
    certificate: &CertificateDer<'_>,
    sent: &'a [CertificateDer<'a>],
) -> Vec<CertificateDer<'a>> {
    let Ok(own) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let mut others: Vec<_> = sent
        .iter()
        .take(MAX_SENT)
        .filter_map(|der| Some((EndEntityCert::try_from(der).ok()?, der)))
        .collect();
    let (mut issuer, mut path) = (own.issuer().to_vec(), Vec::new());
    while path.len() < MAX_BETWEEN
        && let Some(at) = others.iter().position(|(other, _)| other.subject() == issuer)
    {
        let (next, der) = others.remove(at);
        // Certificates of one name could follow each other in any order.
        others.retain(|(other, _)| other.subject() != issuer);
        issuer = next.issuer().to_vec();
        path.push(CertificateDer::from(der.as_ref()));
    }
    path
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, Issuer,
        KeyPair,
    };

    use super::*;

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// A certificate of the subject, issued under the name of `issuer` by no matter whom.
    fn certificate(subject: &str, issuer: &str) -> CertificateDer<'static> {
        let issuer = CertifiedIssuer::self_signed(params(issuer), KeyPair::generate().unwrap()).unwrap();
        let issuer: &Issuer<'_, KeyPair> = &issuer;
        params(subject).signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    }

    #[test]
    fn each_is_the_issuer_of_the_one_before_in_whatever_order_they_were_sent() {
        let own = certificate("own", "one");
        let [one, two, other] = [("one", "two"), ("two", "root"), ("other", "root")]
            .map(|(subject, issuer)| certificate(subject, issuer));
        let sent = [other, two.clone(), own.clone(), one.clone()];
        assert_eq!(between(&own, &sent), [one, two]);
        assert!(between(&own, &[]).is_empty());
    }

    #[test]
    fn one_path_is_tried_however_many_lead_on() {
        let own = certificate("own", "same");
        let same: Vec<_> = (0..3 * MAX_SENT).map(|_| certificate("same", "same")).collect();
        assert_eq!(between(&own, &same), same[..1]);
        let circle = [certificate("same", "other"), certificate("other", "same"), same[0].clone()];
        assert_eq!(between(&own, &circle), circle[..2]);
        let names: Vec<_> = (0..10).map(|number| format!("{number}")).collect();
        let long: Vec<_> = names.windows(2).map(|names| certificate(&names[0], &names[1])).collect();
        assert_eq!(between(&certificate("own", "0"), &long), long[..MAX_BETWEEN]);
        // An issuer that comes late is not looked for, and what is no certificate is passed over.
        let mut late = vec![certificate("other", "root"); MAX_SENT];
        late.push(certificate("same", "root"));
        assert!(between(&own, &late).is_empty());
        late[0] = CertificateDer::from(vec![0; 9]);
        late.swap(1, MAX_SENT);
        assert_eq!(between(&own, &late).len(), 1);
    }
}
