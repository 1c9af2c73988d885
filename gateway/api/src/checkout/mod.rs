//! The hosted page of a checkout session, at `/embed/checkout/{secret}` (completion.md section 8): a form that works
//! without script, in a frame and on a phone.
//!
//! Invariant: the secret in the path is the only credential. There is no cookie and no other authority that a browser
//! sends by itself, so a forged form can do nothing that its author could not do directly: it needs no further token.
//! What is typed of a card goes to the payment processor and nowhere else.

mod complete;
mod form;
mod offer;
mod page;
mod session;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, StatusCode};

use self::complete::Stopped;
use self::form::{Answers, Problem};
use self::page::Notice;
use self::session::{Session, Standing};
use crate::app::App;
use crate::error::{ApiError, ProtocolError, Resource};

/// The most bytes of a form.
const MAX_FORM_BYTES: usize = 16 * 1024;

/// An hour: the assets change with the program only.
const CACHED: &str = "public, max-age=3600";

/// The page's routes, at the root: it is no part of the interface, and the document does not name it.
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

async fn show(State(app): State<Arc<App>>, Path(secret): Path<String>) -> Response {
    match session::find(&app, &secret).await {
        Ok(Some(session)) => shown(&session, &Answers::default(), &[]),
        Ok(None) => page::notice(Notice::Unknown, None),
        Err(error) => page::failed(error, None),
    }
}

/// The page as the session stands, with what was typed so far and what is wrong with it.
fn shown(session: &Session, answers: &Answers, problems: &[Problem]) -> Response {
    match &session.standing {
        Standing::Open(offer) => page::form(session, offer, answers, problems),
        Standing::UnderWay => page::notice(Notice::UnderWay, Some(session)),
        Standing::Closed => page::notice(Notice::Closed, Some(session)),
        Standing::Gone => page::notice(Notice::Gone, Some(session)),
        Standing::HasIt => page::notice(Notice::HasIt, Some(session)),
        Standing::Expired => page::notice(Notice::Expired, Some(session)),
        Standing::Completed(_) => page::notice(Notice::Completed, Some(session)),
    }
}

async fn submit(State(app): State<Arc<App>>, Path(secret): Path<String>, request: Request) -> Response {
    let session = match session::find(&app, &secret).await {
        Ok(Some(session)) => session,
        Ok(None) => return page::notice(Notice::Unknown, None),
        Err(error) => return page::failed(error, None),
    };
    let offer = match &session.standing {
        Standing::Open(offer) => offer,
        Standing::UnderWay | Standing::Completed(_) => return back(&secret),
        Standing::Closed | Standing::Gone | Standing::HasIt | Standing::Expired => {
            return shown(&session, &Answers::default(), &[]);
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
        // Whatever it is now, the page tells; a reload sends nothing again.
        Ok(()) | Err(Stopped::Overtaken) => back(&secret),
        Err(Stopped::Wrong(problem)) => {
            // Who the customer is is known by now, if it was made, and asked no more.
            match session::find(&app, &secret).await {
                Ok(Some(now)) if matches!(now.standing, Standing::Open(_)) => {
                    shown(&now, &answers, &[problem])
                }
                Ok(_) | Err(_) => page::form(&session, offer, &answers, &[problem]),
            }
        }
        Err(Stopped::Failed(error)) => page::failed(error, Some(&session)),
    }
}

/// To the page itself, to be read with GET.
fn back(secret: &str) -> Response {
    // What the key derived is of letters, digits, `_`, `-` and `.`.
    let to = [(LOCATION, secret.to_owned())];
    (StatusCode::SEE_OTHER, to, [(CACHE_CONTROL, "no-store")]).into_response()
}

async fn read(app: &App, request: Request) -> Result<Answers, ApiError> {
    let (parts, body) = request.into_parts();
    if !is_form(&parts.headers) {
        return Err(ApiError::Protocol(ProtocolError::ContentTypeUnsupported));
    }
    let bytes = tokio::time::timeout(app.timeouts.body, axum::body::to_bytes(body, MAX_FORM_BYTES)).await;
    match bytes {
        Ok(Ok(bytes)) => Ok(Answers::of(&bytes)),
        Ok(Err(_)) | Err(_) => Err(ApiError::Protocol(ProtocolError::BodyTooLarge)),
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}
