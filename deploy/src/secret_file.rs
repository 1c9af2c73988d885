//! Secrets in files, one per file. A command line is visible to every user of a machine; a file is to those who may read
//! it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The first line of a file, without spaces around it. An error names the file and shows nothing of its content.
pub(crate) fn first_line(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let line = text.lines().next().unwrap_or_default().trim();
    ensure!(!line.is_empty(), "the first line of {} is empty", file.display());
    Ok(line.to_owned())
}
