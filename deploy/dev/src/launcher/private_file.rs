//! Files with secrets: readable by their owner only and replaced in one step, so that readers never see half of one.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Writes `value` as JSON.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).context("cannot serialize JSON")?;
    text.push(b'\n');
    write(path, &text)
}

/// Writes `content` through a sibling file and a rename.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
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
