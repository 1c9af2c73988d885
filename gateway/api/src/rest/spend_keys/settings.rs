//! The bodies of spend keys.

use chrono::{DateTime, Utc};
use farthing_core::command::{Edit, SpendKeyEdits};
use farthing_core::event::{
    Cycle, RateLimit, RequestLimit, RequestShape, SpendKeySettings, SpendKeyStatus, SpendLimit,
};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::input::{Given, Issues, Patch};
use crate::values;

/// A spend key to create.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewSpendKey)]
pub(super) struct NewSpendKeyBody {
    name: values::Text,
    /// The customer whose wallet pays, by id or `reference_id`; by default the merchant's own wallet pays.
    connection_id: Option<values::Text>,
    /// The newer name of `connection_id`.
    customer_id: Option<values::Text>,
    allowed_models: Option<values::Names>,
    allowed_providers: Option<values::Names>,
    spend_limit: Option<SpendLimitBody>,
    request_limit: Option<RequestLimitBody>,
    rate_limit: Option<RateLimitBody>,
    /// Must be in the future.
    #[schema(value_type = Option<DateTime<Utc>>)]
    expires_at: Option<values::Instant>,
    /// Whether it is usable from the start; `active` by default.
    #[serde(default)]
    #[schema(value_type = SpendKeyStatus)]
    status: Given<SpendKeyStatus>,
    /// The API format that its owner uses; `openai` by default.
    #[serde(default)]
    #[schema(value_type = RequestShape)]
    request_shape: Given<RequestShape>,
}

/// What to change of a spend key. An absent field stays; `null` removes a limit.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SpendKeyChanges)]
pub(super) struct SpendKeyChangesBody {
    #[serde(default)]
    #[schema(value_type = values::Text)]
    name: Given<values::Text>,
    #[serde(default)]
    #[schema(value_type = SpendKeyStatus)]
    status: Given<SpendKeyStatus>,
    #[serde(default)]
    #[schema(value_type = Option<values::Names>)]
    allowed_models: Patch<values::Names>,
    #[serde(default)]
    #[schema(value_type = Option<values::Names>)]
    allowed_providers: Patch<values::Names>,
    #[serde(default)]
    #[schema(value_type = Option<SpendLimitBody>)]
    spend_limit: Patch<SpendLimitBody>,
    #[serde(default)]
    #[schema(value_type = Option<RequestLimitBody>)]
    request_limit: Patch<RequestLimitBody>,
    #[serde(default)]
    #[schema(value_type = Option<RateLimitBody>)]
    rate_limit: Patch<RateLimitBody>,
    /// Must be in the future.
    #[serde(default)]
    #[schema(value_type = Option<DateTime<Utc>>)]
    expires_at: Patch<values::Instant>,
    #[serde(default)]
    #[schema(value_type = RequestShape)]
    request_shape: Given<RequestShape>,
}

/// The most money that may be spent in a cycle.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SpendLimitForm)]
struct SpendLimitBody {
    amount: values::PositiveAmountInput,
    cycle: Cycle,
}

/// The most calls in a cycle.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = RequestLimitForm)]
struct RequestLimitBody {
    count: values::Count,
    cycle: Cycle,
}

/// A token bucket.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = RateLimitForm)]
struct RateLimitBody {
    /// Calls that are added per minute.
    rpm: values::Count,
    /// Capacity; by default `rpm`.
    burst: Option<values::Count>,
}

/// The checked body of a spend key to create.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CheckedSpendKey {
    pub(super) settings: SpendKeySettings,
    pub(super) status: SpendKeyStatus,
    /// The customer whose wallet pays, by id or reference id.
    pub(super) customer: Option<String>,
}

impl NewSpendKeyBody {
    /// The key as of the instant `now`.
    pub(super) fn checked(self, now: DateTime<Utc>) -> Result<CheckedSpendKey, ApiError> {
        let mut issues = Issues::default();
        let customer =
            issues.either(("connection_id", self.connection_id), ("customer_id", self.customer_id));
        check_expiry(&mut issues, self.expires_at.as_ref(), now);
        check_names(&mut issues, "allowed_models", self.allowed_models.as_ref());
        check_names(&mut issues, "allowed_providers", self.allowed_providers.as_ref());
        issues.checked()?;
        let settings = SpendKeySettings {
            name: self.name.0,
            allowed_models: self.allowed_models.map(values::Names::into_strings),
            allowed_providers: self.allowed_providers.map(values::Names::into_strings),
            spend_limit: self.spend_limit.map(SpendLimit::from),
            request_limit: self.request_limit.map(RequestLimit::from),
            rate_limit: self.rate_limit.map(RateLimit::from),
            expires_at: self.expires_at.map(|instant| instant.0),
            request_shape: Some(self.request_shape.0.unwrap_or(RequestShape::Openai)),
        };
        let status = self.status.0.unwrap_or_default();
        Ok(CheckedSpendKey { settings, status, customer: customer.map(|customer| customer.0) })
    }
}

impl SpendKeyChangesBody {
    /// The edits at the instant `now`.
    pub(super) fn checked(self, now: DateTime<Utc>) -> Result<SpendKeyEdits, ApiError> {
        let mut issues = Issues::default();
        if let Patch::Value(expires_at) = &self.expires_at {
            check_expiry(&mut issues, Some(expires_at), now);
        }
        for (name, names) in
            [("allowed_models", &self.allowed_models), ("allowed_providers", &self.allowed_providers)]
        {
            if let Patch::Value(names) = names {
                check_names(&mut issues, name, Some(names));
            }
        }
        issues.checked()?;
        Ok(SpendKeyEdits {
            name: self.name.0.map(|name| name.0),
            status: self.status.0,
            allowed_models: self.allowed_models.edit(values::Names::into_strings),
            allowed_providers: self.allowed_providers.edit(values::Names::into_strings),
            spend_limit: self.spend_limit.edit(SpendLimit::from),
            request_limit: self.request_limit.edit(RequestLimit::from),
            rate_limit: self.rate_limit.edit(RateLimit::from),
            expires_at: self.expires_at.edit(|instant| instant.0),
            request_shape: self.request_shape.0.map_or(Edit::Keep, Edit::Set),
        })
    }
}

fn check_expiry(issues: &mut Issues, expires_at: Option<&values::Instant>, now: DateTime<Utc>) {
    if expires_at.is_some_and(|expires_at| expires_at.0 <= now) {
        issues.refuse(["expires_at"], "must not be in the past");
    }
}

fn check_names(issues: &mut Issues, name: &'static str, names: Option<&values::Names>) {
    if names.is_some_and(|names| !names.fit_into_an_event()) {
        issues.refuse([name], "must have at most 100,000 bytes in all");
    }
}

impl From<SpendLimitBody> for SpendLimit {
    fn from(limit: SpendLimitBody) -> Self {
        Self { amount: limit.amount.0, cycle: limit.cycle }
    }
}

impl From<RequestLimitBody> for RequestLimit {
    fn from(limit: RequestLimitBody) -> Self {
        Self { count: limit.count.0, cycle: limit.cycle }
    }
}

impl From<RateLimitBody> for RateLimit {
    fn from(limit: RateLimitBody) -> Self {
        let rpm = limit.rpm.0;
        Self { rpm, burst: limit.burst.map_or(rpm, |burst| burst.0) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::InputError;
    use crate::input;

    fn now() -> DateTime<Utc> {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn read(json: &str) -> Result<CheckedSpendKey, ApiError> {
        input::body::<NewSpendKeyBody>(json)?.checked(now())
    }

    fn refused(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = read(json) else {
            panic!("{json} is accepted")
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn every_limit_may_be_null_or_absent() {
        let absent = read(r#"{"name":"k"}"#).unwrap();
        let null = r#"{"name":"k","spend_limit":null,"request_limit":null,"rate_limit":null,"expires_at":null,
            "allowed_models":null,"allowed_providers":null,"customer_id":null}"#;
        assert_eq!(read(null).unwrap(), absent);
        assert_eq!(absent.settings.request_shape, Some(RequestShape::Openai), "the default");
    }

    #[test]
    fn a_key_may_be_created_paused() {
        let status = |json: &str| read(json).unwrap().status;
        assert_eq!(status(r#"{"name":"k"}"#), SpendKeyStatus::Active, "the default");
        assert_eq!(status(r#"{"name":"k","status":"active"}"#), SpendKeyStatus::Active);
        assert_eq!(status(r#"{"name":"k","status":"paused"}"#), SpendKeyStatus::Paused);
        for status in ["\"bogus\"", "\"\"", "\"Paused\"", "null", "7", "true", "[]", "{}"] {
            assert_eq!(refused(&format!(r#"{{"name":"k","status":{status}}}"#)), ["status"], "{status}");
        }
    }

    #[test]
    fn a_change_takes_null_for_limits_alone() {
        let edits =
            |json: &str| input::body::<SpendKeyChangesBody>(json).and_then(|body| body.checked(now()));
        for name in ["name", "status", "request_shape"] {
            let Err(ApiError::Input(InputError::Validation(issues))) =
                edits(&json!({name: null}).to_string())
            else {
                panic!("{name} is accepted")
            };
            assert_eq!((issues[0].path.as_slice(), issues.len()), ([name.to_owned()].as_slice(), 1));
        }
        let Err(ApiError::Input(InputError::Validation(issues))) =
            edits(r#"{"name":null,"status":7,"spend_limit":null,"rate_limit":7}"#)
        else {
            panic!("accepted")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, ["name", "status", "rate_limit"]);
        assert_eq!(edits("{}").unwrap().request_shape, Edit::Keep);
        assert_eq!(edits(r#"{"spend_limit":null}"#).unwrap().spend_limit, Edit::Clear);
    }

    #[test]
    fn all_settings_are_read() {
        let json = r#"{"name":"k","allowed_models":["m"],"allowed_providers":[],"spend_limit":{"amount":"1.5",
            "cycle":"daily"},"request_limit":{"count":3,"cycle":"total"},"rate_limit":{"rpm":60},
            "expires_at":"2026-01-01T01:00:00.1234+00:30","request_shape":"anthropic","connection_id":"user-1"}"#;
        let CheckedSpendKey { settings, customer, .. } = read(json).unwrap();
        assert_eq!(customer.as_deref(), Some("user-1"));
        assert_eq!(settings.rate_limit, Some(RateLimit { rpm: 60, burst: 60 }));
        assert_eq!(settings.request_limit, Some(RequestLimit { count: 3, cycle: Cycle::Total }));
        assert_eq!(settings.spend_limit.unwrap().amount.to_string(), "1.5000000000");
        assert_eq!(settings.expires_at.unwrap().to_rfc3339(), "2026-01-01T00:30:00.123+00:00");
        assert_eq!(settings.allowed_providers, Some(Vec::new()));
    }

    #[test]
    fn lists_of_names_are_short_enough_for_an_event() {
        for list in ["allowed_models", "allowed_providers"] {
            let body = |names: usize| json!({"name": "k", list: vec!["é".repeat(50); names]}).to_string();
            assert!(read(&body(1_000)).is_ok());
            let too_long = json!({"name": "k", list: vec!["é".repeat(51); 1_000]}).to_string();
            assert_eq!(refused(&too_long), [list]);
            let edits = input::body::<SpendKeyChangesBody>(&too_long).unwrap().checked(now());
            assert!(edits.is_err(), "{list}");
        }
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
