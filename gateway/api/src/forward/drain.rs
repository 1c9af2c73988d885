//! Draining: reads a provider's response to its end after the caller has disconnected, so that its final usage is
//! charged.

use std::sync::Arc;

use http_body_util::BodyExt as _;

use super::forwarder::DRAIN_TIMEOUT;
use super::provider_response::{FramePosition, ProviderResponse};
use super::settlement::ResponseEnd;

/// Reads the response to its end if a drain slot is free, for at most [`DRAIN_TIMEOUT`], and settles the call.
pub(super) async fn drain(mut response: ProviderResponse) {
    let forwarder = Arc::clone(&response.forwarder);
    let slot = forwarder.drain_slot(response.call);
    let end = if slot.is_some() {
        tokio::select! {
            end = read_to_end(&mut response) => end,
            () = tokio::time::sleep(DRAIN_TIMEOUT) => ResponseEnd::CallerGone,
            () = forwarder.stop_waiting.cancelled() => ResponseEnd::Interrupted,
        }
    } else {
        ResponseEnd::CallerGone
    };
    drop(slot);
    // The settlement logs its own outcome; no caller is left to report it to.
    let _ = response.settle(end).await;
}

async fn read_to_end(response: &mut ProviderResponse) -> ResponseEnd {
    while let Some(frame) = response.upstream.frame().await {
        match frame.map(|frame| response.read(&frame)) {
            Ok(FramePosition::Inner) => {}
            Ok(FramePosition::Last) => return ResponseEnd::Complete,
            Err(_) => return ResponseEnd::Interrupted,
        }
    }
    response.end()
}
