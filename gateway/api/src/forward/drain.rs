//! Draining: reads a provider's response to its end after the caller has disconnected, so that its final usage is
//! charged.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::forwarder::DRAIN_TIMEOUT;
use super::provider_response::{FramePosition, ProviderResponse};
use super::settlement::ResponseEnd;

/// Reads the response to its end if a drain slot is free, for at most [`DRAIN_TIMEOUT`] and as long as it has the slot, and
/// settles the call.
pub(super) async fn drain(mut response: ProviderResponse) {
    response.change.leave();
    let forwarder = Arc::clone(&response.forwarder);
    let slot = forwarder.drain_slot(response.call);
    let end = match &slot {
        Some(slot) => tokio::select! {
            end = within_window(read_to_end(&mut response), &forwarder.stop_waiting) => end,
            () = slot.revoked() => ResponseEnd::CALLER_GONE,
        },
        None => ResponseEnd::CALLER_GONE,
    };
    drop(slot);
    // The settlement logs its own outcome; no caller is left to report it to.
    let _ = response.settle(end).await;
}

/// Waits for the end of a response for at most [`DRAIN_TIMEOUT`], until `stop`.
async fn within_window(end: impl Future<Output = ResponseEnd>, stop: &CancellationToken) -> ResponseEnd {
    tokio::select! {
        end = end => end,
        () = tokio::time::sleep(DRAIN_TIMEOUT) => ResponseEnd::CALLER_GONE,
        () = stop.cancelled() => ResponseEnd::STOPPED_WAITING,
    }
}

async fn read_to_end(response: &mut ProviderResponse) -> ResponseEnd {
    loop {
        poll_fn(|cx| response.poll_ready(cx)).await;
        match poll_fn(|cx| response.upstream.poll_piece(cx)).await {
            Some(Ok(piece)) => {
                let length = piece.data_ref().map_or(0, Bytes::len);
                // What would pass is recorded, for a later call with the same idempotency key.
                match response.read(&piece) {
                    FramePosition::Last => {
                        let _ = response.end(Some(piece));
                        return ResponseEnd::Complete;
                    }
                    FramePosition::Inner => {
                        let _ = response.pass(piece);
                    }
                }
                response.upstream.drained(length).await;
            }
            None => {
                let _ = response.end(None);
                return ResponseEnd::Complete;
            }
            Some(Err(_)) => return response.broken_off(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_response_is_drained_for_60_seconds() {
        let (stop, started) = (CancellationToken::new(), Instant::now());
        assert_eq!(within_window(ready(ResponseEnd::Complete), &stop).await, ResponseEnd::Complete);
        let in_time = async {
            sleep(Duration::from_secs(59)).await;
            ResponseEnd::Complete
        };
        assert_eq!(within_window(in_time, &stop).await, ResponseEnd::Complete);
        let last = Instant::now();
        assert_eq!(within_window(pending(), &stop).await, ResponseEnd::CALLER_GONE);
        assert_eq!((last - started, last.elapsed()), (Duration::from_secs(59), Duration::from_mins(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_when_the_gateway_stops_waiting() {
        let (stop, started) = (CancellationToken::new(), Instant::now());
        let stopping = async {
            sleep(Duration::from_secs(5)).await;
            stop.cancel();
        };
        let (end, ()) = tokio::join!(within_window(pending(), &stop), stopping);
        assert_eq!((end, started.elapsed()), (ResponseEnd::STOPPED_WAITING, Duration::from_secs(5)));
    }
}
