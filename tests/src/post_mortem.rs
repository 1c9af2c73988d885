//! What the instances of a failed test logged, and what their databases were doing. It is printed when the test panics,
//! because the folders are removed with the instances. The instance that many tests share belongs to each of them.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tokio_postgres::NoTls;

/// The last warnings and errors of a log that are printed.
const LINES: usize = 25;

/// How long a database may take to say what it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sessions that are within a transaction or wait for another one.
const SESSIONS: &str = "\
SELECT format('%s %s %s, in a transaction for %s s, in its state for %s s, waits for %s %s, blocked by %s: %s', pid, usename,
    state, round(extract(epoch FROM now() - xact_start), 1), round(extract(epoch FROM now() - state_change), 1),
    wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 120))
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";

thread_local! {
    /// The folders of the instances that this thread started.
    static FOLDERS: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// The folder of the instance that the tests of this process share.
static SHARED: OnceLock<PathBuf> = OnceLock::new();

/// Adds the folder of an instance that the test of this thread starts.
pub(crate) fn watch(folder: &Path) {
    FOLDERS.with_borrow_mut(|folders| folders.push(folder.to_owned()));
}

/// Makes `folder` that of the instance that all tests of this process share.
pub(crate) fn watch_shared(folder: &Path) {
    FOLDERS.with_borrow_mut(|folders| folders.retain(|own| own != folder));
    SHARED.get_or_init(|| folder.to_owned());
}

/// Prints the post-mortem if the test of this thread panics while the value lives.
pub(crate) struct PostMortem;

impl Drop for PostMortem {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let folders = FOLDERS.take().into_iter().chain(SHARED.get().cloned());
        for folder in folders.filter(|folder| folder.exists()) {
            eprintln!("{}", of(&folder));
        }
    }
}

/// The post-mortem of the instance in `folder`.
fn of(folder: &Path) -> String {
    let mut text = String::from("== An instance of the failed test\n");
    let logs = [folder.to_owned(), folder.join("data/logs")];
    let entries = logs.iter().filter_map(|logs| std::fs::read_dir(logs).ok()).flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths.sort();
    for path in paths {
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        let is_notable =
            |line: &&str| ["WARN", "ERROR", "FATAL", "PANIC"].iter().any(|word| line.contains(word));
        let lines: Vec<_> = log.lines().filter(is_notable).collect();
        let _ = writeln!(text, "-- {}: {} warnings and errors", path.display(), lines.len());
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            let _ = writeln!(text, "{line}");
        }
    }
    let sessions =
        crate::runtime().block_on(async { tokio::time::timeout(PATIENCE, sessions(folder)).await });
    let sessions = sessions.unwrap_or_else(|_| Some(vec!["Postgres did not answer".to_owned()]));
    let _ = writeln!(text, "-- Sessions in a transaction:\n{}", sessions.unwrap_or_default().join("\n"));
    text
}

/// `None` without a database that can be reached.
async fn sessions(folder: &Path) -> Option<Vec<String>> {
    let ready = std::fs::read_to_string(folder.join("ready.json")).ok()?;
    let ready: crate::ready::Ready = serde_json::from_str(&ready).ok()?;
    let (client, connection) = tokio_postgres::connect(&ready.database_url, NoTls).await.ok()?;
    let connection = tokio::spawn(connection);
    let rows = client.query(SESSIONS, &[]).await.ok()?;
    drop(client);
    let _ = connection.await;
    rows.iter().map(|row| row.try_get(0).ok()).collect()
}
