//! HTTP/1.1 on the wire: reads heads and framed bodies from a socket without a library that would normalise them.

use std::io;

use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::OwnedReadHalf;

/// The longest head that is read.
const MAX_HEAD: usize = 256 * 1024;

/// A head: its first line and its headers in order. Bytes beyond ASCII are kept as the characters of their value.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The request line or the status line.
    pub first_line: String,
    /// Names as written, and values.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first value of a header, by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(there, _)| there.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(there, _)| there.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"))
    }

    fn length(&self) -> Option<u64> {
        self.header("content-length").and_then(|length| length.trim().parse().ok())
    }

    /// The framing of this request's body.
    pub fn request_framing(&self) -> Framing {
        if self.is_chunked() { Framing::Chunked } else { Framing::Length(self.length().unwrap_or(0)) }
    }

    /// The framing of the body of this response to `method`.
    pub fn response_framing(&self, method: &str) -> Framing {
        let status = self.first_line.split(' ').nth(1).unwrap_or_default();
        if method == "HEAD" || matches!(status, "204" | "304") {
            return Framing::Length(0);
        }
        if self.is_chunked() {
            return Framing::Chunked;
        }
        self.length().map_or(Framing::UntilClose, Framing::Length)
    }
}

/// The remaining part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks, the next one's size first.
    Chunked,
    /// So many bytes of a chunk, then more chunks.
    InChunk(u64),
    /// Everything until the other side closes.
    UntilClose,
    /// Nothing.
    Done,
}

/// The reading half of a connection.
#[derive(Debug)]
pub struct Wire {
    read: OwnedReadHalf,
    buffer: Vec<u8>,
    start: usize,
    framing: Framing,
    trailers: Vec<String>,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Wire {
    /// Reads from `read`.
    pub fn new(read: OwnedReadHalf) -> Self {
        Self { read, buffer: Vec::new(), start: 0, framing: Framing::Done, trailers: Vec::new() }
    }

    /// Reads more into the buffer; false at the end.
    async fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(64 * 1024);
        Ok(self.read.read_buf(&mut self.buffer).await? > 0)
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// The next head; `None` if the other side closed before it.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        let end = loop {
            if let Some(at) = self.pending().windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if self.pending().len() > MAX_HEAD {
                return Err(broken("a head without an end"));
            }
            if !self.fill().await? {
                return if self.pending().is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        };
        let text: String = self.pending()[..end].iter().map(|byte| char::from(*byte)).collect();
        self.start += end + 4;
        let mut lines = text.split("\r\n");
        let first_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim().to_owned())
        });
        Ok(Some(Head { first_line, headers: headers.collect() }))
    }

    /// Sets the framing of the next body.
    pub fn expect(&mut self, framing: Framing) {
        self.trailers.clear();
        self.framing = if framing == Framing::Length(0) { Framing::Done } else { framing };
    }

    /// The next bytes of the body; `None` at its end, an error if the connection closes early.
    pub async fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.framing {
                Framing::Done => return Ok(None),
                Framing::Length(left) => {
                    let piece = self.up_to(left).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    self.expect(Framing::Length(left - piece.len() as u64));
                    return Ok(Some(piece));
                }
                Framing::UntilClose => {
                    let piece = self.up_to(u64::MAX).await?;
                    if piece.is_none() {
                        self.framing = Framing::Done;
                    }
                    return Ok(piece);
                }
                Framing::InChunk(0) => {
                    if !self.line().await?.is_empty() {
                        return Err(broken("a chunk longer than it says"));
                    }
                    self.framing = Framing::Chunked;
                }
                Framing::InChunk(left) => {
                    let piece = self.up_to(left).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    self.framing = Framing::InChunk(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Framing::Chunked => {
                    let line = self.line().await?;
                    let size = line.split(';').next().unwrap_or_default().trim();
                    let size = u64::from_str_radix(size, 16).map_err(|_| broken("a chunk without a size"))?;
                    self.framing = Framing::InChunk(size);
                    if size == 0 {
                        loop {
                            let line = self.line().await?;
                            if line.is_empty() {
                                break;
                            }
                            self.trailers.push(line);
                        }
                        self.framing = Framing::Done;
                    }
                }
            }
        }
    }

    /// The lines of the trailers of the body that was read; none if it had none.
    pub fn trailers(&self) -> &[String] {
        &self.trailers
    }

    /// The rest of the body, and whether it is complete.
    pub async fn rest(&mut self) -> (Vec<u8>, io::Result<()>) {
        let mut body = Vec::new();
        loop {
            match self.piece().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => return (body, Ok(())),
                Err(error) => return (body, Err(error)),
            }
        }
    }

    async fn up_to(&mut self, limit: u64) -> io::Result<Option<Vec<u8>>> {
        if self.pending().is_empty() && !self.fill().await? {
            return Ok(None);
        }
        let there = self.pending();
        let take = there.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let piece = there[..take].to_vec();
        self.start += take;
        Ok(Some(piece))
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.pending().windows(2).position(|window| window == b"\r\n") {
                let line = self.pending()[..at].iter().map(|byte| char::from(*byte)).collect();
                self.start += at + 2;
                return Ok(line);
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
