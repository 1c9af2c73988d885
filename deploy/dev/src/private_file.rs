//! Files with secrets, or with what was called: readable by their owner only. Those that are written whole are replaced in
//! one step, so that readers never see half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;

/// The random password in the file, which is written once.
pub(crate) fn password(file: &Path) -> Result<String> {
    if let Some(text) = read(file)? {
        return Ok(text.trim().to_owned());
    }
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("cannot get random bytes: {error}"))?;
    let password = farthing_core::secret::hex(&bytes);
    write(file, password.as_bytes())?;
    Ok(password)
}

/// The content of a file; `None` if there is none. Other users cannot read it any more: it may have been copied here.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    let cannot_read = || format!("cannot read {}", path.display());
    if !path.exists() {
        return Ok(None);
    }
    let mode = fs::metadata(path).with_context(cannot_read)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).with_context(cannot_read)?;
    }
    fs::read_to_string(path).map(Some).with_context(cannot_read)
}

/// Opens a file for appending.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // An earlier release may have written it.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Writes `value` as JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).context("cannot serialize JSON")?;
    text.push(b'\n');
    write(path, &text)
}

/// Writes `content` through a sibling file and a rename.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    replace(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let sibling = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&sibling)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&sibling, path)
}
