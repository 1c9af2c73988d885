//! The response body to the caller. It passes every byte as it comes, except for chunks that the filter removes, and
//! holds back the end until the call is settled. Each call is settled exactly once, whether its response completes,
//! fails or loses its caller.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::call_times::CallTimes;
use super::drain::{drain, end_of};
use super::pieces::MAX_FIRST_PIECE;
use super::provider_response::{Passed, ProviderResponse};
use super::response_change::NotConverted;
use super::settlement::{ResponseEnd, Unsettled};
use crate::app::App;

/// Why a response is cut short.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseError {
    #[error("the provider's response failed: {0}")]
    Provider(#[from] hyper::Error),
    #[error("the provider sent nothing for too long")]
    Idle,
    #[error("the provider closed its connection within a document")]
    BrokenOff,
    #[error(transparent)]
    NotConverted(#[from] NotConverted),
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, ResponseError>>>;

/// How far a response has come.
enum ResponsePhase {
    /// Frames pass.
    Streaming(Box<ProviderResponse>),
    /// The settlement is pending. The last frame, or the error that ended the response, follows it.
    Settling(JoinHandle<Result<ResponseEnd, Unsettled>>, Option<Result<Frame<Bytes>, ResponseError>>),
    /// Nothing follows.
    Done,
}

/// The form in which a response passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassedForm {
    /// That of the provider.
    Providers,
    /// That of the caller, converted.
    Converted,
}

/// The longest body that is read before the head is sent, if all of it has come.
const MAX_WHOLE: u64 = MAX_FIRST_PIECE as u64;

/// A response body that settles its call before it ends.
pub(crate) struct MeteredBody {
    phase: ResponsePhase,
    /// A frame that was read before the head was sent, or a failure. It comes before all others.
    first: Option<Result<Frame<Bytes>, ResponseError>>,
    /// Whether what comes before `first` was sent, if that is an error.
    is_sent_before_error: bool,
    form: PassedForm,
    silence: SilenceTimer,
    /// Whether the next piece waits until those before it are read.
    is_reading: bool,
    /// Whether the provider's response is being read. It stays so after a panic.
    is_polled: bool,
    /// The times of the call, once its response has come to its end.
    times: Option<(Arc<App>, CallTimes)>,
}

impl MeteredBody {
    pub(super) fn new(response: ProviderResponse) -> Self {
        let silence = SilenceTimer::new(response.forwarder.app.timeouts.silence);
        let form = if response.change.decides_head() { PassedForm::Converted } else { PassedForm::Providers };
        Self {
            phase: ResponsePhase::Streaming(Box::new(response)),
            first: None,
            is_sent_before_error: false,
            form,
            silence,
            is_reading: false,
            is_polled: false,
            times: None,
        }
    }

    /// Settles the call at once if the whole body came with its head. Head and body are then sent in one write, and a
    /// caller whose call cannot be settled gets an error instead of a response that breaks off.
    pub(super) async fn settle_if_whole(&mut self) -> Result<(), Unsettled> {
        let ResponsePhase::Streaming(response) = &self.phase else { return Ok(()) };
        if response.remaining.is_none_or(|length| length > MAX_WHOLE) {
            return Ok(());
        }
        let first = match poll_fn(|cx| Poll::Ready(self.poll_streaming(cx))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending if matches!(self.phase, ResponsePhase::Settling(..)) => {
                poll_fn(|cx| self.poll_settling(cx)).await
            }
            Poll::Pending => None,
        };
        match first {
            Some(Err(ResponseError::Unsettled(unsettled))) => Err(unsettled),
            first => {
                self.first = first;
                Ok(())
            }
        }
    }

    /// Waits for the first bytes that pass of a converted response, or for its end: they decide about the head. An error in
    /// their place comes when the call is settled.
    pub(super) async fn wait_for_head(&mut self) -> Result<Result<(), ResponseError>, Unsettled> {
        match poll_fn(|cx| self.poll_next(cx)).await {
            Some(Err(ResponseError::Unsettled(unsettled))) => Err(unsettled),
            Some(Err(error)) => Ok(Err(error)),
            first => {
                self.first = first;
                Ok(Ok(()))
            }
        }
    }

    /// Whether the call is settled.
    pub(super) const fn is_settled(&self) -> bool {
        matches!(self.phase, ResponsePhase::Done)
    }

    /// Reads the provider's response to its end, which nobody gets, and does not wait for the settlement.
    pub(super) async fn read_to_end(&mut self) {
        if let ResponsePhase::Streaming(response) = &mut self.phase {
            response.leave();
        }
        let is_read = |body: &Self| !matches!(body.phase, ResponsePhase::Streaming(_));
        while !is_read(self) {
            poll_fn(|cx| match self.poll_next(cx) {
                Poll::Pending if !is_read(self) => Poll::Pending,
                Poll::Pending | Poll::Ready(_) => Poll::Ready(()),
            })
            .await;
        }
    }

    /// Settles the call if its response has come to its end and waits only to be converted. False if more of it may come.
    pub(super) fn settle_if_read(&mut self) -> bool {
        let ResponsePhase::Streaming(response) = &mut self.phase else { return true };
        let end = end_of(ResponseEnd::CALLER_GONE, response.come.as_ref(), &mut response.recorder);
        if end != ResponseEnd::Complete {
            return false;
        }
        if let ResponsePhase::Streaming(response) = std::mem::replace(&mut self.phase, ResponsePhase::Done) {
            self.phase = ResponsePhase::Settling(response.settle(end), None);
        }
        true
    }

    /// Closes the provider's connection, and gives a settlement up: the call was never opened.
    pub(super) fn leave(mut self) {
        if let ResponsePhase::Settling(settlement, _) =
            std::mem::replace(&mut self.phase, ResponsePhase::Done)
        {
            settlement.abort();
        }
    }

    /// The next frame for the caller.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if matches!(self.first, Some(Err(_))) && !self.is_sent_before_error {
            // The server sends the head, and frames, when the body is not ready, and would drop them with an error.
            self.is_sent_before_error = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        match &self.phase {
            ResponsePhase::Streaming(_) => self.poll_streaming(cx),
            ResponsePhase::Settling(..) => self.poll_settling(cx),
            ResponsePhase::Done => Poll::Ready(None),
        }
    }

    fn poll_streaming(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        self.is_polled = true;
        let frame = self.poll_upstream(cx);
        self.is_polled = false;
        frame
    }

    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let (end, last) = loop {
            let ResponsePhase::Streaming(response) = &mut self.phase else { return Poll::Ready(None) };
            response.times.stop_waiting();
            if response.poll_ready(cx).is_pending() {
                self.is_reading = true;
                return Poll::Pending;
            }
            if std::mem::take(&mut self.is_reading) {
                // Nothing was awaited from the provider.
                self.silence.frame_received();
            }
            match response.poll_passed(cx) {
                Poll::Ready(Ok(Passed::Inner(passed, _))) => {
                    self.silence.frame_received();
                    if let Some(frame) = passed {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Poll::Ready(Ok(Passed::End(passed))) => break (ResponseEnd::Complete, end(passed)),
                Poll::Ready(Err(error)) => break (response.broken_off(), Some(Err(error.into()))),
                Poll::Pending if response.has_come() => {
                    self.is_reading = true;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    response.times.wait_for_provider();
                    ready!(self.silence.poll(cx));
                    break (ResponseEnd::STOPPED_WAITING, Some(Err(ResponseError::Idle)));
                }
            }
        };
        if let ResponsePhase::Streaming(mut response) =
            std::mem::replace(&mut self.phase, ResponsePhase::Done)
        {
            self.times = Some((Arc::clone(&response.forwarder.app), response.take_times()));
            // Bytes held back are sent before the error.
            let held = if matches!(last, Some(Err(_))) { response.change.held_back() } else { None };
            self.phase = ResponsePhase::Settling(response.settle(end), last);
            if let Some(held) = held {
                return Poll::Ready(Some(Ok(held)));
            }
        }
        self.poll_settling(cx)
    }

    fn poll_settling(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let ResponsePhase::Settling(settlement, last) = &mut self.phase else { return Poll::Ready(None) };
        let settled = ready!(Pin::new(settlement).poll(cx));
        let last = last.take();
        self.phase = ResponsePhase::Done;
        match settled {
            // The provider did not say that it broke off. Such a response has no length, so nothing of it came with its head.
            Ok(Ok(ResponseEnd::Interrupted | ResponseEnd::GivenUp(_))) if !matches!(last, Some(Err(_))) => {
                // What is converted is not completed.
                match last.filter(|_| self.form == PassedForm::Providers) {
                    None => Poll::Ready(Some(Err(ResponseError::BrokenOff))),
                    held => {
                        self.first = Some(Err(ResponseError::BrokenOff));
                        Poll::Ready(held)
                    }
                }
            }
            Ok(Ok(_)) => {
                if let (Some((app, times)), None | Some(Ok(_))) = (self.times.take(), &last) {
                    times.passed_on(&app.metrics.forward);
                }
                Poll::Ready(last)
            }
            Ok(Err(unsettled)) => Poll::Ready(Some(Err(unsettled.into()))),
            Err(_) => Poll::Ready(Some(Err(Unsettled::Stopping.into()))),
        }
    }
}

/// The end of a response for the caller.
fn end(end: Result<Option<Frame<Bytes>>, NotConverted>) -> Option<Result<Frame<Bytes>, ResponseError>> {
    end.map_err(ResponseError::from).transpose()
}

/// Measures how long the provider sends nothing. The sleep is moved only when it fires, not with every frame.
struct SilenceTimer {
    timeout: Duration,
    last_frame_at: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl SilenceTimer {
    fn new(timeout: Duration) -> Self {
        let now = Instant::now();
        Self { timeout, last_frame_at: now, sleep: Box::pin(tokio::time::sleep_until(now + timeout)) }
    }

    fn frame_received(&mut self) {
        self.last_frame_at = Instant::now();
    }

    /// Ready once no frame was received for the timeout.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            let due = self.last_frame_at + self.timeout;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        if let ResponsePhase::Streaming(response) = &mut this.phase {
            response.caller_pauses.ended();
        }
        let frame = this.poll_next(cx);
        if let (ResponsePhase::Streaming(response), Poll::Ready(Some(Ok(_)))) = (&mut this.phase, &frame) {
            response.caller_pauses.frame_passed();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && matches!(self.phase, ResponsePhase::Done)
    }

    fn size_hint(&self) -> SizeHint {
        let first = match &self.first {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => return SizeHint::default(),
            None => 0,
        };
        match &self.phase {
            ResponsePhase::Streaming(response) if !response.change.is_none() => SizeHint::default(),
            ResponsePhase::Streaming(response) => {
                let rest = response.upstream.size_hint();
                rest.exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(first + rest))
            }
            ResponsePhase::Settling(_, Some(Ok(frame))) => {
                SizeHint::with_exact(frame.data_ref().map_or(0, |data| data.len() as u64))
            }
            ResponsePhase::Settling(..) => SizeHint::default(),
            ResponsePhase::Done => SizeHint::with_exact(first),
        }
    }
}

impl Drop for MeteredBody {
    /// Drains the provider's response if the caller disconnected before its end. What it left by a panic of its own is not
    /// read on.
    fn drop(&mut self) {
        if self.is_polled {
            return;
        }
        if let ResponsePhase::Streaming(mut response) =
            std::mem::replace(&mut self.phase, ResponsePhase::Done)
        {
            response.caller_pauses.ended();
            let tasks = response.forwarder.tasks.clone();
            tasks.spawn(drain(*response));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_measured_from_the_last_frame() {
        const SILENCE: Duration = Duration::from_mins(5);
        let mut timer = SilenceTimer::new(SILENCE);
        let started = Instant::now();
        for _ in 0..3 {
            let silent = timeout(SILENCE / 2, poll_fn(|cx| timer.poll(cx))).await;
            assert!(silent.is_err(), "a frame comes in time");
            timer.frame_received();
        }
        let last_frame_at = Instant::now();
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(last_frame_at.elapsed(), SILENCE);
        assert!(started.elapsed() > SILENCE * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_polled_late_is_ready_at_once() {
        const SILENCE: Duration = Duration::from_secs(1);
        let mut timer = SilenceTimer::new(SILENCE);
        sleep(SILENCE * 2).await;
        let late = Instant::now();
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(late.elapsed(), Duration::ZERO);
    }
}
