//! Draining: reads a provider's response to its end after the caller has disconnected, so that its final usage is
//! charged.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drain_slots::DrainSlot;
use super::provider_response::{Come, Passed, ProviderResponse};
use super::response_recorder::ResponseRecorder;
use super::settlement::ResponseEnd;

/// How long a call goes on after its caller has disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

/// A call that goes on after its caller has disconnected: its drain slot, and the end of its time.
#[derive(Debug)]
pub(super) struct ReadingOn {
    slot: DrainSlot,
    until: Instant,
}

impl ReadingOn {
    /// The time of a call with this slot begins now.
    pub(super) fn begin(slot: DrainSlot) -> Self {
        Self { slot, until: Instant::now() + DRAIN_TIMEOUT }
    }

    /// Resolves at the end of its time, or once its slot is given to another call.
    pub(super) async fn over(&self) {
        // Either way its time is over.
        let _ = tokio::time::timeout_at(self.until, self.slot.revoked()).await;
    }
}

/// Reads the response to its end if a drain slot is free, as long as it has the slot and at most for the drain window, and
/// settles the call.
pub(super) async fn drain(mut response: ProviderResponse) {
    response.leave();
    let forwarder = Arc::clone(&response.forwarder);
    let (reading_on, call) = (response.reading_on.take(), response.call);
    let reading_on = reading_on.or_else(|| forwarder.drain_slot(call).map(ReadingOn::begin));
    let end = match &reading_on {
        Some(reading_on) => {
            within_window(read_to_end(&mut response), reading_on.over(), &forwarder.stop_waiting).await
        }
        None => ResponseEnd::CALLER_GONE,
    };
    let end = end_of(end, response.come.as_ref(), &mut response.recorder);
    drop(reading_on);
    // The settlement logs its own outcome; no caller is left to report it to.
    let _ = response.settle(end).await;
}

/// Waits for the end of a response until its time is `over`, or until `stop`.
async fn within_window(
    end: impl Future<Output = ResponseEnd>,
    over: impl Future<Output = ()>,
    stop: &CancellationToken,
) -> ResponseEnd {
    tokio::select! {
        end = end => end,
        () = over => ResponseEnd::CALLER_GONE,
        () = stop.cancelled() => ResponseEnd::STOPPED_WAITING,
    }
}

/// The end of a response that is read no more. One that has come to its end and waits only to be converted is complete, but is
/// not recorded: the rest of it is not made.
pub(super) fn end_of(
    end: ResponseEnd,
    come: Option<&Come>,
    recorder: &mut Option<ResponseRecorder>,
) -> ResponseEnd {
    if let Some(Come::End(_)) = come {
        *recorder = None;
        return ResponseEnd::Complete;
    }
    end
}

async fn read_to_end(response: &mut ProviderResponse) -> ResponseEnd {
    loop {
        poll_fn(|cx| response.poll_ready(cx)).await;
        // What would pass is recorded, for a later call with the same idempotency key.
        match poll_fn(|cx| response.poll_passed(cx)).await {
            Ok(Passed::Inner(_, bytes)) => response.upstream.drained(bytes).await,
            Ok(Passed::End(_)) => return ResponseEnd::Complete,
            Err(_) => return response.broken_off(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use bytes::Bytes;
    use farthing_core::idempotency::ClaimId;
    use farthing_core::ids::MerchantId;
    use http::{HeaderMap, StatusCode};
    use http_body::Frame;
    use tokio::time::sleep;
    use ulid::Ulid;

    use super::super::drain_slots::{DrainSlots, Drainer};
    use super::*;

    fn reading_on() -> ReadingOn {
        let slot = DrainSlots::default().take(MerchantId::new(Ulid::nil()), Drainer::Merchant);
        ReadingOn::begin(slot.expect("all are free"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_read_until_60_seconds_after_its_caller_has_left() {
        let (stop, started, reading_on) = (CancellationToken::new(), Instant::now(), reading_on());
        let whole = within_window(ready(ResponseEnd::Complete), reading_on.over(), &stop);
        assert_eq!(whole.await, ResponseEnd::Complete);
        let in_time = async {
            sleep(Duration::from_secs(59)).await;
            ResponseEnd::Complete
        };
        assert_eq!(within_window(in_time, reading_on.over(), &stop).await, ResponseEnd::Complete);
        let late = within_window(pending(), reading_on.over(), &stop);
        assert_eq!(late.await, ResponseEnd::CALLER_GONE, "its time began when its caller left");
        assert_eq!(started.elapsed(), Duration::from_mins(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_waits_only_to_be_converted_is_complete_when_its_time_is_over() {
        let piece = || Frame::data(Bytes::from_static(b"x"));
        for (come, is_whole) in [
            (Some(Come::End(None)), true),
            (Some(Come::End(Some(piece()))), true),
            (Some(Come::Inner(piece())), false),
            (None, false),
        ] {
            let claim = ClaimId::stored("claim".to_owned());
            let mut recorder = Some(ResponseRecorder::new(claim, true, StatusCode::OK, &HeaderMap::new()));
            let (stop, reading_on) = (CancellationToken::new(), reading_on());
            let late = within_window(pending(), reading_on.over(), &stop).await;
            let end = end_of(late, come.as_ref(), &mut recorder);
            let expected = if is_whole { ResponseEnd::Complete } else { ResponseEnd::CALLER_GONE };
            assert_eq!((end, recorder.is_none()), (expected, is_whole));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_when_the_gateway_stops_waiting() {
        let (stop, started, reading_on) = (CancellationToken::new(), Instant::now(), reading_on());
        let stopping = async {
            sleep(Duration::from_secs(5)).await;
            stop.cancel();
        };
        let (end, ()) = tokio::join!(within_window(pending(), reading_on.over(), &stop), stopping);
        assert_eq!((end, started.elapsed()), (ResponseEnd::STOPPED_WAITING, Duration::from_secs(5)));
    }
}
