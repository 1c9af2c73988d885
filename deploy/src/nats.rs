//! Command-line flags for the NATS servers.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use farthing_log::nats::{Login, NatsConfig};
use farthing_log::nats_names::NatsNames;

use crate::secret_file;

/// Flags that name the NATS servers, their TLS and the login.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_field_names, reason = "a field has the name of its flag")]
pub(crate) struct Nats {
    /// NATS servers: nats://HOST:PORT, or tls://HOST:PORT for TLS, with commas between those of a cluster. Without it,
    /// readers poll the database and no events are published.
    #[arg(
        long,
        env = "FARTHING_NATS_URL",
        hide_env_values = true,
        value_name = "URL",
        conflicts_with = "nats_url_file"
    )]
    nats_url: Option<String>,
    /// As --nats-url, read from the first line of a file: with a user and a password, for example.
    #[arg(long, env = "FARTHING_NATS_URL_FILE", value_name = "FILE")]
    nats_url_file: Option<PathBuf>,
    /// Trust only the certificate authorities in this PEM file for NATS, instead of those of the system. Demands TLS.
    #[arg(long, env = "FARTHING_NATS_CA_FILE", value_name = "FILE")]
    nats_ca_file: Option<PathBuf>,
    /// Certificate to show to NATS, PEM. Demands TLS.
    #[arg(long, env = "FARTHING_NATS_CERT_FILE", value_name = "FILE", requires = "nats_key_file")]
    nats_cert_file: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(long, env = "FARTHING_NATS_KEY_FILE", value_name = "FILE", requires = "nats_cert_file")]
    nats_key_file: Option<PathBuf>,
    /// Log in with this credentials file (`.creds`): a user's JWT and the seed of its nkey.
    #[arg(
        long,
        env = "FARTHING_NATS_CREDENTIALS_FILE",
        value_name = "FILE",
        conflicts_with = "nats_nkey_file"
    )]
    nats_credentials_file: Option<PathBuf>,
    /// Log in with the nkey whose seed is the first line of this file.
    #[arg(long, env = "FARTHING_NATS_NKEY_FILE", value_name = "FILE")]
    nats_nkey_file: Option<PathBuf>,
    /// Begin the names of all streams and subjects at NATS with this. Instances that share a NATS account need different
    /// ones; all processes of an instance have the same.
    #[arg(long, env = "FARTHING_NATS_PREFIX", value_name = "NAME")]
    nats_prefix: Option<NatsNames>,
}

impl Nats {
    /// The settings, whose files can be used; `None` without a URL.
    pub(crate) fn config(self) -> Result<Option<NatsConfig>> {
        let login = match (self.nats_credentials_file, self.nats_nkey_file) {
            (Some(file), _) => Login::Credentials(file),
            (None, Some(file)) => Login::Nkey(file),
            (None, None) => Login::Url,
        };
        let urls = match (self.nats_url, &self.nats_url_file) {
            (Some(urls), _) => Some(urls),
            (None, Some(file)) => Some(secret_file::first_line("--nats-url-file", file)?),
            (None, None) => None,
        };
        let Some(urls) = urls else {
            let given = self.nats_ca_file.is_some() || self.nats_cert_file.is_some() || login != Login::Url;
            ensure!(!given, "--nats-ca-file and the like need --nats-url or --nats-url-file");
            return Ok(None);
        };
        let certificate = self.nats_cert_file.zip(self.nats_key_file);
        let names = self.nats_prefix.unwrap_or_default();
        let config = NatsConfig { urls, authorities: self.nats_ca_file, certificate, login, names };
        config.check().context("the settings of NATS cannot be used")?;
        Ok(Some(config))
    }
}
