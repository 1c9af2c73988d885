//! Decoders of compressed bodies. They read what has come over the wire, and make as much as the caller has room for.
//! What they hold in memory is taken from the merchant's share.

use std::io::{self, BufRead, Read};

use brotli::{Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, SliceWrapperMut};
use bytes::{Buf as _, Bytes};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use super::decoders::{CallShare, Memory};

/// The largest window of a zstd stream, as a power of two: every web decoder must support it (RFC 9659).
const MAX_ZSTD_WINDOW_LOG: u32 = 23;

/// The memory of a decoder of gzip or deflate, rounded up, in bytes.
const INFLATE_MEMORY: usize = 64 * 1024;

/// The memory of a decoder of zstd besides what it has decoded, rounded up, in bytes: its tables, and a block at each
/// end.
const ZSTD_MEMORY: usize = 512 * 1024;

/// Whether the body of a response with these headers is not compressed.
pub(crate) fn is_uncompressed(headers: &HeaderMap) -> bool {
    Coding::of_response(headers) == Coding::Identity
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
    /// That of a response with these headers, which may name codings in several lines.
    pub(super) fn of_response(headers: &HeaderMap) -> Self {
        let mut coding = Self::Identity;
        for line in headers.get_all(CONTENT_ENCODING) {
            let Ok(line) = line.to_str() else { return Self::Unknown };
            for name in line.split(',') {
                coding = match (coding, Self::of(name)) {
                    (coding, Self::Identity) | (Self::Identity, coding) => coding,
                    (_, _) => Self::Unknown,
                };
            }
        }
        coding
    }

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

    /// A decoder of what begins with `wire`; `None` without an encoding or for an unknown one.
    pub(super) fn decoder(self, wire: Wire, share: &CallShare) -> io::Result<Option<Box<dyn Decode>>> {
        Ok(Some(match self {
            Self::Identity | Self::Unknown => return Ok(None),
            Self::Gzip => {
                let memory = take(share, INFLATE_MEMORY)?;
                Box::new(Inflate { decoder: MultiGzDecoder::new(wire), _memory: memory })
            }
            Self::Deflate => {
                let memory = take(share, INFLATE_MEMORY)?;
                // `deflate` is zlib by the standard, but some servers send raw deflate. The first byte tells.
                if wire.bytes.first().is_some_and(|first| first & 0x0f == 8) {
                    Box::new(Inflate { decoder: ZlibDecoder::new(wire), _memory: memory })
                } else {
                    Box::new(Inflate { decoder: DeflateDecoder::new(wire), _memory: memory })
                }
            }
            Self::Brotli => Box::new(Brotli::new(wire, share)?),
            Self::Zstd => Box::new(Zstd::new(wire, share)?),
        }))
    }
}

fn take(share: &CallShare, bytes: usize) -> io::Result<Memory> {
    share.take(bytes).ok_or_else(out_of_memory)
}

fn out_of_memory() -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, "the decoder memory is exhausted")
}

/// The bytes that have come over the wire and are not decoded yet. Reading beyond them, or beyond what is allowed,
/// would block, unless the body has ended.
#[derive(Debug, Default)]
pub(super) struct Wire {
    bytes: Bytes,
    allowed: usize,
    has_ended: bool,
}

impl Wire {
    /// Adds bytes; those before must have been read.
    pub(super) fn push(&mut self, bytes: Bytes) {
        assert!(self.bytes.is_empty(), "bytes follow before those before them are read");
        self.bytes = bytes;
    }

    /// Nothing follows.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Allows that many bytes to be read from now on.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.allowed = bytes;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes that may be read now; none if more are to come.
    fn given(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(self.allowed)]
    }

    /// Why there is nothing to read although the stream goes on.
    fn starved(&self) -> io::Error {
        let is_cut_off = self.has_ended && self.bytes.is_empty();
        if is_cut_off { io::ErrorKind::UnexpectedEof.into() } else { io::ErrorKind::WouldBlock.into() }
    }
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Wire {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.given().is_empty() && !(self.has_ended && self.bytes.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(self.given())
    }

    fn consume(&mut self, count: usize) {
        self.bytes.advance(count);
        self.allowed -= count;
    }
}

/// A decoder. Reading gives decoded bytes, none at the stream's end, `WouldBlock` where more must come first, and
/// `UnexpectedEof` where the body has ended within the stream.
pub(super) trait Decode: Read + Send {
    /// The bytes that it reads.
    fn wire(&mut self) -> &mut Wire;
}

/// A decoder of gzip or deflate.
struct Inflate<D> {
    decoder: D,
    _memory: Memory,
}

impl<D: Read> Read for Inflate<D> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(out)
    }
}

impl Decode for Inflate<MultiGzDecoder<Wire>> {
    fn wire(&mut self) -> &mut Wire {
        self.decoder.get_mut()
    }
}

impl Decode for Inflate<ZlibDecoder<Wire>> {
    fn wire(&mut self) -> &mut Wire {
        self.decoder.get_mut()
    }
}

impl Decode for Inflate<DeflateDecoder<Wire>> {
    fn wire(&mut self) -> &mut Wire {
        self.decoder.get_mut()
    }
}

/// A decoder of brotli. Its window grows with what is decoded and announced, up to 16 MiB, and is filled before any
/// of it is given.
struct Brotli {
    wire: Wire,
    state: BrotliState<Allocating, Allocating, Allocating>,
    has_ended: bool,
}

impl Brotli {
    fn new(wire: Wire, share: &CallShare) -> io::Result<Self> {
        let allocating = || Allocating(share.clone());
        let state = BrotliState::new_strict(allocating(), allocating(), allocating());
        if state.context_map_table.slice().is_empty() {
            return Err(out_of_memory());
        }
        Ok(Self { wire, state, has_ended: false })
    }
}

impl Read for Brotli {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Self { wire, state, has_ended } = self;
        if *has_ended {
            return Ok(0);
        }
        let input = wire.given();
        let (mut input_left, mut read) = (input.len(), 0);
        let (mut output_left, mut written, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut input_left,
            &mut read,
            input,
            &mut output_left,
            &mut written,
            out,
            &mut total,
            state,
        );
        wire.consume(read);
        match result {
            BrotliResult::ResultSuccess => {
                *has_ended = true;
                Ok(written)
            }
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput if written > 0 => Ok(written),
            BrotliResult::NeedsMoreInput => Err(wire.starved()),
            BrotliResult::ResultFailure | BrotliResult::NeedsMoreOutput => {
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }
}

impl Decode for Brotli {
    fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

/// Allocates from a merchant's share. What exceeds it gets an empty cell, at which the decoder fails.
struct Allocating(CallShare);

impl<T: Clone + Default> Allocator<T> for Allocating {
    type AllocatedMemory = Cell<T>;

    fn alloc_cell(&mut self, length: usize) -> Cell<T> {
        let bytes = length.saturating_mul(size_of::<T>());
        let Some(memory) = self.0.take(bytes) else { return Cell::default() };
        Cell { items: vec![T::default(); length], _memory: Some(memory) }
    }

    fn free_cell(&mut self, cell: Cell<T>) {
        drop(cell);
    }
}

/// An allocation.
struct Cell<T> {
    items: Vec<T>,
    _memory: Option<Memory>,
}

impl<T> Default for Cell<T> {
    fn default() -> Self {
        Self { items: Vec::new(), _memory: None }
    }
}

impl<T> SliceWrapper<T> for Cell<T> {
    fn slice(&self) -> &[T] {
        &self.items
    }
}

impl<T> SliceWrapperMut<T> for Cell<T> {
    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

/// A decoder of zstd. Its window is as long as the stream's header says, and is touched as far as it is filled.
struct Zstd {
    wire: Wire,
    context: DCtx<'static>,
    memory: Memory,
    decoded: usize,
    is_within_frame: bool,
    /// Whether more may be given without further input.
    has_more: bool,
}

impl Zstd {
    fn new(wire: Wire, share: &CallShare) -> io::Result<Self> {
        let mut context = DCtx::try_create().ok_or_else(out_of_memory)?;
        context.set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG)).map_err(failed)?;
        let memory = take(share, context.sizeof())?;
        Ok(Self { wire, context, memory, decoded: 0, is_within_frame: false, has_more: false })
    }
}

impl Read for Zstd {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Self { wire, context, memory, decoded, is_within_frame, has_more } = self;
        loop {
            let given = wire.given();
            if given.is_empty() && !*has_more {
                let error = wire.starved();
                let is_end = error.kind() == io::ErrorKind::UnexpectedEof && !*is_within_frame;
                return if is_end { Ok(0) } else { Err(error) };
            }
            let (mut input, mut output) = (InBuffer::around(given), OutBuffer::around(&mut *out));
            let hint = context.decompress_stream(&mut output, &mut input).map_err(failed)?;
            let (read, written) = (input.pos(), output.pos());
            *is_within_frame = hint != 0;
            *has_more = *is_within_frame && written == out.len();
            wire.consume(read);
            *decoded += written;
            if !memory.resize(context.sizeof().min(ZSTD_MEMORY + *decoded)) {
                return Err(out_of_memory());
            }
            if written > 0 {
                return Ok(written);
            }
        }
    }
}

impl Decode for Zstd {
    fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, get_error_name(code))
}
