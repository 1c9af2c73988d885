//! The private Postgres cluster: as durable as a production one (fsync stays on), on 127.0.0.1 with a password.

use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use farthing_log::connect::{Role, connect};

use super::account::Account;
use super::data_folder::DataFolder;
use super::ports::Ports;
use super::process::{Process, ProcessSpec, StopMethod, command_line, last_lines, send_signal};
use crate::private_file;

/// The name of the login and of the database.
const NAME: &str = "farthing";

/// How long a start may take, crash recovery included.
const READY_TIMEOUT: Duration = Duration::from_mins(3);

/// How long a server of an earlier run may take to stop.
const ORPHAN_STOP_TIMEOUT: Duration = Duration::from_mins(1);

/// The longest path of a Unix socket that every system accepts.
const MAX_SOCKET_PATH: usize = 100;

/// Settings that differ from Postgres's defaults.
const SETTINGS: [&str; 11] = [
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "shared_buffers=256MB",
    "effective_cache_size=1GB",
    "wal_buffers=16MB",
    "wal_compression=off",
    "max_wal_size=4GB",
    "checkpoint_timeout=15min",
    "random_page_cost=1.1",
    "jit=off",
    "log_line_prefix=%m [%p] ",
];

/// Settings of the nodes of a Citus cluster. A statement uses one connection to each node, and a transaction that a node
/// has prepared but not committed when it dies is completed within seconds.
const CITUS_SETTINGS: [&str; 7] = [
    "shared_preload_libraries=citus",
    "max_connections=300",
    "shared_buffers=128MB",
    "citus.node_conninfo=sslmode=disable",
    "citus.max_adaptive_executor_pool_size=1",
    "citus.recover_2pc_interval=2s",
    "citus.enable_statistics_collection=off",
];

const EXISTS: &str = "SELECT 1 FROM pg_database WHERE datname = 'farthing'";
const CREATE: &str = "CREATE DATABASE farthing";

/// The oldest supported version.
const OLDEST: u32 = 15;

/// Whether a server is a node of a Citus cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Plain Postgres.
    Plain,
    /// A node of a Citus cluster.
    Citus,
}

/// A cluster that exists and does not run yet.
pub(super) struct Cluster {
    name: String,
    kind: Kind,
    bin: PathBuf,
    data: PathBuf,
    log: PathBuf,
    passwords: PathBuf,
    account: Account,
    port: u16,
    password: String,
}

impl Cluster {
    /// Finds the cluster called `name` in `folder`, or creates it; stops a server of an earlier run that still uses it.
    pub(super) async fn open(
        folder: &DataFolder,
        account: &Account,
        ports: &mut Ports,
        name: &str,
        kind: Kind,
    ) -> Result<Self> {
        let bin = programs()?;
        let (data, log) = (folder.path(name), folder.log(name));
        let password = private_file::password(&folder.path("postgres-password"))?;
        if !data.join("PG_VERSION").exists() {
            create(&bin, folder, account, &password, &data).await?;
        }
        stop_orphan(&data).await?;
        // The nodes of a Citus cluster connect to each other, under the roles of their sessions.
        let passwords = folder.path("run/pgpass");
        private_file::write(&passwords, format!("*:*:*:*:{password}\n").as_bytes())?;
        account.own(&passwords)?;
        let port = ports.take(name, IpAddr::from([127, 0, 0, 1]))?;
        Ok(Self {
            name: name.to_owned(),
            kind,
            bin,
            data,
            log,
            passwords,
            account: account.clone(),
            port,
            password,
        })
    }

    /// Its port on 127.0.0.1.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// The password of its roles with a login.
    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// How to run the server.
    pub(super) fn spec(&self) -> ProcessSpec {
        let socket = self.data.join(format!(".s.PGSQL.{}", self.port));
        let sockets =
            if socket.as_os_str().len() < MAX_SOCKET_PATH { self.data.as_os_str() } else { "".as_ref() };
        let mut sockets_setting = std::ffi::OsString::from("unix_socket_directories=");
        sockets_setting.push(sockets);
        let (program, data, account, port) =
            (self.bin.join("postgres"), self.data.clone(), self.account.clone(), self.port);
        let (kind, passwords) = (self.kind, self.passwords.clone());
        let command = move || {
            let mut command = account.child_command(&program, "INT");
            // It finds no credentials of the user who starts it.
            command.env("HOME", &data).env("PGPASSFILE", &passwords);
            command.arg("-D").arg(&data).arg("-c").arg(&sockets_setting).arg("-p").arg(port.to_string());
            let citus = if kind == Kind::Citus { CITUS_SETTINGS.as_slice() } else { &[] };
            for setting in SETTINGS.iter().chain(citus) {
                command.args(["-c", setting]);
            }
            command.current_dir("/");
            Ok(command)
        };
        ProcessSpec {
            name: self.name.clone(),
            command: Box::new(command),
            is_unhealthy: None,
            log: self.log.clone(),
            stop_method: StopMethod::Signal("INT"),
            stop_timeout: Duration::from_mins(1),
        }
    }

    /// Waits until the server accepts connections and creates the database if needed; returns the database's URL.
    pub(super) async fn wait_until_ready(&self, process: &Process) -> Result<String> {
        let url = |database: &str| {
            format!("postgres://{NAME}:{}@127.0.0.1:{}/{database}", self.password, self.port)
        };
        let maintenance = url("postgres");
        let client = process
            .wait_until_ready(READY_TIMEOUT, async || connect(&maintenance, Role::Owner).await.ok())
            .await?;
        if client.query_opt(EXISTS, &[]).await.context("cannot look for the database")?.is_none() {
            client.batch_execute(CREATE).await.context("cannot create the database")?;
        }
        Ok(url(NAME))
    }

    /// The database's URL for processes on this machine: through the Unix socket if it can be reached, which is faster
    /// than TCP.
    pub(super) fn local_url(&self, database_url: &str) -> String {
        let socket = self.data.join(format!(".s.PGSQL.{}", self.port));
        let folder = self.data.to_str().filter(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let Some(folder) = folder else { return database_url.to_owned() };
        let encoded: Vec<String> = folder.bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("postgres://{NAME}:{}@{}:{}/{NAME}", self.password, encoded.concat(), self.port)
    }
}

/// The folder with `initdb` and `postgres`: the newest of Debian's versions, else the first on PATH.
fn programs() -> Result<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = debian
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let debian = versions.into_iter().filter(|(version, _)| *version >= OLDEST).map(|(_, bin)| bin);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = debian.chain(std::env::split_paths(&path));
    let found = candidates.find(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file());
    found.with_context(|| {
        format!(
            "Postgres {OLDEST} or newer is required, and its `initdb` and `postgres` were not found: install it \
             (Debian and Ubuntu: `apt-get install postgresql`; macOS: `brew install postgresql@17`) or put the folder \
             of its programs on PATH"
        )
    })
}

/// Creates a cluster in a sibling folder, then renames it: `data` never holds half a cluster.
async fn create(
    bin: &Path,
    folder: &DataFolder,
    account: &Account,
    password: &str,
    data: &Path,
) -> Result<()> {
    let unfinished = data.with_extension("new");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)
            .with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&unfinished)
        .with_context(|| format!("cannot create {}", unfinished.display()))?;
    account.own(&unfinished)?;
    // The file belongs to the account of initdb, which must read it.
    let password_file = folder.path("run/initdb-password");
    private_file::write(&password_file, password.as_bytes())?;
    account.own(&password_file)?;
    let log = folder.log("initdb");
    let cannot_write = || format!("cannot write {}", log.display());
    let _ = std::fs::remove_file(&log);
    let output = private_file::append(&log).with_context(cannot_write)?;
    let errors = output.try_clone().with_context(cannot_write)?;
    let mut command = account.child_command(bin.join("initdb"), "TERM");
    command
        .args(["--username", NAME, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"])
        .arg("--data-checksums")
        .arg("--pwfile")
        .arg(&password_file)
        .arg("-D")
        .arg(&unfinished)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    let mut initdb = tokio::process::Command::from(command);
    let status = initdb.kill_on_drop(true).status().await.context("cannot start initdb")?;
    ensure!(
        status.success(),
        "initdb failed ({status}). The end of its log, {}:\n{}",
        log.display(),
        last_lines(&log)
    );
    std::fs::remove_file(&password_file)
        .with_context(|| format!("cannot remove {}", password_file.display()))?;
    std::fs::rename(&unfinished, data).context("cannot rename the new cluster")
}

/// Stops a server of this cluster that outlived the launcher that started it.
async fn stop_orphan(data: &Path) -> Result<()> {
    let Some(pid) = orphan(data) else { return Ok(()) };
    tracing::warn!(
        event = "dev.orphan_stopped",
        process = "postgres",
        pid,
        "a process of an earlier run is stopped"
    );
    send_signal(pid, "INT");
    let deadline = Instant::now() + ORPHAN_STOP_TIMEOUT;
    while orphan(data).is_some() {
        if Instant::now() >= deadline {
            bail!("the Postgres of an earlier run, process {pid}, does not stop");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn orphan(data: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid = text.lines().next()?.trim().parse().ok()?;
    command_line(pid)?.contains(data.to_str()?).then_some(pid)
}
