//! The members of an answer that metering needs, as they are found in it.

use chrono::{DateTime, Datelike as _, Utc};
use http::HeaderMap;

use super::document::Member;
use super::framing::Framing;
use super::provider_text::{answered_string, clean_answer};
use super::shape::{ReportedUsage, Shape, TokenCounts};

/// The facts that a provider's answer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsageReport {
    pub(crate) reported: ReportedUsage,
    /// Whether the stream has so far reported only the usage of its input: Anthropic's begin with it.
    pub(crate) is_preliminary: bool,
    /// The text of the last `usage`.
    pub(crate) raw_usage: Option<String>,
    pub(crate) response_id: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) timestamp: Option<DateTime<Utc>>,
}

/// The longest raw usage that is stored, in characters.
const MAX_RAW: usize = 4096;

/// How far an answer was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// To the end of what came.
    Whole,
    /// The rest could not be read.
    Partial,
}

/// What was found in an answer.
#[derive(Debug)]
pub(super) struct Findings {
    shape: Shape,
    framing: Framing,
    counts: TokenCounts,
    /// The usages reported so far.
    reports: u32,
    raw_usage: Option<String>,
    response_id: Option<String>,
    model: Option<String>,
    timestamp: Option<DateTime<Utc>>,
    /// The number of members found.
    members: u64,
    /// Whether there were more members than were to be read.
    has_too_many: bool,
}

impl Findings {
    pub(super) fn new(shape: Shape, content_type: &str) -> Self {
        Self {
            shape,
            framing: Framing::of(content_type, shape.selection()),
            counts: TokenCounts::default(),
            reports: 0,
            raw_usage: None,
            response_id: None,
            model: None,
            timestamp: None,
            members: 0,
            has_too_many: false,
        }
    }

    /// Reads the counts in the headers of an answer, where its provider gives them. What the body reports replaces them.
    pub(super) fn read_headers(&mut self, headers: &HeaderMap) {
        for (name, count) in self.shape.header_counts() {
            let number = headers.get(*name).and_then(|value| value.to_str().ok());
            if let Some(number) = number {
                self.counts.report(self.shape, Member::Usage, &format!("{{\"{count}\":{number}}}"));
            }
        }
    }

    /// Reads the next bytes of the answer, and at most `max_members` members of all of it.
    pub(super) fn feed(&mut self, bytes: &[u8], max_members: u64) {
        let Self {
            shape,
            framing,
            counts,
            reports,
            raw_usage,
            response_id,
            model,
            timestamp,
            members,
            has_too_many,
        } = self;
        framing.feed(bytes, |member, text| {
            *members += 1;
            if *members > max_members {
                *has_too_many = true;
                return;
            }
            match member {
                // The first invalid one decides: whoever repeats it a million times causes no further work.
                Member::Usage | Member::UsageMetadata | Member::ItemUsage | Member::Duration
                    if counts.is_invalid() => {}
                Member::Usage | Member::UsageMetadata | Member::ItemUsage => {
                    if counts.report(*shape, member, text) {
                        *reports = reports.saturating_add(1);
                        *raw_usage = Some(clean_answer(text, MAX_RAW));
                    }
                }
                Member::Duration => counts.report_duration(text),
                Member::Id => replace(response_id, answered_string(text)),
                Member::Model => replace(model, answered_string(text)),
                Member::Created => replace(timestamp, instant(text)),
                // Read where it was found.
                Member::Bytes => {}
            }
        });
    }

    /// Whether nothing more is to be read: a usage was invalid, or there were too many members.
    pub(super) const fn are_final(&self) -> bool {
        self.counts.is_invalid() || self.has_too_many
    }

    /// Whether the answer so far ends within a document.
    pub(super) fn is_within_document(&self) -> bool {
        self.framing.is_within_document()
    }

    /// The facts of an answer that was read so far.
    pub(super) fn report(self, extent: Extent) -> UsageReport {
        let is_stream = matches!(self.framing, Framing::Events(_));
        let is_preliminary = self.shape == Shape::Anthropic && is_stream && self.reports < 2;
        let reported = match (self.counts.reported(self.shape), extent) {
            (ReportedUsage::Nothing, Extent::Partial) => ReportedUsage::Unread,
            (ReportedUsage::Usage(_), Extent::Partial) if is_preliminary => ReportedUsage::Unread,
            (reported, Extent::Whole | Extent::Partial) => reported,
        };
        UsageReport {
            reported,
            is_preliminary,
            raw_usage: self.raw_usage,
            response_id: self.response_id,
            model: self.model,
            timestamp: self.timestamp,
        }
    }
}

fn replace<T>(known: &mut Option<T>, found: Option<T>) {
    if found.is_some() {
        *known = found;
    }
}

/// Seconds since 1970, or an ISO 8601 text.
fn instant(json: &str) -> Option<DateTime<Utc>> {
    let at = if let Ok(seconds) = json.parse::<i64>() {
        DateTime::from_timestamp(seconds, 0)?
    } else {
        let text: String = serde_json::from_str(json).ok()?;
        DateTime::parse_from_rfc3339(&text).ok()?.with_timezone(&Utc)
    };
    (1970..=9999).contains(&at.year()).then(|| farthing_core::command::to_millisecond(at))
}
