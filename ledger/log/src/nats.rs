//! The settings of connections to NATS: servers, TLS, login, and the names of what an instance has there.

use std::path::{Path, PathBuf};

use async_nats::{Client, ConnectError, ConnectOptions, ServerAddr};
use nkeys::KeyPair;

use crate::nats_names::NatsNames;

/// The scheme of a URL that demands TLS.
const TLS: &str = "tls";

/// How a client logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// With the first user and password that the URLs name, or without a login.
    Url,
    /// With the JWT and the seed of a credentials file.
    Credentials(PathBuf),
    /// With the nkey whose seed is the first line of this file.
    Nkey(PathBuf),
}

/// The settings of connections to NATS.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsConfig {
    /// The URLs of the servers, with commas between them. A client that has reached one of them learns the others, so one
    /// is enough while it runs. One `tls://` demands TLS of all.
    pub urls: String,
    /// A PEM file of the authorities that are trusted instead of the machine's. It demands TLS.
    pub authorities: Option<PathBuf>,
    /// The PEM files of the client's certificate and its key. They demand TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The login.
    pub login: Login,
    /// The names of streams and subjects.
    pub names: NatsNames,
}

/// Why a client cannot connect, or the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A URL is malformed. It may hold a password, and is not shown.
    #[error("nats-url: a URL must be nats://HOST:PORT or tls://HOST:PORT")]
    Url,
    /// There are two logins.
    #[error("{0}: the URL of NATS names a login as well")]
    TwoLogins(&'static str),
    /// A PEM file cannot be used.
    #[error("{0}: {1}")]
    Pem(&'static str, farthing_tls::Error),
    /// The file of a login cannot be read.
    #[error("{0}: {path}: {2}", path = farthing_tls::shown(.1))]
    File(&'static str, PathBuf, std::io::Error),
    /// The file of a login does not hold one. It holds a secret, and nothing of it is shown.
    #[error("{0}: {path}: it does not hold {2}", path = farthing_tls::shown(.1))]
    Content(&'static str, PathBuf, &'static str),
    /// No server takes the connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl std::fmt::Debug for NatsConfig {
    /// Leaves out the URLs, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { urls: _, authorities, certificate, login, names } = self;
        f.debug_struct("NatsConfig")
            .field("authorities", authorities)
            .field("certificate", certificate)
            .field("login", login)
            .field("names", names)
            .finish_non_exhaustive()
    }
}

impl NatsConfig {
    /// Connections to these URLs, with the login that they name, trusting the machine's authorities.
    pub fn at(urls: impl Into<String>) -> Self {
        Self {
            urls: urls.into(),
            authorities: None,
            certificate: None,
            login: Login::Url,
            names: NatsNames::default(),
        }
    }

    /// Checks the settings and reads the files. Every process does so when it starts: a setting that is wrong ends it then,
    /// with an error that names it.
    pub fn check(&self) -> Result<(), Error> {
        for url in self.servers() {
            // The client also reads `ws://` and `wss://`, and would speak neither of them here.
            let scheme = url.split_once("://").map(|(scheme, _)| scheme);
            if scheme.is_some_and(|scheme| scheme != "nats" && scheme != TLS) {
                return Err(Error::Url);
            }
            url.parse::<ServerAddr>().map_err(|_| Error::Url)?;
        }
        if let Some(file) = &self.authorities {
            farthing_tls::authorities(file).map_err(|error| Error::Pem("nats-ca-file", error))?;
        }
        if let Some((certificate, key)) = &self.certificate {
            farthing_tls::certificates(certificate).map_err(|error| Error::Pem("nats-cert-file", error))?;
            farthing_tls::private_key(key).map_err(|error| Error::Pem("nats-key-file", error))?;
        }
        self.options().map(drop)
    }

    /// Connects with the options that `with` adds. The PEM files are read for each connection, the file of the login now.
    pub async fn connect(
        &self,
        with: impl FnOnce(ConnectOptions) -> ConnectOptions,
    ) -> Result<Client, Error> {
        // The future is large: it is kept out of those of the callers.
        Ok(Box::pin(with(self.options()?).connect(self.servers())).await?)
    }

    /// The URL of each server.
    pub fn servers(&self) -> Vec<&str> {
        self.urls.split(',').map(str::trim).collect()
    }

    fn options(&self) -> Result<ConnectOptions, Error> {
        let mut options = self.login()?;
        if self.demands_tls() {
            options = options.require_tls(true);
        }
        if let Some(file) = &self.authorities {
            options = options.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &self.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }

    /// Whether TLS is demanded: of all servers, also those that the client learns from the first, which come without a
    /// scheme.
    pub fn demands_tls(&self) -> bool {
        let is_tls = |url: &&str| url.split_once("://").is_some_and(|(scheme, _)| scheme == TLS);
        self.authorities.is_some() || self.certificate.is_some() || self.servers().iter().any(is_tls)
    }

    fn login(&self) -> Result<ConnectOptions, Error> {
        let in_urls =
            self.servers().into_iter().filter_map(|url| url.parse::<ServerAddr>().ok()).find_map(|server| {
                Some((server.username()?.to_owned(), server.password().unwrap_or_default().to_owned()))
            });
        match (&self.login, in_urls) {
            (Login::Url, Some((user, password))) => {
                Ok(ConnectOptions::with_user_and_password(user, password))
            }
            (Login::Url, None) => Ok(ConnectOptions::new()),
            (Login::Credentials(_), Some(_)) => Err(Error::TwoLogins("nats-credentials-file")),
            (Login::Nkey(_), Some(_)) => Err(Error::TwoLogins("nats-nkey-file")),
            (Login::Credentials(file), None) => {
                let text = read("nats-credentials-file", file)?;
                ConnectOptions::with_credentials(&text).map_err(|_| {
                    Error::Content(
                        "nats-credentials-file",
                        file.clone(),
                        "a user's JWT and the seed of its nkey",
                    )
                })
            }
            (Login::Nkey(file), None) => {
                let text = read("nats-nkey-file", file)?;
                let seed = text.lines().next().unwrap_or_default().trim();
                KeyPair::from_seed(seed)
                    .map_err(|_| Error::Content("nats-nkey-file", file.clone(), "the seed of an nkey"))?;
                Ok(ConnectOptions::with_nkey(seed.to_owned()))
            }
        }
    }
}

fn read(parameter: &'static str, file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|error| Error::File(parameter, file.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_settings_are_refused_by_name() {
        let config = NatsConfig::at("nats://u:secret@h:4222, tls://h2:4222");
        config.check().unwrap();
        assert!(!format!("{config:?}").contains("secret"));
        let missing = || PathBuf::from("/nowhere/at/all");
        let no_login = NatsConfig::at("tls://h");
        let secret = || PathBuf::from("-----BEGIN NATS USER JWT-----\nsecret");
        for (config, said) in [
            (NatsConfig::at("nats://u:secret@ h"), "nats-url"),
            (NatsConfig::at("wss://u:secret@h"), "nats-url"),
            (NatsConfig::at("tls://h,ws://u:secret@h"), "nats-url"),
            (
                NatsConfig { authorities: Some(missing()), ..no_login.clone() },
                "nats-ca-file: /nowhere/at/all",
            ),
            (
                NatsConfig { certificate: Some((missing(), missing())), ..no_login.clone() },
                "nats-cert-file: /nowhere/at/all",
            ),
            (
                NatsConfig { login: Login::Credentials(missing()), ..no_login.clone() },
                "nats-credentials-file: /nowhere/at/all",
            ),
            (
                NatsConfig { login: Login::Nkey(missing()), ..no_login.clone() },
                "nats-nkey-file: /nowhere/at/all",
            ),
            (
                NatsConfig { login: Login::Credentials(secret()), ..no_login.clone() },
                "nats-credentials-file: the file",
            ),
            (NatsConfig { login: Login::Nkey(secret()), ..no_login.clone() }, "nats-nkey-file: the file"),
            (NatsConfig { authorities: Some(secret()), ..no_login.clone() }, "nats-ca-file: the file"),
            (NatsConfig { login: Login::Nkey(missing()), ..config }, "nats-nkey-file: the URL of NATS names"),
            (
                NatsConfig {
                    login: Login::Nkey(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")),
                    ..no_login
                },
                "it does not hold the seed of an nkey",
            ),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
