//! The mock's own record of the calls it served: one line when a call arrives, one when its response ends. A line is
//! one write to a file opened for appending, so lines never mix and a killed process loses no written line.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;

use crate::private_file;

/// Writes the lines and numbers the calls.
pub(super) struct Journal {
    file: Option<Mutex<File>>,
    started_ms: i64,
    calls: AtomicU64,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Arrived {
        id: &'a str,
        at: String,
        listener: &'a str,
        method: &'a str,
        target: &'a str,
        marker: Option<&'a str>,
    },
    Ended {
        id: &'a str,
        at: String,
        marker: Option<&'a str>,
        status: u16,
        usage: Option<Value>,
        reported: Option<Value>,
        finished: bool,
    },
}

/// A call that has arrived.
pub(super) struct Arrival<'a> {
    /// The provider that the address stands for.
    pub(super) listener: &'a str,
    /// The method.
    pub(super) method: &'a str,
    /// Path and query.
    pub(super) target: &'a str,
    /// The caller's marker, to find the call in the journal.
    pub(super) marker: Option<String>,
}

/// An open call. Dropping it writes the line for its end.
pub(super) struct Entry {
    journal: Arc<Journal>,
    marker: Option<String>,
    /// The call's id, unique in the file.
    pub(super) id: String,
    /// The status of the response; 0 before there is one.
    pub(super) status: u16,
    /// The usage reported in the whole response.
    pub(super) usage: Option<String>,
    /// The last usage that was handed over.
    pub(super) reported: Option<String>,
    /// True once the whole response was handed over. If false at the end, it was broken off.
    pub(super) finished: bool,
}

impl Journal {
    /// A journal that appends to this file.
    pub(super) fn append_to(path: &Path) -> io::Result<Self> {
        let file = private_file::append(path)?;
        Ok(Self { file: Some(Mutex::new(file)), ..Self::off() })
    }

    /// A journal that writes nothing. Calls still get ids.
    pub(super) fn off() -> Self {
        Self { file: None, started_ms: Utc::now().timestamp_millis(), calls: AtomicU64::new(0) }
    }

    /// Records the arrival of a call.
    pub(super) fn arrived(self: &Arc<Self>, arrival: Arrival<'_>) -> Entry {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:x}-{number}", self.started_ms);
        self.write(|at| Line::Arrived {
            id: &id,
            at,
            listener: arrival.listener,
            method: arrival.method,
            target: arrival.target,
            marker: arrival.marker.as_deref(),
        });
        let journal = Arc::clone(self);
        Entry { journal, marker: arrival.marker, id, status: 0, usage: None, reported: None, finished: false }
    }

    fn write<'a>(&self, line: impl FnOnce(String) -> Line<'a>) {
        let Some(file) = &self.file else { return };
        let at: DateTime<Utc> = Utc::now();
        let line = line(at.to_rfc3339_opts(SecondsFormat::Micros, true));
        let mut text = serde_json::to_string(&line).expect("a line has only string keys");
        text.push('\n');
        let written = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes());
        if let Err(error) = written {
            tracing::error!(event = "mock_provider.journal_write_failed", %error, "cannot write to the journal");
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (usage, reported) = (self.usage.take(), self.reported.take());
        let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        self.journal.write(|at| Line::Ended {
            id: &self.id,
            at,
            marker: self.marker.as_deref(),
            status: self.status,
            usage: usage.map(value),
            reported: reported.map(value),
            finished: self.finished,
        });
    }
}
