//! What a body says of a webhook: where it is, and what it is told of.

use farthing_core::command::Edit;
use farthing_core::event::{Topic, WebhookSettings};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::rest::fields::Fields;
use crate::rules;

/// Names of a list of events, at most.
const MAX_EVENTS: usize = 100;

/// The body that makes a webhook, as the document describes it; [`read`] reads it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read by hand")]
pub(super) struct NewWebhook {
    /// `http` or `https`, without user information and fragment.
    #[schema(max_length = 2048, pattern = r"^https?://[A-Za-z0-9][!-\x22$-\[\]-~]*$")]
    url: String,
    /// What it is told of; everything when absent or null, what is yet to come included.
    #[schema(min_items = 1, max_items = 100)]
    events: Option<Vec<Topic>>,
    /// Is it told at all? True when absent.
    enabled: Option<bool>,
}

/// What may change of a webhook, as the document describes it; [`Changes::read`] reads it. What is absent stays.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read by hand")]
pub(super) struct WebhookChanges {
    /// As for a new one; null counts as absent.
    #[schema(max_length = 2048, pattern = r"^https?://[A-Za-z0-9][!-\x22$-\[\]-~]*$")]
    url: Option<String>,
    /// Null has it told of everything.
    #[schema(min_items = 1, max_items = 100)]
    events: Option<Vec<Topic>>,
    /// One that is not enabled is told of nothing that happens meanwhile, and what is pending fails.
    enabled: Option<bool>,
}

/// Reads the body of a new webhook.
pub(super) fn read(json: &str) -> Result<WebhookSettings, ApiError> {
    let mut body = Fields::of(json)?;
    let url = body.ruled("url", rules::webhook_url);
    let url = body.required("url", url);
    let topics = topics(&mut body, "events");
    let enabled = body.flag("enabled").unwrap_or(true);
    body.checked()?;
    Ok(WebhookSettings { url: url.unwrap_or_default(), topics, enabled })
}

/// The changes of a webhook; what is none stays.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) url: Option<String>,
    pub(super) topics: Edit<Vec<Topic>>,
    pub(super) enabled: Option<bool>,
}

impl Changes {
    /// Reads the body of a change.
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let url = body.ruled("url", rules::webhook_url);
        let topics = body.edit("events", topics);
        let enabled = body.flag("enabled");
        body.checked()?;
        Ok(Self { url, topics, enabled })
    }
}

/// A list of topics: at least one, each once.
fn topics(body: &mut Fields<'_>, name: &str) -> Option<Vec<Topic>> {
    let names = body.texts(name, MAX_EVENTS)?;
    if names.is_empty() {
        body.refuse(name, "must name at least one event");
        return None;
    }
    let mut topics = Vec::with_capacity(names.len());
    for (index, text) in names.iter().enumerate() {
        if let Some(topic) = Topic::named(text) {
            topics.push(topic);
        } else {
            let words = Topic::ALL.map(Topic::name).join(", ");
            body.refuse_at([name, &index.to_string()], format!("must be one of: {words}"));
        }
    }
    topics.sort_unstable();
    topics.dedup();
    Some(topics)
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
    fn a_webhook_has_a_url_and_is_told_of_everything_unless_it_says_otherwise() {
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
    fn what_is_wrong_is_told_with_its_place() {
        assert_eq!(issues("{}"), ["url"]);
        for url in
            ["", "ftp://a", "a", "http://u@a/", "http://127.1/", "http://a/#x", "http://a b/", "http://"]
        {
            assert_eq!(issues(&format!(r#"{{"url": "{url}"}}"#)), ["url"], "{url:?}");
        }
        let events = |events: &str| issues(&format!(r#"{{"url": "http://a", "events": {events}}}"#));
        assert_eq!(events("[]"), ["events"]);
        assert_eq!(events(r#"["customer.created", "nothing"]"#), ["events.1"]);
        assert_eq!(events(r#""customer.created""#), ["events"]);
    }

    #[test]
    fn a_change_tells_null_from_absence() {
        let changes = Changes::read(r#"{"url": null, "enabled": null}"#).unwrap();
        assert_eq!(changes, Changes { url: None, topics: Edit::Keep, enabled: None });
        assert_eq!(Changes::read(r#"{"events": null}"#).unwrap().topics, Edit::Clear);
    }
}
