//! TLS for tests: certificates, and a front of a provider that terminates TLS and forwards the bytes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{Datelike as _, TimeDelta, Utc};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa,
    KeyPair, date_time_ymd,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// The validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Valid.
    Now,
    /// Valid since 2020, and for one or two days more.
    Ending,
    /// Expired.
    Expired,
}

impl Validity {
    fn set(self, params: &mut CertificateParams) {
        match self {
            Self::Now => {}
            Self::Ending => {
                let end = Utc::now() + TimeDelta::days(2);
                let (month, day) = (end.month().try_into(), end.day().try_into());
                let end = date_time_ymd(end.year(), month.expect("a month"), day.expect("a day"));
                (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), end);
            }
            Self::Expired => {
                (params.not_before, params.not_after) =
                    (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
            }
        }
    }
}

/// A certificate and its key, in PEM files.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// An authority that issues certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new authority.
    #[expect(clippy::new_without_default, reason = "each has a new key")]
    pub fn new() -> Self {
        Self::with(Validity::Now)
    }

    /// A new authority of this validity.
    pub fn with(validity: Validity) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        validity.set(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority can be made"))
    }

    /// Writes its certificate to a PEM file.
    pub fn write_to(&self, file: &Path) -> PathBuf {
        std::fs::write(file, self.0.pem()).expect("a file can be written");
        file.to_owned()
    }

    /// Writes a certificate for these hosts, and its key, to two PEM files whose paths begin with `file`. Its common name
    /// is that of a client's login.
    pub fn issue(
        &self,
        file: &Path,
        common_name: &str,
        hosts: &[&str],
        validity: Validity,
    ) -> CertificateFiles {
        let (certificate, key) = self.certificate(common_name, hosts, validity);
        let written = |end: &str, text: String| {
            let path = file.with_extension(end);
            std::fs::write(&path, text).expect("a file can be written");
            path.into_os_string().into_string().expect("a path of a test is UTF-8")
        };
        CertificateFiles {
            certificate: written("crt", certificate.pem()),
            key: written("key", key.serialize_pem()),
        }
    }

    fn certificate(&self, common_name: &str, hosts: &[&str], validity: Validity) -> (Certificate, KeyPair) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).expect("hosts");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        validity.set(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate can be made");
        (certificate, key)
    }

    /// A front of `provider` (`host:port`) with a certificate for these hosts.
    pub async fn front(&self, provider: &str, hosts: &[&str], validity: Validity) -> Front {
        let (certificate, key) = self.certificate("a test's server", hosts, validity);
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the protocol's versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())
            .expect("a certificate and its key");
        Front::start(config, provider.to_owned()).await
    }
}

/// A server that terminates TLS and forwards the bytes.
pub struct Front {
    /// Its address on the loopback.
    pub address: SocketAddr,
    asked_for: Arc<Mutex<Vec<Option<String>>>>,
}

impl Front {
    async fn start(config: ServerConfig, provider: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let asked_for: Arc<Mutex<Vec<_>>> = Arc::default();
        let (acceptor, asked) = (TlsAcceptor::from(Arc::new(config)), Arc::clone(&asked_for));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, asked, provider) = (acceptor.clone(), Arc::clone(&asked), provider.clone());
                tokio::spawn(async move {
                    // A caller that does not trust the certificate disconnects.
                    let Ok(mut inside) = acceptor.accept(stream).await else { return };
                    let host = inside.get_ref().1.server_name().map(str::to_owned);
                    asked.lock().unwrap_or_else(PoisonError::into_inner).push(host);
                    let Ok(mut outside) = TcpStream::connect(&provider).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
                });
            }
        });
        Self { address, asked_for }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The server name of each connection so far, `None` if it had none.
    pub fn asked_for(&self) -> Vec<Option<String>> {
        self.asked_for.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
