//! The private nats-server with JetStream. Its store may be lost at any time: the server is then started anew and
//! the relay publishes the log again.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;

use super::account::bound_to_us;
use super::folder::Folder;
use super::ports::Ports;
use super::process::{Ending, Plan, Process, command_line, send_signal};
use crate::failure::{Failure, IntoFailure as _};

const UP_WITHIN: Duration = Duration::from_mins(1);
const GREETING_WITHIN: Duration = Duration::from_secs(1);

/// A server that is not running yet.
pub(super) struct Server {
    program: PathBuf,
    folder: PathBuf,
    config: PathBuf,
    log: PathBuf,
    address: SocketAddr,
}

impl Server {
    /// Writes its configuration; ends an orphan of an earlier start.
    pub(super) fn open(folder: &Folder, ports: &mut Ports) -> Result<Self, Failure> {
        let program = program()?;
        let (home, log) = (folder.at("nats"), folder.log("nats"));
        std::fs::create_dir_all(&home).or_fail(format_args!("cannot make {}", home.display()))?;
        let (config, pid_file) = (folder.at("nats.conf"), folder.at("run/nats.pid"));
        let shown = config.display().to_string();
        let pid = std::fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid
            && command_line(pid).is_some_and(|line| line.contains(&shown))
        {
            tracing::warn!(pid, "a NATS of an earlier start still runs on this data folder; it is stopped");
            send_signal(pid, "KILL");
        }
        let local = IpAddr::from([127, 0, 0, 1]);
        let address = SocketAddr::new(local, ports.take("nats", local)?);
        let text = format!(
            "listen: \"{address}\"\npid_file: \"{}\"\njetstream {{ store_dir: \"{}\" }}\n",
            pid_file.display(),
            home.display()
        );
        std::fs::write(&config, text).or_fail(format_args!("cannot write {shown}"))?;
        Ok(Self { program, folder: home, config, log, address })
    }

    /// How it is run.
    pub(super) fn plan(&self) -> Plan {
        let (program, config, home) = (self.program.clone(), self.config.clone(), self.folder.clone());
        let store = home.join("jetstream");
        let account = store.join("$G");
        let had_streams = Arc::new(AtomicBool::new(false));
        let knows_streams = Arc::clone(&had_streams);
        let command = move || {
            // Made here too, so that a store that was deleted does not keep the server from starting.
            std::fs::create_dir_all(home.join("jetstream"))
                .or_fail(format_args!("cannot make {}", home.display()))?;
            had_streams.store(false, Ordering::Relaxed);
            let mut command = bound_to_us(&program, "TERM");
            command.arg("-c").arg(&config).current_dir("/");
            Ok(command)
        };
        // A server goes on as if its store were there; only a new start sees that it is gone.
        let ails = move || {
            let present = account.exists();
            let lost_streams = knows_streams.swap(present, Ordering::Relaxed) && !present;
            lost_streams || !store.exists()
        };
        Plan {
            name: "nats".to_owned(),
            command: Box::new(command),
            ails: Some(Box::new(ails)),
            log: self.log.clone(),
            ending: Ending::Signal("TERM"),
            patience: Duration::from_secs(15),
        }
    }

    /// Waits until it greets and has JetStream; answers with its URL.
    pub(super) async fn await_up(&self, process: &Process) -> Result<String, Failure> {
        let address = self.address;
        process.await_up(UP_WITHIN, async || greets(address).await.then_some(())).await?;
        Ok(format!("nats://{address}"))
    }
}

async fn greets(address: SocketAddr) -> bool {
    let greeting = async {
        let stream = TcpStream::connect(address).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        Ok::<_, std::io::Error>(line)
    };
    match tokio::time::timeout(GREETING_WITHIN, greeting).await {
        Ok(Ok(line)) => line.starts_with("INFO ") && line.contains("\"jetstream\":true"),
        Ok(Err(_)) | Err(_) => false,
    }
}

fn program() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    let mut candidates = std::env::split_paths(&path).chain(usual).map(|bin| bin.join("nats-server"));
    candidates.find(|program| program.is_file()).ok_or_else(|| {
        Failure::new(
            "nats-server 2.9 or newer is needed and was not found: install it (Debian and Ubuntu: `apt-get install \
             nats-server`; macOS: `brew install nats-server`) or put it on PATH",
        )
    })
}
