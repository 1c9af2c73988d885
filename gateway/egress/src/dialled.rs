//! A dialled connection, and whether it may be kept for further calls.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use farthing_shares::{Division, Slot, Slots};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::party::Party;

/// The connections that may be kept open between calls, divided among the parties that they were dialled for. A pool limits
/// those of one host only, and a caller may name any number of hosts.
#[derive(Debug, Clone)]
pub struct Kept(Slots<Party>);

impl Kept {
    /// At most `all`, and `of_one` of them for a party that is alone.
    pub fn new(all: usize, of_one: usize) -> Self {
        Self(Slots::new(Division::of(all, of_one)))
    }
}

/// A dialled connection.
#[derive(Debug)]
pub struct Dialled {
    stream: TokioIo<TcpStream>,
    /// Its slot of those that are kept. Without one it ends after its call.
    kept: Option<Slot<Party>>,
}

impl Dialled {
    pub(crate) fn new(stream: TokioIo<TcpStream>, kept: &Kept, party: Party) -> Self {
        Self { stream, kept: kept.0.take(party) }
    }

    #[cfg(test)]
    pub(crate) fn into_inner(self) -> TcpStream {
        self.stream.into_inner()
    }
}

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        let connected = self.stream.connected();
        if self.kept.is_none() {
            // The pool takes no such connection back.
            connected.poison();
        }
        connected
    }
}

impl Read for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Dialled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_party_keeps_its_share_and_leaves_some_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Kept::new(8, 6);
        let dialled = async |party| {
            let stream = TcpStream::connect(address).await.unwrap();
            Dialled::new(TokioIo::new(stream), &kept, Party(party))
        };
        let mut of_one = Vec::new();
        for _ in 0..20 {
            of_one.push(dialled(1).await);
        }
        let is_kept = |dialled: &Dialled| dialled.kept.is_some();
        assert_eq!(of_one.iter().filter(|dialled| is_kept(dialled)).count(), 6);
        assert!(is_kept(&dialled(2).await), "one of another party");
        assert!(!is_kept(&dialled(1).await));
        drop(of_one);
        assert!(is_kept(&dialled(1).await), "its slots are free again");
    }
}
