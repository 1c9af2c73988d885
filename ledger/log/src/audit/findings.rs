//! What an audit finds wrong.

use std::fmt;

use farthing_core::partition::Partition;
use serde::Serialize;

/// The number of findings whose text is kept. Further findings are only counted.
const MAX_FINDINGS: usize = 100;

/// The findings of an audit.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// The text of each finding, at most 100.
    pub findings: Vec<String>,
    /// The number of findings.
    pub findings_count: usize,
}

impl Findings {
    /// Whether nothing was found.
    pub const fn is_empty(&self) -> bool {
        self.findings_count == 0
    }

    /// What is said on figures from a log with findings, so that nobody takes them for proven; `None` without findings.
    pub fn warning(&self) -> Option<String> {
        match self.findings_count {
            0 => None,
            1 => Some("the log has errors: 1 finding; these figures are not proven".to_owned()),
            count => Some(format!("the log has errors: {count} findings; these figures are not proven")),
        }
    }

    /// The text of the first finding; empty without one.
    pub(super) fn first(&self) -> &str {
        self.findings.first().map_or("", String::as_str)
    }

    pub(super) fn find(&mut self, finding: impl FnOnce() -> String) {
        self.findings_count += 1;
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding());
        }
    }
}

/// The place of an event, as findings name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The partition.
    pub partition: Partition,
    /// The position in the partition.
    pub position: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}, position {}", self.partition, self.position)
    }
}
