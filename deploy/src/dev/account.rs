//! Under which account Postgres runs. It refuses root, so a root's `farthing dev` gives its cluster to `postgres`,
//! or to `nobody` where there is no such account; any other user runs it as itself.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::folder::Folder;
use crate::failure::{Failure, IntoFailure as _};

/// What `setpriv` passes on so that the account can enter the data folder where an outer folder is closed to it.
const PASSAGE: [&str; 4] = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"];

/// The account, and how a program is started under it.
#[derive(Debug, Clone)]
pub(super) struct Account {
    switch: Option<Switch>,
    setpriv: bool,
}

#[derive(Debug, Clone)]
struct Switch {
    name: &'static str,
    uid: u32,
    gid: u32,
    passage: bool,
}

impl Account {
    /// The account for this process's children, able to enter `folder`.
    pub(super) fn find(folder: &Folder) -> Result<Self, Failure> {
        let setpriv = succeeds(Command::new("setpriv").args(["--pdeathsig", "clear", "true"]));
        let own = number(&["-u"]).ok_or_else(|| Failure::new("cannot tell who runs this: `id -u` failed"))?;
        if own != 0 {
            return Ok(Self { switch: None, setpriv });
        }
        let known = ["postgres", "nobody"].into_iter().find_map(|name| {
            Some(Switch { name, uid: number(&["-u", name])?, gid: number(&["-g", name])?, passage: false })
        });
        let Some(mut switch) = known else {
            let why =
                "Postgres refuses to run as root, and there is neither an account `postgres` nor `nobody`";
            return Err(Failure::new(why));
        };
        let account = |switch: Switch| Self { switch: Some(switch), setpriv };
        // Not `test -x`: it asks for the real account's rights only, without what it was given besides.
        let inside = folder.at("run");
        let enters = |account: &Self| succeeds(account.command("ls").arg("-d").arg(&inside).current_dir("/"));
        if enters(&account(switch.clone())) {
            return Ok(account(switch));
        }
        if setpriv {
            switch.passage = true;
            if enters(&account(switch.clone())) {
                tracing::info!(
                    account = switch.name,
                    "Postgres may pass closed folders to reach the data folder"
                );
                return Ok(account(switch));
            }
        }
        Err(Failure::new(format!(
            "Postgres cannot run as root, and the account `{}` cannot enter {}: choose a --data folder that others may \
             enter, such as /var/lib/farthing, or run this as another user than root",
            switch.name,
            folder.root().display()
        )))
    }

    /// A command under the account.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.started_by(program.as_ref(), None)
    }

    /// A command under the account that gets `signal` (such as `INT`) should this process die.
    pub(super) fn bound_command(&self, program: impl AsRef<OsStr>, signal: &str) -> Command {
        self.started_by(program.as_ref(), Some(signal))
    }

    fn started_by(&self, program: &OsStr, signal: Option<&str>) -> Command {
        if !self.setpriv {
            let mut command = Command::new(program);
            if let Some(switch) = &self.switch {
                use std::os::unix::process::CommandExt as _;
                command.uid(switch.uid).gid(switch.gid);
            }
            return command;
        }
        let mut command = Command::new("setpriv");
        if let Some(switch) = &self.switch {
            let (uid, gid) = (switch.uid.to_string(), switch.gid.to_string());
            command.args(["--reuid", uid.as_str(), "--regid", gid.as_str(), "--clear-groups"]);
            if switch.passage {
                command.args(PASSAGE);
            }
        }
        if let Some(signal) = signal {
            command.args(["--pdeathsig", signal]);
        }
        command.arg("--").arg(program);
        command
    }

    /// Gives `path` to the account.
    pub(super) fn own(&self, path: &Path) -> Result<(), Failure> {
        let Some(switch) = &self.switch else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(switch.uid), Some(switch.gid)).or_fail(format_args!(
            "cannot give {} to `{}`",
            path.display(),
            switch.name
        ))
    }
}

/// A command of this user that gets `signal` should this process die, where the system can do that.
pub(super) fn bound_to_us(program: &Path, signal: &str) -> Command {
    let setpriv = succeeds(Command::new("setpriv").args(["--pdeathsig", "clear", "true"]));
    Account { switch: None, setpriv }.bound_command(program, signal)
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn number(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).stdin(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
