//! A Postgres server of a test's own, with the settings that `initdb` makes and no others but its address.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::instance::Instance;
use crate::left_out;
use crate::log::Log;
use crate::pgbouncer::free_port;
use crate::servers;
use crate::wait::within;

/// Creates a cluster and runs its server until stdin closes. Postgres refuses root.
const KEEPER: &str = r#"
as_postgres=""
if [ "$(id -u)" = 0 ]; then
    chown -R postgres "$FOLDER"
    as_postgres="setpriv --reuid postgres --regid postgres --clear-groups --"
fi
cd "$FOLDER" || exit 1
$as_postgres "$BIN/initdb" -D "$FOLDER/data" -U farthing --auth=scram-sha-256 --pwfile="$FOLDER/password" || exit 1
$as_postgres "$BIN/postgres" -D "$FOLDER/data" -p "$PORT" -k "" -c listen_addresses=127.0.0.1 </dev/null &
server=$!
read -r _
kill -INT "$server"
wait "$server"
"#;

/// The password of its login. It listens at the loopback for the time of a test.
const PASSWORD: &str = "a-password-for-the-time-of-a-test";

/// A running server.
pub struct PostgresServer {
    keeper: Child,
    /// The URL of an empty database there, as its owner.
    pub database_url: String,
}

impl PostgresServer {
    /// Starts one. `None` where Postgres's programs are not found: then this says that the test is left out.
    pub async fn start(instance: &Instance) -> Option<Self> {
        let Some(bin) = programs() else {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            left_out(&format!("{test}: there is no initdb"));
            return None;
        };
        let folder = instance.file("postgres-server");
        std::fs::create_dir(&folder).expect("a folder can be made");
        std::fs::write(folder.join("password"), PASSWORD).expect("a file can be written");
        let log = std::fs::File::create(folder.join("log")).expect("a log can be made");
        let port = free_port();
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .env("FOLDER", &folder)
            .env("BIN", &bin)
            .env("PORT", port.to_string())
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("sh can be run");
        let server = format!("postgres://farthing:{PASSWORD}@127.0.0.1:{port}/postgres");
        within(Duration::from_mins(2), "the Postgres server answers", async || {
            let ended = keeper.try_wait().expect("a child can be waited for");
            let logged = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(ended.is_none(), "it ended: {}", logged());
            tokio_postgres::connect(&server, tokio_postgres::NoTls).await.ok().map(drop)
        })
        .await;
        servers::create_database(&Log::open(&server).await, "farthing").await;
        Some(Self { keeper, database_url: servers::with_database(&server, "farthing") })
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
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
