//! The error responses of the document. A handler lists its error codes as the description of a response:
//! `(status = 404, description = "customer_not_found")`. Their messages and schemas are added here from [`ApiError`].

use std::collections::BTreeMap;

use farthing_core::event::DeclineReason;
use farthing_core::ids::RequestId;
use farthing_core::money::Amount;
use serde_json::{Map, Value, json};

use crate::error::{
    ApiError, AuthError, BillingError, ConflictError, ForwardError, GatewayLimit, IdempotencyError,
    InputError, Issue, LimitError, ProtocolError, Resource, ServerError,
};
use crate::providers::Unpriced;

/// Every error.
fn every() -> Vec<ApiError> {
    let request_id = RequestId::new(ulid::Ulid::nil());
    vec![
        ApiError::validation(Vec::new()),
        ApiError::Input(InputError::CursorInvalid),
        ApiError::Forward(ForwardError::TokenJsonInvalid(Vec::new())),
        ApiError::Forward(ForwardError::UrlMissing),
        ApiError::Forward(ForwardError::UrlInvalid("is not a URL")),
        ApiError::Forward(ForwardError::UrlForbidden),
        ApiError::Forward(ForwardError::MetadataInvalid(Vec::new())),
        ApiError::Forward(ForwardError::ModelNotPriced),
        ApiError::Forward(ForwardError::Unpriced(Unpriced::Model)),
        ApiError::Forward(ForwardError::ProviderKeyMissing),
        ApiError::Forward(ForwardError::ConversionUnsupported(Issue::new(
            ["field"],
            "it has no counterpart",
        ))),
        ApiError::Auth(AuthError::HeaderMissing),
        ApiError::Auth(AuthError::HeaderInvalid),
        ApiError::Auth(AuthError::SecretKeyInvalid),
        ApiError::Auth(AuthError::ConnectionSecretInvalid),
        ApiError::Auth(AuthError::ProductSecretInvalid),
        ApiError::Auth(AuthError::SpendKeyInvalid),
        ApiError::Auth(AuthError::SpendKeyExpired),
        ApiError::Billing(BillingError::InsufficientBalance {
            available: Amount::ZERO,
            needed: Amount::ZERO,
            auto_recharge: None,
        }),
        ApiError::Limit(LimitError::SpendLimitExceeded { left: Amount::ZERO, needed: Amount::ZERO }),
        ApiError::Auth(AuthError::SpendKeyPaused),
        ApiError::Auth(AuthError::ModelNotAllowed),
        ApiError::Auth(AuthError::ProviderNotAllowed),
        ApiError::Auth(AuthError::SecretKeyIssuancePaused),
        ApiError::NotFound(Resource::Customer),
        ApiError::NotFound(Resource::Connection),
        ApiError::NotFound(Resource::Meter),
        ApiError::NotFound(Resource::Request),
        ApiError::NotFound(Resource::SpendKey),
        ApiError::NotFound(Resource::SecretKey),
        ApiError::NotFound(Resource::Plan),
        ApiError::NotFound(Resource::Subscription),
        ApiError::NotFound(Resource::CreditBundle),
        ApiError::NotFound(Resource::CheckoutSession),
        ApiError::Billing(BillingError::PlanNotFree),
        ApiError::Billing(BillingError::CreditBundlePlanMismatch),
        ApiError::Limit(LimitError::WebhookLimitReached),
        ApiError::NotFound(Resource::Webhook),
        ApiError::NotFound(Resource::WebhookEvent),
        ApiError::Billing(BillingError::PaymentDeclined(DeclineReason::CardDeclined)),
        ApiError::Billing(BillingError::SubscriptionAlreadyActive),
        ApiError::Billing(BillingError::PaymentInProgress),
        ApiError::Billing(BillingError::CheckoutSessionExpired),
        ApiError::NotFound(Resource::Wallet),
        ApiError::NotFound(Resource::PaymentMethod),
        ApiError::NotFound(Resource::Model),
        ApiError::NotFound(Resource::Route),
        ApiError::Protocol(ProtocolError::MethodNotAllowed),
        ApiError::Conflict(ConflictError::SecretKeyLastRemaining),
        ApiError::Conflict(ConflictError::ReferenceId),
        ApiError::Conflict(ConflictError::MeterSlug),
        ApiError::Idempotency(IdempotencyError::InProgress(request_id)),
        ApiError::Idempotency(IdempotencyError::Completed(request_id)),
        ApiError::Idempotency(IdempotencyError::KeyReused),
        ApiError::Protocol(ProtocolError::BodyTooLarge),
        ApiError::Protocol(ProtocolError::UriTooLong),
        ApiError::Protocol(ProtocolError::ContentTypeUnsupported),
        ApiError::Limit(LimitError::RateLimitExceeded { retry_after_seconds: 1 }),
        ApiError::Protocol(ProtocolError::HeadTooLarge),
        ApiError::Limit(LimitError::RequestLimitExceeded { retry_after_seconds: None }),
        ApiError::internal(""),
        ApiError::Billing(BillingError::PaymentsUnavailable),
        ApiError::Forward(ForwardError::ProviderUnreachable),
        ApiError::Forward(ForwardError::ProviderProtocol),
        ApiError::Forward(ForwardError::ResponseNotConverted),
        ApiError::Forward(ForwardError::ResponseBrokeOff),
        ApiError::ledger_unavailable(""),
        ApiError::Server(ServerError::OutcomeUnknown(String::new())),
        ApiError::overloaded(GatewayLimit::Calls),
        ApiError::overloaded_by_merchant(GatewayLimit::CallsOfMerchant),
        ApiError::Forward(ForwardError::ProviderTimeout),
    ]
}

/// The codes of errors with a `Retry-After` header.
const RETRYABLE: [&str; 4] =
    ["idempotency_in_progress", "ledger_unavailable", "rate_limit_exceeded", "request_limit_exceeded"];

/// The error codes of an operation, by status.
#[derive(Debug, Default)]
pub(super) struct Codes(BTreeMap<u16, Vec<&'static str>>);

impl Codes {
    /// Adds errors by their codes; panics at a code that no error has.
    pub(super) fn add(&mut self, codes: impl IntoIterator<Item = impl AsRef<str>>) {
        for code in codes {
            let code = code.as_ref();
            let error = every().into_iter().find(|error| error.code() == code);
            let error =
                error.unwrap_or_else(|| panic!("no error of `openapi::errors::every` has the code {code}"));
            let of_status = self.0.entry(error.status().as_u16()).or_default();
            if !of_status.contains(&error.code()) {
                of_status.push(error.code());
            }
        }
    }

    /// Moves the errors out of an operation's own `responses`: each has a status from 400 to 599 and a description of
    /// space-separated codes. Panics at a code of another status.
    pub(super) fn take_from(&mut self, responses: &mut Map<String, Value>) {
        let errors = responses.keys().filter(|status| status.as_str() >= "400" && status.as_str() <= "599");
        for status in errors.cloned().collect::<Vec<_>>() {
            let response = responses.remove(&status).unwrap_or_default();
            let codes: Vec<_> =
                response["description"].as_str().unwrap_or_default().split_whitespace().collect();
            self.add(&codes);
            let known = self.0.get(&status.parse().unwrap_or(0));
            let fits = known.is_some_and(|known| codes.iter().all(|code| known.contains(code)));
            assert!(fits, "{codes:?} are not codes of the status {status}");
        }
    }

    /// The responses by status. `exact` is false if the endpoint also returns a provider's answers.
    pub(super) fn responses(&self, exact: bool) -> impl Iterator<Item = (String, Value)> + '_ {
        self.0.iter().map(move |(status, codes)| (status.to_string(), response(*status, codes, exact)))
    }
}

fn response(status: u16, codes: &[&str], exact: bool) -> Value {
    let errors = every();
    let described = codes.iter().flat_map(|code| errors.iter().filter(move |error| error.code() == *code));
    let description: Vec<_> =
        described.map(|error| format!("`{}`: {}", error.code(), error.message())).collect();
    let envelope = json!({
        "allOf": [
            {"$ref": "#/components/schemas/Error"},
            {"properties": {"error": {"properties": {"code": {"enum": codes}, "status": {"const": status}}}}},
        ],
    });
    let schema = if exact { envelope } else { json!({"anyOf": [envelope, {}]}) };
    let mut headers = json!({"x-service-request-id": {"$ref": "#/components/headers/RequestId"}});
    if status == 401 {
        headers["WWW-Authenticate"] = json!({"$ref": "#/components/headers/Authenticate"});
    }
    if codes.iter().any(|code| RETRYABLE.contains(code)) {
        headers["Retry-After"] = json!({"$ref": "#/components/headers/RetryAfter"});
    }
    json!({
        "description": description.join("\n\n"),
        "headers": headers,
        "content": {"application/json": {"schema": schema}},
    })
}

/// The envelope of every error.
pub(super) fn envelope() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["message", "code", "status"],
            "properties": {
                "message": {"type": "string", "minLength": 1},
                "code": {"type": "string", "pattern": "^[a-z_]+$"},
                "status": {"type": "integer", "description": "The HTTP status."},
                "issues": {
                    "type": "array",
                    "description": "The problems of the input, each with its place.",
                    "items": {
                        "type": "object",
                        "required": ["path", "message"],
                        "properties": {
                            "path": {"type": "array", "items": {"type": "string"}},
                            "message": {"type": "string"},
                        },
                    },
                },
            },
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sources of the folder `error`.
    const SOURCES: [&str; 11] = [
        include_str!("../error/mod.rs"),
        include_str!("../error/auth.rs"),
        include_str!("../error/billing.rs"),
        include_str!("../error/conflict.rs"),
        include_str!("../error/forward.rs"),
        include_str!("../error/idempotency.rs"),
        include_str!("../error/input.rs"),
        include_str!("../error/limits.rs"),
        include_str!("../error/not_found.rs"),
        include_str!("../error/protocol.rs"),
        include_str!("../error/server.rs"),
    ];

    /// The variants of the enum `name`, each as it is declared: `Name`, `Name(Payload)` or `Name {`.
    fn variants(name: &str) -> Vec<&'static str> {
        let start = format!("pub(crate) enum {name} {{\n");
        let mut bodies = SOURCES.iter().filter_map(|source| source.split_once(&start));
        let (_, body) = bodies.next().unwrap_or_else(|| panic!("no source declares the enum {name}"));
        let (body, _) = body.split_once("\n}\n").unwrap();
        let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
        let names = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
        names.map(|line| line.trim_end_matches(',')).collect()
    }

    #[test]
    fn every_error_can_be_described() {
        let described: Vec<_> = every().iter().map(|error| format!("{error:?}")).collect();
        let mut errors = 0;
        for area in variants("ApiError") {
            let (area, payload) = area.trim_end_matches(')').split_once('(').unwrap();
            for variant in variants(payload) {
                let name = variant.split(['(', ' ']).next().unwrap();
                let start = format!("{area}({name}");
                let same = |shown: &String| {
                    shown.strip_prefix(&start).is_some_and(|rest| rest.starts_with(['(', ')', ' ']))
                };
                assert!(described.iter().any(same), "{area}({name})");
                errors += 1;
            }
        }
        assert_eq!(errors, described.len());
    }
}
