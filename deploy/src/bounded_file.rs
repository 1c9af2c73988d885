//! Reads files that somebody names on the command line, up to a size. A device or a pipe has no size, and no end perhaps.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The bytes of a file of at most `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let shown = farthing_tls::shown(path);
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {shown}"))?;
    ensure!(u64::try_from(bytes.len()).is_ok_and(|size| size <= most), "{shown} has more than {most} bytes");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_not_read_to_its_end() {
        let error = read(Path::new("/dev/zero"), 1_000).unwrap_err();
        assert!(error.to_string().contains("has more than 1000 bytes"), "{error}");
        assert!(read(Path::new("/nowhere/file"), 1_000).unwrap_err().to_string().contains("cannot read"));
        let whole = std::fs::read("Cargo.toml").unwrap();
        let size = u64::try_from(whole.len()).unwrap();
        assert_eq!(read(Path::new("Cargo.toml"), size).unwrap(), whole);
        assert!(read(Path::new("Cargo.toml"), size - 1).is_err());
    }
}
