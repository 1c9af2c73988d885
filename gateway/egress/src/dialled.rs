//! A dialled connection: its place among those that are open, whether it may be kept for further calls, and how long its
//! peer may read nothing.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use farthing_shares::{Division, Slot, Slots};
use futures_util::task::AtomicWaker;
use http::Extensions;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::error::Error;
use crate::party::Party;

/// The connections that may be open, divided among the parties that they are dialled for. A pool limits those of one host
/// only, and a caller may name any number of hosts. Its call's end does not close a connection whose peer has not read all
/// of the request.
#[derive(Debug, Clone)]
pub struct Places {
    /// Of those that may be kept open between calls.
    kept: Slots<Party>,
    /// Of those that end after their calls.
    passing: Slots<Party>,
    /// How long the peer may read nothing while there is something to send.
    stall: Duration,
}

/// How many connections may be open for each call that may be in flight.
pub const CONNECTIONS_PER_CALL: usize = 1 + PASSING_PER_CALL;

/// How many of them are not kept for further calls: that of the call, and one that has not ended with its call, or whose
/// call goes on without its caller.
const PASSING_PER_CALL: usize = 2;

/// The place of an open connection.
#[derive(Debug)]
pub(crate) struct Place {
    _slot: Slot<Party>,
    is_kept: bool,
    stall: Duration,
}

impl Places {
    /// Those for as many calls in flight as `calls`, of which a party that is alone has `of_one`. One whose peer reads nothing
    /// for `stall` ends.
    pub fn new(calls: usize, of_one: usize, stall: Duration) -> Self {
        let slots = |per_call: usize| {
            Slots::new(Division::of(calls.saturating_mul(per_call), of_one.saturating_mul(per_call)))
        };
        Self { kept: slots(1), passing: slots(PASSING_PER_CALL), stall }
    }

    /// A place for a connection of `party`.
    pub(crate) fn take(&self, party: Party) -> Result<Place, Error> {
        let kept = self.kept.take(party);
        let is_kept = kept.is_some();
        let slot = kept.or_else(|| self.passing.take(party)).ok_or(Error::TooManyConnections)?;
        Ok(Place { _slot: slot, is_kept, stall: self.stall })
    }
}

/// A dialled connection.
#[derive(Debug)]
pub struct Dialled {
    stream: TokioIo<TcpStream>,
    place: Place,
    /// While the peer reads nothing of what is to be sent.
    stalled: Option<Stalled>,
    carried: Carried,
}

/// A peer that reads nothing.
#[derive(Debug)]
struct Stalled {
    /// Since when it has neither read nor sent anything.
    since: Instant,
    until: Pin<Box<Sleep>>,
}

/// The call whose request a connection carries. One call follows another.
#[derive(Debug, Clone, Default)]
struct Carried(Arc<Mutex<Option<Arc<CallEnd>>>>);

impl Carried {
    fn call(&self) -> MutexGuard<'_, Option<Arc<CallEnd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a call, as far as its connection is concerned.
#[derive(Debug, Default)]
pub struct CallEnd {
    at: OnceLock<Instant>,
    /// Of the task that writes.
    waker: AtomicWaker,
}

/// How long a peer may read nothing of the request of a call that is over, and how long it may take for all of it. A peer that
/// has answered may still read, and a caller that writes all of its request before it reads the response needs that. A lost
/// packet is sent again after a second.
const READ_ON: Duration = Duration::from_secs(3);
const READ_ALL: Duration = Duration::from_secs(40);

impl CallEnd {
    /// The call's request is sent over `connection`.
    pub fn carried_by(self: &Arc<Self>, connection: &Connected) {
        let mut extras = Extensions::new();
        connection.get_extras(&mut extras);
        if let Some(carried) = extras.get::<Carried>() {
            *carried.call() = Some(Arc::clone(self));
        }
    }

    /// The call is over.
    pub fn now(&self) {
        let _ = self.at.set(Instant::now());
        self.waker.wake();
    }
}

impl Dialled {
    pub(crate) fn new(stream: TokioIo<TcpStream>, place: Place) -> Self {
        Self { stream, place, stalled: None, carried: Carried::default() }
    }

    #[cfg(test)]
    pub(crate) fn into_inner(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// `written`, unless nothing was written for too long.
    fn unless_stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let (now, call) = (Instant::now(), self.carried.call().clone());
        let over_at = call.and_then(|call| {
            call.waker.register(cx.waker());
            call.at.get().copied()
        });
        let stall = self.place.stall;
        let Stalled { since, until } = self.stalled.get_or_insert_with(|| Stalled {
            since: now,
            until: Box::pin(tokio::time::sleep_until(now + stall)),
        });
        let deadline = match over_at {
            None => *since + stall,
            Some(over_at) => (over_at.max(*since) + READ_ON).min(over_at + READ_ALL),
        };
        if until.deadline() != deadline {
            until.as_mut().reset(deadline);
        }
        until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        let connected = self.stream.connected().extra(self.carried.clone());
        if !self.place.is_kept {
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
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready()
            && let Some(stalled) = &mut self.stalled
        {
            // A peer that sends is not silent.
            stalled.since = Instant::now();
        }
        read
    }
}

impl Write for Dialled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_stalled(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is held back here, so this is always ready, and says nothing about what the peer reads.
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.unless_stalled(cx, written)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::SocketAddr;

    use hyper::rt::ReadBuf;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const STALL: Duration = Duration::from_mins(1);

    async fn dialled(address: SocketAddr, places: &Places, party: u128) -> Result<Dialled, Error> {
        let place = places.take(Party(party))?;
        Ok(Dialled::new(TokioIo::new(TcpStream::connect(address).await.unwrap()), place))
    }

    #[tokio::test]
    async fn a_party_keeps_its_share_and_leaves_some_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Places::new(8, 6, STALL);
        let mut of_one = Vec::new();
        let refused = loop {
            match dialled(address, &places, 1).await {
                Ok(dialled) => of_one.push(dialled),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::TooManyConnections), "{refused}");
        let is_kept = |dialled: &Dialled| dialled.place.is_kept;
        assert_eq!(of_one.iter().filter(|dialled| is_kept(dialled)).count(), 6);
        assert_eq!(of_one.len(), 6 * CONNECTIONS_PER_CALL);
        assert!(is_kept(&dialled(address, &places, 2).await.unwrap()), "one of another party");
        drop(of_one);
        assert!(is_kept(&dialled(address, &places, 1).await.unwrap()), "its places are free again");
    }

    /// Writes until the connection fails, or takes no more within `time`. Returns the error.
    async fn write_on(dialled: &mut Dialled, time: Duration) -> Option<io::Error> {
        let writing = async {
            loop {
                let written = poll_fn(|cx| Pin::new(&mut *dialled).poll_write(cx, &[0; 8_192])).await;
                if let Err(error) = written {
                    return error;
                }
            }
        };
        tokio::time::timeout(time, writing).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_whose_peer_reads_nothing_for_too_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut dialled = dialled(address, &Places::new(1, 1, STALL), 1).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        assert!(write_on(&mut dialled, STALL / 2).await.is_none(), "it may pause");
        // What it sends counts as a sign of life.
        peer.write_all(b"x").await.unwrap();
        let mut bytes = [0; 1];
        let mut buffer = ReadBuf::new(&mut bytes);
        poll_fn(|cx| Pin::new(&mut dialled).poll_read(cx, buffer.unfilled())).await.unwrap();
        assert!(write_on(&mut dialled, STALL * 3 / 4).await.is_none(), "it has sent since");
        // So does what it reads.
        read_all(&mut peer).await;
        assert!(write_on(&mut dialled, STALL * 3 / 4).await.is_none(), "it has read since");
        let error = write_on(&mut dialled, STALL).await.expect("it has read nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// Reads all that was written.
    async fn read_all(peer: &mut TcpStream) {
        let mut bytes = vec![0; 1 << 20];
        while tokio::time::timeout(Duration::from_millis(1), peer.read(&mut bytes)).await.is_ok() {}
    }

    /// The end of a call whose request the connection carries from now on.
    fn next_call(dialled: &Dialled) -> Arc<CallEnd> {
        let end = Arc::<CallEnd>::default();
        end.carried_by(&dialled.connected());
        end
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_the_request_of_a_call_that_is_over_has_little_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Places::new(9, 9, STALL);
        let stalled = async || {
            let mut dialled = dialled(address, &places, 1).await.unwrap();
            let (peer, _) = listener.accept().await.unwrap();
            let end = next_call(&dialled);
            assert!(write_on(&mut dialled, STALL / 2).await.is_none());
            (dialled, peer, end)
        };
        let (mut dialled, _peer, end) = stalled().await;
        end.now();
        assert!(write_on(&mut dialled, READ_ON * 2).await.is_some());

        // As long as it reads it has more.
        let (mut dialled, mut peer, end) = stalled().await;
        end.now();
        let ended = Instant::now();
        while ended.elapsed() + READ_ON < READ_ALL {
            assert!(write_on(&mut dialled, READ_ON * 3 / 4).await.is_none());
            read_all(&mut peer).await;
        }
        let mut error = None;
        while error.is_none() {
            error = write_on(&mut dialled, READ_ON * 3 / 4).await;
            read_all(&mut peer).await;
        }
        assert!(ended.elapsed() < READ_ALL + READ_ON, "that was enough");

        // The end of a call says nothing about the next one on its connection, whichever comes first.
        let (mut dialled, mut peer, end) = stalled().await;
        end.now();
        assert!(write_on(&mut dialled, READ_ON / 2).await.is_none());
        read_all(&mut peer).await;
        let second = next_call(&dialled);
        assert!(write_on(&mut dialled, STALL * 3 / 4).await.is_none());
        read_all(&mut peer).await;
        next_call(&dialled);
        second.now();
        assert!(write_on(&mut dialled, STALL * 3 / 4).await.is_none());
    }
}
