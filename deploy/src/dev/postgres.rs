//! The private Postgres cluster: durable as a real one (fsync stays on), reachable on 127.0.0.1 with a password.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use farthing_log::connect::{Role, connect};

use super::account::Account;
use super::folder::Folder;
use super::ports::Ports;
use super::process::{Ending, Plan, Process, last_lines, send_signal};
use crate::failure::{Failure, IntoFailure as _};
use crate::private_file;

/// The login and the database, both.
const NAME: &str = "farthing";

/// How long crash recovery may take.
const UP_WITHIN: Duration = Duration::from_mins(3);

/// How long an orphan of an earlier start may take to end.
const ORPHAN_ENDS_WITHIN: Duration = Duration::from_mins(1);

/// The longest path of a Unix socket that every system takes.
const MAX_SOCKET_PATH: usize = 100;

/// What is not Postgres's default.
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

const EXISTS: &str = "SELECT 1 FROM pg_database WHERE datname = 'farthing'";
const CREATE: &str = "CREATE DATABASE farthing";

/// The first version that is supported.
const OLDEST: u32 = 15;

/// A cluster that has been made and is not running.
pub(super) struct Cluster {
    bin: PathBuf,
    data: PathBuf,
    log: PathBuf,
    account: Account,
    port: u16,
    password: String,
}

impl Cluster {
    /// Finds the cluster in `folder`, made if it is not there; ends an orphan that still runs on it.
    pub(super) async fn open(folder: &Folder, account: Account, ports: &mut Ports) -> Result<Self, Failure> {
        let bin = programs()?;
        let (data, log) = (folder.at("postgres"), folder.log("postgres"));
        let password_file = folder.at("postgres-password");
        if !data.join("PG_VERSION").exists() {
            create(&bin, folder, &account, &password_file, &data).await?;
        }
        end_orphan(&data).await?;
        let password = std::fs::read_to_string(&password_file)
            .or_fail(format_args!("cannot read {}", password_file.display()))?
            .trim()
            .to_owned();
        let port = ports.take("postgres", IpAddr::from([127, 0, 0, 1]))?;
        Ok(Self { bin, data, log, account, port, password })
    }

    /// How it is run.
    pub(super) fn plan(&self) -> Plan {
        let socket = self.data.join(format!(".s.PGSQL.{}", self.port));
        let sockets =
            if socket.as_os_str().len() < MAX_SOCKET_PATH { self.data.as_os_str() } else { "".as_ref() };
        let mut sockets_setting = std::ffi::OsString::from("unix_socket_directories=");
        sockets_setting.push(sockets);
        let (program, data, account, port) =
            (self.bin.join("postgres"), self.data.clone(), self.account.clone(), self.port);
        let command = move || {
            let mut command = account.bound_command(&program, "INT");
            command.arg("-D").arg(&data).arg("-c").arg(&sockets_setting).arg("-p").arg(port.to_string());
            for setting in SETTINGS {
                command.args(["-c", setting]);
            }
            command.current_dir("/");
            Ok(command)
        };
        Plan {
            name: "postgres".to_owned(),
            command: Box::new(command),
            ails: None,
            log: self.log.clone(),
            ending: Ending::Signal("INT"),
            patience: Duration::from_mins(1),
        }
    }

    /// Waits until it answers, and makes the database; answers with its URL.
    pub(super) async fn await_up(&self, process: &Process) -> Result<String, Failure> {
        let url = |database: &str| {
            format!("postgres://{NAME}:{}@127.0.0.1:{}/{database}", self.password, self.port)
        };
        let maintenance = url("postgres");
        let client =
            process.await_up(UP_WITHIN, async || connect(&maintenance, Role::Owner).await.ok()).await?;
        if client.query_opt(EXISTS, &[]).await.or_fail("cannot look for the database")?.is_none() {
            client.batch_execute(CREATE).await.or_fail("cannot make the database")?;
        }
        Ok(url(NAME))
    }

    /// The database's URL for this machine's own processes: by the Unix socket where there is one and it can be
    /// reached, which saves a network stack on every round trip.
    pub(super) fn local_url(&self, database_url: &str) -> String {
        let socket = self.data.join(format!(".s.PGSQL.{}", self.port));
        let folder = self.data.to_str().filter(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let Some(folder) = folder else { return database_url.to_owned() };
        let encoded: Vec<String> = folder.bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("postgres://{NAME}:{}@{}:{}/{NAME}", self.password, encoded.concat(), self.port)
    }
}

/// The folder of Postgres's server programs, the newest version first.
fn programs() -> Result<PathBuf, Failure> {
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
    found.ok_or_else(|| {
        Failure::new(format!(
            "Postgres {OLDEST} or newer is needed, and its `initdb` and `postgres` were not found: install it (Debian and \
             Ubuntu: `apt-get install postgresql`; macOS: `brew install postgresql@17`) or put its folder of programs \
             on PATH"
        ))
    })
}

/// Makes a cluster beside its place and moves it there when it is whole.
async fn create(
    bin: &Path,
    folder: &Folder,
    account: &Account,
    password_file: &Path,
    data: &Path,
) -> Result<(), Failure> {
    let unfinished = folder.at("postgres.new");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)
            .or_fail(format_args!("cannot remove {}", unfinished.display()))?;
    }
    std::fs::DirBuilder::new()
        .create(&unfinished)
        .or_fail(format_args!("cannot make {}", unfinished.display()))?;
    account.own(&unfinished)?;
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(format!("no randomness: {error}")))?;
    let password = farthing_core::secret::hex(&bytes);
    // For a moment the file belongs to the account that initdb runs under, which has to read it.
    private_file::replace(password_file, password.as_bytes())
        .or_fail(format_args!("cannot write {}", password_file.display()))?;
    account.own(password_file)?;
    let log = folder.log("initdb");
    let output = std::fs::File::create(&log).or_fail(format_args!("cannot write {}", log.display()))?;
    let errors = output.try_clone().or_fail(format_args!("cannot write {}", log.display()))?;
    let mut command = account.bound_command(bin.join("initdb"), "TERM");
    command
        .args(["--username", NAME, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"])
        .arg("--data-checksums")
        .arg("--pwfile")
        .arg(password_file)
        .arg("-D")
        .arg(&unfinished)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    let mut initdb = tokio::process::Command::from(command);
    let status = initdb.kill_on_drop(true).status().await.or_fail("cannot start initdb")?;
    if !status.success() {
        return Err(Failure::new(format!(
            "initdb failed; its log, {}:\n{}",
            log.display(),
            last_lines(&log)
        )));
    }
    // Back to this process's own account: the rename makes a fresh file.
    private_file::replace(password_file, password.as_bytes())
        .or_fail(format_args!("cannot write {}", password_file.display()))?;
    std::fs::rename(&unfinished, data).or_fail("cannot move the new cluster to its place")
}

/// Ends a server of this cluster that outlived an earlier `farthing dev`.
async fn end_orphan(data: &Path) -> Result<(), Failure> {
    let Some(pid) = orphan(data) else { return Ok(()) };
    tracing::warn!(pid, "a Postgres of an earlier start still runs on this data folder; it is stopped");
    send_signal(pid, "INT");
    let until = Instant::now() + ORPHAN_ENDS_WITHIN;
    while orphan(data).is_some() {
        if Instant::now() >= until {
            return Err(Failure::new(format!(
                "the Postgres of an earlier start, process {pid}, does not end"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn orphan(data: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid = text.lines().next()?.trim().parse().ok()?;
    super::process::command_line(pid)?.contains(data.to_str()?).then_some(pid)
}
