//! One delivery attempt: a signed request through the outbound connector, within a timeout. A response outside 200 to
//! 299, such as a redirect, is a failure. At most 16 KiB of the response body are read and discarded.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use farthing_core::ids::MerchantId;
use farthing_core::secret::sign_webhook;
use farthing_egress::{Connector, MAX_HEAD_BYTES, Party, on_behalf_of, too_many_interim_responses};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::timing::RESPONSE_BODY_TIMEOUT;

/// Idle connections kept per receiver.
const MAX_IDLE_PER_HOST: usize = 4;

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// Bytes of a response body that are read, so that its connection can be used again.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

/// The `User-Agent` of deliveries.
const AGENT: &str = "farthing";

/// The header of deliveries by which this service knows its own (RFC 8586), with its value. The forward endpoint refuses
/// them: a webhook at that address would make an event of each of its deliveries.
pub const LOOP_HEADER: (&str, &str) = ("cdn-loop", "farthing");

/// A delivery to be sent.
pub(super) struct DeliveryRequest {
    /// The webhook's merchant.
    pub(super) merchant_id: MerchantId,
    pub(super) url: String,
    /// The webhook's secret, which signs the body.
    pub(super) secret: String,
    pub(super) event_id: String,
    pub(super) body: Vec<u8>,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeliveryOutcome {
    /// The receiver answered with this status, one of 200 to 299.
    Delivered(u16),
    /// The attempt failed.
    Failed {
        /// The receiver's status, if it answered.
        status: Option<u16>,
        /// The reason that the API shows as `last_error`.
        reason: &'static str,
    },
}

/// The HTTP client of deliveries.
pub(super) struct DeliveryClient {
    client: Client<Connector, Full<Bytes>>,
    timeout: Duration,
}

impl DeliveryClient {
    /// A client that connects through `connector` and waits `timeout` for a response.
    pub(super) fn new(connector: Connector, timeout: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
        Self { client, timeout }
    }

    /// Sends a delivery and reads the response. `None` if the delivery is `withdrawn` before the receiver has answered.
    pub(super) async fn send(
        &self,
        delivery: DeliveryRequest,
        withdrawn: impl Future<Output = ()>,
    ) -> Option<DeliveryOutcome> {
        let failed = |reason| Some(DeliveryOutcome::Failed { status: None, reason });
        let party = Party(delivery.merchant_id.ulid().into());
        let Some(mut request) = signed(delivery) else { return failed("the webhook's URL is invalid") };
        let too_many_interim_responses = too_many_interim_responses(&mut request);
        let response = on_behalf_of(party, self.client.request(request));
        let response = async {
            tokio::select! {
                biased;
                response = response => Some(response.map_err(|error| reason(&error))),
                () = too_many_interim_responses => Some(Err("the receiver sent too many interim responses")),
                () = withdrawn => None,
            }
        };
        match tokio::time::timeout(self.timeout, response).await {
            Err(_) => failed("the receiver did not answer in time"),
            Ok(None) => None,
            Ok(Some(Err(reason))) => failed(reason),
            Ok(Some(Ok(response))) => {
                let status = response.status();
                let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
                let _ = tokio::time::timeout(RESPONSE_BODY_TIMEOUT, body).await;
                Some(if status.is_success() {
                    DeliveryOutcome::Delivered(status.as_u16())
                } else {
                    let reason = "the receiver answered with a status outside 200 to 299";
                    DeliveryOutcome::Failed { status: Some(status.as_u16()), reason }
                })
            }
        }
    }
}

/// The HTTP request of a delivery, with both signatures as of now; `None` if the URL is invalid.
fn signed(delivery: DeliveryRequest) -> Option<Request<Full<Bytes>>> {
    let DeliveryRequest { url, secret, event_id, body, .. } = delivery;
    let now = Utc::now().timestamp();
    let signatures = sign_webhook(&secret, &event_id, now, &body);
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, AGENT)
        .header(LOOP_HEADER.0, LOOP_HEADER.1)
        .header("x-webhook-signature", signatures.plain)
        .header("webhook-id", event_id)
        .header("webhook-timestamp", now)
        .header("webhook-signature", signatures.standard);
    request.body(Full::new(body.into())).ok()
}

/// The reason shown for a call without a response. It reveals nothing of the gateway's own network.
fn reason(error: &hyper_util::client::legacy::Error) -> &'static str {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(farthing_egress::Error::Forbidden) = error.downcast_ref() {
            return "the receiver's address is not allowed";
        }
        if let Some(farthing_egress::Error::TooManyConnections) = error.downcast_ref() {
            return "too many connections were open";
        }
        source = error.source();
    }
    if error.is_connect() {
        "the receiver could not be reached"
    } else {
        "the connection failed before the receiver answered"
    }
}
