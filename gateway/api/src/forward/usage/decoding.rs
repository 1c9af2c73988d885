//! Decodes a compressed body for the scanner; the body itself passes compressed. The decoded size is bounded, so that a
//! small body cannot cause unbounded work.

use std::io::{self, Write};

/// Decoded bytes after which reading stops.
const MAX_DECODED: usize = 64 * 1024 * 1024;

/// The largest window of a zstd stream, as a power of two: every web decoder must support it (RFC 9659).
const MAX_ZSTD_WINDOW_LOG: u32 = 23;

/// Receives decoded bytes.
pub(super) struct Sink<F> {
    take: F,
    left: usize,
}

impl<F: FnMut(&[u8]) + Send> Write for Sink<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left =
            self.left.checked_sub(bytes.len()).ok_or_else(|| io::Error::other("too much is decoded"))?;
        (self.take)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A content coding that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    Zstd,
    /// Not known, or several at once.
    Unknown,
}

impl Coding {
    pub(super) fn of(content_encoding: &str) -> Self {
        match content_encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Self::Identity,
            "gzip" | "x-gzip" => Self::Gzip,
            "deflate" => Self::Deflate,
            "br" => Self::Brotli,
            "zstd" => Self::Zstd,
            _ => Self::Unknown,
        }
    }

    /// A writer that decodes into `take`; `None` without an encoding or for an unknown one.
    pub(super) fn decoder<F>(self, take: F) -> Option<Box<dyn Write + Send>>
    where
        F: FnMut(&[u8]) + Send + 'static,
    {
        let sink = Sink { take, left: MAX_DECODED };
        match self {
            Self::Identity | Self::Unknown => None,
            Self::Gzip => Some(Box::new(flate2::write::MultiGzDecoder::new(sink))),
            Self::Deflate => Some(Box::new(Deflate::Undecided(Some(sink)))),
            Self::Brotli => Some(Box::new(brotli::DecompressorWriter::new(sink, 4096))),
            Self::Zstd => {
                let mut decoder = zstd::stream::write::Decoder::new(sink).ok()?;
                decoder.window_log_max(MAX_ZSTD_WINDOW_LOG).ok()?;
                Some(Box::new(decoder))
            }
        }
    }
}

/// `deflate` is zlib by the standard, but some servers send raw deflate. The first byte distinguishes them.
enum Deflate<W: Write> {
    Undecided(Option<W>),
    Zlib(flate2::write::ZlibDecoder<W>),
    Raw(flate2::write::DeflateDecoder<W>),
}

impl<W: Write> Write for Deflate<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let (Self::Undecided(sink), Some(first)) = (&mut *self, bytes.first())
            && let Some(sink) = sink.take()
        {
            *self = if first & 0x0f == 8 {
                Self::Zlib(flate2::write::ZlibDecoder::new(sink))
            } else {
                Self::Raw(flate2::write::DeflateDecoder::new(sink))
            };
        }
        match self {
            Self::Undecided(_) => Ok(bytes.len()),
            Self::Zlib(decoder) => decoder.write(bytes),
            Self::Raw(decoder) => decoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Undecided(_) => Ok(()),
            Self::Zlib(decoder) => decoder.flush(),
            Self::Raw(decoder) => decoder.flush(),
        }
    }
}
