//! A file that counts and hashes what is written to it.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use aws_lc_rs::digest::{Context, SHA256};
use farthing_core::secret::hex;

/// A file that is being written.
pub(super) struct HashedFile {
    file: BufWriter<File>,
    digest: Context,
    bytes: u64,
}

/// A file that is on the disk.
pub(super) struct Stored {
    pub(super) bytes: u64,
    /// SHA-256, in hexadecimal.
    pub(super) sha256: String,
}

impl HashedFile {
    pub(super) fn new(file: File) -> Self {
        Self { file: BufWriter::new(file), digest: Context::new(&SHA256), bytes: 0 }
    }

    /// Writes what is left to the disk.
    pub(super) fn finish(self) -> io::Result<Stored> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(Stored { bytes: self.bytes, sha256: hex(self.digest.finish().as_ref()) })
    }
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.bytes += u64::try_from(written).unwrap_or(u64::MAX);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
