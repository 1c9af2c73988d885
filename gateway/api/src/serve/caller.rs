//! A caller's connection, as hyper sees it. It adds three things to the socket: a timeout for callers that do not read
//! their answer; the error envelope in place of hyper's own bare answer to a request head that it cannot read; and a reset
//! in place of an end that would pass for the end of an unfinished response. Hyper's own answers are the bytes written
//! while no handler is responding.
//! Hyper takes up to several hundred KiB of a response before its caller reads any of it. A call with a long response is in
//! flight until all of it is sent, so that the limits of calls also bound this memory.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf as _, Bytes, BytesMut};
use farthing_core::ids::RequestId;
use http::{StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::limits::CallInFlight;
use crate::error::{ApiError, ProtocolError};
use crate::headers::SERVICE_REQUEST_ID;

/// How long, and for how many bytes, the connection is read after a request was refused unread. Closing it immediately
/// would reset the connection before the caller receives the refusal.
const LINGER: Duration = Duration::from_secs(5);
const MAX_LINGER_BYTES: usize = 16 * 1024 * 1024;

/// A call with a longer response is in flight until all of it is sent. The end of a shorter one is noted before its caller
/// has it, so that the caller's next call never finds it still in flight.
const SHORT_RESPONSE: usize = 64 * 1024;

/// Who produces the bytes being written: hyper or a handler. Also whether the last request's body was left unread, and
/// whether its response is unfinished.
#[derive(Debug, Clone, Default)]
pub(super) struct Speaker(Arc<Exchange>);

#[derive(Debug, Default)]
struct Exchange {
    phase: AtomicU8,
    is_unread: AtomicBool,
    /// Whether the end of the connection would pass for the end of a response of which not all was sent.
    ending: AtomicU8,
    /// The call whose long response hyper has, but may not have written.
    unsent: Mutex<Option<CallInFlight>>,
}

/// All of the response was sent, or its end is told from the end of the connection.
const SENT: u8 = 0;
/// More of the response follows.
const UNFINISHED: u8 = 1;
/// Hyper has all of the response, but may not have written it.
const TO_BE_SENT: u8 = 2;

/// No handler is responding: hyper produces the bytes.
const HYPER: u8 = 0;
/// A handler is responding.
const HANDLER: u8 = 1;
/// Hyper has the handler's whole response, but may not have written all of it.
const FLUSHING: u8 = 2;

impl Speaker {
    /// A handler begins to respond.
    pub(super) fn start_handler(&self) -> HandlerResponse {
        self.0.phase.store(HANDLER, Ordering::Relaxed);
        self.0.is_unread.store(false, Ordering::Relaxed);
        HandlerResponse(self.clone())
    }

    /// The body of the request that a handler reads, or leaves unread.
    pub(super) fn request_body(&self, body: Incoming) -> RequestBody {
        RequestBody { body, is_read: false, speaker: self.clone() }
    }

    fn is_hyper(&self) -> bool {
        self.0.phase.load(Ordering::Relaxed) == HYPER
    }

    /// Everything written so far has been sent.
    fn flushed(&self) {
        let Exchange { phase, ending, .. } = &*self.0;
        let _ = ending.compare_exchange(TO_BE_SENT, SENT, Ordering::Relaxed, Ordering::Relaxed);
        if phase.compare_exchange(FLUSHING, HYPER, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.unsent(None);
        }
    }

    /// Notes the call whose response is to be sent. The one before it has ended.
    fn unsent(&self, call: Option<CallInFlight>) {
        *self.0.unsent.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }
}

/// A handler's response in progress.
#[derive(Debug)]
pub(super) struct HandlerResponse(Speaker);

impl HandlerResponse {
    /// The response's body, to a request of `version`. The response ends when it is dropped, and `call` with it or with the
    /// last byte.
    pub(super) fn until_end_of(
        self,
        body: Body,
        version: Version,
        call: Option<CallInFlight>,
    ) -> HandlerBody {
        // HTTP/1.0 has no chunks: a body of unknown length ends with the connection.
        let ends_with_connection = version < Version::HTTP_11 && body.size_hint().exact().is_none();
        let ending = if ends_with_connection { UNFINISHED } else { SENT };
        self.0.0.ending.store(ending, Ordering::Relaxed);
        HandlerBody { body, passed: 0, response: self, call }
    }
}

impl Drop for HandlerResponse {
    fn drop(&mut self) {
        self.0.0.phase.store(FLUSHING, Ordering::Relaxed);
    }
}

/// The body of a handler's response.
#[derive(Debug)]
pub(super) struct HandlerBody {
    body: Body,
    /// The bytes that hyper has taken.
    passed: usize,
    response: HandlerResponse,
    call: Option<CallInFlight>,
}

impl Drop for HandlerBody {
    fn drop(&mut self) {
        if self.passed > SHORT_RESPONSE {
            self.response.0.unsent(self.call.take());
        }
    }
}

impl HttpBody for HandlerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_cut = matches!(frame, Some(Err(_)));
        if let Some(Ok(frame)) = &frame {
            self.passed = self.passed.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        }
        if !is_cut && (frame.is_none() || self.body.is_end_stream()) {
            let ending = &self.response.0.0.ending;
            let _ = ending.compare_exchange(UNFINISHED, TO_BE_SENT, Ordering::Relaxed, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    is_read: bool,
    speaker: Speaker,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.is_read |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_read && !self.body.is_end_stream() {
            self.speaker.0.is_unread.store(true, Ordering::Relaxed);
        }
    }
}

/// A stream that can be reset: its other end then gets an error in place of the end of the stream.
pub(super) trait Reset {
    /// Resets the stream when it is dropped.
    fn reset(&mut self);
}

impl Reset for TcpStream {
    fn reset(&mut self) {
        if let Err(error) = self.set_zero_linger() {
            tracing::warn!(event = "server.connection_not_reset", %error, "a cut response may pass for a whole one");
        }
    }
}

/// A caller's connection.
pub(super) struct CallerConnection<S: Reset, I> {
    stream: S,
    speaker: Speaker,
    /// How long the caller may read nothing of its answer.
    stall_timeout: Duration,
    /// Makes the id of a refused request.
    new_id: I,
    /// Runs while the caller reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    is_stalled: bool,
    /// The unsent rest of the envelope that replaces hyper's answer.
    refusal: BytesMut,
    /// Bytes that may still be read after a refusal; `None` without one.
    linger: Option<usize>,
}

impl<S: Reset, I> CallerConnection<S, I> {
    /// The connection at `stream`. `speaker` says when a handler responds on it.
    pub(super) fn new(stream: S, speaker: Speaker, stall_timeout: Duration, new_id: I) -> Self {
        let refusal = BytesMut::new();
        Self {
            stream,
            speaker,
            stall_timeout,
            new_id,
            stalled: None,
            is_stalled: false,
            refusal,
            linger: None,
        }
    }

    /// Polls the timer, and starts it if it is not running.
    fn poll_timer(&mut self, cx: &mut Context<'_>, time: Duration) -> Poll<()> {
        let timer = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        if !self.is_stalled {
            self.is_stalled = true;
            timer.as_mut().reset(Instant::now() + time);
        }
        timer.as_mut().poll(cx)
    }

    /// Passes `progress` on, or fails after too long without any.
    fn watch<T>(&mut self, progress: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.is_stalled = false;
            return progress;
        }
        ready!(self.poll_timer(cx, self.stall_timeout));
        tracing::info!(
            event = "server.caller_stalled",
            "the caller does not read its answer; closing its connection"
        );
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Reset + Unpin, I: Fn() -> RequestId> CallerConnection<S, I> {
    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.refusal.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.refusal);
            let written = ready!(self.watch(written, cx))?;
            self.refusal.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Replaces hyper's own error response with the envelope. Returns the bytes consumed, or `None` if a handler is
    /// responding.
    fn refuse(&mut self, parts: &[IoSlice<'_>]) -> Option<usize> {
        if !self.speaker.is_hyper() {
            return None;
        }
        let head: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let id = (self.new_id)();
        self.refusal = BytesMut::from(envelope(&head, id)?.as_slice());
        self.linger = Some(MAX_LINGER_BYTES);
        Some(head.len())
    }

    /// Reads and discards bytes of a refused caller for a limited time.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 8 * 1024];
        while let Some(left) = self.linger {
            let mut read = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    self.linger = left.checked_sub(read.filled().len());
                }
                Poll::Ready(_) => self.linger = None,
                Poll::Pending => {
                    ready!(self.poll_timer(cx, LINGER));
                    self.linger = None;
                }
            }
        }
        Poll::Ready(())
    }
}

/// The envelope for hyper's bare error response `head`; `None` if it is no error.
fn envelope(head: &[u8], id: RequestId) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let error = match StatusCode::from_u16(status).ok()? {
        status if !status.is_client_error() => return None,
        StatusCode::URI_TOO_LONG => ApiError::Protocol(ProtocolError::UriTooLong),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => ApiError::Protocol(ProtocolError::HeadTooLarge),
        _ => ApiError::issue([""; 0], "is not a well-formed HTTP request"),
    };
    let (_, _, body) = error.into_parts();
    let content = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n{SERVICE_REQUEST_ID}: {id}",
        body.len()
    );
    let kept = head.split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
    let lines: Vec<&str> = kept.chain([content.as_str(), "\r\n"]).collect();
    let mut answer = lines.join("\r\n").into_bytes();
    answer.extend_from_slice(&body);
    Some(answer)
}

impl<S: AsyncRead + Reset + Unpin, I: Unpin> AsyncRead for CallerConnection<S, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Reset + Unpin, I: Fn() -> RequestId + Unpin> AsyncWrite
    for CallerConnection<S, I>
{
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_refusal(cx))?;
        if let Some(taken) = this.refuse(parts) {
            return Poll::Ready(Ok(taken));
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.watch(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_refusal(cx))?;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        ready!(this.watch(flushed, cx))?;
        this.speaker.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_refusal(cx))?;
        ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        if this.speaker.0.is_unread.swap(false, Ordering::Relaxed) {
            this.linger = Some(MAX_LINGER_BYTES);
        }
        ready!(this.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}

impl<S: Reset, I> Drop for CallerConnection<S, I> {
    fn drop(&mut self) {
        if self.speaker.0.ending.load(Ordering::Relaxed) != SENT {
            self.stream.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    #[test]
    fn bare_errors_of_hyper_become_envelopes() {
        let id = RequestId::new(Ulid::nil());
        for (head, code) in [
            ("HTTP/1.1 400 Bad Request", "validation_error"),
            ("HTTP/1.0 414 URI Too Long", "uri_too_long"),
            ("HTTP/1.1 431 Request Header Fields Too Large", "headers_too_large"),
        ] {
            let bare = format!("{head}\r\nConnection: close\r\nContent-Length: 0\r\ndate: today\r\n\r\n");
            let answer = String::from_utf8(envelope(bare.as_bytes(), id).unwrap()).unwrap();
            let (answered, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(
                answered.starts_with(&format!("{head}\r\nConnection: close\r\ndate: today\r\n")),
                "{answered}"
            );
            assert!(answered.contains(&format!("content-length: {}\r\n", body.len())), "{answered}");
            assert!(answered.ends_with(&format!("x-service-request-id: {id}")), "{answered}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["error"]["code"], code);
            assert_eq!(body["error"]["status"].to_string(), head[9..12]);
        }
        for other in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 400 Bad", "\u{fffd}", ""] {
            assert_eq!(envelope(other.as_bytes(), id), None, "{other}");
        }
    }

    #[test]
    fn a_handler_speaks_until_its_last_byte_is_sent() {
        let speaker = Speaker::default();
        assert!(speaker.is_hyper());
        let handler = speaker.start_handler();
        speaker.flushed();
        assert!(!speaker.is_hyper(), "part of a response was flushed");
        drop(handler.until_end_of(Body::empty(), Version::HTTP_11, None));
        assert!(!speaker.is_hyper(), "the end of the response is not sent");
        speaker.flushed();
        assert!(speaker.is_hyper());
    }
}
