//! The data folder: the paths in it, and the lock that keeps a second launcher out.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A log larger than this is renamed at the next start.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// An open data folder. Dropping it releases the lock.
pub(super) struct DataFolder {
    root: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Opens the folder for this process only; creates it if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        if !path.exists() {
            // Other accounts may enter it, since Postgres may run under one. Files with secrets are readable by their
            // owner only.
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(path)
                .with_context(|| format!("cannot create the data folder {shown}"))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
                .with_context(|| format!("cannot set the permissions of the data folder {shown}"))?;
        }
        let root = path.canonicalize().with_context(|| format!("cannot find the data folder {shown}"))?;
        if root.to_str().is_none_or(|text| text.contains(['"', '\'', '\\', '\n'])) {
            bail!(
                "the path of the data folder {shown} must be UTF-8 without quotes, backslashes and line breaks"
            );
        }
        let cannot_write = || format!("cannot write in the data folder {shown}");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(root.join("lock"))
            .with_context(cannot_write)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another `farthing dev` uses the data folder {shown}"),
            Err(TryLockError::Error(error)) => bail!("cannot lock the data folder {shown}: {error}"),
        }
        // Whoever can open the file can lock it.
        lock.set_permissions(fs::Permissions::from_mode(0o600)).with_context(cannot_write)?;
        let folder = Self { root, _lock: lock };
        // Postgres reads its files there, under its account.
        folder.create("run", 0o755)?;
        folder.create_private("logs")?;
        Ok(folder)
    }

    /// Creates a folder in it that its owner alone may enter.
    pub(super) fn create_private(&self, name: &str) -> Result<PathBuf> {
        self.create(name, 0o700)
    }

    /// Creates a folder in it with this mode, whatever the umask is.
    fn create(&self, name: &str, mode: u32) -> Result<PathBuf> {
        let path = self.path(name);
        let shown = path.display();
        let cannot_create = || format!("cannot create {shown}");
        fs::DirBuilder::new().recursive(true).mode(mode).create(&path).with_context(cannot_create)?;
        // An earlier release may have created it.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(cannot_create)?;
        Ok(path)
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A path in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The log file of a process. One that has grown too large is renamed first.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        let path = self.root.join("logs").join(format!("{name}.log"));
        if fs::metadata(&path).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
            // If this fails, the log only keeps growing.
            let _ = fs::rename(&path, path.with_extension("log.old"));
        }
        path
    }
}
