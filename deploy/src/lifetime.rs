//! How long a role runs: until SIGINT, SIGTERM or, when a parent asked for it, until the parent has closed our
//! stdin (so that nothing lingers after a parent that was killed).

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, IntoFailure as _};
use crate::private_file;

/// Flags of every role that runs until it is stopped.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Lifetime {
    /// Write a JSON file once the role is up.
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Stop when stdin reaches its end: for a parent process that holds the other end.
    #[arg(long, hide = true)]
    pub(crate) stop_with_stdin: bool,
}

/// What the ready file of a single role says.
#[derive(Debug, Serialize)]
struct Up {
    pid: u32,
    listen: Vec<SocketAddr>,
}

impl Lifetime {
    /// A token that is cancelled when it is time to stop.
    pub(crate) fn begin(&self) -> Result<CancellationToken, Failure> {
        let stop = on_signal()?;
        if self.stop_with_stdin {
            let stop = stop.clone();
            // A thread of its own, since a read of stdin cannot be cancelled; it ends with the process.
            std::thread::Builder::new()
                .name("stdin".to_owned())
                .spawn(move || {
                    let mut buffer = [0; 64];
                    let mut stdin = std::io::stdin().lock();
                    while matches!(stdin.read(&mut buffer), Ok(1..)) {}
                    stop.cancel();
                })
                .or_fail("cannot watch stdin")?;
        }
        Ok(stop)
    }

    /// Says that the role is up, at these addresses.
    pub(crate) fn up(&self, listen: Vec<SocketAddr>) {
        tracing::info!(?listen, "up");
        if let Some(path) = &self.ready_file {
            let up = Up { pid: std::process::id(), listen };
            if let Err(error) = write_json(path, &up) {
                tracing::error!(%error, "the ready file cannot be written");
            }
        }
    }
}

/// Writes `value` as JSON that only its owner may read.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(value).or_fail("cannot write JSON")?;
    text.push(b'\n');
    private_file::replace(path, &text).or_fail(format_args!("cannot write {}", path.display()))
}

/// A token that SIGINT and SIGTERM cancel.
pub(crate) fn on_signal() -> Result<CancellationToken, Failure> {
    let stop = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt()).or_fail("cannot watch for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).or_fail("cannot watch for SIGTERM")?;
    let token = stop.clone();
    // Ends with the runtime: the process wants its signals watched for as long as it lives.
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        token.cancel();
    });
    Ok(stop)
}
