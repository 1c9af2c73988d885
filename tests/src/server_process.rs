//! A server process of a test's own. It runs until its value is dropped or the test process ends.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::wait::eventually_ok;

/// Runs the server until stdin closes: the test has ended, or its process.
const KEEPER: &str = r#"
signal=$1
shift
if [ "$USER_OF_SERVER" = postgres ] && [ "$(id -u)" = 0 ]; then
    chown -R postgres "$FOLDER"
    set -- setpriv --reuid postgres --regid postgres --clear-groups -- "$@"
fi
cd "$FOLDER" || exit 1
"$@" </dev/null &
server=$!
read -r _
kill -s "$signal" "$server"
wait "$server"
"#;

/// The signal that ends a server.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// `TERM`: it finishes what it has begun.
    Terminate,
    /// `INT`: Postgres disconnects its sessions.
    Interrupt,
    /// `KILL`, as in a power cut.
    Kill,
}

/// The user of a server's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// That of the test.
    OfTheTest,
    /// `postgres` if the test runs as root, for servers that refuse root.
    NotRoot,
}

/// A running server, and the file that it logs to.
pub struct ServerProcess {
    keeper: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts `program` with `arguments` in `folder`, where its output is added to the file `log`.
    pub fn start<S: AsRef<OsStr>>(
        folder: &Path,
        user: User,
        end: End,
        program: &Path,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let log = folder.join("log");
        let output = OpenOptions::new().create(true).append(true).open(&log).expect("a log can be made");
        let path = std::env::var("PATH").unwrap_or_default();
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", signal(end)])
            .arg(program)
            .args(arguments)
            .env("PATH", format!("{path}:/usr/sbin:/usr/local/bin"))
            .env("FOLDER", folder)
            .env("USER_OF_SERVER", if user == User::NotRoot { "postgres" } else { "" })
            .stdin(Stdio::piped())
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output)
            .spawn()
            .expect("sh can be run");
        Self { keeper, log }
    }

    /// What it has logged.
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `look` finds that the server is ready; panics with `what` and the server's log after the deadline.
    pub async fn ready<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        eventually_ok(what, async || look().await.ok_or_else(|| self.logged())).await
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn signal(end: End) -> &'static str {
    match end {
        End::Terminate => "TERM",
        End::Interrupt => "INT",
        End::Kill => "KILL",
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("a listener has an address").port()
}
