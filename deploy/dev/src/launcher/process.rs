//! One supervised child process. It is restarted, with growing pauses, whenever it exits on its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::private_file;

/// The first and the longest pause before a restart.
const RESTART_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// After a run of this length, the pauses start from the first again.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The number of starts after which the launcher gives up on a process that never became ready.
const MAX_STARTS: u32 = 8;

const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(250);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The number of log lines in an error.
const LOG_LINES: usize = 12;

/// How a process is asked to stop.
#[derive(Debug, Clone, Copy)]
pub(super) enum StopMethod {
    /// Close its stdin.
    CloseStdin,
    /// Send it a signal, such as `INT`.
    Signal(&'static str),
}

/// How to run a process.
pub(super) struct ProcessSpec {
    /// Its name in messages.
    pub(super) name: String,
    /// Prepares what the process needs and builds its command. Called before each start.
    pub(super) command: Box<dyn Fn() -> Result<Command> + Send + Sync>,
    /// Whether a running process must be killed and restarted.
    pub(super) is_unhealthy: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// The file that its output is appended to.
    pub(super) log: PathBuf,
    /// How it is asked to stop.
    pub(super) stop_method: StopMethod,
    /// How long it may take to stop before it is killed.
    pub(super) stop_timeout: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct Status {
    pid: Option<u32>,
    starts: u32,
}

/// A supervised process.
pub(super) struct Process {
    name: String,
    log: PathBuf,
    status: watch::Receiver<Status>,
    stop: CancellationToken,
    supervisor: JoinHandle<()>,
}

impl Process {
    /// Starts and supervises a process. `starts` is notified of every start.
    pub(super) fn start(spec: ProcessSpec, starts: watch::Sender<()>) -> Self {
        let (sender, status) = watch::channel(Status::default());
        let stop = CancellationToken::new();
        let (name, log) = (spec.name.clone(), spec.log.clone());
        let supervisor = tokio::spawn(supervise(spec, sender, starts, stop.clone()));
        Self { name, log, status, stop, supervisor }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its current process id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.status.borrow().pid
    }

    /// Stops the process and waits for its exit.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.supervisor.await {
            tracing::error!(event = "dev.supervisor_failed", process = self.name, %error, "the supervisor of a process failed");
        }
    }

    /// Polls `is_ready` until it returns a value. Fails at the timeout, or when the process keeps exiting.
    pub(super) async fn wait_until_ready<T>(
        &self,
        timeout: Duration,
        mut is_ready: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(found) = is_ready().await {
                return Ok(found);
            }
            if self.status.borrow().starts >= MAX_STARTS {
                return Err(self.failure("exits right after every start"));
            }
            if Instant::now() >= deadline {
                return Err(self.failure(&format!("was not ready within {} s", timeout.as_secs())));
            }
            tokio::time::sleep(READY_POLL_INTERVAL).await;
        }
    }

    fn failure(&self, problem: &str) -> anyhow::Error {
        let log = self.log.display();
        anyhow!("{} {problem}. The end of its log, {log}:\n{}", self.name, last_lines(&self.log))
    }
}

/// The last lines of a log, indented.
pub(super) fn last_lines(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let shown = lines.iter().skip(lines.len().saturating_sub(LOG_LINES));
    shown.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Sends a signal, such as `TERM`, to a process.
pub(super) fn send_signal(pid: u32, signal: &str) {
    // The shell's built-in `kill`: not every machine has the program.
    let mut command = Command::new("sh");
    command.args(["-c", "kill -s \"$1\" \"$2\" 2>/dev/null", "sh", signal, &pid.to_string()]);
    if let Err(error) = command.stdin(Stdio::null()).status() {
        tracing::error!(event = "dev.signal_failed", pid, signal, %error, "cannot send a signal");
    }
}

async fn supervise(
    spec: ProcessSpec,
    status: watch::Sender<Status>,
    starts: watch::Sender<()>,
    stop: CancellationToken,
) {
    let (first_pause, longest_pause) = RESTART_BACKOFF;
    let mut pause = first_pause;
    while !stop.is_cancelled() {
        let started = Instant::now();
        match spawn(&spec) {
            Ok(mut child) => {
                status.send_modify(|status| {
                    *status = Status { pid: child.id(), starts: status.starts + 1 };
                });
                starts.send_replace(());
                match watch_child(&spec, &mut child, &stop).await {
                    ChildEnd::Exited => {}
                    ChildEnd::Stopped => return,
                }
            }
            Err(error) => {
                status.send_modify(|status| status.starts += 1);
                let error = format!("{error:#}");
                tracing::error!(
                    event = "dev.process_start_failed",
                    process = spec.name,
                    error,
                    "cannot start a process"
                );
            }
        }
        if started.elapsed() > STABLE_AFTER {
            pause = first_pause;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = longest_pause.min(pause * 2);
    }
}

fn spawn(spec: &ProcessSpec) -> Result<Child> {
    let mut command = (spec.command)()?;
    let cannot_open = || format!("cannot open {}", spec.log.display());
    let log = private_file::append(&spec.log).with_context(cannot_open)?;
    let errors = log.try_clone().with_context(cannot_open)?;
    let stdin = match spec.stop_method {
        StopMethod::CloseStdin => Stdio::piped(),
        StopMethod::Signal(_) => Stdio::null(),
    };
    command.stdin(stdin).stdout(log).stderr(errors);
    // A separate process group, so that Ctrl-C at the terminal reaches the launcher only, which stops its children in
    // order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true).spawn().with_context(|| format!("cannot start {}", spec.name))
}

/// Why a child no longer runs.
enum ChildEnd {
    /// It exited on its own, or was killed as unhealthy.
    Exited,
    /// The supervisor stopped it.
    Stopped,
}

async fn watch_child(spec: &ProcessSpec, child: &mut Child, stop: &CancellationToken) -> ChildEnd {
    // Taken out of the child, because `Child::wait` closes the stdin that the child owns.
    let stdin = child.stdin.take();
    loop {
        tokio::select! {
            exit = child.wait() => {
                let status = exit.map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::warn!(event = "dev.process_exited", process = spec.name, status, "a process exited and is restarted");
                return ChildEnd::Exited;
            }
            () = stop.cancelled() => {
                drop(stdin);
                stop_child(spec, child).await;
                return ChildEnd::Stopped;
            }
            () = tokio::time::sleep(HEALTH_CHECK_INTERVAL), if spec.is_unhealthy.is_some() => {
                if spec.is_unhealthy.as_ref().is_some_and(|is_unhealthy| is_unhealthy()) {
                    tracing::warn!(event = "dev.process_unhealthy", process = spec.name, "an unhealthy process is killed");
                    let _ = child.start_kill();
                }
            }
        }
    }
}

async fn stop_child(spec: &ProcessSpec, child: &mut Child) {
    match (spec.stop_method, child.id()) {
        // The caller has closed it.
        (StopMethod::CloseStdin, _) => {}
        (StopMethod::Signal(signal), Some(pid)) => send_signal(pid, signal),
        (StopMethod::Signal(_), None) => return,
    }
    if tokio::time::timeout(spec.stop_timeout, child.wait()).await.is_err() {
        tracing::warn!(
            event = "dev.process_killed",
            process = spec.name,
            "a process did not stop in time and is killed"
        );
        let _ = child.kill().await;
    }
}

/// The command line of a running process. It distinguishes a child of an earlier run from another process with the same
/// id.
pub(super) fn command_line(pid: u32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        return Some(String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let output = Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
