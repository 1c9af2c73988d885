//! One supervised child: started again, with growing pauses, whenever it ends before it was told to.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, IntoFailure as _};

/// The pause before a first restart, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A child that ran for so long starts again without a growing pause.
const STEADY: Duration = Duration::from_secs(10);

/// Starts after which a child that never came up is given up.
const MAX_STARTS: u32 = 8;

/// How often an ailing child is looked for, and how often a condition is looked at.
const CHECKUP: Duration = Duration::from_millis(250);
const GLANCE: Duration = Duration::from_millis(10);

/// Lines of a log that an error shows.
const SHOWN_LINES: usize = 12;

/// How a child is asked to end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    /// By closing its stdin.
    CloseStdin,
    /// By a signal, such as `INT`.
    Signal(&'static str),
}

/// What a child is.
pub(super) struct Plan {
    /// Its name, for people.
    pub(super) name: String,
    /// Makes its command, and ready what the command needs; called before each start.
    pub(super) command: Box<dyn Fn() -> Result<Command, Failure> + Send + Sync>,
    /// Is it to be killed, though it runs?
    pub(super) ails: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Where its output goes.
    pub(super) log: PathBuf,
    /// How it is asked to end.
    pub(super) ending: Ending,
    /// How long it may take to end before it is killed.
    pub(super) patience: Duration,
}

/// The child as it is now.
#[derive(Debug, Clone, Copy, Default)]
struct Now {
    pid: Option<u32>,
    starts: u32,
}

/// A supervised child.
pub(super) struct Process {
    name: String,
    log: PathBuf,
    now: watch::Receiver<Now>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Process {
    /// Starts and supervises it; `told` hears of every start.
    pub(super) fn start(plan: Plan, told: watch::Sender<()>) -> Self {
        let (now, seen) = watch::channel(Now::default());
        let stop = CancellationToken::new();
        let (name, log) = (plan.name.clone(), plan.log.clone());
        let task = tokio::spawn(supervise(plan, now, told, stop.clone()));
        Self { name, log, now: seen, stop, task }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its newest process id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.now.borrow().pid
    }

    /// Has it ended, and ends it whenever it still runs.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(child = self.name, %error, "its supervisor failed");
        }
    }

    /// Waits until `is_up` answers with something; fails when the deadline passes or the child keeps ending.
    pub(super) async fn await_up<T>(
        &self,
        deadline: Duration,
        mut is_up: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + deadline;
        loop {
            if let Some(found) = is_up().await {
                return Ok(found);
            }
            if self.now.borrow().starts >= MAX_STARTS {
                return Err(self.failure("ends as soon as it is started"));
            }
            if Instant::now() >= until {
                return Err(self.failure(&format!("did not come up within {} s", deadline.as_secs())));
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    fn failure(&self, what: &str) -> Failure {
        let log = self.log.display();
        Failure::new(format!("{} {what}; the end of its log, {log}:\n{}", self.name, last_lines(&self.log)))
    }
}

/// The end of a log.
pub(super) fn last_lines(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let shown = lines.iter().skip(lines.len().saturating_sub(SHOWN_LINES));
    shown.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Sends a signal, such as `TERM`, to a process.
pub(super) fn send_signal(pid: u32, signal: &str) {
    // The shell's own `kill`: the program of that name is not on every machine.
    let mut command = Command::new("sh");
    command.args(["-c", "kill -s \"$1\" \"$2\" 2>/dev/null", "sh", signal, &pid.to_string()]);
    if let Err(error) = command.stdin(Stdio::null()).status() {
        tracing::error!(pid, signal, %error, "the signal was not sent");
    }
}

async fn supervise(plan: Plan, now: watch::Sender<Now>, told: watch::Sender<()>, stop: CancellationToken) {
    let mut pause = PAUSES.0;
    while !stop.is_cancelled() {
        let begun = Instant::now();
        match start(&plan) {
            Ok(mut child) => {
                now.send_modify(|now| *now = Now { pid: child.id(), starts: now.starts + 1 });
                told.send_replace(());
                if !attend(&plan, &mut child, &stop).await {
                    return;
                }
            }
            Err(error) => {
                now.send_modify(|now| now.starts += 1);
                tracing::error!(child = plan.name, %error, "it was not started");
            }
        }
        if begun.elapsed() > STEADY {
            pause = PAUSES.0;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = PAUSES.1.min(pause * 2);
    }
}

fn start(plan: &Plan) -> Result<Child, Failure> {
    let mut command = (plan.command)()?;
    let shown = plan.log.display();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&plan.log)
        .or_fail(format_args!("cannot open {shown}"))?;
    let errors = log.try_clone().or_fail(format_args!("cannot open {shown}"))?;
    let stdin = match plan.ending {
        Ending::CloseStdin => Stdio::piped(),
        Ending::Signal(_) => Stdio::null(),
    };
    command.stdin(stdin).stdout(log).stderr(errors);
    // A group of its own: Ctrl-C at the terminal is for this process, which ends its children in order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true).spawn().or_fail(format_args!("cannot start {}", plan.name))
}

/// Waits for the child's end; true when it is to be started again.
async fn attend(plan: &Plan, child: &mut Child, stop: &CancellationToken) -> bool {
    // Held here, since waiting for a child closes the stdin that it holds.
    let stdin = child.stdin.take();
    loop {
        tokio::select! {
            ended = child.wait() => {
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::warn!(child = plan.name, how, "ended; it is started again");
                return true;
            }
            () = stop.cancelled() => {
                drop(stdin);
                end(plan, child).await;
                return false;
            }
            () = tokio::time::sleep(CHECKUP), if plan.ails.is_some() => {
                if plan.ails.as_ref().is_some_and(|ails| ails()) {
                    tracing::warn!(child = plan.name, "ails; it is killed and started again");
                    let _ = child.start_kill();
                }
            }
        }
    }
}

async fn end(plan: &Plan, child: &mut Child) {
    match (plan.ending, child.id()) {
        // Closed already.
        (Ending::CloseStdin, _) => {}
        (Ending::Signal(signal), Some(pid)) => send_signal(pid, signal),
        (Ending::Signal(_), None) => return,
    }
    if tokio::time::timeout(plan.patience, child.wait()).await.is_err() {
        tracing::warn!(child = plan.name, "did not end in time; it is killed");
        let _ = child.kill().await;
    }
}

/// The command line of a running process, by which one of ours is told from a stranger with its number.
pub(super) fn command_line(pid: u32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        return Some(String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let output = Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
