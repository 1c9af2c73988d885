//! The private nats-server with JetStream, or a cluster of them, with a login. A store may be deleted at any time: the server
//! is then restarted and the relay publishes the log again.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;

use super::account::child_command;
use super::data_folder::DataFolder;
use super::ports::Ports;
use super::process::{Process, ProcessSpec, StopMethod, command_line, send_signal};
use crate::private_file;

const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// The name of the login.
const USER: &str = "farthing";

const GREETING_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// One server.
    Single,
    /// A cluster of so many servers.
    Cluster(u8),
}

/// A configured server.
pub(super) struct Server {
    name: String,
    program: PathBuf,
    folder: PathBuf,
    config: PathBuf,
    log: PathBuf,
    address: SocketAddr,
    password: String,
}

impl Server {
    /// Writes the configuration of a single server, or of each server of a cluster; kills servers of an earlier run that
    /// are still running.
    pub(super) fn open_all(folder: &DataFolder, ports: &mut Ports, layout: Layout) -> Result<Vec<Self>> {
        let local = IpAddr::from([127, 0, 0, 1]);
        let Layout::Cluster(count) = layout else {
            return Ok(vec![Self::open(folder, ports, "nats", "")?]);
        };
        let names: Vec<_> = (0..count).map(|number| format!("nats-{number}")).collect();
        let mut addresses = Vec::new();
        for name in &names {
            addresses.push(SocketAddr::new(local, ports.take(&format!("{name}-cluster"), local)?));
        }
        let password = password(folder)?;
        let route = |address| format!("\"nats-route://{USER}:{password}@{address}\"");
        let routes: Vec<_> = addresses.iter().map(route).collect();
        let routes = routes.join(", ");
        let login = login(&password);
        let open = |(name, address): (&String, &SocketAddr)| {
            let cluster = format!(
                "server_name: {name}\ncluster {{ name: farthing, listen: \"{address}\", {login}, routes: [{routes}] }}\n"
            );
            Self::open(folder, ports, name, &cluster)
        };
        names.iter().zip(&addresses).map(open).collect()
    }

    fn open(folder: &DataFolder, ports: &mut Ports, name: &str, cluster: &str) -> Result<Self> {
        let program = program()?;
        let (home, log) = (folder.create_private(name)?, folder.log(name));
        let (config, pid_file) =
            (folder.path(&format!("{name}.conf")), folder.path(&format!("run/{name}.pid")));
        let shown = config.display().to_string();
        let pid = std::fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid
            && command_line(pid).is_some_and(|line| line.contains(&shown))
        {
            tracing::warn!(
                event = "dev.orphan_stopped",
                process = name,
                pid,
                "a process of an earlier run is stopped"
            );
            send_signal(pid, "KILL");
        }
        let local = IpAddr::from([127, 0, 0, 1]);
        let address = SocketAddr::new(local, ports.take(name, local)?);
        let password = password(folder)?;
        let text = format!(
            "listen: \"{address}\"\n{}\npid_file: \"{}\"\njetstream {{ store_dir: \"{}\" }}\n{cluster}",
            login(&password),
            pid_file.display(),
            home.display()
        );
        private_file::write(&config, text.as_bytes())?;
        Ok(Self { name: name.to_owned(), program, folder: home, config, log, address, password })
    }

    /// How to run the server.
    pub(super) fn spec(&self) -> ProcessSpec {
        let (program, config, home) = (self.program.clone(), self.config.clone(), self.folder.clone());
        let store = home.join("jetstream");
        let account = store.join("$G");
        let had_streams = Arc::new(AtomicBool::new(false));
        let knows_streams = Arc::clone(&had_streams);
        let command = move || {
            // Created before every start: without its folder, which may have been deleted, the server does not start.
            std::fs::create_dir_all(home.join("jetstream"))
                .with_context(|| format!("cannot create {}", home.display()))?;
            had_streams.store(false, Ordering::Relaxed);
            let mut command = child_command(&program, "TERM");
            command.arg("-c").arg(&config).current_dir("/");
            Ok(command)
        };
        // A running server does not notice that its store is gone. A restarted one does.
        let is_unhealthy = move || {
            let present = account.exists();
            let lost_streams = knows_streams.swap(present, Ordering::Relaxed) && !present;
            lost_streams || !store.exists()
        };
        ProcessSpec {
            name: self.name.clone(),
            command: Box::new(command),
            is_unhealthy: Some(Box::new(is_unhealthy)),
            log: self.log.clone(),
            stop_method: StopMethod::Signal("TERM"),
            stop_timeout: Duration::from_secs(15),
        }
    }

    /// Waits until the server accepts connections and has JetStream; returns its URL.
    pub(super) async fn wait_until_ready(&self, process: &Process) -> Result<String> {
        let address = self.address;
        process.wait_until_ready(READY_TIMEOUT, async || greets(address).await.then_some(())).await?;
        Ok(format!("nats://{USER}:{}@{address}", self.password))
    }
}

/// The password of all servers.
fn password(folder: &DataFolder) -> Result<String> {
    private_file::password(&folder.path("nats-password"))
}

/// The login in a configuration.
fn login(password: &str) -> String {
    format!("authorization {{ user: \"{USER}\", password: \"{password}\" }}")
}

async fn greets(address: SocketAddr) -> bool {
    let greeting = async {
        let stream = TcpStream::connect(address).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        Ok::<_, std::io::Error>(line)
    };
    match tokio::time::timeout(GREETING_TIMEOUT, greeting).await {
        Ok(Ok(line)) => line.starts_with("INFO ") && line.contains("\"jetstream\":true"),
        Ok(Err(_)) | Err(_) => false,
    }
}

fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    let mut candidates = std::env::split_paths(&path).chain(usual).map(|bin| bin.join("nats-server"));
    candidates.find(|program| program.is_file()).context(
        "nats-server 2.9 or newer is required and was not found: install it (Debian and Ubuntu: `apt-get install \
         nats-server`; macOS: `brew install nats-server`) or put it on PATH",
    )
}
