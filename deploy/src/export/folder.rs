//! The folder of an export. It is written under a temporary name and renamed when all of it is on the disk, so a folder with
//! its final name is complete.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The name of the manifest, which is written last.
const MANIFEST: &str = "manifest.json";

/// A folder that is being written. It is removed if it is dropped before [`Folder::finish`].
pub(super) struct Folder {
    parent: PathBuf,
    temporary: PathBuf,
    target: PathBuf,
    is_finished: bool,
}

impl Folder {
    /// Begins a folder at `target`, where nothing may be.
    pub(super) fn create(target: &Path) -> Result<Self> {
        if fs::symlink_metadata(target).is_ok() {
            bail!("{} exists already: an export is not overwritten", target.display());
        }
        let name = target.file_name().context("--out must name a folder to make")?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).to_owned();
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".partial.{}", std::process::id()));
        let temporary = parent.join(hidden);
        // What finance exports is for the user who exports it.
        let made = DirBuilder::new().mode(0o700).create(&temporary);
        made.with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        Ok(Self { parent, temporary, target: target.to_owned(), is_finished: false })
    }

    /// Begins a file in it.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.temporary.join(name))
    }

    /// Writes the manifest, and gives the folder its name.
    pub(super) fn finish(mut self, manifest: &str) -> Result<()> {
        self.publish(manifest).with_context(|| format!("cannot write {}", self.target.display()))?;
        self.is_finished = true;
        Ok(())
    }

    fn publish(&self, manifest: &str) -> io::Result<()> {
        let mut file = self.file(MANIFEST)?;
        file.write_all(manifest.as_bytes())?;
        file.sync_all()?;
        File::open(&self.temporary)?.sync_all()?;
        // Fails if something stands there by now, unless it is an empty folder.
        fs::rename(&self.temporary, &self.target)?;
        File::open(&self.parent)?.sync_all()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}
