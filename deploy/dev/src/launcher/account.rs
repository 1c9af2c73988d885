//! The account that Postgres runs under. Postgres refuses root: when root runs the launcher, the cluster belongs to
//! `postgres`, or to `nobody` where there is no such account. Any other user runs Postgres under the same account.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::data_folder::DataFolder;

/// `setpriv` options that let the account enter the data folder through a parent folder that is closed to it.
const ENTER_CLOSED_FOLDERS: [&str; 4] =
    ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"];

/// The account, and how to start a program under it.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// None: this process's own account.
    other: Option<OtherAccount>,
    has_setpriv: bool,
}

#[derive(Debug, Clone)]
struct OtherAccount {
    name: &'static str,
    uid: u32,
    gid: u32,
    enters_closed_folders: bool,
}

impl Account {
    /// Finds an account that can run Postgres and enter `folder`.
    pub(super) fn find(folder: &DataFolder) -> Result<Self> {
        let has_setpriv = has_setpriv();
        let own = id(&["-u"]).context("cannot find the current user: `id -u` failed")?;
        if own != 0 {
            return Ok(Self { other: None, has_setpriv });
        }
        let known = ["postgres", "nobody"].into_iter().find_map(|name| {
            let (uid, gid) = (id(&["-u", name])?, id(&["-g", name])?);
            Some(OtherAccount { name, uid, gid, enters_closed_folders: false })
        });
        let Some(mut other) = known else {
            bail!("Postgres refuses to run as root, and there is no account `postgres` or `nobody`");
        };
        let account = |other: OtherAccount| Self { other: Some(other), has_setpriv };
        // Not `test -x`, which ignores the capabilities that `setpriv` gives.
        let inside = folder.path("run");
        let enters = |account: &Self| succeeds(account.command("ls").arg("-d").arg(&inside).current_dir("/"));
        if enters(&account(other.clone())) {
            return Ok(account(other));
        }
        if has_setpriv {
            other.enters_closed_folders = true;
            if enters(&account(other.clone())) {
                tracing::info!(
                    event = "dev.folder_access_granted",
                    account = other.name,
                    "Postgres runs with the capability to enter closed folders, to reach the data folder"
                );
                return Ok(account(other));
            }
        }
        bail!(
            "Postgres cannot run as root, and the account `{}` cannot enter {}. Choose a --data folder that other \
             users may enter, such as /var/lib/farthing, or run this as another user than root",
            other.name,
            folder.root().display()
        )
    }

    /// A command under the account.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.started_by(program.as_ref(), None)
    }

    /// A command under the account that receives `signal`, such as `INT`, when this process dies.
    pub(super) fn child_command(&self, program: impl AsRef<OsStr>, signal: &str) -> Command {
        self.started_by(program.as_ref(), Some(signal))
    }

    fn started_by(&self, program: &OsStr, signal: Option<&str>) -> Command {
        if !self.has_setpriv {
            let mut command = Command::new(program);
            if let Some(other) = &self.other {
                use std::os::unix::process::CommandExt as _;
                command.uid(other.uid).gid(other.gid);
            }
            return command;
        }
        let mut command = Command::new("setpriv");
        if let Some(other) = &self.other {
            let (uid, gid) = (other.uid.to_string(), other.gid.to_string());
            command.args(["--reuid", uid.as_str(), "--regid", gid.as_str(), "--clear-groups"]);
            if other.enters_closed_folders {
                command.args(ENTER_CLOSED_FOLDERS);
            }
        }
        if let Some(signal) = signal {
            command.args(["--pdeathsig", signal]);
        }
        command.arg("--").arg(program);
        command
    }

    /// Gives `path` to the account.
    pub(super) fn own(&self, path: &Path) -> Result<()> {
        let Some(other) = &self.other else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(other.uid), Some(other.gid))
            .with_context(|| format!("cannot give {} to `{}`", path.display(), other.name))
    }
}

/// A command under this process's own account that receives `signal` when this process dies, where `setpriv` exists.
pub(super) fn child_command(program: &Path, signal: &str) -> Command {
    Account { other: None, has_setpriv: has_setpriv() }.child_command(program, signal)
}

fn has_setpriv() -> bool {
    succeeds(Command::new("setpriv").args(["--pdeathsig", "clear", "true"]))
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The number that the program `id` prints.
fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).stdin(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
