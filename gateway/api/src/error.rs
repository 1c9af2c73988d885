//! The errors of the interface. Invariant: [`ApiError`] is closed, and it alone knows status codes and the words
//! of the error envelope (interface.md, Errors; completion.md section 2).

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use farthing_core::command::{Refusal, WalletShortfall};
use farthing_core::event::DeclineReason;
use farthing_core::ids::RequestId;
use farthing_core::money::Amount;
use farthing_log::appender;
use farthing_worker::payments;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;

use crate::headers::SERVICE_REQUEST_ID;

/// Seconds after which a caller may ask again when the ledger is away.
const LEDGER_RETRY_AFTER_SECONDS: u64 = 1;

/// Seconds after which a caller may ask again for a call in flight.
const IN_PROGRESS_RETRY_AFTER_SECONDS: u64 = 1;
/// Seconds after which a caller may look again whether a limit that never starts anew has been raised: a day.
const NEVER_RETRY_AFTER_SECONDS: u64 = 86_400;

/// One thing wrong with the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Issue {
    /// Where: names and indices from the outermost; empty for the whole input.
    pub(crate) path: Vec<String>,
    /// What is wrong, as the end of a sentence that begins with the path.
    pub(crate) message: String,
}

impl Issue {
    /// `message` about the thing at `path`.
    pub(crate) fn new<P: Into<String>>(
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) -> Self {
        Self { path: path.into_iter().map(Into::into).collect(), message: message.into() }
    }
}

/// A kind of thing that may not be found: the first part of `<resource>_not_found`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// `customer_not_found`
    Customer,
    /// `connection_not_found`
    Connection,
    /// `meter_not_found`
    Meter,
    /// `request_not_found`
    Request,
    /// `secret_key_not_found`
    SecretKey,
    /// `spend_key_not_found`
    SpendKey,
    /// `plan_not_found`
    Plan,
    /// `subscription_not_found`
    Subscription,
    /// `credit_bundle_not_found`
    CreditBundle,
    /// `checkout_session_not_found`
    CheckoutSession,
    /// `payment_method_not_found`
    PaymentMethod,
    /// `webhook_not_found`
    Webhook,
    /// `webhook_event_not_found`
    WebhookEvent,
    /// `route_not_found`
    Route,
}

impl Resource {
    const fn code_and_message(self) -> (&'static str, &'static str) {
        match self {
            Self::Customer => ("customer_not_found", "There is no such customer."),
            Self::Connection => ("connection_not_found", "There is no such connection."),
            Self::Meter => ("meter_not_found", "There is no such meter."),
            Self::Request => ("request_not_found", "There is no such request."),
            Self::SecretKey => ("secret_key_not_found", "There is no such secret key."),
            Self::SpendKey => ("spend_key_not_found", "There is no such spend key."),
            Self::Plan => ("plan_not_found", "There is no such plan."),
            Self::Subscription => ("subscription_not_found", "There is no such subscription."),
            Self::CreditBundle => ("credit_bundle_not_found", "There is no such credit bundle."),
            Self::CheckoutSession => ("checkout_session_not_found", "There is no such checkout session."),
            Self::PaymentMethod => ("payment_method_not_found", "There is no such payment method."),
            Self::Webhook => ("webhook_not_found", "There is no such webhook."),
            Self::WebhookEvent => ("webhook_event_not_found", "The webhook is told of no such event."),
            Self::Route => ("route_not_found", "There is nothing at this path."),
        }
    }
}

/// Everything that the gateway itself answers other than success. A provider's own errors pass through and are
/// none of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// 400: the input breaks a rule; says which.
    Validation(Vec<Issue>),
    /// 400: the cursor is not the id of an item of this merchant's list.
    CursorInvalid,
    /// 400: the forward token is base64 of something that is not the JSON wanted.
    ForwardTokenJsonInvalid(Vec<Issue>),
    /// 400: no `u`.
    ForwardUrlMissing,
    /// 400: `u` is not a URL that may be forwarded to; says why.
    ForwardUrlInvalid(&'static str),
    /// 400: `u` leads to an address that is not allowed.
    ForwardUrlForbidden,
    /// 400: the metadata of a forwarded call breaks a rule; says which.
    MetadataInvalid(Vec<Issue>),
    /// 400: the merchant's only secret key cannot be revoked.
    SecretKeyLastRemaining,
    /// 400: somebody is to pay by the provider's price, and the catalogue has none for what is asked.
    ModelNotPriced,
    /// 400: the provider wants a key, and there is neither one of the caller's nor one of this instance's.
    ProviderKeyMissing,
    /// 400: the plan costs something, so it is subscribed to through a checkout session.
    PlanNotFree,
    /// 400: the credit bundle is another plan's than the subscription's.
    CreditBundlePlanMismatch,
    /// 400: the merchant has as many webhooks as it may have.
    WebhookLimitReached,
    /// 401: no credential.
    AuthHeaderMissing,
    /// 401: the credential is not of a form that could be one.
    AuthHeaderInvalid,
    /// 401: no such secret key.
    SecretKeyInvalid,
    /// 401: the connection secret names no connection of this merchant.
    ConnectionSecretInvalid,
    /// 401: the product secret names no meter of this merchant.
    ProductSecretInvalid,
    /// 401: no such spend key, or no longer: rotated, deleted, or its customer deleted.
    SpendKeyInvalid,
    /// 401: the spend key's time is over.
    SpendKeyExpired,
    /// 402: the money available does not cover the hold.
    InsufficientBalance {
        /// Balance minus open holds.
        available: Amount,
        /// The hold.
        needed: Amount,
        /// The wallet that fell short, where it asks for money by itself.
        auto_recharge: Option<WalletShortfall>,
    },
    /// 402: what is left of the spend key's limit does not cover the hold.
    SpendLimitExceeded {
        /// The limit less what is spent and held.
        left: Amount,
        /// The hold.
        needed: Amount,
    },
    /// 402: the payment processor took no money; says why.
    PaymentDeclined(DeclineReason),
    /// 403: the spend key does not work for now.
    SpendKeyPaused,
    /// 403: the spend key's list of models does not hold the body's.
    ModelNotAllowed,
    /// 403: the spend key's list of providers does not hold the call's.
    ProviderNotAllowed,
    /// 403: nobody issues secret keys over this interface.
    SecretKeyIssuancePaused,
    /// 404: no such thing, or another merchant's.
    NotFound(Resource),
    /// 405: the path has other methods; the router names them in `Allow`.
    MethodNotAllowed,
    /// 409: another customer of the merchant has the reference id.
    ReferenceIdConflict,
    /// 409: another meter of the merchant has the slug.
    MeterSlugConflict,
    /// 409: the customer has a subscription already.
    SubscriptionAlreadyActive,
    /// 409: another payment is under way for the same thing.
    PaymentInProgress,
    /// 409: the call that the idempotency key began is in flight.
    IdempotencyInProgress(RequestId),
    /// 409: the call that the idempotency key began has ended, and its answer was not kept.
    IdempotencyCompleted(RequestId),
    /// 422: the idempotency key was used for another request.
    IdempotencyKeyReused,
    /// 410: the checkout session's time is over.
    CheckoutSessionExpired,
    /// 413: the body is larger than the endpoint takes.
    BodyTooLarge,
    /// 414: the request target is longer than a URI can be here.
    UriTooLong,
    /// 415: the body is not JSON by its content type.
    ContentTypeUnsupported,
    /// 429: too many calls with this key.
    RateLimitExceeded {
        /// Until the next window.
        retry_after_seconds: u64,
    },
    /// 431: the head of the request is too long, or has too many headers.
    HeadTooLarge,
    /// 429: the spend key's calls of this cycle are used up.
    RequestLimitExceeded {
        /// Until the next cycle; none where it never comes.
        retry_after_seconds: Option<u64>,
    },
    /// 500: our own fault; the text goes to the process's log, never to the caller.
    Internal(String),
    /// 502: no connection to the provider.
    ProviderUnreachable,
    /// 503: the ledger is away; nothing was charged. The text goes to the process's log.
    LedgerUnavailable(String),
    /// 504: the provider did not answer in time.
    ProviderTimeout,
}

impl ApiError {
    /// A validation error of one issue.
    pub(crate) fn issue<P: Into<String>>(
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) -> Self {
        Self::Validation(vec![Issue::new(path, message)])
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.wire().0
    }

    /// The code of the envelope.
    pub(crate) fn code(&self) -> &'static str {
        self.wire().1
    }

    /// The message of the envelope.
    pub(crate) fn message(&self) -> String {
        self.wire().2
    }

    /// Status, code and message: the whole table of errors.
    fn wire(&self) -> (StatusCode, &'static str, String) {
        use StatusCode as S;
        let (status, code, message) = match self {
            Self::Validation(_) => {
                (S::BAD_REQUEST, "validation_error", "The request is not valid; see the issues.")
            }
            Self::CursorInvalid => {
                (S::BAD_REQUEST, "cursor_invalid", "The cursor is not the id of an item of this list.")
            }
            Self::ForwardTokenJsonInvalid(_) => (
                S::BAD_REQUEST,
                "forward_token_json_invalid",
                "The forward token is not base64 of the JSON wanted.",
            ),
            Self::ForwardUrlMissing => (
                S::BAD_REQUEST,
                "forward_url_missing",
                "The query parameter u must name the URL to forward to.",
            ),
            Self::ForwardUrlInvalid(why) => {
                return (S::BAD_REQUEST, "forward_url_invalid", format!("The URL to forward to {why}."));
            }
            Self::ForwardUrlForbidden => (
                S::BAD_REQUEST,
                "forward_url_forbidden",
                "The URL to forward to leads to an address not allowed.",
            ),
            Self::MetadataInvalid(_) => {
                (S::BAD_REQUEST, "metadata_invalid", "The metadata is not valid; see the issues.")
            }
            Self::SecretKeyLastRemaining => (
                S::BAD_REQUEST,
                "secret_key_last_remaining",
                "The last secret key cannot be deleted; have another one issued first.",
            ),
            Self::ModelNotPriced => (
                S::BAD_REQUEST,
                "model_not_priced",
                "The price of this call at the provider is not known, so it cannot be billed.",
            ),
            Self::ProviderKeyMissing => (
                S::BAD_REQUEST,
                "provider_key_missing",
                "The provider wants a key: send your own as provider_key, or have the operator set one up.",
            ),
            Self::PlanNotFree => (
                S::BAD_REQUEST,
                "plan_not_free",
                "The plan costs something: it is subscribed to through a checkout session.",
            ),
            Self::CreditBundlePlanMismatch => {
                (S::BAD_REQUEST, "credit_bundle_plan_mismatch", "The credit bundle belongs to another plan.")
            }
            Self::WebhookLimitReached => (
                S::BAD_REQUEST,
                "webhook_limit_reached",
                "There are three webhooks already; delete one first.",
            ),
            Self::PaymentDeclined(reason) => {
                let why = match reason {
                    DeclineReason::CardDeclined => "the card was declined",
                    DeclineReason::InsufficientFunds => "the card has insufficient funds",
                    DeclineReason::ExpiredCard => "the card has expired",
                    DeclineReason::MethodRemoved => "the payment method is no more",
                };
                return (
                    S::PAYMENT_REQUIRED,
                    "payment_declined",
                    format!("The payment was declined: {why}."),
                );
            }
            Self::SubscriptionAlreadyActive => (
                S::CONFLICT,
                "subscription_already_active",
                "The customer has an active subscription already.",
            ),
            Self::PaymentInProgress => {
                (S::CONFLICT, "payment_in_progress", "A payment for this is under way.")
            }
            Self::CheckoutSessionExpired => {
                (S::GONE, "checkout_session_expired", "The checkout session has expired.")
            }
            Self::AuthHeaderMissing => {
                (S::UNAUTHORIZED, "auth_header_missing", "The Authorization header is missing.")
            }
            Self::AuthHeaderInvalid => (
                S::UNAUTHORIZED,
                "auth_header_invalid",
                "The credential is not of the form \"Bearer <key>\".",
            ),
            Self::SecretKeyInvalid => (S::UNAUTHORIZED, "secret_key_invalid", "The secret key is not valid."),
            Self::ConnectionSecretInvalid => {
                (S::UNAUTHORIZED, "connection_secret_invalid", "The connection secret is not valid.")
            }
            Self::ProductSecretInvalid => {
                (S::UNAUTHORIZED, "product_secret_invalid", "The product secret is not valid.")
            }
            Self::SpendKeyInvalid => (S::UNAUTHORIZED, "spend_key_invalid", "The spend key is not valid."),
            Self::InsufficientBalance { available, needed, auto_recharge: _ } => {
                let message =
                    format!("The balance available, {available}, does not cover this call's {needed}.");
                return (S::PAYMENT_REQUIRED, "insufficient_balance", message);
            }
            Self::SpendKeyExpired => (S::UNAUTHORIZED, "spend_key_expired", "The spend key has expired."),
            Self::SpendLimitExceeded { left, needed } => {
                let message = format!(
                    "What is left of the spend key's limit, {left}, does not cover this call's {needed}."
                );
                return (S::PAYMENT_REQUIRED, "spend_limit_exceeded", message);
            }
            Self::SpendKeyPaused => (S::FORBIDDEN, "spend_key_paused", "The spend key is paused."),
            Self::ModelNotAllowed => {
                (S::FORBIDDEN, "model_not_allowed", "The spend key does not allow this call's model.")
            }
            Self::ProviderNotAllowed => {
                (S::FORBIDDEN, "provider_not_allowed", "The spend key does not allow this call's provider.")
            }
            Self::RequestLimitExceeded { retry_after_seconds } => {
                let message = match retry_after_seconds {
                    Some(_) => "The spend key's requests of this cycle are used up.",
                    None => "The spend key's requests are used up; its limit does not start anew.",
                };
                (S::TOO_MANY_REQUESTS, "request_limit_exceeded", message)
            }
            Self::SecretKeyIssuancePaused => {
                (S::FORBIDDEN, "secret_key_issuance_paused", "Secret keys are issued by the operator only.")
            }
            Self::NotFound(resource) => {
                let (code, message) = resource.code_and_message();
                (S::NOT_FOUND, code, message)
            }
            Self::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "method_not_allowed", "The path does not take this method.")
            }
            Self::ReferenceIdConflict => {
                (S::CONFLICT, "reference_id_conflict", "Another customer has this reference id already.")
            }
            Self::MeterSlugConflict => {
                (S::CONFLICT, "meter_slug_conflict", "Another meter has this slug already.")
            }
            Self::IdempotencyInProgress(request_id) => {
                let message =
                    format!("The call that this idempotency key began, {request_id}, is in flight.");
                return (S::CONFLICT, "idempotency_in_progress", message);
            }
            Self::IdempotencyCompleted(request_id) => {
                let message = format!(
                    "The call that this idempotency key began, {request_id}, has ended; its answer is not kept."
                );
                return (S::CONFLICT, "idempotency_completed", message);
            }
            Self::IdempotencyKeyReused => (
                S::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                "The idempotency key was used for another request.",
            ),
            Self::BodyTooLarge => (S::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large."),
            Self::UriTooLong => (S::URI_TOO_LONG, "uri_too_long", "The request target is too long."),
            Self::ContentTypeUnsupported => {
                (S::UNSUPPORTED_MEDIA_TYPE, "content_type_unsupported", "The body must be application/json.")
            }
            Self::RateLimitExceeded { .. } => {
                (S::TOO_MANY_REQUESTS, "rate_limit_exceeded", "Too many requests with this key.")
            }
            Self::HeadTooLarge => (
                S::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
                "The request's headers are too many or too long.",
            ),
            Self::Internal(_) => {
                (S::INTERNAL_SERVER_ERROR, "rest_internal_server_error", "Something went wrong on our side.")
            }
            Self::ProviderUnreachable => {
                (S::BAD_GATEWAY, "provider_unreachable", "The provider could not be reached.")
            }
            Self::LedgerUnavailable(_) => (
                S::SERVICE_UNAVAILABLE,
                "ledger_unavailable",
                "The ledger is unavailable; nothing was charged.",
            ),
            Self::ProviderTimeout => {
                (S::GATEWAY_TIMEOUT, "provider_timeout", "The provider did not answer in time.")
            }
        };
        (status, code, message.to_owned())
    }

    /// What is wrong with the input, where the error is about input.
    fn issues(&self) -> Option<Cow<'_, [Issue]>> {
        match self {
            Self::Validation(issues)
            | Self::ForwardTokenJsonInvalid(issues)
            | Self::MetadataInvalid(issues) => Some(Cow::Borrowed(issues)),
            Self::CursorInvalid => Some(Cow::Owned(vec![Issue::new(["cursor"], "is not the id of an item")])),
            Self::ForwardUrlMissing
            | Self::ForwardUrlInvalid(_)
            | Self::ForwardUrlForbidden
            | Self::SecretKeyLastRemaining
            | Self::ModelNotPriced
            | Self::ProviderKeyMissing
            | Self::PlanNotFree
            | Self::CreditBundlePlanMismatch
            | Self::WebhookLimitReached
            | Self::PaymentDeclined(_)
            | Self::SubscriptionAlreadyActive
            | Self::PaymentInProgress
            | Self::CheckoutSessionExpired
            | Self::AuthHeaderMissing
            | Self::AuthHeaderInvalid
            | Self::SecretKeyInvalid
            | Self::ConnectionSecretInvalid
            | Self::ProductSecretInvalid
            | Self::SpendKeyInvalid
            | Self::SpendKeyExpired
            | Self::InsufficientBalance { .. }
            | Self::SpendLimitExceeded { .. }
            | Self::SpendKeyPaused
            | Self::ModelNotAllowed
            | Self::ProviderNotAllowed
            | Self::SecretKeyIssuancePaused
            | Self::NotFound(_)
            | Self::MethodNotAllowed
            | Self::ReferenceIdConflict
            | Self::MeterSlugConflict
            | Self::IdempotencyInProgress(_)
            | Self::IdempotencyCompleted(_)
            | Self::IdempotencyKeyReused
            | Self::BodyTooLarge
            | Self::UriTooLong
            | Self::ContentTypeUnsupported
            | Self::RateLimitExceeded { .. }
            | Self::HeadTooLarge
            | Self::RequestLimitExceeded { .. }
            | Self::Internal(_)
            | Self::ProviderUnreachable
            | Self::LedgerUnavailable(_)
            | Self::ProviderTimeout => None,
        }
    }

    /// The headers that go with the status.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::RateLimitExceeded { retry_after_seconds } = self {
            headers.insert(RETRY_AFTER, (*retry_after_seconds).into());
        }
        if let Self::RequestLimitExceeded { retry_after_seconds } = self {
            headers.insert(RETRY_AFTER, retry_after_seconds.unwrap_or(NEVER_RETRY_AFTER_SECONDS).into());
        }
        if let Self::LedgerUnavailable(_) = self {
            headers.insert(RETRY_AFTER, LEDGER_RETRY_AFTER_SECONDS.into());
        }
        if let Self::IdempotencyInProgress(request_id) | Self::IdempotencyCompleted(request_id) = self {
            // The call that the answer is about.
            let id = HeaderValue::try_from(request_id.to_string()).expect("an id is ASCII");
            headers.insert(SERVICE_REQUEST_ID, id);
        }
        if let Self::IdempotencyInProgress(_) = self {
            headers.insert(RETRY_AFTER, IN_PROGRESS_RETRY_AFTER_SECONDS.into());
        }
        headers
    }
}

/// The envelope of every error.
#[derive(Serialize)]
struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    message: String,
    code: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    issues: Option<Cow<'a, [Issue]>>,
}

impl ApiError {
    /// Status, headers and body of the answer.
    pub(crate) fn into_parts(self) -> (StatusCode, HeaderMap, Vec<u8>) {
        if let Self::Internal(why) = &self {
            tracing::error!(why, "answering 500");
        }
        if let Self::LedgerUnavailable(why) = &self {
            tracing::warn!(why, "answering 503");
        }
        let (status, code, message) = self.wire();
        let body = Body { message, code, status: status.as_u16(), issues: self.issues() };
        let body = serde_json::to_vec(&Envelope { error: body }).expect("an envelope has string keys");
        (status, self.headers(), body)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.into_parts().into_response()
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::SecretKeyInvalid => Self::SecretKeyInvalid,
            Refusal::ConnectionSecretInvalid => Self::ConnectionSecretInvalid,
            Refusal::ProductSecretInvalid => Self::ProductSecretInvalid,
            Refusal::CustomerNotFound => Self::NotFound(Resource::Customer),
            Refusal::MeterNotFound => Self::NotFound(Resource::Meter),
            Refusal::SpendKeyNotFound => Self::NotFound(Resource::SpendKey),
            Refusal::SecretKeyNotFound => Self::NotFound(Resource::SecretKey),
            Refusal::SecretKeyLastRemaining => Self::SecretKeyLastRemaining,
            Refusal::ReferenceIdConflict => Self::ReferenceIdConflict,
            Refusal::SpendKeyInvalid => Self::SpendKeyInvalid,
            Refusal::SpendKeyExpired => Self::SpendKeyExpired,
            Refusal::SpendKeyPaused => Self::SpendKeyPaused,
            Refusal::ModelNotAllowed => Self::ModelNotAllowed,
            Refusal::ProviderNotAllowed => Self::ProviderNotAllowed,
            Refusal::RequestLimitExceeded { retry_after_seconds } => {
                Self::RequestLimitExceeded { retry_after_seconds }
            }
            Refusal::RateLimitExceeded { retry_after_seconds } => {
                Self::RateLimitExceeded { retry_after_seconds }
            }
            Refusal::SpendLimitExceeded { left, needed } => Self::SpendLimitExceeded { left, needed },
            Refusal::MeterSlugConflict => Self::MeterSlugConflict,
            Refusal::ModelNotPriced => Self::ModelNotPriced,
            Refusal::InsufficientBalance { available, needed, auto_recharge } => {
                Self::InsufficientBalance { available, needed, auto_recharge }
            }
            Refusal::Amount(why) => Self::issue(["amount"], why.to_string()),
            Refusal::UsageOutOfRange => {
                Self::issue(["usage"], "is out of range: nobody could be billed for it")
            }
            Refusal::AmountNotPositive => Self::issue(["amount"], "must be above zero"),
            Refusal::PlanNotFound => Self::NotFound(Resource::Plan),
            Refusal::PlanNotFree => Self::PlanNotFree,
            Refusal::CreditAbovePrice => {
                Self::issue(["included_credit"], "must not be above period_amount, where that is above zero")
            }
            Refusal::CreditBundleNotFound => Self::NotFound(Resource::CreditBundle),
            Refusal::CreditBundlePlanMismatch => Self::CreditBundlePlanMismatch,
            Refusal::SubscriptionNotFound => Self::NotFound(Resource::Subscription),
            Refusal::SubscriptionAlreadyActive => Self::SubscriptionAlreadyActive,
            Refusal::PaymentMethodNotFound => Self::NotFound(Resource::PaymentMethod),
            Refusal::NoPaymentMethod => {
                Self::issue(["payment_method_id"], "is required: the wallet has no payment method yet")
            }
            Refusal::AutopayIncomplete { enabled, threshold, amount } => {
                let why = if enabled {
                    "is required while autopay is enabled"
                } else {
                    "goes with autopay_enabled"
                };
                let parts = [("autopay_threshold", threshold), ("autopay_amount", amount)];
                let wrong = parts.into_iter().filter(|(_, is_wrong)| *is_wrong);
                Self::Validation(wrong.map(|(name, _)| Issue::new([name], why)).collect())
            }
            Refusal::OfferChanged => Self::issue(["amount"], "is not what it costs any more"),
            Refusal::PaymentUnderWay => Self::PaymentInProgress,
            Refusal::CheckoutSessionNotFound => Self::NotFound(Resource::CheckoutSession),
            Refusal::CheckoutSessionExpired => Self::CheckoutSessionExpired,
            Refusal::WebhookNotFound => Self::NotFound(Resource::Webhook),
            Refusal::WebhookLimitReached => Self::WebhookLimitReached,
            Refusal::ClockOutOfRange => Self::issue(
                ["advance_seconds"],
                "must be above zero, and the clock at most a hundred years ahead",
            ),
            Refusal::MerchantNotFound | Refusal::RequestNotOpen | Refusal::PaymentNotOpen => {
                Self::Internal(refusal.to_string())
            }
        }
    }
}

impl From<appender::Error> for ApiError {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(refusal) => refusal.into(),
            appender::Error::Unavailable(why) => Self::LedgerUnavailable(why),
        }
    }
}

impl From<payments::Error> for ApiError {
    fn from(error: payments::Error) -> Self {
        match error {
            payments::Error::Refused(refusal) => refusal.into(),
            payments::Error::Unavailable(why) => Self::LedgerUnavailable(why),
            payments::Error::Internal(why) => Self::Internal(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn answered(error: ApiError) -> (StatusCode, HeaderMap, serde_json::Value) {
        let (parts, body) = error.into_response().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn an_error_is_told_in_the_envelope() {
        let (status, headers, body) = answered(ApiError::issue(["tiers", "0"], "must be an object")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(headers[CONTENT_TYPE], "application/json");
        assert_eq!(
            body,
            serde_json::json!({"error": {
                "message": "The request is not valid; see the issues.", "code": "validation_error", "status": 400,
                "issues": [{"path": ["tiers", "0"], "message": "must be an object"}],
            }})
        );
    }

    #[tokio::test]
    async fn what_is_our_own_business_stays_with_us() {
        for (error, status) in [
            (ApiError::Internal("a password".to_owned()), StatusCode::INTERNAL_SERVER_ERROR),
            (ApiError::LedgerUnavailable("a password".to_owned()), StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let (answered_status, _, body) = answered(error).await;
            assert_eq!(answered_status, status);
            assert!(!body.to_string().contains("password"), "{body}");
            assert_eq!(body["error"].get("issues"), None);
        }
    }

    #[tokio::test]
    async fn errors_carry_the_headers_of_their_status() {
        let (_, headers, _) = answered(ApiError::RateLimitExceeded { retry_after_seconds: 17 }).await;
        assert_eq!(headers[RETRY_AFTER], "17");
        for (retry_after_seconds, seconds) in [(Some(86), "86"), (None, "86400")] {
            let (_, headers, _) = answered(ApiError::RequestLimitExceeded { retry_after_seconds }).await;
            assert_eq!(headers[RETRY_AFTER], seconds);
        }
        let (_, headers, _) = answered(ApiError::AuthHeaderMissing).await;
        assert_eq!(headers[WWW_AUTHENTICATE], "Bearer");
        let (_, _, body) = answered(ApiError::CursorInvalid).await;
        assert_eq!(body["error"]["issues"][0]["path"], serde_json::json!(["cursor"]));
    }
}
