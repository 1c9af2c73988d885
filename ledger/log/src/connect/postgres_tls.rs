//! TLS to Postgres, as tokio-postgres asks for it. The files are read for each connection, so that renewed ones need no
//! restart.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use farthing_tls::{ClientCertificate, ServerCheck};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::database_url::Error;
use super::server_end_point::server_end_point;

/// The protocol that a client names in its first message (RFC 7301). Postgres 17 asks for it.
const PROTOCOL: &[u8] = b"postgresql";

/// Where the trusted authorities are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorities {
    /// Those that this machine trusts.
    System,
    /// Those in a PEM file.
    File(PathBuf),
}

/// How the server's certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Not at all.
    Nothing,
    /// It is of one of these authorities.
    Authority(Authorities),
    /// It is of one of these authorities and for the host's name.
    AuthorityAndName(Authorities),
}

/// The TLS of connections to a database.
#[derive(Debug, Clone)]
pub struct PostgresTls(Arc<TlsFiles>);

#[derive(Debug)]
struct TlsFiles {
    check: Check,
    certificate: Option<ClientCertificate>,
    /// The certificate that the server showed last, in DER.
    shown: Mutex<Option<Vec<u8>>>,
}

impl PostgresTls {
    pub(super) fn new(check: Check, certificate: Option<ClientCertificate>) -> Self {
        Self(Arc::new(TlsFiles { check, certificate, shown: Mutex::default() }))
    }

    /// TLS that takes any server.
    pub(super) fn unchecked() -> Self {
        Self::new(Check::Nothing, None)
    }

    /// How the server's certificate is checked.
    pub fn check(&self) -> &Check {
        &self.0.check
    }

    /// The PEM file of the certificate that is shown to the server.
    pub fn client_certificate(&self) -> Option<&Path> {
        self.0.certificate.as_ref().map(|files| files.certificate.as_path())
    }

    /// The certificate, in DER, that the server showed in the last handshake; `None` if there was none.
    pub fn shown(&self) -> Option<Vec<u8>> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files. An error names the parameter.
    pub(super) fn client_config(&self) -> Result<ClientConfig, Error> {
        let check = match &self.0.check {
            Check::Nothing => ServerCheck::Nothing,
            Check::Authority(from) => ServerCheck::Authority(from.read()?),
            Check::AuthorityAndName(from) => ServerCheck::AuthorityAndName(from.read()?),
        };
        let certificate = self.0.certificate.as_ref();
        if let Some(files) = certificate {
            farthing_tls::certificates(&files.certificate).map_err(|error| Error::File("sslcert", error))?;
            farthing_tls::private_key(&files.key).map_err(|error| Error::File("sslkey", error))?;
        }
        let mut config = farthing_tls::client_config(check, certificate).map_err(Error::Certificate)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

impl Authorities {
    fn read(&self) -> Result<tokio_rustls::rustls::RootCertStore, Error> {
        match self {
            Self::System => Ok(farthing_tls::system_authorities().0),
            Self::File(file) => {
                farthing_tls::authorities(file).map_err(|error| Error::File("sslrootcert", error))
            }
        }
    }
}

impl<S> MakeTlsConnect<S> for PostgresTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { tls: self.clone(), host: host.to_owned() })
    }
}

/// A handshake to come, with the server of this name.
#[derive(Debug)]
pub struct Handshake {
    tls: PostgresTls,
    host: String,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let config = self.tls.client_config().map_err(io::Error::other)?;
            let name = self.host.strip_suffix('.').unwrap_or(&self.host).to_owned();
            let name = ServerName::try_from(name).map_err(io::Error::other)?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            *self.tls.0.shown.lock().unwrap_or_else(PoisonError::into_inner) =
                shown.map(|certificate| certificate.to_vec());
            Ok(EncryptedStream(stream))
        })
    }
}

/// A connection to Postgres through TLS.
#[derive(Debug)]
pub struct EncryptedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    /// The login is bound to the certificate that the server has shown: another server cannot pass it on.
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        let shown = session.peer_certificates().and_then(<[_]>::first);
        match shown.and_then(|certificate| server_end_point(certificate)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
