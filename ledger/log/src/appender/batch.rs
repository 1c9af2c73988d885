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

/// The idempotency claims that a batch uses, as they are after the commands decided so far, and the changes that it
/// makes.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// `None` for a claim that is not on record.
    pub(super) known: HashMap<ClaimId, Option<StoredClaim>>,
    pub(super) changes: Changes,
}

/// The kinds and ids of the states that the directory finds.
pub(super) type Entries = (Vec<&'static str>, Vec<String>);

/// One event, and no other that could be at its position: the hash covers its content, its writer, its time and every
/// event before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) position: i64,
    pub(super) hash: Vec<u8>,
}

/// The time as Postgres keeps it: the hash must cover the stored value.
fn microseconds_of(time: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(time.timestamp_micros()).unwrap_or(time)
}

/// The facts of a batch, a line each, and the changes to tables beside the log.
#[derive(Debug)]
pub(super) struct AppendBatch {
    /// When it was sealed.
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) writer: String,
    pub(super) last_position: i64,
    /// The hash of the last event; before it is sealed, that of the event before the batch.
    pub(super) last_hash: Hash,
    pub(super) count: i32,
    /// The lines of the events, separated by line feeds.
    pub(super) events: String,
    /// The hashes of the events, one after the other.
    pub(super) hashes: Vec<u8>,
    /// The keys and positions of the facts that `ledger.facts` indexes.
    pub(super) indexed: (Vec<String>, Vec<i64>),
    pub(super) directory: Entries,
    pub(super) personal: Vec<(CustomerId, PersonalChange)>,
    pub(super) claims: Claims,
}

impl AppendBatch {
    /// An empty batch of `writer` after the event at `position` with `hash`.
    pub(super) fn after(position: i64, hash: Hash, writer: String) -> Self {
        Self {
            recorded_at: microseconds_of(Utc::now()),
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

    /// Writes `fact`.
    pub(super) fn push(&mut self, fact: &Fact) {
        if self.count > 0 {
            self.events.push('\n');
        }
        let key = record::write(fact, &mut self.events);
        self.count += 1;
        self.last_position += 1;
        if record::is_indexed(&fact.event) {
            self.indexed.0.push(key);
            self.indexed.1.push(self.last_position);
            for (kind, id) in directory::entries(fact) {
                self.directory.0.push(kind);
                self.directory.1.push(id);
            }
        }
    }

    /// Sets the time, which no fact of the batch is later than, and links the events to the hash chain. Nothing is written
    /// to it after that.
    pub(super) fn seal(&mut self) {
        self.recorded_at = microseconds_of(Utc::now());
        if self.count == 0 {
            return;
        }
        let first_position = self.last_position - i64::from(self.count) + 1;
        for (position, line) in (first_position..).zip(self.events.split('\n')) {
            let (recorded_at, writer) = (self.recorded_at, &self.writer);
            let link = Link { position, recorded_at, writer, record: line };
            self.last_hash = chain::hash(&self.last_hash, &link);
            self.hashes.extend_from_slice(&self.last_hash);
        }
    }

    /// The first event of the sealed batch; `None` if it has no facts.
    pub(super) fn first_event(&self) -> Option<EventId> {
        let hash = self.hashes.get(..HASH_BYTES)?.to_vec();
        Some(EventId { position: self.last_position - i64::from(self.count) + 1, hash })
    }

    /// Whether the batch changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.claims.changes.is_empty()
    }
}
