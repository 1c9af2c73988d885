//! The paths from the certificate of a server to an authority. The server chooses which certificates it sends, and a TLS library
//! that tries all paths through them can be kept busy for seconds: so few are tried.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Of the certificates that a server sends beside its own, those beyond are not looked at.
const MAX_SENT: usize = 32;

/// The most certificates between that of the server and an authority. The TLS library allows no more either.
const MAX_BETWEEN: usize = 6;

/// The most paths that are tried.
const MAX_PATHS: usize = 4;

/// The certificates between `certificate` and an authority, in each path that is tried: each has the name of the issuer of the
/// one before, and no two have the same name. Several of those that were `sent` may have it, as after a renewal of an
/// authority; they are taken in the order in which they were sent.
pub(crate) fn paths<'a>(
    certificate: &CertificateDer<'_>,
    sent: &'a [CertificateDer<'a>],
) -> Vec<Vec<CertificateDer<'a>>> {
    let mut paths = Paths { sent: Vec::new(), found: Vec::new() };
    paths
        .sent
        .extend(sent.iter().take(MAX_SENT).filter_map(|der| Some((EndEntityCert::try_from(der).ok()?, der))));
    let own = EndEntityCert::try_from(certificate);
    paths.extend(&mut Vec::new(), own.as_ref().map_or(&[], |own| own.issuer()));
    paths.found
}

/// The certificates that a server sends, and the paths that were found through them.
struct Paths<'a> {
    sent: Vec<(EndEntityCert<'a>, &'a CertificateDer<'a>)>,
    found: Vec<Vec<CertificateDer<'a>>>,
}

impl Paths<'_> {
    /// Finds the paths that begin with the certificates at these places, of which the last is issued by `issuer`.
    fn extend(&mut self, path: &mut Vec<usize>, issuer: &[u8]) {
        let is_named = |at: &usize| self.sent[*at].0.subject() == issuer;
        let next: Vec<_> = if path.len() == MAX_BETWEEN || path.iter().any(is_named) {
            Vec::new()
        } else {
            (0..self.sent.len()).filter(is_named).collect()
        };
        if next.is_empty() {
            self.found.push(path.iter().map(|at| self.sent[*at].1.clone()).collect());
        }
        for at in next {
            if self.found.len() == MAX_PATHS {
                return;
            }
            let issuer = self.sent[at].0.issuer().to_vec();
            path.push(at);
            self.extend(path, &issuer);
            path.pop();
        }
    }
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
        assert_eq!(paths(&own, &sent), [vec![one, two]]);
        assert_eq!(paths(&own, &[]), [vec![]]);
    }

    #[test]
    fn few_paths_are_tried_however_many_there_are() {
        let own = certificate("own", "same");
        let same: Vec<_> = (0..3 * MAX_SENT).map(|_| certificate("same", "same")).collect();
        let expected: Vec<_> = same[..MAX_PATHS].iter().map(|one| vec![one.clone()]).collect();
        assert_eq!(paths(&own, &same), expected);
        let circle = [certificate("same", "other"), certificate("other", "same"), same[0].clone()];
        assert_eq!(paths(&own, &circle), [circle[..2].to_vec(), vec![same[0].clone()]]);
        let names: Vec<_> = (0..10).map(|number| format!("{number}")).collect();
        let long: Vec<_> = names.windows(2).map(|names| certificate(&names[0], &names[1])).collect();
        assert_eq!(paths(&certificate("own", "0"), &long), [&long[..MAX_BETWEEN]]);
        // An issuer that comes late is not looked for, and what is no certificate is passed over.
        let mut late = vec![certificate("other", "root"); MAX_SENT];
        late.push(certificate("same", "root"));
        assert_eq!(paths(&own, &late), [vec![]]);
        late[0] = CertificateDer::from(vec![0; 9]);
        late.swap(1, MAX_SENT);
        assert_eq!(paths(&own, &late), [vec![late[1].clone()]]);
    }

    #[test]
    fn a_renewed_authority_may_stand_behind_the_older_one() {
        let own = certificate("own", "issuing");
        let [old, new] = ["old root", "new root"].map(|root| certificate("issuing", root));
        assert_eq!(paths(&own, &[old.clone(), new.clone()]), [vec![old.clone()], vec![new.clone()]]);
        // Its new root may be signed by an older one, too.
        let [cross, alone] = ["old root", "new root"].map(|root| certificate("new root", root));
        let all = [old.clone(), new.clone(), cross.clone(), alone.clone()];
        assert_eq!(paths(&own, &all), [vec![old], vec![new.clone(), cross], vec![new, alone]]);
    }
}
