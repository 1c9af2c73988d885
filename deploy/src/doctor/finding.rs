//! What a check has found: its verdict, the facts behind it and what to do.

use serde::Serialize;

/// How a check ended, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// All is well.
    Ok,
    /// Not checked, for the reason that was found.
    Skipped,
    /// It works, and something should be changed.
    Warning,
    /// It does not work, or loses data.
    Failed,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The name of the check. It never changes.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    /// What was found; of a skipped check, the reason.
    pub(super) found: String,
    /// What to do, if there is something to do.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    pub(super) fn skipped(check: &'static str, reason: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Skipped, found: reason.into(), advice: None }
    }

    pub(super) fn warning(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    pub(super) fn failed(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failed, found: found.into(), advice: Some(advice.into()) }
    }
}
