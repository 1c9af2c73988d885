//! A body in pieces of bounded size, which take turns with those of the merchant's other bodies. A pause for other tasks
//! comes between the pieces of a long frame, or after several that are short.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::turns::Turn;

/// The most bytes of a body's first piece. A response that is no longer can be settled with its head.
pub(super) const MAX_FIRST_PIECE: usize = 64 * 1024;

/// The most bytes of each further piece: what is scanned and filtered in one step. After so many of a frame, with what was
/// written for them, other tasks run.
const MAX_PIECE: usize = 16 * 1024;

/// The most bytes of a piece whose events are converted. Each byte may become about 60.
const MAX_CONVERTED_PIECE: usize = 2 * 1024;

/// A body that comes in pieces.
#[derive(Debug)]
pub(super) struct Pieces<B> {
    body: B,
    turn: Turn,
    /// What has come and not passed.
    rest: Bytes,
    /// The most bytes of the next piece.
    max: usize,
    /// The bytes of the frame that have passed since other tasks ran, and those that were written beyond them.
    since_pause: usize,
}

impl<B: Body<Data = Bytes> + Unpin> Pieces<B> {
    pub(super) const fn new(body: B, turn: Turn) -> Self {
        Self::begin(body, turn, MAX_FIRST_PIECE)
    }

    /// A body whose events are converted as they come.
    pub(super) const fn converted(body: B, turn: Turn) -> Self {
        Self::begin(body, turn, MAX_CONVERTED_PIECE)
    }

    const fn begin(body: B, turn: Turn, max: usize) -> Self {
        Self { body, turn, rest: Bytes::new(), max, since_pause: 0 }
    }

    /// Ready once other tasks have run, if much of a long frame has passed since they last did.
    pub(super) fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.rest.is_empty() || self.since_pause < MAX_PIECE {
            return Poll::Ready(());
        }
        self.since_pause = 0;
        yield_task(cx);
        Poll::Pending
    }

    /// The next frame, or the next piece of a long one.
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(data) => {
                    self.rest = data;
                    self.since_pause = 0;
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        ready!(self.turn.poll(cx));
        let piece = self.rest.split_to(self.rest.len().min(self.max));
        self.turn.passed(piece.len());
        self.max = self.max.min(MAX_PIECE);
        self.since_pause += piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// So many bytes were written for the caller beyond those that came.
    pub(super) const fn written(&mut self, bytes: usize) {
        self.turn.written(bytes);
        self.since_pause = self.since_pause.saturating_add(bytes);
    }

    /// Whether a piece has come and not passed.
    pub(super) const fn has_come(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Waits after bytes that were read although no caller wants them.
    pub(super) async fn drained(&mut self, bytes: usize) {
        self.turn.drained(bytes).await;
    }

    /// Whether nothing follows.
    pub(super) fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    /// The bytes that follow.
    pub(super) fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        self.body.size_hint().exact().map_or_else(SizeHint::default, |body| SizeHint::with_exact(body + rest))
    }
}

/// Wakes the task again after others have run.
pub(super) fn yield_task(cx: &mut Context<'_>) {
    let mut others = std::pin::pin!(tokio::task::yield_now());
    // It wakes the task however long it lives itself.
    let _ = others.as_mut().poll(cx);
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body_util::{BodyExt as _, Full};

    use super::super::turns::{Turns, tests::merchant};
    use super::*;

    fn pieces<B: Body<Data = Bytes> + Unpin>(body: B) -> Pieces<B> {
        Pieces::new(body, Turns::default().body_of(merchant(1)))
    }

    #[tokio::test]
    async fn a_long_frame_passes_in_pieces_with_pauses_between_them() {
        let long: Bytes = (0..=250).cycle().take(MAX_FIRST_PIECE + MAX_PIECE + 5).collect();
        let first = MAX_FIRST_PIECE;
        for (length, count_of) in [(0, 0_usize), (1, 1), (first, 1), (first + 1, 2), (long.len(), 3)] {
            let mut body = pieces(Full::new(long.slice(..length)));
            let (mut read, mut count, mut pauses) = (Vec::new(), 0, 0);
            loop {
                let is_paused = poll_fn(|cx| Poll::Ready(body.poll_pause(cx).is_pending())).await;
                pauses += usize::from(is_paused);
                assert_eq!(body.size_hint().exact(), Some((length - read.len()) as u64));
                let Some(frame) = poll_fn(|cx| body.poll_piece(cx)).await else { break };
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() <= if count == 0 { first } else { MAX_PIECE });
                read.extend_from_slice(&piece);
                count += 1;
            }
            assert_eq!((count, pauses), (count_of, count_of.saturating_sub(1)), "{length} bytes");
            assert_eq!(read, long.slice(..length), "{length} bytes");
        }
    }

    #[tokio::test]
    async fn what_is_converted_comes_in_short_pieces() {
        let long = Full::new(Bytes::from(vec![0; MAX_CONVERTED_PIECE * 3]));
        let mut body = Pieces::converted(long, Turns::default().body_of(merchant(1)));
        for _ in 0..3 {
            let frame = poll_fn(|cx| body.poll_piece(cx)).await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap().len(), MAX_CONVERTED_PIECE);
        }
        assert!(poll_fn(|cx| body.poll_piece(cx)).await.is_none());
    }

    #[tokio::test]
    async fn short_pieces_of_a_frame_have_a_pause_after_16_kib_of_them_and_of_what_was_written_for_them() {
        const COUNT: usize = 4 * MAX_PIECE / MAX_CONVERTED_PIECE;
        for (written, expected) in [(0, 3), (MAX_PIECE - MAX_CONVERTED_PIECE, COUNT - 1)] {
            let long = Full::new(Bytes::from(vec![0; 4 * MAX_PIECE]));
            let mut body = Pieces::converted(long, Turns::default().body_of(merchant(1)));
            let (mut count, mut pauses) = (0, 0);
            loop {
                let is_paused = poll_fn(|cx| Poll::Ready(body.poll_pause(cx).is_pending())).await;
                pauses += usize::from(is_paused);
                let Some(frame) = poll_fn(|cx| body.poll_piece(cx)).await else { break };
                assert_eq!(frame.unwrap().into_data().unwrap().len(), MAX_CONVERTED_PIECE);
                body.written(written);
                count += 1;
            }
            assert_eq!((count, pauses), (COUNT, expected), "{written} bytes more for each");
        }
    }

    #[tokio::test]
    async fn other_tasks_run_before_a_task_that_pauses_goes_on() {
        let mut body = pieces(Full::new(Bytes::from(vec![0; MAX_FIRST_PIECE + 1])));
        let other = std::rc::Rc::new(std::cell::Cell::new(false));
        let local = tokio::task::LocalSet::new();
        let has_run = std::rc::Rc::clone(&other);
        local.spawn_local(async move { has_run.set(true) });
        local
            .run_until(async move {
                poll_fn(|cx| body.poll_piece(cx)).await.unwrap().unwrap();
                poll_fn(|cx| body.poll_pause(cx)).await;
                assert!(other.get());
            })
            .await;
    }

    #[tokio::test]
    async fn trailers_pass() {
        let trailers = async { Some(Ok(http::HeaderMap::new())) };
        let mut body = pieces(Box::pin(Full::new(Bytes::from_static(b"x")).with_trailers(trailers)));
        assert!(poll_fn(|cx| body.poll_piece(cx)).await.unwrap().unwrap().is_data());
        assert!(poll_fn(|cx| body.poll_piece(cx)).await.unwrap().unwrap().is_trailers());
        assert!(poll_fn(|cx| body.poll_piece(cx)).await.is_none());
    }
}
