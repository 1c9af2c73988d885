//! One forwarded call: opens it in the ledger, sends it to the provider and passes the answer back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use farthing_core::command::{Failed, Opened, Settled};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_log::appender::ClaimEnd;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Method, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::forwarder::{Forwarder, OpenCall};
use super::headers;
use super::idempotent_call::{IdempotentCall, OpenError, OpenOutcome};
use super::metered_body::MeteredBody;
use super::prepare::{PreparedCall, UsageRequestedBy, prepare};
use super::provider_response::{BodyFraming, ProviderResponse};
use super::request_body::BodyError;
use super::settlement::{ResponseEnd, Unsettled, settle, until_durable};
use super::usage::{ChunkFilter, Scanner, Shape};
use crate::error::{ApiError, AuthError, BillingError, ForwardError};

/// After this time no gateway opens a call that was sent to it before.
const OPENING_IS_TOO_LATE: Duration = Duration::from_secs(15);

/// Runs the call. `disconnected` is cancelled when the caller disconnects before the answer's head.
pub(super) async fn run(
    forwarder: Arc<Forwarder>,
    request_id: RequestId,
    request: Request<Body>,
    disconnected: CancellationToken,
) -> Result<Response, ApiError> {
    let PreparedCall { partition, command, outgoing, method, shape, idempotent_call, usage_requested_by } =
        prepare(&forwarder, request_id, request).await?;
    let (caller, provider_key_type) = (command.caller.clone(), command.provider_key_type);
    let may_be_open = AtomicBool::new(false);
    let outcome = match &idempotent_call {
        None => {
            let opened = forwarder.app.ledger.open(partition, command, &may_be_open).await;
            opened.map(OpenOutcome::Opened).map_err(OpenError::from)
        }
        Some(idempotent_call) => idempotent_call.open(&forwarder.app, command, &may_be_open).await,
    };
    // Whatever is answered now, an opening without an answer may still arrive at its leader.
    let is_forwarded = matches!(outcome, Ok(OpenOutcome::Opened(_)));
    let is_unknown = matches!(outcome, Err(OpenError::Unknown(_)));
    if is_unknown || (may_be_open.load(Ordering::Relaxed) && !is_forwarded) {
        end_if_open(&forwarder, partition, request_id);
    }
    let opening = match outcome {
        Ok(OpenOutcome::Opened(opening)) => opening,
        Ok(OpenOutcome::Replayed(response)) => return Ok(response),
        Err(OpenError::Unknown(why)) => return Err(ApiError::ledger_unavailable(why)),
        Err(OpenError::NotOpen(refused)) => {
            if let ApiError::Auth(AuthError::SecretKeyInvalid | AuthError::SpendKeyInvalid) = refused {
                forwarder.app.known_keys.forget(&caller);
            }
            if let ApiError::Billing(BillingError::InsufficientBalance {
                needed,
                auto_recharge: Some(shortfall),
                ..
            }) = refused
            {
                forwarder.app.payments.auto_recharge(partition, shortfall, needed).await;
            }
            return Err(refused);
        }
    };
    let Opened { merchant_id, on_disconnect, .. } = *opening.outcome();
    let call = OpenCall { partition, request_id, merchant_id, on_disconnect, provider_key_type };
    let mut connected = true;
    let timeout = || ApiError::Forward(ForwardError::ProviderTimeout);
    // The call is sent while its opening commits. Nothing that follows from it is shown before the opening is durable:
    // if it fails, the provider is left and the caller learns nothing of its answer.
    let durable = opening.durable();
    let response = async {
        tokio::select! {
            response = forwarder.client.request(outgoing) => response.map_err(|error| {
                connected = !error.is_connect();
                failure(&error)
            }),
            () = tokio::time::sleep(forwarder.app.timeouts.answer) => {
                Err((FailureReason::ProviderTimeout, timeout()))
            }
            // In the next two cases no caller is left to read the error.
            () = forwarder.drained(disconnected, call) => Err((FailureReason::CallerGone, timeout())),
            () = forwarder.stop_waiting.cancelled() => Err((FailureReason::Abandoned, timeout())),
        }
    };
    let durable = async { durable.await.map_err(ApiError::from) };
    let (_, response) = tokio::try_join!(durable, async { Ok(response.await) })?;
    let (reason, error) = match response {
        Ok(response) => {
            let source = Source { shape, idempotent_call, usage_requested_by };
            return pass_back(forwarder, call, &method, source, response).await;
        }
        Err(failure) => failure,
    };
    let closing = idempotent_call.filter(|_| !connected).map(|idempotent_call| idempotent_call.release());
    settled(&forwarder, call, Settled::Failed(Failed::because(reason)), closing).await?;
    Err(error)
}

/// Ends a call that may be open although nobody forwards it: its hold must not be kept. An opening on its way to another
/// gateway is too late by then.
fn end_if_open(forwarder: &Forwarder, partition: Partition, request_id: RequestId) {
    let (app, abort) = (Arc::clone(&forwarder.app), forwarder.abort.clone());
    forwarder.tasks.spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(OPENING_IS_TOO_LATE) => {}
            // At the end of the process the sweeper of another gateway ends it.
            () = abort.cancelled() => return,
        }
        let settled = Settled::Failed(Failed::because(FailureReason::Abandoned));
        // If it was never opened, the settlement is refused.
        let _ = until_durable(app, partition, request_id, settled, None, abort).await;
    });
}

/// The parts of the prepared call that are needed to read its answer.
struct Source {
    shape: Shape,
    idempotent_call: Option<IdempotentCall>,
    usage_requested_by: UsageRequestedBy,
}

/// The response to the caller: the provider's head, and a body that settles the call at its end.
async fn pass_back(
    forwarder: Arc<Forwarder>,
    call: OpenCall,
    method: &Method,
    source: Source,
    response: http::Response<Incoming>,
) -> Result<Response, ApiError> {
    let (mut parts, upstream) = response.into_parts();
    let scanner = Scanner::new(source.shape, &parts.headers);
    let framed = parts.headers.contains_key(CONTENT_LENGTH) || parts.headers.contains_key(TRANSFER_ENCODING);
    let framing = if framed { BodyFraming::Delimited } else { BodyFraming::UntilClose };
    parts.headers = headers::to_caller(parts.headers);
    parts.version = Version::HTTP_11;
    let is_filtered = source.usage_requested_by == UsageRequestedBy::Gateway
        && parts.status.is_success()
        && headers::is_plain_event_stream(&parts.headers);
    let filter = is_filtered.then(|| {
        parts.headers.remove(CONTENT_LENGTH);
        ChunkFilter::new()
    });
    let recorder =
        source.idempotent_call.map(|idempotent_call| idempotent_call.recorder(parts.status, &parts.headers));
    let body = if upstream.is_end_stream() || *method == Method::HEAD {
        // The response has no body, so it is settled before its head is sent.
        let closing = recorder.and_then(|recorder| recorder.sealed(&forwarder.app.server_key));
        let settlement = settle(parts.status, scanner.report(), ResponseEnd::Complete);
        settled(&forwarder, call, settlement, closing).await?;
        Body::empty()
    } else {
        let status = parts.status;
        let remaining = upstream.size_hint().exact();
        let body = MeteredBody::new(ProviderResponse {
            forwarder,
            call,
            status,
            upstream,
            scanner,
            filter,
            recorder,
            remaining,
            framing,
        });
        Body::new(body.settle_if_whole().await.map_err(|unsettled| failed_settlement(call, unsettled))?)
    };
    Ok(Response::from_parts(parts, body))
}

async fn settled(
    forwarder: &Forwarder,
    call: OpenCall,
    settled: Settled,
    closing: Option<(ClaimId, ClaimEnd)>,
) -> Result<(), ApiError> {
    let app = Arc::clone(&forwarder.app);
    let OpenCall { partition, request_id, .. } = call;
    let ended = until_durable(app, partition, request_id, settled, closing, forwarder.abort.clone()).await;
    ended.map_err(|unsettled| failed_settlement(call, unsettled))
}

fn failed_settlement(call: OpenCall, unsettled: Unsettled) -> ApiError {
    match unsettled {
        Unsettled::Ended | Unsettled::Stopping => ApiError::ledger_unavailable(unsettled.to_string()),
        Unsettled::Unsettleable => ApiError::internal(format!("{}: {unsettled}", call.request_id)),
    }
}

/// The reason for the log, and the error for the caller, of a call that no provider answered.
fn failure(error: &hyper_util::client::legacy::Error) -> (FailureReason, ApiError) {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(farthing_egress::Error::Forbidden) = error.downcast_ref() {
            return (FailureReason::AddressForbidden, ApiError::Forward(ForwardError::UrlForbidden));
        }
        if let Some(unsent) = error.downcast_ref() {
            let message = match unsent {
                BodyError::Aborted(_) => "ended early",
                BodyError::Timeout => "did not come in time",
            };
            return (FailureReason::CallerGone, ApiError::issue(["body"], message));
        }
        source = error.source();
    }
    tracing::info!(event = "forward.provider_unreachable", %error, "the provider could not be reached");
    (FailureReason::ProviderUnreachable, ApiError::Forward(ForwardError::ProviderUnreachable))
}
