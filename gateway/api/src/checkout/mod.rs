//! The hosted page of a checkout session, at `/embed/checkout/{secret}` (completion.md section 8): a form that works
//! without script, in a frame and on a phone.
//!
//! Invariant: the secret in the path is the only credential. Browsers send no cookie or other credential automatically,
//! so cross-site request forgery gains nothing and the form needs no token. Card data goes only to the payment
//! processor.

mod complete;
mod form;
mod offer;
mod page;
mod session;
mod visits;

use std::sync::Arc;

use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use farthing_core::ids::{CheckoutSessionId, PaymentId};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, StatusCode};

use self::complete::CompletionError;
use self::form::{FormInput, FormProblem};
use self::page::Notice;
use self::session::{Session, SessionStatus};
pub(crate) use self::visits::Visits;
use crate::app::App;
use crate::caller_address::CallerAddress;
use crate::error::{ApiError, BillingError, ProtocolError, Resource};

/// The largest form, in bytes.
const MAX_FORM_BYTES: usize = 16 * 1024;

/// One hour; the assets change only with the program.
const CACHED: &str = "public, max-age=3600";

/// The page's routes, at the root. They are not part of the REST interface or its OpenAPI document.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/embed/checkout/{secret}", get(show).post(submit))
        .route("/embed/assets/{asset}", get(asset))
}

async fn asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    let (content_type, text) = match name.as_str() {
        "checkout.css" => ("text/css; charset=utf-8", include_str!("checkout.css")),
        "checkout.js" => ("text/javascript; charset=utf-8", include_str!("checkout.js")),
        _ => return Err(ApiError::NotFound(Resource::Route)),
    };
    let headers =
        [(CONTENT_TYPE, content_type), (X_CONTENT_TYPE_OPTIONS, "nosniff"), (CACHE_CONTROL, CACHED)];
    Ok((headers, text).into_response())
}

async fn show(
    State(app): State<Arc<App>>,
    Extension(address): Extension<CallerAddress>,
    Path(secret): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let too_many = |retry_after_seconds| Notice::TooManyViews { retry_after_seconds };
    let id = match visited(&app, &secret, too_many) {
        Ok(id) => id,
        Err(refused) => return refused,
    };
    let session = match session::find(&app, id, address).await {
        Ok(Some(session)) => session,
        Ok(None) => return page::notice(Notice::Unknown, None),
        Err(error) => return page::failed(error, None),
    };
    match declined(&app, &session, query.as_deref()).await {
        Ok(None) => shown(&session, &FormInput::default(), &[]),
        Ok(Some(problem)) => {
            let mut response = shown(&session, &FormInput::default(), &[problem]);
            // Nothing is wrong with this request.
            if response.status() == StatusCode::UNPROCESSABLE_ENTITY {
                *response.status_mut() = StatusCode::OK;
            }
            response
        }
        Err(error) => page::failed(error, Some(&session)),
    }
}

/// The problem of the payment that was pending, if it was declined: the redirect of its form, and the reload of the page
/// that shows it as pending, name it in the query.
async fn declined(
    app: &App,
    session: &Session,
    query: Option<&str>,
) -> Result<Option<FormProblem>, ApiError> {
    if !matches!(session.status, SessionStatus::Open(_)) {
        return Ok(None);
    }
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let named = pairs.find_map(|(name, value)| (name == page::PAYMENT).then_some(value));
    let Some(payment_id) = named.and_then(|id| id.parse::<PaymentId>().ok()) else { return Ok(None) };
    Ok(session::declined(app, session, payment_id).await?.map(complete::declined))
}

/// The session of a link that is opened, before anything is read; the page to show instead if this instance issued no
/// such link, or `too_many` of the seconds to wait if it is opened too often.
#[expect(clippy::result_large_err, reason = "the error is the response")]
fn visited(
    app: &App,
    secret: &str,
    too_many: impl FnOnce(u64) -> Notice,
) -> Result<CheckoutSessionId, Response> {
    let id = app.server_key.read_checkout_secret(secret);
    let id = id.ok_or_else(|| page::notice(Notice::Unknown, None))?;
    match app.visits.count(id, app.now()) {
        Ok(()) => Ok(id),
        Err(retry_after_seconds) => {
            let mut response = page::notice(too_many(retry_after_seconds), None);
            response.headers_mut().insert(RETRY_AFTER, retry_after_seconds.into());
            Err(response)
        }
    }
}

/// The page for the session's status, with the submitted values and their problems.
fn shown(session: &Session, answers: &FormInput, problems: &[FormProblem]) -> Response {
    match &session.status {
        SessionStatus::Open(offer) => page::form(session, offer, answers, problems),
        SessionStatus::PaymentPending(_) => page::notice(Notice::PaymentPending, Some(session)),
        SessionStatus::AttemptsUsedUp => page::notice(Notice::AttemptsUsedUp, Some(session)),
        SessionStatus::Unavailable => page::notice(Notice::Unavailable, Some(session)),
        SessionStatus::AlreadySubscribed => page::notice(Notice::AlreadySubscribed, Some(session)),
        SessionStatus::PaymentsUnavailable => {
            page::failed(ApiError::Billing(BillingError::PaymentsUnavailable), Some(session))
        }
        SessionStatus::Expired => page::notice(Notice::Expired, Some(session)),
        SessionStatus::Completed(_) => page::notice(Notice::Completed, Some(session)),
    }
}

async fn submit(
    State(app): State<Arc<App>>,
    Extension(address): Extension<CallerAddress>,
    Path(secret): Path<String>,
    request: Request,
) -> Response {
    let id = match visited(&app, &secret, |_| Notice::TooManyForms) {
        Ok(id) => id,
        Err(refused) => return refused,
    };
    let session = match session::find(&app, id, address).await {
        Ok(Some(session)) => session,
        Ok(None) => return page::notice(Notice::Unknown, None),
        Err(error) => return page::failed(error, None),
    };
    let offer = match &session.status {
        SessionStatus::Open(offer) => offer,
        SessionStatus::PaymentPending(payment_id) => return back(&secret, Some(*payment_id)),
        SessionStatus::Completed(_) => return back(&secret, None),
        SessionStatus::AttemptsUsedUp
        | SessionStatus::Unavailable
        | SessionStatus::AlreadySubscribed
        | SessionStatus::PaymentsUnavailable
        | SessionStatus::Expired => {
            return shown(&session, &FormInput::default(), &[]);
        }
    };
    let answers = match read(&app, request).await {
        Ok(answers) => answers,
        Err(error) => return page::failed(error, Some(&session)),
    };
    let submission = match form::read(&answers, offer) {
        Ok(submission) => submission,
        Err(problems) => return page::form(&session, offer, &answers, &problems),
    };
    match complete::complete(&app, &session, offer, submission).await {
        // The redirect shows the new status; a reload then does not submit the form again.
        Ok(()) | Err(CompletionError::SessionChanged) => back(&secret, None),
        Err(CompletionError::PaymentPending(payment_id)) => back(&secret, Some(payment_id)),
        Err(CompletionError::PaymentInProgress) => match session::find(&app, id, address).await {
            Ok(Some(now)) if matches!(now.status, SessionStatus::Open(_)) => {
                shown(&now, &answers, &[FormProblem::in_progress()])
            }
            // The payment is that of this session.
            Ok(Some(Session { status: SessionStatus::PaymentPending(payment_id), .. })) => {
                back(&secret, Some(payment_id))
            }
            Ok(_) | Err(_) => back(&secret, None),
        },
        Err(CompletionError::Rejected(problem)) => {
            // The customer may have been created, so the form no longer asks for their details.
            match session::find(&app, id, address).await {
                Ok(Some(now)) if matches!(now.status, SessionStatus::Open(_)) => {
                    shown(&now, &answers, &[problem])
                }
                Ok(_) | Err(_) => page::form(&session, offer, &answers, &[problem]),
            }
        }
        Err(CompletionError::Failed(error)) => page::failed(error, Some(&session)),
    }
}

/// Redirects to the page itself with GET. A payment without an outcome is named, so that the page can tell of a decline
/// that comes before it is first shown.
fn back(secret: &str, pending: Option<PaymentId>) -> Response {
    // A secret consists of letters, digits, `_`, `-` and `.`, so it is a valid header value.
    let query = pending.map(page::naming).unwrap_or_default();
    let to = [(LOCATION, format!("{secret}{query}"))];
    (StatusCode::SEE_OTHER, to, [(CACHE_CONTROL, "no-store")]).into_response()
}

async fn read(app: &App, request: Request) -> Result<FormInput, ApiError> {
    let (parts, body) = request.into_parts();
    if !is_form(&parts.headers) {
        return Err(ApiError::Protocol(ProtocolError::ContentTypeUnsupported));
    }
    let bytes = tokio::time::timeout(app.timeouts.body, axum::body::to_bytes(body, MAX_FORM_BYTES)).await;
    match bytes {
        Ok(Ok(bytes)) => Ok(FormInput::of(&bytes)),
        Ok(Err(_)) | Err(_) => Err(ApiError::Protocol(ProtocolError::BodyTooLarge)),
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}
