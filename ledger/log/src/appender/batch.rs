//! A batch: the facts that its commands decided, in columns as the append statement needs them.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::chain::{self, Hash, Link};
use crate::claims::Changes;
use farthing_core::command::PersonalChange;
use farthing_core::event::{Fact, codec};
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

/// The facts of a batch, column by column, and the changes to tables beside the log.
#[derive(Debug)]
pub(super) struct AppendBatch {
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) metadata: String,
    pub(super) last_position: i64,
    pub(super) last_hash: Hash,
    pub(super) kinds: Vec<&'static str>,
    pub(super) schema_versions: Vec<i32>,
    pub(super) keys: Vec<String>,
    pub(super) merchants: Vec<String>,
    pub(super) occurred: Vec<DateTime<Utc>>,
    pub(super) bodies: Vec<String>,
    pub(super) hashes: Vec<Vec<u8>>,
    pub(super) personal: Vec<(CustomerId, PersonalChange)>,
    pub(super) claims: Claims,
}

impl AppendBatch {
    /// An empty batch after the event at `position` with `hash`.
    pub(super) fn after(position: i64, hash: Hash, metadata: String) -> Self {
        let now = Utc::now();
        Self {
            // Postgres keeps microseconds, and the hash must cover the stored value.
            recorded_at: DateTime::from_timestamp_micros(now.timestamp_micros()).unwrap_or(now),
            metadata,
            last_position: position,
            last_hash: hash,
            kinds: Vec::new(),
            schema_versions: Vec::new(),
            keys: Vec::new(),
            merchants: Vec::new(),
            occurred: Vec::new(),
            bodies: Vec::new(),
            hashes: Vec::new(),
            personal: Vec::new(),
            claims: Claims::default(),
        }
    }

    /// Encodes `fact` and links it to the hash chain.
    pub(super) fn push(&mut self, fact: &Fact) {
        let encoded = codec::encode(&fact.event);
        let key = fact.event.key();
        let merchant_id = fact.merchant_id.to_string();
        self.last_position += 1;
        self.last_hash = chain::hash(
            &self.last_hash,
            &Link {
                position: self.last_position,
                kind: encoded.kind,
                schema_version: encoded.schema_version,
                key: &key,
                merchant_id: &merchant_id,
                occurred_at: fact.occurred_at,
                recorded_at: self.recorded_at,
                body: &encoded.body,
                metadata: &self.metadata,
            },
        );
        self.kinds.push(encoded.kind);
        self.schema_versions.push(encoded.schema_version);
        self.keys.push(key);
        self.merchants.push(merchant_id);
        self.occurred.push(fact.occurred_at);
        self.bodies.push(encoded.body);
        self.hashes.push(self.last_hash.to_vec());
    }

    /// The first event of the batch, once it is appended; `None` if the batch has no facts.
    pub(super) fn first_event(&self) -> Option<EventId> {
        let count = i64::try_from(self.hashes.len()).ok()?;
        let hash = self.hashes.first()?.clone();
        Some(EventId { position: self.last_position - count + 1, hash })
    }

    /// Whether the batch has no facts.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
