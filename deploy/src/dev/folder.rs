//! The data folder: where things are in it, and the lock that keeps a second `farthing dev` out.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, IntoFailure as _};

/// A log above this size is set aside at the next start.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// An open data folder; the lock goes with it.
pub(super) struct Folder {
    root: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens the folder, made if need be, for this process alone.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        if !path.exists() {
            // Others may pass through, since Postgres runs under another account when this process is root's; the
            // files in it that hold secrets are readable by their owner only.
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(path)
                .or_fail(format_args!("cannot make the data folder {shown}"))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
                .or_fail(format_args!("cannot open up the data folder {shown}"))?;
        }
        let root = path.canonicalize().or_fail(format_args!("cannot find the data folder {shown}"))?;
        if root.to_str().is_none_or(|text| text.contains(['"', '\'', '\\', '\n'])) {
            return Err(Failure::new(format!(
                "the data folder {shown} must not have quotes or backslashes in its name"
            )));
        }
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join("lock"))
            .or_fail(format_args!("cannot write in the data folder {shown}"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(format!("another `farthing dev` runs on the data folder {shown}")));
            }
            Err(TryLockError::Error(error)) => {
                return Err(Failure::new(format!("cannot lock the data folder {shown}: {error}")));
            }
        }
        let folder = Self { root, _lock: lock };
        for part in ["logs", "run"] {
            fs::create_dir_all(folder.at(part))
                .or_fail(format_args!("cannot write in the data folder {shown}"))?;
        }
        Ok(folder)
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Something in the folder.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The log of a child, set aside when it has grown too large.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        let path = self.root.join("logs").join(format!("{name}.log"));
        if fs::metadata(&path).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
            // Should this fail, the log only goes on growing.
            let _ = fs::rename(&path, path.with_extension("log.old"));
        }
        path
    }
}
