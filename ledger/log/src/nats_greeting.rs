//! What a NATS server shows to anyone: its greeting and its certificate. The NATS client shows neither to its caller.

use std::io;
use std::sync::Arc;

use async_nats::ServerAddr;
use farthing_tls::{ClientCertificate, ServerCheck};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::nats::NatsConfig;

/// The most bytes of a greeting.
const MAX_GREETING_BYTES: u64 = 256 * 1024;

/// What the first server shows that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Its host, as the URL names it.
    pub host: String,
    /// Whether a connection with these settings is encrypted.
    pub encrypted: bool,
    /// Its certificate in DER, if so.
    pub certificate: Option<Vec<u8>>,
}

/// The part of the greeting that matters.
#[derive(Debug, Deserialize)]
struct Info {
    #[serde(default)]
    tls_required: bool,
}

/// Reads the greeting, and nothing else: there is no login. The certificate is not checked.
pub async fn read(config: &NatsConfig) -> io::Result<Greeting> {
    let mut last = io::Error::other("there is no server");
    for url in config.servers() {
        let Ok(server) = url.parse::<ServerAddr>() else { continue };
        match read_of(config, &server).await {
            Ok(greeting) => return Ok(greeting),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn read_of(config: &NatsConfig, server: &ServerAddr) -> io::Result<Greeting> {
    let host = server.host().to_owned();
    let stream = TcpStream::connect((host.as_str(), server.port())).await?;
    let mut reader = BufReader::new(stream).take(MAX_GREETING_BYTES);
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let info = line.strip_prefix("INFO ").and_then(|json| serde_json::from_str::<Info>(json).ok());
    let info = info.ok_or_else(|| io::Error::other("the server does not greet as NATS does"))?;
    let encrypted = info.tls_required || config.demands_tls();
    let certificate =
        if encrypted { shown(config, &host, reader.into_inner().into_inner()).await? } else { None };
    Ok(Greeting { host, encrypted, certificate })
}

/// The certificate that the server shows in the handshake.
async fn shown(config: &NatsConfig, host: &str, stream: TcpStream) -> io::Result<Option<Vec<u8>>> {
    let certificate = config.certificate.as_ref();
    let certificate = certificate
        .map(|(certificate, key)| ClientCertificate { certificate: certificate.clone(), key: key.clone() });
    let tls =
        farthing_tls::client_config(ServerCheck::Nothing, certificate.as_ref()).map_err(io::Error::other)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    Ok(shown.map(|certificate| certificate.to_vec()))
}
