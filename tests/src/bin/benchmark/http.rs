//! A cheap load generator: prebuilt requests over kept connections; responses are parsed only to find their end.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::appends::joined;
use crate::latency::{Latencies, since};

/// Sends `request` repeatedly on `connections` connections for `length`, after a warm-up second that is not counted.
pub(crate) async fn load(
    to: SocketAddr,
    request: Vec<u8>,
    connections: usize,
    length: Duration,
) -> Latencies {
    let start = Instant::now() + Duration::from_secs(1);
    let tasks = (0..connections)
        .map(|_| {
            let request = request.clone();
            tokio::spawn(
                async move { one(to, &request, start, start + length).await.expect("a kept connection") },
            )
        })
        .collect();
    Latencies::join(&joined(tasks).await, length)
}

async fn one(to: SocketAddr, request: &[u8], start: Instant, end: Instant) -> io::Result<Vec<u32>> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut micros = Vec::with_capacity(100_000);
    loop {
        let sent = Instant::now();
        stream.write_all(request).await?;
        answer(&mut stream, &mut buffer).await?;
        if sent >= end {
            return Ok(micros);
        }
        if sent >= start {
            micros.push(since(sent));
        }
    }
}

/// Reads one response, which must be a 200.
async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    let mut wanted = None;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        let there = &buffer[..filled];
        if wanted.is_none() {
            wanted = end_of_head(there)?;
        }
        let done = match wanted {
            None => false,
            Some(End::At(length)) => filled >= length,
            Some(End::LastChunk) => there.ends_with(b"0\r\n\r\n"),
        };
        if done {
            return Ok(());
        }
    }
}

/// The end of a response.
#[derive(Debug, Clone, Copy)]
enum End {
    /// At this byte.
    At(usize),
    /// With the last chunk.
    LastChunk,
}

fn end_of_head(bytes: &[u8]) -> io::Result<Option<End>> {
    let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200") {
        return Err(io::Error::other(format!("not a 200: {}", String::from_utf8_lossy(bytes))));
    }
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    Ok(Some(length.map_or(End::LastChunk, |length| End::At(at + 4 + length))))
}
