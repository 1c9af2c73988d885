//! How long a role runs and how it reports that it is ready. It stops on SIGINT, on SIGTERM or, with
//! `--stop-with-stdin`, when its parent process closes stdin: the role then also ends when the parent is killed.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::log_format::LogFormat;

/// Flags of every role that runs until it is stopped.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Lifetime {
    /// Write a JSON file once the role is ready.
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Format of the log on stderr.
    #[arg(long, env = "FARTHING_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Stop at the end of stdin, for a parent process that holds the other end.
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

/// The content of a role's ready file.
#[derive(Debug, Serialize)]
struct ReadyFile {
    pid: u32,
    listen: Vec<SocketAddr>,
    /// Where the metrics are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<SocketAddr>,
}

impl Lifetime {
    /// Starts to watch for shutdown. The token is cancelled when the role must stop.
    pub(crate) fn watch_shutdown(&self) -> Result<CancellationToken> {
        let stop = watch_signals()?;
        if self.stop_with_stdin {
            let stop = stop.clone();
            // A thread, since a read of stdin cannot be cancelled. It ends with the process.
            std::thread::Builder::new()
                .name("stdin".to_owned())
                .spawn(move || {
                    let mut buffer = [0; 64];
                    let mut stdin = io::stdin().lock();
                    while matches!(stdin.read(&mut buffer), Ok(1..)) {}
                    stop.cancel();
                })
                .context("cannot watch stdin")?;
        }
        Ok(stop)
    }

    /// Logs that the role is ready and listens on these addresses; writes the ready file, with the operator's address.
    pub(crate) fn report_ready(&self, listen: Vec<SocketAddr>, operator: Option<SocketAddr>) {
        tracing::info!(event = "role.ready", ?listen, "ready");
        if let Some(path) = &self.ready_file {
            let content = ReadyFile { pid: std::process::id(), listen, operator };
            if let Err(error) = write_ready_file(path, &content) {
                tracing::error!(event = "role.ready_file_failed", path = %path.display(), %error, "cannot write the ready file");
            }
        }
    }
}

/// Writes the file in one step, through a sibling file and a rename: readers never see half of it.
fn write_ready_file(path: &Path, content: &ReadyFile) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let sibling = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&sibling)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&sibling, path)
}

fn watch_signals() -> Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let token = stop.clone();
    // Ends with the runtime: signals are watched for the whole life of the process.
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        token.cancel();
    });
    Ok(stop)
}
