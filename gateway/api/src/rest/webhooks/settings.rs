//! The bodies of webhooks.

use farthing_core::command::Edit;
use farthing_core::event::{Topic, WebhookSettings};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::input::{self, Given, Patch};
use crate::values;

/// The most events that one body lists.
const MAX_EVENTS: usize = 100;

/// A webhook to create.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewWebhook)]
pub(super) struct NewWebhookBody {
    /// A display name.
    name: Option<values::Text>,
    /// `http` or `https`, without user information and fragment.
    url: values::WebhookUrl,
    /// The events to deliver. Absent or null: all events, future kinds included.
    #[schema(value_type = Option<Vec<Topic>>, min_items = 1, max_items = 100)]
    events: Option<values::List<Topic, MAX_EVENTS>>,
    /// Whether events are delivered; true by default.
    #[serde(default)]
    #[schema(value_type = bool)]
    enabled: Given<bool>,
}

/// What to change of a webhook. An absent field stays.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = WebhookChanges)]
pub(super) struct WebhookChangesBody {
    /// Null removes the name.
    #[serde(default)]
    #[schema(value_type = Option<values::Text>)]
    name: Patch<values::Text>,
    /// As for a new webhook.
    #[serde(default)]
    #[schema(value_type = values::WebhookUrl)]
    url: Given<values::WebhookUrl>,
    /// Null: all events.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Topic>>, min_items = 1, max_items = 100)]
    events: Patch<values::List<Topic, MAX_EVENTS>>,
    /// A disabled webhook receives no events, and its pending deliveries fail when they are next due. If it is enabled
    /// before, they go on.
    #[serde(default)]
    #[schema(value_type = bool)]
    enabled: Given<bool>,
}

/// Reads the body of a new webhook.
pub(super) fn read(json: &str) -> Result<WebhookSettings, ApiError> {
    let body: NewWebhookBody = input::body(json)?;
    let topics = body.events.map(topics).transpose()?;
    Ok(WebhookSettings {
        name: body.name.map(|name| name.0),
        url: body.url.0,
        topics,
        enabled: body.enabled.0.unwrap_or(true),
    })
}

/// The changes of a webhook as the command takes them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WebhookEdits {
    pub(super) name: Edit<String>,
    pub(super) url: Option<String>,
    pub(super) topics: Edit<Vec<Topic>>,
    pub(super) enabled: Option<bool>,
}

impl WebhookEdits {
    /// Reads the body of a change.
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        let body: WebhookChangesBody = input::body(json)?;
        let topics = match body.events {
            Patch::Absent => Edit::Keep,
            Patch::Null => Edit::Clear,
            Patch::Value(events) => Edit::Set(topics(events)?),
        };
        Ok(Self {
            name: body.name.edit(|name| name.0),
            url: body.url.0.map(|url| url.0),
            topics,
            enabled: body.enabled.0,
        })
    }
}

/// Checks that there are events and drops repeated ones.
fn topics(values::List(mut events): values::List<Topic, MAX_EVENTS>) -> Result<Vec<Topic>, ApiError> {
    if events.is_empty() {
        return Err(ApiError::issue(["events"], format!("must have between 1 and {MAX_EVENTS} items")));
    }
    events.sort_unstable();
    events.dedup();
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn issues(json: &str) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = read(json) else { return Vec::new() };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn a_webhook_receives_all_events_by_default() {
        let made = read(r#"{"url": "https://a.example/x?y=1"}"#).unwrap();
        assert_eq!((made.topics, made.enabled), (None, true));
        let made = read(
            r#"{"url": "http://a.example", "events": ["request.completed", "customer.created", "request.completed"], "enabled": false}"#,
        );
        let made = made.unwrap();
        assert_eq!(made.topics, Some(vec![Topic::CustomerCreated, Topic::RequestCompleted]));
        assert!(!made.enabled);
    }

    #[test]
    fn issues_name_their_path() {
        assert_eq!(issues("{}"), ["url"]);
        for url in
            ["", "ftp://a", "a", "http://u@a/", "http://127.1/", "http://a/#x", "http://a b/", "http://"]
        {
            assert_eq!(issues(&format!(r#"{{"url": "{url}"}}"#)), ["url"], "{url:?}");
        }
        let events = |events: &str| issues(&format!(r#"{{"url": "http://a", "events": {events}}}"#));
        assert_eq!(events("[]"), ["events"]);
        assert_eq!(events(&format!("[{}7]", "7,".repeat(MAX_EVENTS))), ["events"], "too many are one issue");
        assert_eq!(events(r#"["customer.created", "nothing"]"#), ["events.1"]);
        assert_eq!(events(r#""customer.created""#), ["events"]);
    }

    #[test]
    fn a_change_distinguishes_null_from_absence() {
        let kept = WebhookEdits { name: Edit::Keep, url: None, topics: Edit::Keep, enabled: None };
        assert_eq!(WebhookEdits::read("{}").unwrap(), kept);
        let cleared = WebhookEdits::read(r#"{"events": null, "name": null}"#).unwrap();
        assert_eq!((cleared.topics, cleared.name), (Edit::Clear, Edit::Clear));
        let Err(ApiError::Input(InputError::Validation(issues))) =
            WebhookEdits::read(r#"{"url": null, "enabled": null, "name": "x"}"#)
        else {
            panic!("accepted")
        };
        let shown: Vec<_> =
            issues.iter().map(|issue| (issue.path.join("."), issue.message.as_str())).collect();
        assert_eq!(
            shown,
            [("url".to_owned(), "must not be null"), ("enabled".to_owned(), "must not be null")]
        );
    }
}
