//! One forwarded call: opens it in the ledger, sends it to the provider and passes the answer back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use farthing_core::command::{Caller, Failed, Opened, Settled};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_egress::{Party, on_behalf_of, too_many_interim_responses};
use farthing_log::appender::{ClaimEnd, Early, Error};
use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::call_times::CallTimes;
use super::call_trace::{CallTrace, Exchange};
use super::called_endpoint::CalledEndpoint;
use super::caller_pauses::CallerPauses;
use super::drain::ReadingOn;
use super::ending::{InFlight, Opening, end_if_open, settle_late};
use super::forwarder::{Forwarder, OpenCall};
use super::headers;
use super::idempotent_call::{IdempotentCall, OpenError, OpenOutcome};
use super::key_mask::KeyMask;
use super::metered_body::{MeteredBody, ResponseError};
use super::pieces::Pieces;
use super::prepare::{PreparedCall, prepare};
use super::provider_response::{BodyFraming, ProviderResponse};
use super::request_body::BodyError;
use super::response_change::{ResponseChange, ResponseRule};
use super::settlement::{ResponseEnd, Unsettled, given_up_before_response, settle, until_durable};
use super::usage::{Scanner, Shape};
use crate::app::App;
use crate::body_memory::BodyKind;
use crate::caller_key::CallerKey;
use crate::error::{ApiError, AuthError, BillingError, ForwardError, GatewayLimit, ServerError};
use crate::metrics::{CallLabel, ProviderLabel};
use crate::providers::{ProviderKey, UsageLimit};

/// How long a settlement may still be tried once it is not known whether its call is open. Then the caller gets 503: it must
/// not wait as long as the ledger is away.
const FINDS_OUT_WITHIN: Duration = Duration::from_secs(10);

/// How long a response is read without its caller while it is not known whether its call is open.
const READ_IN_DOUBT: Duration = Duration::from_secs(10);

/// Runs the call. `disconnected` is cancelled when the caller disconnects before the answer's head.
pub(super) async fn run(
    forwarder: Arc<Forwarder>,
    request_id: RequestId,
    request: (CalledEndpoint, Request<Body>),
    disconnected: CancellationToken,
) -> Result<Response, ApiError> {
    let times = CallTimes::begin();
    let mut trace = CallTrace::begin(&forwarder.app.traces);
    let prepared = match prepare(&forwarder, request_id, request, &mut trace).await {
        Ok(prepared) => prepared,
        Err(error) => {
            trace.answered(Err(&error));
            return Err(error);
        }
    };
    let (app, partition, caller) =
        (Arc::clone(&forwarder.app), prepared.partition, prepared.command.caller.clone());
    let forward = Box::pin(forward(forwarder, request_id, (prepared, times, trace.clone()), disconnected));
    let response = trace.logged(forward).await;
    trace.answered(response.as_ref().map(Response::status));
    if let Err(error) = &response {
        follow_up(&app, request_id, (partition, &caller), error).await;
    }
    response
}

/// What follows from the refusal of an opening, whether it was refused at once or when it was decided again.
async fn follow_up(
    app: &App,
    request_id: RequestId,
    (partition, caller): (Partition, &Caller),
    refused: &ApiError,
) {
    if let ApiError::Auth(AuthError::SecretKeyInvalid | AuthError::SpendKeyInvalid) = refused {
        app.known_keys.forget(caller);
    }
    if let ApiError::Billing(BillingError::InsufficientBalance {
        needed,
        auto_recharge: Some(shortfall),
        ..
    }) = refused
    {
        app.payments.auto_recharge(partition, request_id, *shortfall, *needed).await;
    }
}

async fn forward(
    forwarder: Arc<Forwarder>,
    request_id: RequestId,
    (prepared, mut times, trace): (PreparedCall, CallTimes, CallTrace),
    disconnected: CancellationToken,
) -> Result<Response, ApiError> {
    let PreparedCall {
        partition,
        command,
        mut outgoing,
        method,
        shape,
        idempotent_call,
        rule,
        usage_limit,
        managed_key,
        unpriced,
    } = prepared;
    let provider = (command.provider_key_type, ProviderLabel::of(&command.provider));
    let caller_key = CallerKey::from(&command.caller);
    let (sent, unsent) = (outgoing.body().sent_flag(), outgoing.body().unsent());
    let request_to_provider = trace.request_to_provider(&command, &outgoing);
    let may_be_open = AtomicBool::new(false);
    let opening = async {
        match &idempotent_call {
            None => {
                let opened = forwarder.app.ledger.open(partition, command, &may_be_open).await;
                opened.map(OpenOutcome::Opened).map_err(OpenError::from)
            }
            Some(idempotent_call) => idempotent_call.open(&forwarder.app, command, &may_be_open).await,
        }
    };
    let outcome = trace.stage("admit").run(opening).await;
    // Whatever is answered now, an opening without an answer may still arrive at its leader.
    let is_forwarded = matches!(outcome, Ok(OpenOutcome::Opened(_)));
    let is_unknown = matches!(outcome, Err(OpenError::Unknown(_)));
    if is_unknown || (may_be_open.load(Ordering::Relaxed) && !is_forwarded) {
        // It is not sent, so its idempotency key is free again.
        let closing = idempotent_call.as_ref().map(IdempotentCall::release);
        end_if_open(&forwarder, (partition, request_id), FailureReason::Abandoned, closing);
    }
    let mut opening = match outcome {
        Ok(OpenOutcome::Opened(opening)) => opening,
        Ok(OpenOutcome::Replayed(response)) => return Ok(response),
        Err(OpenError::Unknown(why)) => return Err(ApiError::ledger_unavailable(why)),
        Err(OpenError::NotOpen(ApiError::Forward(ForwardError::ModelNotPriced))) => {
            return Err(ApiError::Forward(
                unpriced.map_or(ForwardError::ModelNotPriced, ForwardError::Unpriced),
            ));
        }
        Err(OpenError::NotOpen(refused)) => return Err(refused),
    };
    let opened = *opening.outcome();
    let usage_limit = usage_limit.held(opened.hold, forwarder.app.settings.hold_cap);
    let call = OpenCall::new(partition, request_id, opened, provider);
    let in_flight = InFlight::begin(&forwarder, call, unsent);
    let (mut is_unreached, mut reading_on) = (false, None);
    let timeout = || ApiError::Forward(ForwardError::ProviderTimeout);
    let no_response = || (FailureReason::ProviderGone, ApiError::Forward(ForwardError::ProviderProtocol));
    let too_many_interim_responses = too_many_interim_responses(&mut outgoing);
    // Once for all who look at it: a second capture would leave this one without a connection.
    let connection = capture_connection(&mut outgoing);
    outgoing.body_mut().sent_over(connection.clone());
    let mut exchange = trace.exchange(&method, request_to_provider);
    let sending = exchange.sending(&connection);
    let response = on_behalf_of(Party(call.merchant_id.ulid().into()), forwarder.client.request(outgoing));
    let response = sending.until(response);
    // The call is sent while its opening commits. Nothing that follows from it is shown before the opening is durable,
    // which the durable settlement proves: if the opening fails, the provider is left and the caller learns nothing of
    // its answer.
    times.wait_for_provider();
    let response = tokio::select! {
        response = response => match response {
            Ok(response) if !is_plain(&response) => Err(no_response()),
            Ok(response) => Ok(response),
            Err(error) => {
                is_unreached = error.is_connect();
                Err(failure(&error, request_id))
            }
        },
        () = too_many_interim_responses => Err(no_response()),
        error = opening.failure() => return Err(not_opened(&forwarder, call, error)),
        () = tokio::time::sleep(forwarder.app.timeouts.answer) => {
            Err((FailureReason::ProviderTimeout, timeout()))
        }
        // In the next two cases no caller is left to read the error.
        () = forwarder.drained(disconnected.clone(), call, &mut reading_on) => Err((FailureReason::CallerGone, timeout())),
        () = forwarder.stop_waiting.cancelled() => Err((FailureReason::Abandoned, timeout())),
    };
    times.stop_waiting();
    let (reason, error) = match response {
        Ok(response) => {
            exchange.responded(response.status());
            let source = Source {
                caller_key,
                shape,
                idempotent_call,
                rule,
                usage_limit,
                managed_key,
                times,
                exchange,
                in_flight,
                disconnected,
                reading_on,
            };
            return pass_back(forwarder, call, opening, &method, source, response).await;
        }
        Err(failure) => failure,
    };
    drop(reading_on);
    // Nothing can have been sent before there is a connection.
    let is_unreached = is_unreached || connection.connection_metadata().is_none();
    let closing = idempotent_call.filter(|_| is_unreached).map(|idempotent_call| idempotent_call.release());
    let settlement = match reason {
        FailureReason::CallerGone | FailureReason::ProviderTimeout | FailureReason::Abandoned
            if sent.is_set() =>
        {
            given_up_before_response(reason)
        }
        reason => Settled::Failed(Failed::because(reason)),
    };
    let settling = exchange.ended(&settlement);
    // Boxed, so that calls which a provider answers have no room for it.
    settling.run(Box::pin(settled(&forwarder, call, opening, settlement, closing))).await?;
    Err(error)
}

/// The error of a call whose opening failed after it was sent. If it is not known whether it failed, the call may be open.
fn not_opened(forwarder: &Forwarder, call: OpenCall, error: Error) -> ApiError {
    if let Error::Unknown(_) = error {
        end_if_open(forwarder, (call.partition, call.request_id), FailureReason::Abandoned, None);
    }
    error.into()
}

/// Whether a response is one in HTTP/1.1 whose body, if it has one, is sent as it is or in chunks: nobody asked for another
/// protocol, or for a transfer coding, which neither the gateway nor its caller would undo.
fn is_plain(response: &http::Response<Incoming>) -> bool {
    response.status() != StatusCode::SWITCHING_PROTOCOLS
        && (response.body().is_end_stream() || is_coded_plainly(response.headers()))
}

/// Whether the only transfer coding is `chunked`, as the last one and once, as RFC 9112 wants it (section 6.1). `identity` is
/// none.
fn is_coded_plainly(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut coded = codings.skip_while(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"identity"));
    let is_chunked = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
    coded.next().is_none_or(is_chunked) && coded.next().is_none()
}

/// The parts of the prepared call that are needed to read its answer.
struct Source {
    caller_key: CallerKey,
    shape: Shape,
    idempotent_call: Option<IdempotentCall>,
    rule: ResponseRule,
    usage_limit: UsageLimit,
    managed_key: Option<ProviderKey>,
    times: CallTimes,
    exchange: Exchange,
    in_flight: InFlight,
    /// Is cancelled when the caller disconnects before the head.
    disconnected: CancellationToken,
    /// How long the call goes on, if its caller has disconnected already.
    reading_on: Option<ReadingOn>,
}

/// The mask of an error on a managed key, whose reason phrase is masked at once.
fn mask_of_error(managed_key: Option<ProviderKey>, parts: &mut http::response::Parts) -> Option<KeyMask> {
    let mask = managed_key.filter(|_| !parts.status.is_success()).as_ref().and_then(KeyMask::of)?;
    mask.mask_reason(&mut parts.extensions);
    Some(mask)
}

/// The response to the caller: the provider's head, and a body that settles the call at its end.
async fn pass_back(
    forwarder: Arc<Forwarder>,
    call: OpenCall,
    mut opening: Early<Opened>,
    method: &Method,
    mut source: Source,
    response: http::Response<Incoming>,
) -> Result<Response, ApiError> {
    let turn = forwarder.turns.body_of(call.merchant_id);
    let conversions = turn.response_conversions(source.caller_key);
    turn.step().await;
    let (mut parts, upstream) = response.into_parts();
    let scanner = Scanner::new(source.shape, &parts.headers, source.usage_limit.counts_text(), || {
        forwarder.decoders.share(call.merchant_id).of_call(call.request_id)
    });
    let framing = BodyFraming::of(&parts.headers);
    parts.headers = headers::to_caller(parts.headers);
    parts.version = Version::HTTP_11;
    let share = || forwarder.app.body_memory.share(call.merchant_id, BodyKind::Response);
    let mask = mask_of_error(source.managed_key, &mut parts);
    let change = ResponseChange::of(source.rule, mask, parts.status, &mut parts.headers, share);
    let decides_head = change.decides_head();
    let recorder =
        source.idempotent_call.map(|idempotent_call| idempotent_call.recorder(parts.status, &parts.headers));
    let body = if !decides_head && (upstream.is_end_stream() || *method == Method::HEAD) {
        // The response has no body, so it is settled before its head is sent.
        drop(source.reading_on.take());
        let closing = recorder.and_then(|recorder| recorder.sealed(&forwarder.app.server_key));
        let report = scanner.finish(&forwarder.tasks).await.report;
        let settlement = settle(parts.status, report, source.usage_limit, ResponseEnd::Complete);
        let settling = source.exchange.ended(&settlement);
        settling.run(Box::pin(settled(&forwarder, call, opening, settlement, closing))).await?;
        source.times.passed_on(&forwarder.app.metrics.forward);
        Body::empty()
    } else {
        let status = parts.status;
        let remaining = upstream.size_hint().exact();
        let upstream = if change.is_in_events() {
            Pieces::converted(upstream, turn)
        } else {
            Pieces::new(upstream, turn)
        };
        let (is_open, opened) = oneshot::channel();
        let mut body = MeteredBody::new(ProviderResponse {
            forwarder: Arc::clone(&forwarder),
            call,
            status,
            upstream,
            scanner,
            change,
            conversions,
            come: None,
            recorder,
            remaining,
            framing,
            usage_limit: source.usage_limit,
            caller_pauses: CallerPauses::default(),
            times: source.times,
            exchange: source.exchange,
            in_flight: source.in_flight,
            opened,
            reading_on: source.reading_on,
        });
        let settling = async {
            if decides_head { body.wait_for_head().await } else { body.settle_if_whole().await.map(Ok) }
        };
        let settled = tokio::select! {
            settled = unless_not_opened(&mut opening, settling) => settled,
            // No caller is left to read the error. The response is read on without one, and its end is a charge or, if the
            // opening is not durable, refused.
            () = source.disconnected.cancelled(), if decides_head => {
                forwarder.tasks.spawn(async move {
                    let known = match opening.durable().await {
                        Ok(_) => Opening::Durable,
                        Err(Error::Unknown(_)) => Opening::InDoubt,
                        Err(_) => return,
                    };
                    let _ = is_open.send(known);
                });
                return Err(ApiError::Forward(ForwardError::ResponseBrokeOff));
            }
        };
        match settled {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(not_converted(call, &error)),
            Err(NotSettled::NotOpened(error)) => return Err(leave(&forwarder, call, body, error, is_open)),
            Err(NotSettled::Unsettled(unsettled)) => {
                let settle_late = |opening| {
                    let _ = is_open.send(opening);
                };
                return Err(failed_settlement(&forwarder, call, opening, unsettled, settle_late).await);
            }
        }
        if !body.is_settled() {
            if let Err(error) = opening.durable().await {
                return Err(leave(&forwarder, call, body, error, is_open));
            }
            let _ = is_open.send(Opening::Durable);
        }
        Body::new(body)
    };
    Ok(Response::from_parts(parts, body))
}

/// The error of a call whose opening failed after its response began. If it is not known whether it failed, the call may be
/// open: a response that is soon read to its end settles it then.
fn leave(
    forwarder: &Arc<Forwarder>,
    call: OpenCall,
    mut body: MeteredBody,
    error: Error,
    opened: oneshot::Sender<Opening>,
) -> ApiError {
    if !matches!(error, Error::Unknown(_)) {
        body.leave();
        return error.into();
    }
    let forwarder = Arc::clone(forwarder);
    forwarder.tasks.clone().spawn(async move {
        let in_time = tokio::time::timeout(READ_IN_DOUBT, body.read_to_end()).await;
        if in_time.is_ok() || body.settle_if_read() {
            let _ = opened.send(Opening::InDoubt);
        } else {
            body.leave();
            end_if_open(&forwarder, (call.partition, call.request_id), FailureReason::Abandoned, None);
        }
    });
    error.into()
}

/// The error of a call of whose response nothing passes, because it cannot be converted. The call is settled.
fn not_converted(call: OpenCall, error: &ResponseError) -> ApiError {
    let request_id = call.request_id;
    tracing::info!(event = "forward.response_not_passed", %request_id, %error, "a response cannot be passed on");
    ApiError::Forward(match error {
        ResponseError::NotConverted(_) => ForwardError::ResponseNotConverted,
        ResponseError::Idle => ForwardError::ProviderTimeout,
        ResponseError::Provider(_) | ResponseError::BrokenOff | ResponseError::Unsettled(_) => {
            ForwardError::ResponseBrokeOff
        }
    })
}

async fn settled(
    forwarder: &Arc<Forwarder>,
    call: OpenCall,
    mut opening: Early<Opened>,
    settled: Settled,
    closing: Option<(ClaimId, ClaimEnd)>,
) -> Result<(), ApiError> {
    let (app, metrics) = (&forwarder.app, &forwarder.app.metrics.forward);
    let OpenCall { partition, request_id, merchant_id, .. } = call;
    // There is no body, so it is short. A call that is settled late ends its key as well.
    let late_closing = closing.clone();
    let ended = async {
        let _turn = forwarder.answer_turn(merchant_id, closing.as_ref()).await;
        until_durable(app, partition, request_id, &settled, closing, forwarder.abort.clone()).await
    };
    match unless_not_opened(&mut opening, ended).await {
        Ok(unmetered) => {
            metrics.settled(CallLabel::of(call.provider, &settled, unmetered));
            Ok(())
        }
        Err(NotSettled::NotOpened(error)) => {
            if let Error::Unknown(_) = error {
                settle_late(forwarder, call, settled, late_closing, Opening::InDoubt);
            }
            Err(error.into())
        }
        Err(NotSettled::Unsettled(unsettled)) => {
            let settle_late = |opening| settle_late(forwarder, call, settled, late_closing, opening);
            Err(failed_settlement(forwarder, call, opening, unsettled, settle_late).await)
        }
    }
}

/// Why a call is not settled.
enum NotSettled {
    /// Its opening failed: there is nothing to settle.
    NotOpened(Error),
    Unsettled(Unsettled),
}

/// Waits for the `settlement`, or until the opening is known to have failed.
async fn unless_not_opened<T>(
    opening: &mut Early<Opened>,
    settlement: impl Future<Output = Result<T, Unsettled>>,
) -> Result<T, NotSettled> {
    tokio::pin!(settlement);
    let error = tokio::select! {
        biased;
        settled = &mut settlement => return settled.map_err(NotSettled::Unsettled),
        error = opening.failure() => error,
    };
    match error {
        // The settlement finds out, unless it cannot be decided either.
        Error::Unknown(_) => match tokio::time::timeout(FINDS_OUT_WITHIN, settlement).await {
            Ok(Ok(settled)) => Ok(settled),
            Ok(Err(Unsettled::Ended)) | Err(_) => Err(NotSettled::NotOpened(error)),
            Ok(Err(unsettled)) => Err(NotSettled::Unsettled(unsettled)),
        },
        error => Err(NotSettled::NotOpened(error)),
    }
}

/// The error of a call that is not settled. If its opening has failed, that is why; else `settle_late` is called: another
/// gateway has ended the call, or its opening may still arrive.
async fn failed_settlement(
    forwarder: &Forwarder,
    call: OpenCall,
    opening: Early<Opened>,
    unsettled: Unsettled,
    settle_late: impl FnOnce(Opening),
) -> ApiError {
    match unsettled {
        Unsettled::Ended => match opening.durable().await {
            Ok(_) => {
                settle_late(Opening::Durable);
                // An opening whose answer was lost may have arrived since.
                end_if_open(forwarder, (call.partition, call.request_id), FailureReason::Abandoned, None);
                ApiError::ledger_unavailable(unsettled.to_string())
            }
            Err(error) => {
                if let Error::Unknown(_) = error {
                    settle_late(Opening::InDoubt);
                }
                error.into()
            }
        },
        // The answer to its settlement may have been lost.
        Unsettled::Stopping => ApiError::Server(ServerError::OutcomeUnknown(unsettled.to_string())),
        Unsettled::Unsettleable => ApiError::internal(format!("{}: {unsettled}", call.request_id)),
    }
}

/// The reason for the log, and the error for the caller, of a call that no provider answered.
fn failure(error: &hyper_util::client::legacy::Error, request_id: RequestId) -> (FailureReason, ApiError) {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        match error.downcast_ref() {
            Some(farthing_egress::Error::Forbidden) => {
                return (FailureReason::AddressForbidden, ApiError::Forward(ForwardError::UrlForbidden));
            }
            Some(farthing_egress::Error::TooManyLookups) => {
                return (FailureReason::ProviderUnreachable, ApiError::overloaded(GatewayLimit::NameLookups));
            }
            Some(farthing_egress::Error::TooManyConnections) => {
                let limit = GatewayLimit::ProviderConnections;
                return (FailureReason::ProviderUnreachable, ApiError::overloaded(limit));
            }
            Some(farthing_egress::Error::Lookup(_) | farthing_egress::Error::TimedOut(_)) | None => {}
        }
        if let Some(unsent) = error.downcast_ref() {
            let message = match unsent {
                BodyError::Aborted(_) => "ended early",
                BodyError::Timeout => "did not come in time",
                BodyError::Over => "was not needed any more",
            };
            return (FailureReason::CallerGone, ApiError::issue(["body"], message));
        }
        source = error.source();
    }
    tracing::info!(event = "forward.provider_unreachable", %request_id, %error, "the provider could not be reached");
    (FailureReason::ProviderUnreachable, ApiError::Forward(ForwardError::ProviderUnreachable))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_response_comes_in_chunks_alone_or_uncoded() {
        for (codings, is_plain) in [
            (vec![], true),
            (vec!["chunked"], true),
            (vec!["Chunked "], true),
            (vec!["identity"], true),
            (vec!["identity, chunked"], true),
            (vec!["identity", "chunked"], true),
            (vec![""], false),
            (vec!["chunked,"], false),
            (vec!["chunked, chunked"], false),
            (vec!["chunked", "chunked"], false),
            (vec!["chunked, identity"], false),
            (vec!["gzip"], false),
            (vec!["gzip, chunked"], false),
            (vec!["gzip", "chunked"], false),
            (vec!["xchunked"], false),
        ] {
            let values = codings.iter().map(|coding| (TRANSFER_ENCODING, HeaderValue::from_static(coding)));
            assert_eq!(is_coded_plainly(&values.collect()), is_plain, "{codings:?}");
        }
    }
}
