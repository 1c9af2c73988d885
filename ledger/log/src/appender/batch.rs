//! A batch: the facts that its commands decided, as one record batch of the log.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::chain::{self, HASH_BYTES, Hash, Link};
use crate::claims::Changes;
use crate::{directory, record};
use farthing_core::command::PersonalChange;
use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::ids::CustomerId;

/// The idempotency claims of a batch: the records found before it, and the changes that it makes.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) recorded: HashMap<ClaimId, StoredClaim>,
    pub(super) changes: Changes,
}

/// One event, and no other that could be at its position: the hash covers its content, its writer, its time and every
/// event before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) position: i64,
    pub(super) hash: Vec<u8>,
}

/// The facts of a batch, a line each, and the changes to tables beside the log.
#[derive(Debug)]
pub(super) struct AppendBatch {
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) writer: String,
    pub(super) last_position: i64,
    pub(super) last_hash: Hash,
    pub(super) count: i32,
    /// The lines of the events, separated by line feeds.
    pub(super) events: String,
    /// The hashes of the events, one after the other.
    pub(super) hashes: Vec<u8>,
    /// The keys and positions of the facts that `ledger.facts` indexes.
    pub(super) indexed: (Vec<String>, Vec<i64>),
    /// The kinds and ids of what `ledger.directory` finds by them.
    pub(super) directory: (Vec<&'static str>, Vec<String>),
    pub(super) personal: Vec<(CustomerId, PersonalChange)>,
    pub(super) claims: Claims,
}

impl AppendBatch {
    /// An empty batch of `writer` after the event at `position` with `hash`.
    pub(super) fn after(position: i64, hash: Hash, writer: String) -> Self {
        let now = Utc::now();
        Self {
            // Postgres keeps microseconds, and the hash must cover the stored value.
            recorded_at: DateTime::from_timestamp_micros(now.timestamp_micros()).unwrap_or(now),
            writer,
            last_position: position,
            last_hash: hash,
            count: 0,
            events: String::new(),
            hashes: Vec::new(),
            indexed: (Vec::new(), Vec::new()),
            directory: (Vec::new(), Vec::new()),
            personal: Vec::new(),
            claims: Claims::default(),
        }
    }

    /// Writes `fact` and links it to the hash chain.
    pub(super) fn push(&mut self, fact: &Fact) {
        if self.count > 0 {
            self.events.push('\n');
        }
        let start = self.events.len();
        let key = record::write(fact, &mut self.events);
        self.count += 1;
        self.last_position += 1;
        let link = Link {
            position: self.last_position,
            recorded_at: self.recorded_at,
            writer: &self.writer,
            record: &self.events[start..],
        };
        self.last_hash = chain::hash(&self.last_hash, &link);
        self.hashes.extend_from_slice(&self.last_hash);
        if record::is_indexed(&fact.event) {
            self.indexed.0.push(key);
            self.indexed.1.push(self.last_position);
            for (kind, id) in directory::entries(fact) {
                self.directory.0.push(kind);
                self.directory.1.push(id);
            }
        }
    }

    /// The first event of the batch, once it is appended; `None` if the batch has no facts.
    pub(super) fn first_event(&self) -> Option<EventId> {
        let hash = self.hashes.get(..HASH_BYTES)?.to_vec();
        Some(EventId { position: self.last_position - i64::from(self.count) + 1, hash })
    }

    /// Whether the batch has no facts.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}
