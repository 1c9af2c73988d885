//! A Postgres server of a test's own, with the settings that `initdb` makes and no others but its address, and the
//! number of connections if a test says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::instance::Instance;
use crate::left_out;
use crate::log::Log;
use crate::server_process::{End, ServerProcess, User, free_port};
use crate::servers;

/// Creates a cluster and becomes its server, in the folder of the server.
const CREATE_AND_RUN: &str = r#"
export LC_ALL=C.UTF-8
"$1/initdb" -D data -U farthing --auth=scram-sha-256 --pwfile=password || exit 1
exec "$1/postgres" -D data -p "$2" -k "" -c listen_addresses=127.0.0.1 $3
"#;

/// Copies a running server and becomes its standby, in the folder of the server.
const COPY_AND_RUN: &str = r#"
"$1/pg_basebackup" -D data -R -X stream --checkpoint=fast -d "$3" || exit 1
exec "$1/postgres" -D data -p "$2" -k "" -c listen_addresses=127.0.0.1
"#;

/// The script that installs a release and prints the folder of its programs.
const INSTALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/stock/install");

/// The password of its login. It listens at the loopback for the time of a test.
const PASSWORD: &str = "a-password-for-the-time-of-a-test";

/// A running server.
pub struct PostgresServer {
    _process: ServerProcess,
    /// The URL of an empty database there, as its owner.
    pub database_url: String,
}

impl PostgresServer {
    /// Starts one. `None` where Postgres's programs are not found: then this says that the test is left out.
    pub async fn start(instance: &Instance) -> Option<Self> {
        Self::start_in(&new_folder(instance)).await
    }

    /// Starts one with its data in this folder, which must be empty.
    pub async fn start_in(folder: &Path) -> Option<Self> {
        Some(Self::start_from(folder, &programs_or_left_out()?, "").await)
    }

    /// Starts one with so many connections.
    pub async fn start_with_connections(instance: &Instance, max_connections: u32) -> Option<Self> {
        let setting = format!("-c max_connections={max_connections}");
        Some(Self::start_from(&new_folder(instance), &programs_or_left_out()?, &setting).await)
    }

    /// Starts one of this release, such as `14`. `None` where it cannot be installed: then this says that the test is left
    /// out.
    pub async fn start_release(instance: &Instance, release: &str) -> Option<Self> {
        let bin = installed_or_left_out(release)?;
        Some(Self::start_from(&new_folder(instance), &bin, "").await)
    }

    async fn start_from(folder: &Path, bin: &Path, settings: &str) -> Self {
        std::fs::write(folder.join("password"), PASSWORD).expect("a file can be written");
        let (process, server) = Self::run(folder, bin, CREATE_AND_RUN, settings).await;
        servers::create_database(&Log::open(&server).await, "farthing").await;
        Self { _process: process, database_url: servers::with_database(&server, "farthing") }
    }

    /// Starts a standby of this server. Its URL is of the same database.
    pub async fn standby(&self, instance: &Instance) -> Option<Self> {
        let bin = programs_or_left_out()?;
        let (process, server) =
            Self::run(&new_folder(instance), &bin, COPY_AND_RUN, &self.database_url).await;
        Some(Self { _process: process, database_url: servers::with_database(&server, "farthing") })
    }

    /// Runs a script that ends as the server, and returns once it answers, with its URL.
    async fn run(folder: &Path, bin: &Path, script: &str, argument: &str) -> (ServerProcess, String) {
        let (port, programs) = (free_port(), bin.display().to_string());
        let shown_port = port.to_string();
        let arguments = ["-c", script, "server", programs.as_str(), shown_port.as_str(), argument];
        let process = ServerProcess::start(folder, User::NotRoot, End::Interrupt, Path::new("sh"), arguments);
        let server = format!("postgres://farthing:{PASSWORD}@127.0.0.1:{port}/postgres");
        process
            .ready("the Postgres server answers", async || {
                tokio_postgres::connect(&server, tokio_postgres::NoTls).await.ok().map(drop)
            })
            .await;
        (process, server)
    }
}

/// A new folder of the instance.
fn new_folder(instance: &Instance) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let folder = instance.file(&format!("postgres-server-{}", MADE.fetch_add(1, Ordering::SeqCst)));
    std::fs::create_dir(&folder).expect("a folder can be made");
    folder
}

/// The folder with Postgres's programs. `None`, with a message, where they are not found.
fn programs_or_left_out() -> Option<PathBuf> {
    let found = programs();
    if found.is_none() {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        left_out(&format!("{test}: there is no initdb"));
    }
    found
}

/// The folder with the programs of a release, which is installed if it is not there. `None`, with a message, where it
/// cannot be.
fn installed_or_left_out(release: &str) -> Option<PathBuf> {
    // One test installs at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = Command::new("sh").args([INSTALL, "postgres", release]).output().expect("sh can be run");
    if ended.status.success() {
        return Some(String::from_utf8_lossy(&ended.stdout).trim().into());
    }
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let said = String::from_utf8_lossy(&ended.stderr);
    let why = said.trim().lines().last().unwrap_or("no reason was given");
    left_out(&format!("{test}: Postgres {release} cannot be installed: {why}"));
    None
}

/// The folder with `initdb` and `postgres`: the newest of Debian's versions, else the first on PATH.
fn programs() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |folder: &Path| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let mut versions: Vec<_> =
        debian.filter_map(|entry| Some((version(&entry.path())?, entry.path().join("bin")))).collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = versions.into_iter().map(|(_, bin)| bin).chain(std::env::split_paths(&path));
    folders.find(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file())
}
