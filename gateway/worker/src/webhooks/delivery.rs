//! One attempt to tell a webhook: signed, through the guarded dialer, within its time. A redirect is a failure like any
//! other answer that is not of the two hundreds, and the answer's body is read to a small bound and dropped.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use farthing_core::secret::sign_webhook;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use farthing_egress::Connector;

/// Idle connections kept per receiver.
const MAX_IDLE_PER_HOST: usize = 4;

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// Bytes of an answer that are read, so that its connection may serve again.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// How long they are waited for.
const ANSWER_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// By what receivers know us.
const AGENT: &str = "farthing";

/// What is to be told, and to whom.
pub(super) struct Letter {
    pub(super) url: String,
    pub(super) secret: String,
    /// The event's id.
    pub(super) id: String,
    pub(super) body: Vec<u8>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The receiver took it: its status.
    Told(u16),
    /// It did not.
    Missed {
        /// The receiver's status, where it answered.
        status: Option<u16>,
        /// What is shown of the reason.
        why: &'static str,
    },
}

/// Sends letters.
pub(super) struct Post {
    client: Client<Connector, Full<Bytes>>,
    timeout: Duration,
}

impl Post {
    /// A post whose only way out is `connector`; an answer is waited for `timeout`.
    pub(super) fn new(connector: Connector, timeout: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build(connector);
        Self { client, timeout }
    }

    /// Sends a letter and reads the answer.
    pub(super) async fn send(&self, letter: Letter) -> Outcome {
        let missed = |why| Outcome::Missed { status: None, why };
        let Some(request) = signed(letter) else { return missed("the URL cannot be called") };
        match tokio::time::timeout(self.timeout, self.client.request(request)).await {
            Err(_) => missed("the receiver did not answer in time"),
            Ok(Err(error)) => missed(why_unanswered(&error)),
            Ok(Ok(response)) => {
                let status = response.status();
                let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
                let _ = tokio::time::timeout(ANSWER_BODY_TIMEOUT, body).await;
                if status.is_success() {
                    Outcome::Told(status.as_u16())
                } else {
                    let why = "the receiver answered with another status than 200 to 299";
                    Outcome::Missed { status: Some(status.as_u16()), why }
                }
            }
        }
    }
}

/// The request of a letter, signed in both ways as of now.
fn signed(letter: Letter) -> Option<Request<Full<Bytes>>> {
    let Letter { url, secret, id, body } = letter;
    let now = Utc::now().timestamp();
    let signatures = sign_webhook(&secret, &id, now, &body);
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, AGENT)
        .header("x-webhook-signature", signatures.plain)
        .header("webhook-id", id)
        .header("webhook-timestamp", now)
        .header("webhook-signature", signatures.standard);
    request.body(Full::new(body.into())).ok()
}

/// What is shown of why no answer came; nothing of what the machine said.
fn why_unanswered(error: &hyper_util::client::legacy::Error) -> &'static str {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(farthing_egress::Error::Forbidden) = error.downcast_ref() {
            return "the receiver's address is not allowed";
        }
        source = error.source();
    }
    if error.is_connect() { "the receiver could not be reached" } else { "the receiver broke off" }
}
