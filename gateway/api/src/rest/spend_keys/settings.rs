//! What a body says a spend key allows.

use chrono::{DateTime, Utc};
use farthing_core::command::{Edit, SpendKeyEdits};
use farthing_core::event::{
    Cycle, RateLimit, RequestLimit, RequestShape, SpendKeySettings, SpendKeyStatus, SpendLimit,
};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::fields::Fields;
use crate::rules;

/// Names in a list of models or providers.
const MAX_ALLOWED: usize = 1_000;

const CYCLES: &[(&str, Cycle)] = &[
    ("daily", Cycle::Daily),
    ("weekly", Cycle::Weekly),
    ("monthly", Cycle::Monthly),
    ("total", Cycle::Total),
];

const SHAPES: &[(&str, RequestShape)] =
    &[("openai", RequestShape::Openai), ("anthropic", RequestShape::Anthropic)];

/// A spend key to create.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
pub(super) struct NewSpendKey {
    name: values::Text,
    /// The customer whose wallet it spends from, by id or `reference_id`; the merchant's own without.
    connection_id: Option<values::Text>,
    /// The same in the newer word.
    customer_id: Option<values::Text>,
    allowed_models: Option<values::Names>,
    allowed_providers: Option<values::Names>,
    spend_limit: Option<SpendLimitForm>,
    request_limit: Option<RequestLimitForm>,
    rate_limit: Option<RateLimitForm>,
    /// Not in the past.
    expires_at: Option<DateTime<Utc>>,
    request_shape: Option<RequestShape>,
}

/// At most this much money per cycle.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
struct SpendLimitForm {
    amount: values::PositiveAmountInput,
    cycle: Cycle,
}

/// At most this many calls per cycle.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
struct RequestLimitForm {
    count: values::Count,
    cycle: Cycle,
}

/// A token bucket.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
struct RateLimitForm {
    /// Refill per minute.
    rpm: values::Count,
    /// Capacity; `rpm` when absent.
    burst: Option<values::Count>,
}

const STATUSES: &[(&str, SpendKeyStatus)] =
    &[("active", SpendKeyStatus::Active), ("paused", SpendKeyStatus::Paused)];

/// A spend key as it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What it allows.
    pub(super) settings: SpendKeySettings,
    /// The customer whose wallet it spends from, by id or reference id; none for the merchant's own.
    pub(super) customer: Option<String>,
}

impl Wanted {
    /// Reads the body `json` at the instant `now`.
    pub(super) fn read(json: &str, now: DateTime<Utc>) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let name = body.text("name", rules::MAX_TEXT);
        let name = body.required("name", name);
        let customer = body.either("connection_id", "customer_id", |name| rules::text(name, rules::MAX_TEXT));
        let allowed_models = body.texts("allowed_models", MAX_ALLOWED);
        let allowed_providers = body.texts("allowed_providers", MAX_ALLOWED);
        let spend_limit = body.object("spend_limit", spend_limit);
        let request_limit = body.object("request_limit", request_limit);
        let rate_limit = body.object("rate_limit", rate_limit);
        let expires_at = body.instant("expires_at");
        if expires_at.is_some_and(|expires_at| expires_at <= now) {
            body.refuse("expires_at", "must not be in the past");
        }
        let request_shape = body.choice("request_shape", SHAPES);
        body.checked()?;
        let settings = SpendKeySettings {
            name: name.unwrap_or_default(),
            allowed_models,
            allowed_providers,
            spend_limit,
            request_limit,
            rate_limit,
            expires_at,
            request_shape,
        };
        Ok(Self { settings, customer })
    }
}

/// What may change of a spend key, as the document describes it; [`edits`] reads it. What is absent stays; `null` lifts a
/// limit.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `edits` reads")]
pub(super) struct SpendKeyChanges {
    name: Option<values::Text>,
    status: Option<SpendKeyStatus>,
    allowed_models: Option<values::Names>,
    allowed_providers: Option<values::Names>,
    spend_limit: Option<SpendLimitForm>,
    request_limit: Option<RequestLimitForm>,
    rate_limit: Option<RateLimitForm>,
    /// Not in the past.
    expires_at: Option<DateTime<Utc>>,
    request_shape: Option<RequestShape>,
}

/// Reads from the body `json`, at the instant `now`, what is to change of a spend key.
pub(super) fn edits(json: &str, now: DateTime<Utc>) -> Result<SpendKeyEdits, ApiError> {
    let mut body = Fields::of(json)?;
    let edits = SpendKeyEdits {
        name: body.text("name", rules::MAX_TEXT),
        status: body.choice("status", STATUSES),
        allowed_models: body.edit("allowed_models", |body, name| body.texts(name, MAX_ALLOWED)),
        allowed_providers: body.edit("allowed_providers", |body, name| body.texts(name, MAX_ALLOWED)),
        spend_limit: body.edit("spend_limit", |body, name| body.object(name, spend_limit)),
        request_limit: body.edit("request_limit", |body, name| body.object(name, request_limit)),
        rate_limit: body.edit("rate_limit", |body, name| body.object(name, rate_limit)),
        expires_at: body.edit("expires_at", Fields::instant),
        request_shape: body.edit("request_shape", |body, name| body.choice(name, SHAPES)),
    };
    if matches!(edits.expires_at, Edit::Set(expires_at) if expires_at <= now) {
        body.refuse("expires_at", "must not be in the past");
    }
    body.checked()?;
    Ok(edits)
}

fn cycle(limit: &mut Fields<'_>) -> Option<Cycle> {
    let cycle = limit.choice("cycle", CYCLES);
    limit.required("cycle", cycle)
}

fn spend_limit(limit: &mut Fields<'_>) -> Option<SpendLimit> {
    let amount = limit.amount("amount");
    let amount = limit.required("amount", amount);
    if amount.is_some_and(|amount| !amount.is_positive()) {
        limit.refuse("amount", "must be above zero");
    }
    let cycle = cycle(limit);
    Some(SpendLimit { amount: amount?, cycle: cycle? })
}

fn request_limit(limit: &mut Fields<'_>) -> Option<RequestLimit> {
    let count = limit.count("count");
    let count = limit.required("count", count);
    let cycle = cycle(limit);
    Some(RequestLimit { count: count?, cycle: cycle? })
}

fn rate_limit(limit: &mut Fields<'_>) -> Option<RateLimit> {
    let rpm = limit.count("rpm");
    let rpm = limit.required("rpm", rpm);
    let burst = limit.count("burst").or(rpm);
    Some(RateLimit { rpm: rpm?, burst: burst? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn now() -> DateTime<Utc> {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn refused(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = Wanted::read(json, now()) else {
            panic!("{json} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn every_limit_may_be_null_or_absent() {
        let absent = Wanted::read(r#"{"name":"k"}"#, now()).unwrap();
        let null = r#"{"name":"k","spend_limit":null,"request_limit":null,"rate_limit":null,"expires_at":null,
            "allowed_models":null,"allowed_providers":null,"request_shape":null,"customer_id":null}"#;
        assert_eq!(Wanted::read(null, now()).unwrap(), absent);
    }

    #[test]
    fn all_settings_are_read() {
        let json = r#"{"name":"k","allowed_models":["m"],"allowed_providers":[],"spend_limit":{"amount":"1.5",
            "cycle":"daily"},"request_limit":{"count":3,"cycle":"total"},"rate_limit":{"rpm":60},
            "expires_at":"2026-01-01T01:00:00.1234+00:30","request_shape":"anthropic","connection_id":"user-1"}"#;
        let Wanted { settings, customer } = Wanted::read(json, now()).unwrap();
        assert_eq!(customer.as_deref(), Some("user-1"));
        assert_eq!(settings.rate_limit, Some(RateLimit { rpm: 60, burst: 60 }));
        assert_eq!(settings.request_limit, Some(RequestLimit { count: 3, cycle: Cycle::Total }));
        assert_eq!(settings.spend_limit.unwrap().amount.to_string(), "1.5000000000");
        assert_eq!(settings.expires_at.unwrap().to_rfc3339(), "2026-01-01T00:30:00.123+00:00");
        assert_eq!(settings.allowed_providers, Some(Vec::new()));
    }

    #[test]
    fn limits_are_above_zero_and_cycles_are_known() {
        assert_eq!(refused("{}"), ["name"]);
        for (json, path) in [
            (r#"{"name":"k","spend_limit":{"amount":"0","cycle":"daily"}}"#, "spend_limit.amount"),
            (r#"{"name":"k","spend_limit":{"amount":"-1","cycle":"daily"}}"#, "spend_limit.amount"),
            (r#"{"name":"k","spend_limit":{"amount":0.5,"cycle":"daily"}}"#, "spend_limit.amount"),
            (r#"{"name":"k","spend_limit":{"amount":"1"}}"#, "spend_limit.cycle"),
            (r#"{"name":"k","spend_limit":5}"#, "spend_limit"),
            (r#"{"name":"k","request_limit":{"count":0,"cycle":"daily"}}"#, "request_limit.count"),
            (r#"{"name":"k","request_limit":{"count":1.5,"cycle":"daily"}}"#, "request_limit.count"),
            (r#"{"name":"k","request_limit":{"count":1,"cycle":"hourly"}}"#, "request_limit.cycle"),
            (r#"{"name":"k","rate_limit":{"rpm":-1}}"#, "rate_limit.rpm"),
            (r#"{"name":"k","rate_limit":{"rpm":1,"burst":0}}"#, "rate_limit.burst"),
            (r#"{"name":"k","expires_at":"2025-12-31T23:59:59Z"}"#, "expires_at"),
            (r#"{"name":"k","expires_at":"tomorrow"}"#, "expires_at"),
            (r#"{"name":"k","request_shape":"other"}"#, "request_shape"),
            (r#"{"name":"k","connection_id":"a","customer_id":"b"}"#, "customer_id"),
        ] {
            assert_eq!(refused(json), [path], "{json}");
        }
    }
}
