//! Secrets in files, one per file. A command line is visible to every user of a machine; a file is to those who may read
//! it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::bounded_file;

/// The size of the largest file that is read.
const MOST_BYTES: u64 = 64 * 1_024;

/// The first line of the file that `setting` names, without spaces around it. An error names the setting and the file, and
/// shows nothing of its content, nor of a secret that was given in place of its name.
pub(crate) fn first_line(setting: &str, file: &Path) -> Result<String> {
    let shown = || farthing_tls::shown(file);
    let bytes = bounded_file::read(file, MOST_BYTES).with_context(|| setting.to_owned())?;
    let text = str::from_utf8(&bytes).with_context(|| format!("{setting}: cannot read {}", shown()))?;
    let line = text.lines().next().unwrap_or_default().trim();
    ensure!(!line.is_empty(), "{setting}: the first line of {} is empty", shown());
    Ok(line.to_owned())
}
