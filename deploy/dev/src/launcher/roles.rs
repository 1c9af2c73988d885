//! The child processes that run roles of the `farthing` program. Secrets reach them in their environment, never on
//! their command line. They stop when their stdin closes: on shutdown, or because this process has died.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::data_folder::DataFolder;
use super::gateway_address::Listens;
use super::ports::Ports;
use super::process::{Process, ProcessSpec, StopMethod};
use super::{Config, MockJournal, NATS_SERVERS, Servers};

const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// How long a gateway may take, after the grace period, to settle the remaining calls and exit.
const STOP_TIMEOUT_AFTER_GRACE: Duration = Duration::from_secs(20);

/// The providers of a test instance run on loopback.
const ALLOW_LOOPBACK: [&str; 2] = ["--allow-address=127.0.0.0/8", "--allow-address=::1/128"];

/// Variables of this process that its children must not read: [`Config::gateway_arguments`] includes the values of the
/// first, and the others are the launcher's own, or about servers that are not the instance's own.
const REMOVED_VARIABLES: [&str; 13] = [
    "FARTHING_ALLOW_ADDRESS",
    "FARTHING_PROVIDER_HOST",
    "FARTHING_PRICES",
    "FARTHING_DRAIN_SECONDS",
    "FARTHING_DATABASE_URL_FILE",
    "FARTHING_DEV_DATABASE_URL",
    "FARTHING_DEV_NATS_URL",
    "FARTHING_NATS_PREFIX",
    "FARTHING_NATS_CA_FILE",
    "FARTHING_NATS_CERT_FILE",
    "FARTHING_NATS_KEY_FILE",
    "FARTHING_NATS_CREDENTIALS_FILE",
    "FARTHING_NATS_NKEY_FILE",
];

/// The addresses of the mock provider.
#[derive(Debug, Clone, Copy)]
pub(super) struct MockAddresses {
    /// An unknown provider.
    pub(super) other: SocketAddr,
    /// Stands for OpenAI.
    pub(super) openai: SocketAddr,
    /// Stands for Anthropic.
    pub(super) anthropic: SocketAddr,
    /// Stands for Google.
    pub(super) google: SocketAddr,
}

impl MockAddresses {
    /// Takes their ports, at `ip`.
    pub(super) fn take(ports: &mut Ports, ip: IpAddr) -> Result<Self> {
        let mut take = |name| ports.take(name, ip).map(|port| SocketAddr::new(ip, port));
        Ok(Self {
            other: take("provider")?,
            openai: take("openai")?,
            anthropic: take("anthropic")?,
            google: take("google")?,
        })
    }
}

/// Specifies the processes of roles.
pub(super) struct Roles<'a> {
    /// The instance.
    pub(super) config: &'a Config,
    /// The data folder.
    pub(super) folder: &'a DataFolder,
    /// The database, as processes of this machine reach it.
    pub(super) database_url: &'a str,
    /// The NATS servers, with commas between them.
    pub(super) nats_url: &'a str,
}

impl Roles<'_> {
    /// A gateway. It calls the mock's addresses for the providers that they stand for.
    pub(super) fn gateway(
        &self,
        index: u16,
        listens: Listens,
        pages_url: &str,
        mock: &MockAddresses,
    ) -> ProcessSpec {
        let config = self.config;
        let mut arguments = vec![
            "gateway".to_owned(),
            format!("--listen={}", listens.api),
            format!("--pages-listen={}", listens.pages),
            format!("--operator-listen={}", listens.operator),
            format!("--pages-url={pages_url}"),
            format!("--sweep-after-seconds={}", config.sweep_after_seconds),
            format!("--grace-seconds={}", config.grace_seconds),
        ];
        arguments.extend(config.gateway_arguments.iter().cloned());
        arguments.extend(ALLOW_LOOPBACK.map(ToOwned::to_owned));
        let named = [("openai", mock.openai), ("anthropic", mock.anthropic), ("google", mock.google)];
        arguments.extend(named.map(|(name, address)| format!("--provider-host={name}={address}")));
        let stop_timeout = Duration::from_secs(config.grace_seconds) + STOP_TIMEOUT_AFTER_GRACE;
        self.spec(format!("gateway-{index}"), arguments, config.gateway_environment.clone(), stop_timeout)
    }

    /// A projector that serves its metrics at `operator`.
    pub(super) fn projector(&self, index: u16, operator: SocketAddr) -> ProcessSpec {
        let replicas = match self.config.servers {
            Servers::Single => 1,
            Servers::Cluster => NATS_SERVERS,
        };
        let arguments = vec![
            "projector".to_owned(),
            format!("--feed-replicas={replicas}"),
            format!("--operator-listen={operator}"),
        ];
        self.spec(format!("projector-{index}"), arguments, Vec::new(), Duration::from_secs(15))
    }

    /// The mock provider.
    pub(super) fn mock_provider(&self, mock: &MockAddresses) -> ProcessSpec {
        let journal = self.folder.path("mock-journal.ndjson");
        let arguments = vec![
            "mock-provider".to_owned(),
            format!("--listen={}", mock.other),
            format!("--openai-listen={}", mock.openai),
            format!("--anthropic-listen={}", mock.anthropic),
            format!("--google-listen={}", mock.google),
            match self.config.mock_journal {
                MockJournal::Write => format!("--journal={}", journal.display()),
                MockJournal::Off => "--no-journal".to_owned(),
            },
        ];
        self.spec("mock-provider".to_owned(), arguments, Vec::new(), Duration::from_secs(5))
    }

    /// Waits until the role has written its ready file.
    pub(super) async fn wait_until_ready(&self, process: &Process) -> Result<()> {
        let ready = self.ready_file(process.name());
        process.wait_until_ready(READY_TIMEOUT, async || ready.exists().then_some(())).await
    }

    fn ready_file(&self, name: &str) -> PathBuf {
        self.folder.path("run").join(format!("{name}.ready.json"))
    }

    fn spec(
        &self,
        name: String,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        stop_timeout: Duration,
    ) -> ProcessSpec {
        let config = self.config;
        let (program, ready) = (config.program.clone(), self.ready_file(&name));
        let log_format = config.log_format;
        let (database_url, nats_url) = (self.database_url.to_owned(), self.nats_url.to_owned());
        let nats_prefix = config.given.nats_prefix.clone();
        // The ready file of an earlier run would be taken for this one's.
        let _ = std::fs::remove_file(&ready);
        let command = move || {
            let mut command = Command::new(&program);
            command.args(&arguments).arg("--stop-with-stdin").arg("--ready-file").arg(&ready);
            command.env("FARTHING_DATABASE_URL", &database_url).env("FARTHING_NATS_URL", &nats_url);
            command.env("FARTHING_LOG_FORMAT", log_format);
            for name in REMOVED_VARIABLES {
                command.env_remove(name);
            }
            if let Some(prefix) = &nats_prefix {
                command.env("FARTHING_NATS_PREFIX", prefix);
            }
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            Ok(command)
        };
        let log = self.folder.log(&name);
        ProcessSpec {
            name,
            command: Box::new(command),
            is_unhealthy: None,
            log,
            stop_method: StopMethod::CloseStdin,
            stop_timeout,
        }
    }
}
