//! The content codings of responses, for providers of tests.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// Bytes.
pub const MIB: usize = 1024 * 1024;

/// The limit on the decoded bytes of one response.
pub const MAX_DECODED: usize = 64 * MIB;

/// Text of about this length that is compressed some 40 times.
pub fn filler(length: usize) -> String {
    let zeros = "0".repeat(600);
    let part = |number: u64| format!("{:016x}{zeros}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..length as u64 / 616).map(part).collect()
}

/// `text` in `gzip`.
pub fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// `text` in `deflate`, as the standard has it.
pub fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// `text` in `deflate` without a header, as some servers send it.
pub fn deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// `text` in `br`.
pub fn br(text: &[u8]) -> Vec<u8> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 22);
    encoder.write_all(text).unwrap();
    encoder.into_inner()
}

/// `text` in `zstd`.
pub fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(text, 1).unwrap()
}

/// `text` in a frame of `zstd` that requires a window of 16 MiB.
pub fn zstd_of_a_wide_window(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(24).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}
