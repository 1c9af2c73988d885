//! Compression by `content-encoding` name.

use std::io::{self, Write as _};

use brotli::CompressorWriter;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

/// `body` in the named encoding. None for an unknown name.
pub(super) fn compress(name: &str, body: &[u8]) -> Option<io::Result<Vec<u8>>> {
    match name {
        "gzip" => Some(gzip(body)),
        "deflate" => Some(deflate(body)),
        "br" => Some(brotli(body)),
        "zstd" => Some(zstd::encode_all(body, 0)),
        _ => None,
    }
}

fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body)?;
    encoder.finish()
}

fn deflate(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body)?;
    encoder.finish()
}

fn brotli(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = CompressorWriter::new(Vec::new(), 4096, 5, 22);
    encoder.write_all(body)?;
    encoder.flush()?;
    Ok(encoder.into_inner())
}
